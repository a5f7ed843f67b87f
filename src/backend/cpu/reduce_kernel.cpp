#include <algorithm>
#include <cstring>
#include <numeric>

#include "backend/cpu/kernel.h"

// Reductions over axes that are not all trailing ones, or over all axes. The reduced elements are cut into chunks whose
// number depends on the sizes alone; each chunk gives a partial result, and those are put together in order.
namespace jerboa::cpu {
namespace {

constexpr std::int64_t max_chunks = 64;

std::int64_t pieces(std::int64_t total, std::int64_t size) { return (total + size - 1) / size; }

// The kept axes along the columns, the reduced ones along the rows: whole rows are added to each other.
class ColumnReduce final : public Kernel {
 public:
  ColumnReduce(const KernelSpec& kernel, const SymbolValues& symbols)
      : op_(kernel.reduction),
        value_(kernel.stores[0].value),
        neutral_(neutral_f32(op_, kernel.stores[0].dtype)),
        machine_(kernel, symbols, order(kernel)) {
    chunk_rows_ = std::max<std::int64_t>(16, pieces(machine_.rows(), max_chunks));
    chunks_ = pieces(machine_.rows(), chunk_rows_);
    block_ = std::min<std::int64_t>(machine_.columns(), tile_elements);
    blocks_ = block_ == 0 ? 0 : pieces(machine_.columns(), block_);
  }

  void run(const std::vector<Memory>& memory, Workers& workers) override {
    const std::int64_t padded = block_ + vector_padding;
    partials_.resize(static_cast<std::size_t>(std::max<std::int64_t>(chunks_, 1) * blocks_ * padded));
    const auto partial = [&](std::int64_t chunk, std::int64_t block) {
      return partials_.data() + (chunk * blocks_ + block) * padded;
    };
    if (chunks_ == 0) std::fill(partials_.begin(), partials_.end(), neutral_);
    workers.pool.run(chunks_ * blocks_, [&](std::int64_t number, int worker) {
      const std::int64_t chunk = number / blocks_, block = number % blocks_;
      add_up(chunk, block, partial(chunk, block), memory, workers.of(worker));
    });
    workers.pool.run(blocks_, [&](std::int64_t block, int) {
      const std::int64_t columns = std::min(block_, machine_.columns() - block * block_);
      for (std::int64_t chunk = 1; chunk < chunks_; ++chunk)
        accumulate_f32(op_, partial(0, block), partial(chunk, block), columns);
      machine_.store_columns(partial(0, block), block * block_, columns, memory);
    });
  }

 private:
  static TileMachine::Shape order(const KernelSpec& kernel) {
    const int rank = static_cast<int>(kernel.domain.size()), kept = rank - kernel.row_axes;
    TileMachine::Shape shape{{}, kept, false};
    for (int axis = kept; axis < rank; ++axis) shape.order.push_back(axis);
    for (int axis = 0; axis < kept; ++axis) shape.order.push_back(axis);
    return shape;
  }

  void add_up(std::int64_t chunk, std::int64_t block, float* total, const std::vector<Memory>& memory,
              TileMemory& scratch) {
    const std::int64_t columns = std::min(block_, machine_.columns() - block * block_);
    const std::int64_t end = std::min(machine_.rows(), (chunk + 1) * chunk_rows_);
    const std::int64_t step = std::max<std::int64_t>(1, tile_elements / columns);
    std::fill_n(total, columns + vector_padding, neutral_);
    for (std::int64_t row = chunk * chunk_rows_; row < end; row += step) {
      const std::int64_t rows = std::min(step, end - row);
      const float* values =
          machine_.evaluate(value_, {row, rows, block * block_, columns, nullptr, 0}, memory, scratch);
      for (std::int64_t r = 0; r < rows; ++r) accumulate_f32(op_, total, values + r * columns, columns);
    }
  }

