#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include <jerboa/base/float16.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/pack.h"
#include "lower/axes.h"

namespace jerboa::cpu {
namespace {

// The kernel's body on finished tiles of the product.
class BodyEpilogue final : public MatmulEpilogue {
 public:
  BodyEpilogue(const TileMachine& machine, std::int64_t rows_of_product)
      : machine_(machine), rows_of_product_(rows_of_product) {}

  void bind(const std::vector<Memory>& memory, Workers& workers) {
    memory_ = &memory;
    workers_ = &workers;
  }

  void prepare(std::int64_t batch, std::int64_t row, std::int64_t rows, std::int64_t column,
               std::int64_t columns) override {
    machine_.prefetch({batch * rows_of_product_ + row, rows, column, columns, nullptr, 0}, *memory_);
  }

  void apply(std::int64_t batch, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
             const float* tile, std::int64_t tile_stride, int worker) override {
    const std::int64_t step = std::max<std::int64_t>(1, tile_elements / columns);
    for (std::int64_t at = 0; at < rows; at += step)
      machine_.execute({batch * rows_of_product_ + row + at, std::min(step, rows - at), column, columns,
                        tile + at * tile_stride, tile_stride},
                       *memory_, workers_->of(worker));
  }

 private:
  const TileMachine& machine_;
  std::int64_t rows_of_product_;
  const std::vector<Memory>* memory_ = nullptr;
  Workers* workers_ = nullptr;
};

// An operand's prologue on blocks of its elements.
class BodyPrologue final : public MatmulPrologue {
 public:
  BodyPrologue(const std::vector<Instruction>& body, const SymbolValues& symbols)
      : machine_(over_a_tile(body), symbols, {{0}, 1, false}), value_(static_cast<int>(body.size()) - 1) {}

  void bind(Workers& workers) { workers_ = &workers; }

  void apply(float* values, std::int64_t count, int worker) override {
    std::array<float, tile_elements + vector_padding> block;  // padded, because reads may pass its end
    for (std::int64_t at = 0; at < count; at += tile_elements) {
      const std::int64_t size = std::min(tile_elements, count - at);
      std::copy_n(values + at, size, block.begin());
      std::fill_n(block.begin() + size, vector_padding, 0.0F);
      const float* result = machine_.evaluate(value_, {0, 1, 0, size, block.data(), size}, {}, workers_->of(worker));
      std::copy_n(result, size, values + at);
    }
  }

 private:
  static KernelSpec over_a_tile(const std::vector<Instruction>& body) {
    KernelSpec kernel;
    kernel.domain = {Dim(tile_elements)};
    kernel.body = body;
    return kernel;
  }

  TileMachine machine_;
  int value_;
  Workers* workers_ = nullptr;
};

class MatmulKernel final : public Kernel {
 public:
  MatmulKernel(const KernelSpec& kernel, const SymbolValues& symbols)
      : machine_(kernel, symbols, {natural_order(kernel), 1, false}), operands_(kernel.operands) {
    const Sizes domain = jerboa::evaluate(kernel.domain, symbols);
    const std::size_t batch_axes = domain.size() - 2;
    matmul_.rows = domain[batch_axes];
    matmul_.columns = domain[batch_axes + 1];
    for (std::size_t i = 0; i < 2; ++i) {
      sizes_[i] = jerboa::evaluate(operands_[i].shape, symbols);
      offsets_[i] = operands_[i].offset.evaluate(symbols);
      for (const Dim& stride : operands_[i].strides) strides_[i].push_back(stride.evaluate(symbols));
      if (i == 1 && takes_weights()) continue;
      if (operands_[i].dtype != DType::f32) {
        packed_strides_[i] = strides_of(sizes_[i]);
      }
      if (!operands_[i].prologue.empty())
        prologues_[i] = std::make_unique<BodyPrologue>(operands_[i].prologue, symbols);
    }
    matmul_.a_prologue = prologues_[0].get();
    matmul_.b_prologue = prologues_[1].get();
    matmul_.inner = sizes_[0].back();
    const auto& a = strides(0);
    const auto& b = strides(1);
    matmul_.a_row = a[batch_axes];
    matmul_.a_inner = a[batch_axes + 1];
    matmul_.b_inner = b[batch_axes];
    matmul_.b_column = b[batch_axes + 1];
    merge_batch(domain);
    plain_ = kernel.stores.size() == 1 && kernel.body.size() == 1 && kernel.stores[0].dtype == DType::f32;
    if (plain_) {
      store_binding_ = kernel.stores[0].binding;
      // A separate result is row-major.
      matmul_.c_row = matmul_.columns;
      for (std::size_t i = 0; i < matmul_.a_offsets.size(); ++i)
        matmul_.c_offsets.push_back(static_cast<std::int64_t>(i) * matmul_.rows * matmul_.columns);
      store_offset_ = kernel.stores[0].map.offset.evaluate(symbols);
    } else {
      epilogue_ = std::make_unique<BodyEpilogue>(machine_, matmul_.rows);
      matmul_.epilogue = epilogue_.get();
    }
  }

