#include <algorithm>
#include <numeric>

#include "backend/cpu/kernel.h"
#include "base/integers.h"

namespace jerboa::cpu {
namespace {

std::vector<int> natural_order(const KernelSpec& kernel) {
  std::vector<int> order(kernel.domain.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

class LoopKernel final : public Kernel {
 public:
  LoopKernel(const KernelSpec& kernel, const SymbolValues& symbols)
      : machine_(kernel, symbols, {natural_order(kernel), std::max(kernel.row_axes, 1), kernel.row_axes == 0}) {
    const bool whole_rows = kernel.row_axes > 0;
    tile_columns_ = whole_rows ? machine_.columns() : std::min(machine_.columns(), tile_elements);
    tile_rows_ = std::max<std::int64_t>(1, tile_elements / std::max<std::int64_t>(tile_columns_, 1));
    tile_rows_ = std::min(tile_rows_, std::max<std::int64_t>(machine_.rows(), 1));
    across_ = tile_columns_ == 0 ? (whole_rows ? 1 : 0) : detail::divide_up(machine_.columns(), tile_columns_);
    tiles_ = detail::divide_up(machine_.rows(), tile_rows_) * across_;
    // A task is long enough to make scheduling overhead negligible.
    constexpr std::int64_t task_elements = 8 * tile_elements;
    tiles_per_task_ = std::max<std::int64_t>(1, task_elements / std::max<std::int64_t>(1, tile_rows_ * tile_columns_));
  }

  std::int64_t tasks() const override { return detail::divide_up(tiles_, tiles_per_task_); }

  bool is_small() const override { return machine_.rows() * machine_.columns() <= tile_elements; }

  void run_task(std::int64_t number, const std::vector<Memory>& memory, TileMemory& scratch) override {
    const std::int64_t end = std::min(tiles_, (number + 1) * tiles_per_task_);
    for (std::int64_t tile = number * tiles_per_task_; tile < end; ++tile) {
      const std::int64_t row = tile / across_ * tile_rows_, column = tile % across_ * tile_columns_;
      machine_.execute({row, std::min(tile_rows_, machine_.rows() - row), column,
                        std::min(tile_columns_, machine_.columns() - column), nullptr, 0},
                       memory, scratch);
    }
  }

  void run(const std::vector<Memory>& memory, Workers& workers) override {
    workers.pool.run(tasks(), [&](std::int64_t number, int worker) { run_task(number, memory, workers.of(worker)); });
  }

 private:
  TileMachine machine_;
  std::int64_t tile_rows_ = 1, tile_columns_ = 1, across_ = 1, tiles_ = 0, tiles_per_task_ = 1;
};

}  // namespace

std::unique_ptr<Kernel> prepare_loop(const KernelSpec& kernel, const SymbolValues& symbols) {
  return std::make_unique<LoopKernel>(kernel, symbols);
}

std::unique_ptr<Kernel> prepare(const KernelSpec& kernel, const SymbolValues& symbols) {
  switch (kernel.kind) {
    case KernelSpec::Kind::loop: return prepare_loop(kernel, symbols);
    case KernelSpec::Kind::reduce: return prepare_reduce(kernel, symbols);
    case KernelSpec::Kind::matmul: return prepare_matmul(kernel, symbols);
    case KernelSpec::Kind::whole: return prepare_whole(kernel, symbols);
  }
  return nullptr;
}

}  // namespace jerboa::cpu
