#include <algorithm>
#include <numeric>

#include "backend/cpu/kernel.h"
#include "base/integers.h"
#include "lower/reduce_parts.h"

// Reductions over axes that are not all trailing ones, or over all axes. The reduced elements are split into chunks
// whose number depends on the sizes alone; each chunk produces a partial result, and those are combined in order.
namespace jerboa::cpu {
namespace {

using detail::ReduceParts;

constexpr std::int64_t max_chunks = 64;

std::vector<int> axes(int from, int to) {
  std::vector<int> numbers(static_cast<std::size_t>(to - from));
  std::iota(numbers.begin(), numbers.end(), from);
  return numbers;
}

// The kernel's computation and stores for each result, with the results along the columns.
class Finish {
 public:
  Finish(const KernelSpec& results, const SymbolValues& symbols)
      : machine_(results, symbols, {axes(0, rank(results)), rank(results), false}) {}

  void run(const float* totals, std::int64_t first, std::int64_t count, const std::vector<Memory>& memory,
           TileMemory& scratch) const {
    machine_.execute({0, 1, first, count, totals, count}, memory, scratch);
  }

 private:
  static int rank(const KernelSpec& results) { return static_cast<int>(results.domain.size()); }

  TileMachine machine_;
};

// The kept axes are along the columns, the reduced ones along the rows: whole rows are added to each other.
class ColumnReduce final : public Kernel {
 public:
  ColumnReduce(Op op, DType dtype, const ReduceParts& parts, const SymbolValues& symbols)
      : op_(op),
        value_(parts.value),
        neutral_(neutral_f32(op, dtype)),
        machine_(parts.elements, symbols, order(parts.elements)),
        finish_(parts.results, symbols) {
    chunk_rows_ = std::max<std::int64_t>(16, detail::divide_up(machine_.rows(), max_chunks));
    chunks_ = detail::divide_up(machine_.rows(), chunk_rows_);
    block_ = std::min<std::int64_t>(machine_.columns(), tile_elements);
    blocks_ = block_ == 0 ? 0 : detail::divide_up(machine_.columns(), block_);
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
    workers.pool.run(blocks_, [&](std::int64_t block, int worker) {
      const std::int64_t columns = std::min(block_, machine_.columns() - block * block_);
      for (std::int64_t chunk = 1; chunk < chunks_; ++chunk)
        accumulate_f32(op_, partial(0, block), partial(chunk, block), columns);
      finish_.run(partial(0, block), block * block_, columns, memory, workers.of(worker));
    });
  }

 private:
  static TileMachine::Shape order(const KernelSpec& elements) {
    const int rank = static_cast<int>(elements.domain.size()), kept = rank - elements.row_axes;
    TileMachine::Shape shape{axes(kept, rank), kept, false};
    for (const int axis : axes(0, kept)) shape.order.push_back(axis);
    return shape;
  }

  void add_up(std::int64_t chunk, std::int64_t block, float* total, const std::vector<Memory>& memory,
              TileMemory& scratch) {
    const std::int64_t columns = std::min(block_, machine_.columns() - block * block_);
    const std::int64_t end = std::min(machine_.rows(), (chunk + 1) * chunk_rows_);
    const std::int64_t step = std::max<std::int64_t>(1, tile_elements / columns);
    std::fill_n(total, columns + vector_padding, start_f32(op_));
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
  Finish finish_;
  std::int64_t chunk_rows_ = 1, chunks_ = 0, block_ = 1, blocks_ = 0;
  std::vector<float> partials_;
};

// The reduced axes are along the columns.
class RowReduce final : public Kernel {
 public:
  RowReduce(const Instruction& reduction, const ReduceParts& parts, const SymbolValues& symbols)
      : op_(reduction.op),
        machine_(with_reduction(reduction, parts), symbols, order(parts.elements)),
        value_(static_cast<int>(parts.elements.body.size())),
        finish_(parts.results, symbols) {
    // Only sums and extremes of floats can be split into parts.
    const bool in_parts = is_float(parts.elements.body[static_cast<std::size_t>(parts.value)].dtype) &&
                          op_ != Op::argmax && op_ != Op::all_finite;
    piece_ = in_parts ? std::max(tile_elements * 4, detail::divide_up(machine_.columns(), max_chunks))
                      : std::max<std::int64_t>(machine_.columns(), 1);
    parts_ = std::max<std::int64_t>(1, detail::divide_up(machine_.columns(), piece_));
  }

  void run(const std::vector<Memory>& memory, Workers& workers) override {
    const std::int64_t rows = machine_.rows();
    partials_.resize(static_cast<std::size_t>(rows * parts_) + vector_padding);
    workers.pool.run(rows * parts_, [&](std::int64_t number, int worker) {
      const std::int64_t row = number / parts_, column = number % parts_ * piece_;
      const TileMachine::Tile tile{row, 1, column, std::min(piece_, machine_.columns() - column), nullptr, 0};
      partials_[static_cast<std::size_t>(number)] = *machine_.evaluate_row(value_, tile, memory, workers.of(worker));
    });
    if (parts_ > 1)
      for (std::int64_t row = 0; row < rows; ++row)
        partials_[static_cast<std::size_t>(row)] = reduce_f32(op_, partials_.data() + row * parts_, parts_);
    workers.pool.run(detail::divide_up(rows, tile_elements), [&](std::int64_t block, int worker) {
      const std::int64_t first = block * tile_elements;
      finish_.run(partials_.data() + first, first, std::min(tile_elements, rows - first), memory, workers.of(worker));
    });
  }

 private:
  static KernelSpec with_reduction(Instruction reduction, const ReduceParts& parts) {
    KernelSpec kernel = parts.elements;
    reduction.a = parts.value;
    kernel.body.push_back(std::move(reduction));
    return kernel;
  }

  static TileMachine::Shape order(const KernelSpec& elements) {
    return {axes(0, static_cast<int>(elements.domain.size())), elements.row_axes, false};
  }

  Op op_;
  TileMachine machine_;
  int value_;
  Finish finish_;
  std::int64_t piece_ = 1, parts_ = 1;
  std::vector<float> partials_;
};

}  // namespace

std::unique_ptr<Kernel> prepare_reduce(const KernelSpec& kernel, const SymbolValues& symbols) {
  const Instruction& reduction = kernel.body[static_cast<std::size_t>(detail::reduction_of(kernel))];
  const ReduceParts parts = detail::split_reduce(kernel);
  if (has(reduction.op, Trait::Folds) && is_float(reduction.dtype) && detail::runs_along_kept(parts.elements))
    return std::make_unique<ColumnReduce>(reduction.op, reduction.dtype, parts, symbols);
  return std::make_unique<RowReduce>(reduction, parts, symbols);
}

}  // namespace jerboa::cpu