  void run(const std::vector<Memory>& memory, Workers& workers) override {
    Matmul matmul = matmul_;
    matmul.a = operand(0, memory);
    if (takes_weights_) {
      weights_.values = memory[static_cast<std::size_t>(operands_[1].binding)].data;
      if (operands_.size() > 2) weights_.scales = memory[static_cast<std::size_t>(operands_[2].binding)].data;
      if (operands_.size() > 3) weights_.mins = memory[static_cast<std::size_t>(operands_[3].binding)].data;
      matmul.weights = &weights_;
      matmul.integer_products = workers.integer_products;
    } else {
      matmul.b = operand(1, memory);
    }
    if (plain_)
      matmul.c = reinterpret_cast<float*>(memory[static_cast<std::size_t>(store_binding_)].data) + store_offset_;
    else
      epilogue_->bind(memory, workers);
    for (const auto& prologue : prologues_)
      if (prologue) prologue->bind(workers);
    run_matmul(matmul, workers.pool);
  }

 private:
  static std::vector<int> natural_order(const KernelSpec& kernel) {
    std::vector<int> order(kernel.domain.size());
    std::iota(order.begin(), order.end(), 0);
    return order;
  }

  // Weights of 16 bits or fewer, [columns, inner] in memory, are expanded as they are read.
  bool takes_weights() {
    const auto& weight = operands_[1];
    const std::size_t rank = sizes_[1].size();
    const bool narrow = weight.dtype == DType::f16 || weight.dtype == DType::bf16;
    const bool only_cast =
        weight.prologue.empty() ||
        (weight.prologue.size() == 2 && weight.prologue[1].op == Op::cast && weight.prologue[1].dtype == DType::f32);
    bool single = true;
    for (std::size_t axis = 0; axis + 2 < rank; ++axis) single &= sizes_[1][axis] == 1 || strides_[1][axis] == 0;
    if (operands_.size() > 2) {
      takes_weights_ = true;
      weights_ = {weight.dtype, nullptr, nullptr, operands_[2].dtype, strides_[1][rank - 1]};
      return true;
    }
    takes_weights_ = narrow && only_cast && single && offsets_[1] == 0 && strides_[1][rank - 2] == 1;
    weights_ = {weight.dtype, nullptr, nullptr, DType::f16, strides_[1][rank - 1]};
    return takes_weights_;
  }

  const std::vector<std::int64_t>& strides(std::size_t i) const {
    return packed_strides_[i].empty() ? strides_[i] : packed_strides_[i];
  }

  // A batch of products with a common right-hand side is a single product with more rows.
  void merge_batch(const Sizes& domain) {
    const std::size_t batch_axes = domain.size() - 2;
    if (batch_axes == 0) return;
    const auto& a = strides(0);
    const auto& b = strides(1);
    const Sizes batch(domain.begin(), domain.end() - 2);
    const std::int64_t count = element_count(batch);
    // If each product has one row, the rows' stride is meaningless: use that of the products.
    if (matmul_.rows == 1)
      for (std::size_t axis = 0; axis < batch_axes; ++axis)
        if (batch[axis] > 1) matmul_.a_row = a[axis];
    if (detail::is_one_product<std::int64_t>(batch, a, b, matmul_.a_row, matmul_.rows)) {
      matmul_.rows *= count;
      return;
    }
    for (std::int64_t number = 0; number < count; ++number) {
      std::int64_t rest = number, a_offset = 0, b_offset = 0;
      for (std::size_t axis = batch_axes; axis-- > 0;) {
        const std::int64_t index = rest % domain[axis];
        rest /= domain[axis];
        a_offset += index * a[axis];
        b_offset += index * b[axis];
      }
      matmul_.a_offsets.push_back(a_offset);
      matmul_.b_offsets.push_back(b_offset);
    }
    if (count == 0) matmul_.rows = 0;
  }

  const float* operand(std::size_t i, const std::vector<Memory>& memory) {
    const std::byte* data = memory[static_cast<std::size_t>(operands_[i].binding)].data;
    if (operands_[i].dtype == DType::f32) return reinterpret_cast<const float*>(data) + offsets_[i];
    packed_[i].resize(static_cast<std::size_t>(element_count(sizes_[i])));
    pack_f32(data, operands_[i].dtype, offsets_[i], sizes_[i], strides_[i], packed_[i].data());
    return packed_[i].data();
  }

  TileMachine machine_;
  std::vector<TensorAccess> operands_;
  Sizes sizes_[2];
  std::vector<std::int64_t> strides_[2], packed_strides_[2];
  std::int64_t offsets_[2] = {0, 0};
  std::vector<float> packed_[2];
  Matmul matmul_;
  bool takes_weights_ = false;
  CompactWeights weights_;
  std::unique_ptr<BodyPrologue> prologues_[2];
  std::unique_ptr<BodyEpilogue> epilogue_;
  bool plain_ = false;
  int store_binding_ = 0;
  std::int64_t store_offset_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> prepare_matmul(const KernelSpec& kernel, const SymbolValues& symbols) {
  return std::make_unique<MatmulKernel>(kernel, symbols);
}

}  // namespace jerboa::cpu