  Op op_;
  int value_;
  float neutral_;
  TileMachine machine_;
  std::int64_t chunk_rows_ = 1, chunks_ = 0, block_ = 1, blocks_ = 0;
  std::vector<float> partials_;
};

// The reduced axes along the columns.
class RowReduce final : public Kernel {
 public:
  RowReduce(const KernelSpec& kernel, const SymbolValues& symbols)
      : kernel_(kernel), machine_(kernel, symbols, order(kernel)) {
    // Only sums and extremes of floats come in parts.
    const bool in_parts = is_float(kernel.body[static_cast<std::size_t>(kernel.stores[0].value)].dtype) &&
                          kernel.reduction != Op::argmax && kernel.reduction != Op::all_finite;
    piece_ = in_parts ? std::max(tile_elements * 4, pieces(machine_.columns(), max_chunks))
                      : std::max<std::int64_t>(machine_.columns(), 1);
    parts_ = std::max<std::int64_t>(1, pieces(machine_.columns(), piece_));
    // The reduction itself, as an instruction on the last value.
    Instruction reduce;
    reduce.kind = Instruction::Kind::reduce;
    reduce.op = kernel.reduction;
    reduce.dtype = kernel.stores[0].dtype;
    reduce.a = kernel.stores[0].value;
    kernel_.body.push_back(reduce);
    whole_ = std::make_unique<TileMachine>(kernel_, symbols, order(kernel_));
  }

  void run(const std::vector<Memory>& memory, Workers& workers) override {
    const std::int64_t rows = machine_.rows();
    const int value = static_cast<int>(kernel_.body.size()) - 1;
    std::vector<float> partial(static_cast<std::size_t>(rows * parts_) + vector_padding);
    workers.pool.run(rows * parts_, [&](std::int64_t number, int worker) {
      const std::int64_t row = number / parts_, column = number % parts_ * piece_;
      const TileMachine::Tile tile{row, 1, column, std::min(piece_, machine_.columns() - column), nullptr, 0};
      partial[static_cast<std::size_t>(number)] = *whole_->evaluate_row(value, tile, memory, workers.of(worker));
    });
    for (std::int64_t row = 0; row < rows; ++row) {
      float total = partial[static_cast<std::size_t>(row * parts_)];
      if (parts_ > 1) total = reduce_f32(kernel_.reduction, partial.data() + row * parts_, parts_);
      machine_.store_row(&total, row, memory);
    }
  }

 private:
  static TileMachine::Shape order(const KernelSpec& kernel) {
    TileMachine::Shape shape{std::vector<int>(kernel.domain.size()), kernel.row_axes, false};
    std::iota(shape.order.begin(), shape.order.end(), 0);
    return shape;
  }

  KernelSpec kernel_;
  TileMachine machine_;
  std::unique_ptr<TileMachine> whole_;
  std::int64_t piece_ = 1, parts_ = 1;
};

// Whether the kept axes are the ones that memory runs along.
bool runs_along_kept(const KernelSpec& kernel) {
  const std::size_t kept = kernel.domain.size() - static_cast<std::size_t>(kernel.row_axes);
  if (kept == 0) return false;
  for (const Load& load : kernel.loads)
    for (std::size_t axis = 0; axis < kept; ++axis)
      if (load.map.strides[axis] == Dim(1) && !(kernel.domain[axis] == Dim(1))) return true;
  return false;
}

}  // namespace

std::unique_ptr<Kernel> prepare_reduce(const KernelSpec& kernel, const SymbolValues& symbols) {
  const bool additive = kernel.reduction == Op::sum || kernel.reduction == Op::max || kernel.reduction == Op::min;
  const bool floats = is_float(kernel.body[static_cast<std::size_t>(kernel.stores[0].value)].dtype);
  if (additive && floats && runs_along_kept(kernel)) return std::make_unique<ColumnReduce>(kernel, symbols);
  return std::make_unique<RowReduce>(kernel, symbols);
}

}  // namespace jerboa::cpu
