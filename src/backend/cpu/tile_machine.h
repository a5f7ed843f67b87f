#pragma once

#include <cstdint>
#include <vector>

#include <jerboa/lower/program.h>

#include "backend/cpu/scratch.h"
#include "backend/cpu/vector_ops.h"

namespace jerboa::cpu {

/// Memory behind a binding. Memory that the engine allocated may be read a little past its end.
struct Memory {
  std::byte* data = nullptr;
  bool padded = false;
  bool exclusive = false;  ///< no other thread writes past its end
};

/// Whether a value is per tile, per row or per element.
enum class TileLevel : std::uint8_t { uniform, row, element };

/// A value while a tile is computed.
struct TileRegister {
  float* data = nullptr;
  TileLevel level = TileLevel::uniform;
};

/// The registers of one worker.
class TileMemory {
 public:
  std::vector<TileRegister> registers;  ///< by instruction
  std::vector<std::int64_t> indices;    ///< for each row of the tile, along each run of outer axes

  /// At least `count` elements of 4 bytes and the padding, valid until the next call for the same slot.
  float* floats(std::size_t slot, std::int64_t count) {
    if (slots_.size() <= slot) slots_.resize(slot + 1);
    return slots_[slot].get(count + vector_padding);
  }

 private:
  std::vector<Scratch<float>> slots_;
};

/// Executes the body of a kernel over tiles of its domain: rows × columns, where a row is one index along the outer
/// axes and the columns run along the inner ones. Each instruction processes the whole tile before the next one, in
/// registers that stay in the L1 cache.
class TileMachine {
 public:
  struct Shape {
    std::vector<int> order;    ///< the domain's axes, outer ones first
    int inner = 1;             ///< how many of them make up the columns
    bool merge_across = true;  ///< whether outer and inner axes may be merged: not if rows have a meaning
  };
  TileMachine(const KernelSpec& kernel, const SymbolValues& symbols, const Shape& shape);

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }

  struct Tile {
    std::int64_t row = 0, rows = 0, column = 0, columns = 0;
    const float* product = nullptr;  ///< the tile's values in the product, for a matmul
    std::int64_t product_stride = 0;
  };
  /// Runs the body and the stores.
  void execute(const Tile& tile, const std::vector<Memory>& memory, TileMemory& scratch) const;
  /// Prefetches the memory that the body will load and store into the cache.
  void prefetch(const Tile& tile, const std::vector<Memory>& memory) const;
  /// Runs the body and returns the values of one instruction, rows × columns, broadcast if necessary.
  const float* evaluate(int value, const Tile& tile, const std::vector<Memory>& memory, TileMemory& scratch) const;
  /// The same for an instruction with one value per row, without broadcasting.
  const float* evaluate_row(int value, const Tile& tile, const std::vector<Memory>& memory, TileMemory& scratch) const;

 private:
  using Level = TileLevel;
  using Register = TileRegister;

  // Axes of the domain that are stepped through as one.
  struct AxisRun {
    std::vector<int> axes;
    std::int64_t size = 1;
  };

  // A load or store with its strides as numbers, over the merged axes.
  struct Place {
    std::int64_t offset = 0;
    std::vector<std::int64_t> outer;
    std::int64_t inner = 0;
    std::vector<std::int64_t> inner_table;  // offsets of the columns, if they have no single stride
    bool along_columns = false;             // whether it changes along the columns
  };
  struct Range {
    int outer_run = -1;                      // -1: the columns
    std::vector<std::int64_t> column_table;  // the index of each column, if columns are several runs
    std::int64_t from = 0, to = 0;
  };
  struct Step {
    Instruction instruction;
    Level level = Level::uniform;
    VectorFunction function = nullptr;
    int slot = 0;
    bool gone = false;  // fused into a later step
    // For positions:
    int outer_run = -1;
    bool along_columns = false;
    std::int64_t scale = 1, shift = 0;
    std::vector<std::int64_t> column_table;
  };
  struct LoadPlan {
    Place place;
    std::vector<Range> ranges;
    std::int64_t indirect_stride = 0, indirect_limit = 0;
    bool may_alias = false;  // stored unchanged while the same memory is written
    bool in_place = false;   // in memory that the kernel writes
  };
  struct Run;

  void merge_axes(const KernelSpec& kernel, const SymbolValues& symbols, const Shape& shape);
  Place place_of(const IndexMap& map, const SymbolValues& symbols) const;
  int run_of(const std::vector<AxisRun>& runs, int axis) const;
  /// For each column, the sum over the runs of the index along it times its stride.
  std::vector<std::int64_t> column_table(const std::vector<std::int64_t>& stride_of_run) const;
  void plan_steps(const SymbolValues& symbols);
  void join_products();
  bool rows_are_adjacent(const Place& place, const Tile& tile) const;
  void assign_slots();

  void run_steps(Run& run, int last) const;
  void run_load(Run& run, const Step& step, Register& out) const;
  void run_position(Run& run, const Step& step, Register& out) const;
  void run_compute(Run& run, const Step& step, Register& out) const;
  void run_reduce(Run& run, const Step& step, Register& out) const;
  void run_product(Run& run, Register& out) const;
  void run_stores(Run& run) const;
  const float* spread(Run& run, const Register& value, int slot) const;

  std::vector<Load> loads_;
  std::vector<Store> stores_;
  Sizes sizes_;  // of the domain
  std::vector<AxisRun> outer_runs_, column_runs_;
  std::int64_t rows_ = 1, columns_ = 1;
  std::vector<LoadPlan> load_plans_;
  std::vector<Place> store_places_;
  std::vector<Step> steps_;
  std::size_t slots_ = 0;
};

/// Elements of a tile that suits the cache.
inline constexpr std::int64_t tile_elements = 1024;

}  // namespace jerboa::cpu
