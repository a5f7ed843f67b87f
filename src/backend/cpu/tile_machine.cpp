#include "backend/cpu/tile_machine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>

#include <jerboa/base/error.h>
#include <jerboa/base/float16.h>

#include "lower/axes.h"

namespace jerboa::cpu {

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

}  // namespace

TileMachine::TileMachine(const KernelSpec& kernel, const SymbolValues& symbols, const Shape& shape)
    : loads_(kernel.loads), stores_(kernel.stores), sizes_(jerboa::evaluate(kernel.domain, symbols)) {
  merge_axes(kernel, symbols, shape);
  for (const Load& load : loads_) {
    LoadPlan plan;
    plan.place = place_of(load.map, symbols);
    for (const Mask& mask : load.masks) {
      Range range{-1, {}, mask.from.evaluate(symbols), mask.to.evaluate(symbols)};
      if (sizes_[at(mask.axis)] == 1) {
        // The only index is 0: the mask holds everywhere or nowhere.
        if (range.from > 0 || range.to <= 0) plan.ranges.push_back({-1, {}, 0, 0});
        continue;
      }
      range.outer_run = run_of(outer_runs_, mask.axis);
      if (range.outer_run < 0 && column_runs_.size() > 1) {
        std::vector<std::int64_t> only(column_runs_.size(), 0);
        only[at(run_of(column_runs_, mask.axis))] = 1;
        range.column_table = column_table(only);
      }
      plan.ranges.push_back(std::move(range));
    }
    plan.in_place =
        std::any_of(stores_.begin(), stores_.end(), [&](const Store& store) { return store.binding == load.binding; });
    plan.indirect_stride = load.indirect_stride.evaluate(symbols);
    plan.indirect_limit = load.indirect_limit.evaluate(symbols);
    load_plans_.push_back(std::move(plan));
  }
  for (const Store& store : stores_) store_places_.push_back(place_of(store.map, symbols));
  for (const Instruction& instruction : kernel.body) {
    Step step;
    step.instruction = instruction;
    steps_.push_back(std::move(step));
  }
  plan_steps(symbols);
  join_products();
  for (const Store& store : stores_) {
    const Instruction& value = steps_[at(store.value)].instruction;
    if (value.kind != Instruction::Kind::load) continue;
    load_plans_[at(value.index)].may_alias = std::any_of(stores_.begin(), stores_.end(), [&](const Store& other) {
      return other.binding == loads_[at(value.index)].binding;
    });
  }
  assign_slots();
}

void TileMachine::merge_axes(const KernelSpec& kernel, const SymbolValues& symbols, const Shape& shape) {
  std::vector<std::vector<std::int64_t>> strides;
  for (const Load& load : kernel.loads) strides.push_back(jerboa::evaluate(load.map.strides, symbols));
  for (const Store& store : kernel.stores) strides.push_back(jerboa::evaluate(store.map.strides, symbols));
  const detail::AxisMerger<std::int64_t> merger(kernel, std::move(strides));
  const auto add = [&](std::vector<AxisRun>& runs, int axis) {
    const std::int64_t size = sizes_[at(axis)];
    const bool merges = !runs.empty() && merger.can_merge(at(runs.back().axes.back()), at(axis), size);
    if (!merges) runs.push_back({{}, 1});
    runs.back().axes.push_back(axis);
    runs.back().size *= size;
  };
  const std::size_t inner = std::min(static_cast<std::size_t>(shape.inner), shape.order.size());
  for (std::size_t i = 0; i < shape.order.size(); ++i) {
    const int axis = shape.order[i];
    if (sizes_[at(axis)] == 1) continue;
    add(!shape.merge_across && i >= shape.order.size() - inner ? column_runs_ : outer_runs_, axis);
  }
  // If nothing depends on the rows, the last outer run becomes the columns.
  if (shape.merge_across && !outer_runs_.empty()) {
    column_runs_.push_back(std::move(outer_runs_.back()));
    outer_runs_.pop_back();
  }
  for (const AxisRun& run : outer_runs_) rows_ *= run.size;
  for (const AxisRun& run : column_runs_) columns_ *= run.size;
}

int TileMachine::run_of(const std::vector<AxisRun>& runs, int axis) const {
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (std::find(runs[i].axes.begin(), runs[i].axes.end(), axis) != runs[i].axes.end()) return static_cast<int>(i);
  return -1;
}

std::vector<std::int64_t> TileMachine::column_table(const std::vector<std::int64_t>& stride_of_run) const {
  std::vector<std::int64_t> table(static_cast<std::size_t>(columns_));
  for (std::int64_t column = 0; column < columns_; ++column) {
    std::int64_t rest = column, total = 0;
    for (std::size_t i = column_runs_.size(); i-- > 0;) {
      total += rest % column_runs_[i].size * stride_of_run[i];
      rest /= column_runs_[i].size;
    }
    table[static_cast<std::size_t>(column)] = total;
  }
  return table;
}

TileMachine::Place TileMachine::place_of(const IndexMap& map, const SymbolValues& symbols) const {
  Place place;
  place.offset = map.offset.evaluate(symbols);
  // A merged run steps by the stride of its innermost axis.
  const auto stride_of = [&](const AxisRun& run) { return map.strides[at(run.axes.back())].evaluate(symbols); };
  for (const AxisRun& run : outer_runs_) place.outer.push_back(stride_of(run));
  if (column_runs_.size() == 1) place.inner = stride_of(column_runs_[0]);
  if (column_runs_.size() > 1) {
    std::vector<std::int64_t> strides;
    for (const AxisRun& run : column_runs_) strides.push_back(stride_of(run));
    place.along_columns = std::any_of(strides.begin(), strides.end(), [](std::int64_t stride) { return stride != 0; });
    if (place.along_columns) place.inner_table = column_table(strides);
  }
  place.along_columns = place.along_columns || place.inner != 0;
  return place;
}

void TileMachine::plan_steps(const SymbolValues& symbols) {
  const auto level_of_place = [](const Place& place) {
    if (place.along_columns) return Level::element;
    return std::any_of(place.outer.begin(), place.outer.end(), [](std::int64_t stride) { return stride != 0; })
               ? Level::row
               : Level::uniform;
  };
  for (Step& step : steps_) {
    const Instruction& instruction = step.instruction;
    const auto level = [&](int value) { return value < 0 ? Level::uniform : steps_[at(value)].level; };
    switch (instruction.kind) {
      case Instruction::Kind::load: {
        const LoadPlan& plan = load_plans_[at(instruction.index)];
        step.level = level_of_place(plan.place);
        for (const Range& range : plan.ranges)
          step.level = std::max(step.level, range.outer_run < 0 ? Level::element : Level::row);
        step.level = std::max(step.level, level(loads_[at(instruction.index)].indirect));
        break;
      }
      case Instruction::Kind::constant:
        if (!(instruction.dim == Dim(0)))
          step.instruction.number = static_cast<double>(instruction.dim.evaluate(symbols));
        break;
      case Instruction::Kind::position:
        step.shift = instruction.dim.evaluate(symbols);
        step.scale = instruction.dim_scale.evaluate(symbols);
        if (sizes_[at(instruction.index)] == 1) break;
        step.outer_run = run_of(outer_runs_, instruction.index);
        step.along_columns = step.outer_run < 0;
        step.level = step.along_columns ? Level::element : Level::row;
        if (step.along_columns && column_runs_.size() > 1) {
          std::vector<std::int64_t> only(column_runs_.size(), 0);
          only[at(run_of(column_runs_, instruction.index))] = 1;
          step.column_table = column_table(only);
        }
        break;
      case Instruction::Kind::compute: {
        step.level = std::max({level(instruction.a), level(instruction.b), level(instruction.c)});
        const DType operand = steps_[at(instruction.op == Op::where ? instruction.b : instruction.a)].instruction.dtype;
        step.function = vector_function(instruction.op, operand, instruction.dtype);
        if (step.function == nullptr)
          throw GraphError(fmt::format("the CPU engine has no {} for {}", name(instruction.op), name(operand)));
        break;
      }
      case Instruction::Kind::reduce: step.level = Level::row; break;
      case Instruction::Kind::product: step.level = Level::element; break;
    }
  }
}

// An f32 sum or difference is fused with a product that nothing else uses: one pass over the tile instead of two.
void TileMachine::join_products() {
  std::vector<int> uses(steps_.size(), 0);
  for (const Step& step : steps_)
    for (const int operand : {step.instruction.a, step.instruction.b, step.instruction.c})
      if (operand >= 0) ++uses[at(operand)];
  for (const Store& store : stores_) ++uses[at(store.value)];
  for (const Load& load : loads_)
    if (load.indirect >= 0) ++uses[at(load.indirect)];
  for (Step& step : steps_) {
    Instruction& instruction = step.instruction;
    if (instruction.kind != Instruction::Kind::compute || instruction.dtype != DType::f32 ||
        (instruction.op != Op::add && instruction.op != Op::sub))
      continue;
    for (const bool first : {true, false}) {
      const int product = first ? instruction.a : instruction.b, other = first ? instruction.b : instruction.a;
      Step& factor = steps_[at(product)];
      if (factor.instruction.kind != Instruction::Kind::compute || factor.instruction.op != Op::mul || factor.gone ||
          factor.level != step.level || uses[at(product)] != 1)
        continue;
      const bool minus = instruction.op == Op::sub;
      step.function = mul_add_function(!minus ? MulAdd::plus : first ? MulAdd::minus : MulAdd::minus_product);
      instruction.a = factor.instruction.a;
      instruction.b = factor.instruction.b;
      instruction.c = other;
      factor.gone = true;
      break;
    }
  }
}

// Registers are reused after the last read of their value, but never for a result of the same instruction: functions
// may write slightly ahead of what they read.
void TileMachine::assign_slots() {
  std::vector<int> last_use(steps_.size(), -1);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Instruction& instruction = steps_[i].instruction;
    if (steps_[i].gone) continue;
    for (const int operand : {instruction.a, instruction.b, instruction.c})
      if (operand >= 0) last_use[at(operand)] = static_cast<int>(i);
    if (instruction.kind == Instruction::Kind::load && loads_[at(instruction.index)].indirect >= 0)
      last_use[at(loads_[at(instruction.index)].indirect)] = static_cast<int>(i);
  }
  for (const Store& store : stores_) last_use[at(store.value)] = static_cast<int>(steps_.size());
  std::vector<int> free_slots;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].gone) continue;
    if (free_slots.empty()) {
      steps_[i].slot = static_cast<int>(slots_++);
    } else {
      steps_[i].slot = free_slots.back();
      free_slots.pop_back();
    }
    for (std::size_t j = 0; j <= i; ++j)
      if (last_use[j] == static_cast<int>(i)) free_slots.push_back(steps_[j].slot);
  }
}

// The state of one tile.
struct TileMachine::Run {
  const Tile& tile;
  const std::vector<Memory>& memory;
  TileMemory& scratch;
  std::vector<Register>& registers = scratch.registers;
  std::vector<std::int64_t>& indices = scratch.indices;

  std::int64_t elements() const { return tile.rows * tile.columns; }
  std::int64_t index(std::int64_t row, int run, std::size_t runs) const {
    return indices[static_cast<std::size_t>(row) * runs + at(run)];
  }
};

namespace {

template <class T>
void load_strided(float* out, const T* from, std::int64_t stride, std::int64_t count) {
  if constexpr (std::is_same_v<T, float>) {
    if (stride == 1) {
      std::copy_n(from, count, out);
      return;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<T, float>)
      out[i] = from[i * stride];
    else
      out[i] = static_cast<float>(from[i * stride]);
  }
}

struct Half {
  std::uint16_t bits;
  explicit operator float() const { return f16_to_f32(bits); }
};
struct Bfloat {
  std::uint16_t bits;
  explicit operator float() const { return bf16_to_f32(bits); }
};

void load_values(float* out, const std::byte* memory, DType dtype, std::int64_t offset, std::int64_t stride,
                 std::int64_t count) {
  if (dtype == DType::f16)
    load_strided(out, reinterpret_cast<const Half*>(memory) + offset, stride, count);
  else if (dtype == DType::bf16)
    load_strided(out, reinterpret_cast<const Bfloat*>(memory) + offset, stride, count);
  else
    load_strided(out, reinterpret_cast<const float*>(memory) + offset, stride, count);
}

void store_values(const float* from, std::int64_t from_stride, std::byte* memory, DType dtype, std::int64_t offset,
                  std::int64_t stride, std::int64_t count) {
  if (dtype == DType::f16 || dtype == DType::bf16) {
    auto* to = reinterpret_cast<std::uint16_t*>(memory) + offset;
    for (std::int64_t i = 0; i < count; ++i)
      to[i * stride] = dtype == DType::f16 ? f32_to_f16(from[i * from_stride]) : f32_to_bf16(from[i * from_stride]);
    return;
  }
  auto* to = reinterpret_cast<float*>(memory) + offset;
  if (stride == 1 && from_stride == 1) {
    std::copy_n(from, count, to);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) to[i * stride] = from[i * from_stride];
}

void set_number(float* out, double value, DType dtype) {
  if (is_float(dtype)) {
    *out = static_cast<float>(value);
  } else if (dtype == DType::u32) {
    const auto number = static_cast<std::uint32_t>(static_cast<std::int64_t>(value));
    std::memcpy(out, &number, sizeof(number));
  } else {
    const auto number = static_cast<std::int32_t>(value);
    std::memcpy(out, &number, sizeof(number));
  }
}

}  // namespace

// Whether the tile's elements are contiguous in memory.
bool TileMachine::rows_are_adjacent(const Place& place, const Tile& tile) const {
  if (place.inner != 1) return false;
  return tile.rows == 1 || (tile.columns == columns_ && outer_runs_.size() == 1 && place.outer[0] == columns_);
}

void TileMachine::run_load(Run& run, const Step& step, Register& out) const {
  const Load& load = loads_[at(step.instruction.index)];
  const LoadPlan& plan = load_plans_[at(step.instruction.index)];
  const Memory& memory = run.memory[at(load.binding)];
  const std::size_t runs = outer_runs_.size();
  const Tile& tile = run.tile;
  const Register* indirect = load.indirect >= 0 ? &run.registers[at(load.indirect)] : nullptr;
  const std::int64_t rows = step.level == Level::uniform ? 1 : tile.rows;
  const std::int64_t columns = step.level == Level::element ? tile.columns : 1;
  const bool wide = bits(load.dtype) == 32;
  const auto row_offset = [&](std::int64_t row) {
    std::int64_t offset = plan.place.offset;
    for (std::size_t i = 0; i < runs; ++i) offset += run.index(row, static_cast<int>(i), runs) * plan.place.outer[i];
    return offset;
  };
  // Contiguous data needs no copy. Functions read whole vectors, so no other thread may be writing the memory after the
  // tile.
  constexpr std::int64_t widest_vector = 16;
  const bool may_read_past_end = (memory.exclusive && !plan.in_place) || columns % widest_vector == 0;
  if (step.level == Level::element && wide && memory.padded && plan.ranges.empty() && indirect == nullptr &&
      !plan.may_alias && may_read_past_end && rows_are_adjacent(plan.place, tile)) {
    out.data = reinterpret_cast<float*>(memory.data) + row_offset(0) + tile.column;
    return;
  }
  out.data = run.scratch.floats(at(step.slot), rows * columns);
  const auto is_inside = [&](std::int64_t row) {
    return std::all_of(plan.ranges.begin(), plan.ranges.end(), [&](const Range& range) {
      if (range.outer_run < 0) return true;
      const std::int64_t index = run.index(row, range.outer_run, runs);
      return index >= range.from && index < range.to;
    });
  };
  float fill = 0;
  set_number(&fill, load.fill, load.dtype);
  for (std::int64_t row = 0; row < rows; ++row) {
    float* to = out.data + row * columns;
    if (!is_inside(row)) {
      std::fill(to, to + columns, fill);
      continue;
    }
    const std::int64_t offset = row_offset(row);
    std::int64_t from = 0, until = columns;
    bool scattered = !plan.place.inner_table.empty();
    for (const Range& range : plan.ranges) {
      if (range.outer_run >= 0) continue;
      if (!range.column_table.empty()) {
        scattered = true;
        continue;
      }
      from = std::clamp(range.from - tile.column, from, until);
      until = std::clamp(range.to - tile.column, from, until);
    }
    std::fill(to, to + from, fill);
    std::fill(to + until, to + columns, fill);
    if (indirect == nullptr && !scattered) {
      load_values(to + from, memory.data, load.dtype, offset + (tile.column + from) * plan.place.inner,
                  plan.place.inner, until - from);
      continue;
    }
    if (indirect != nullptr && indirect->level != Level::element && !scattered) {
      // One index for the whole row: the row of a table.
      std::int32_t index = 0;
      std::memcpy(&index, indirect->data + (indirect->level == Level::row ? row : 0), sizeof(index));
      const std::int64_t place = std::clamp<std::int64_t>(index, 0, std::max<std::int64_t>(plan.indirect_limit - 1, 0));
      load_values(to + from, memory.data, load.dtype,
                  offset + place * plan.indirect_stride + (tile.column + from) * plan.place.inner, plan.place.inner,
                  until - from);
      continue;
    }
    for (std::int64_t i = from; i < until; ++i) {
      const std::int64_t column = step.level == Level::element ? tile.column + i : 0;
      const bool inside = std::all_of(plan.ranges.begin(), plan.ranges.end(), [&](const Range& range) {
        if (range.column_table.empty()) return true;
        const std::int64_t index = range.column_table[static_cast<std::size_t>(column)];
        return index >= range.from && index < range.to;
      });
      if (!inside) {
        to[i] = fill;
        continue;
      }
      std::int64_t element =
          offset + (plan.place.inner_table.empty() ? column * plan.place.inner
                                                   : plan.place.inner_table[static_cast<std::size_t>(column)]);
      if (indirect != nullptr) {
        std::int32_t index = 0;
        const std::int64_t which = indirect->level == Level::element ? row * columns + i
                                   : indirect->level == Level::row   ? row
                                                                     : 0;
        std::memcpy(&index, indirect->data + which, sizeof(index));
        element += std::clamp<std::int64_t>(index, 0, std::max<std::int64_t>(plan.indirect_limit - 1, 0)) *
                   plan.indirect_stride;
      }
      load_values(to + i, memory.data, load.dtype, element, 1, 1);
    }
  }
}

void TileMachine::run_position(Run& run, const Step& step, Register& out) const {
  const Tile& tile = run.tile;
  const std::size_t runs = outer_runs_.size();
  const std::int64_t rows = step.level == Level::uniform ? 1 : tile.rows;
  const std::int64_t columns = step.level == Level::element ? tile.columns : 1;
  out.data = run.scratch.floats(at(step.slot), rows * columns);
  auto* to = reinterpret_cast<std::int32_t*>(out.data);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = 0; i < columns; ++i) {
      std::int64_t index = 0;
      if (step.along_columns)
        index =
            step.column_table.empty() ? tile.column + i : step.column_table[static_cast<std::size_t>(tile.column + i)];
      else if (step.outer_run >= 0)
        index = run.index(row, step.outer_run, runs);
      to[row * columns + i] = static_cast<std::int32_t>(index * step.scale + step.shift);
    }
}

void TileMachine::run_compute(Run& run, const Step& step, Register& out) const {
  const Tile& tile = run.tile;
  const Instruction& instruction = step.instruction;
  const std::int64_t rows = step.level == Level::uniform ? 1 : tile.rows;
  const std::int64_t columns = step.level == Level::element ? tile.columns : 1;
  out.data = run.scratch.floats(at(step.slot), rows * columns);
  const int operands[] = {instruction.a, instruction.b, instruction.c};
  const Register* values[3] = {};
  bool by_row = false;
  for (std::size_t i = 0; i < 3; ++i) {
    if (operands[i] < 0) continue;
    values[i] = &run.registers[at(operands[i])];
    by_row |= step.level == Level::element && values[i]->level == Level::row;
  }
  VectorCall call;
  call.number = instruction.number;
  call.number2 = instruction.number2;
  call.index = instruction.index;
  const auto scalar = [&](const Register* value) { return value != nullptr && value->level != step.level; };
  call.a_scalar = scalar(values[0]);
  call.b_scalar = scalar(values[1]);
  call.c_scalar = scalar(values[2]);
  const std::int64_t pieces = by_row ? rows : 1;
  call.count = by_row ? columns : rows * columns;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const auto pointer = [&](const Register* value) -> const float* {
      if (value == nullptr) return nullptr;
      if (value->level == Level::uniform) return value->data;
      if (!by_row) return value->data;
      return value->data + (value->level == Level::row ? piece : piece * columns);
    };
    call.a = pointer(values[0]);
    call.b = pointer(values[1]);
    call.c = pointer(values[2]);
    call.y = out.data + piece * call.count;
    step.function(call);
  }
}

namespace {

void reduce_row(Op op, DType dtype, const float* x, std::int64_t count, float* result) {
  if (op == Op::argmax) {
    std::int32_t best = 0;
    for (std::int64_t i = 1; i < count; ++i) {
      bool greater = false;
      if (is_float(dtype)) {
        greater = x[i] > x[best] || (std::isnan(x[i]) && !std::isnan(x[best]));
      } else {
        const auto* integers = reinterpret_cast<const std::int32_t*>(x);
        const auto* naturals = reinterpret_cast<const std::uint32_t*>(x);
        greater = dtype == DType::i32 ? integers[i] > integers[best] : naturals[i] > naturals[best];
      }
      if (greater) best = static_cast<std::int32_t>(i);
    }
    std::memcpy(result, &best, sizeof(best));
    return;
  }
  if (op == Op::all_finite) {
    std::int32_t finite = 1;
    for (std::int64_t i = 0; i < count; ++i) {
      std::uint32_t pattern = 0;
      std::memcpy(&pattern, x + i, sizeof(pattern));
      finite &= static_cast<std::int32_t>((pattern & 0x7f800000u) != 0x7f800000u);
    }
    std::memcpy(result, &finite, sizeof(finite));
    return;
  }
  if (is_float(dtype)) {
    *result = count == 0 ? neutral_f32(op, dtype) : reduce_f32(op, x, count);
    return;
  }
  const auto fold = [&]<class T>(T) {
    const auto* values = reinterpret_cast<const T*>(x);
    // Sums wrap, as unsigned numbers do; the extremes of no elements are the neutral value.
    T total = op == Op::sum ? T{0} : op == Op::max ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
    for (std::int64_t i = 0; i < count; ++i) {
      if (op == Op::sum)
        total = static_cast<T>(static_cast<std::uint32_t>(total) + static_cast<std::uint32_t>(values[i]));
      if (op == Op::max) total = std::max(total, values[i]);
      if (op == Op::min) total = std::min(total, values[i]);
    }
    std::memcpy(result, &total, sizeof(total));
  };
  if (dtype == DType::u32)
    fold(std::uint32_t{});
  else
    fold(std::int32_t{});
}

}  // namespace

const float* TileMachine::spread(Run& run, const Register& value, int slot) const {
  if (value.level == Level::element) return value.data;
  float* out = run.scratch.floats(at(slot), run.elements());
  for (std::int64_t row = 0; row < run.tile.rows; ++row)
    std::fill_n(out + row * run.tile.columns, run.tile.columns, value.data[value.level == Level::row ? row : 0]);
  return out;
}

void TileMachine::run_reduce(Run& run, const Step& step, Register& out) const {
  const Register& operand = run.registers[at(step.instruction.a)];
  const DType dtype = steps_[at(step.instruction.a)].instruction.dtype;
  const float* values = spread(run, operand, static_cast<int>(slots_));
  out.data = run.scratch.floats(at(step.slot), run.tile.rows);
  for (std::int64_t row = 0; row < run.tile.rows; ++row)
    reduce_row(step.instruction.op, dtype, values + row * run.tile.columns, run.tile.columns, out.data + row);
}

void TileMachine::run_product(Run& run, Register& out) const {
  const Tile& tile = run.tile;
  if (tile.rows == 1 || tile.product_stride == tile.columns) {
    out.data = const_cast<float*>(tile.product);  // registers of loads and products are only read
    return;
  }
  out.data = run.scratch.floats(slots_ + 1, tile.rows * tile.columns);
  for (std::int64_t row = 0; row < tile.rows; ++row)
    std::memcpy(out.data + row * tile.columns, tile.product + row * tile.product_stride,
                static_cast<std::size_t>(tile.columns) * sizeof(float));
}

void TileMachine::run_steps(Run& run, int last) const {
  const std::size_t runs = outer_runs_.size();
  run.registers.resize(steps_.size());
  run.indices.resize(static_cast<std::size_t>(run.tile.rows) * runs);
  for (std::int64_t row = 0; row < run.tile.rows; ++row) {
    std::int64_t rest = run.tile.row + row;
    for (std::size_t i = runs; i-- > 0;) {
      run.indices[static_cast<std::size_t>(row) * runs + i] = rest % outer_runs_[i].size;
      rest /= outer_runs_[i].size;
    }
  }
  for (int i = 0; i <= last; ++i) {
    const Step& step = steps_[at(i)];
    if (step.gone) continue;
    Register& out = run.registers[at(i)];
    out.level = step.level;
    switch (step.instruction.kind) {
      case Instruction::Kind::load: run_load(run, step, out); break;
      case Instruction::Kind::constant:
        out.data = run.scratch.floats(at(step.slot), 1);
        set_number(out.data, step.instruction.number, step.instruction.dtype);
        break;
      case Instruction::Kind::position: run_position(run, step, out); break;
      case Instruction::Kind::compute: run_compute(run, step, out); break;
      case Instruction::Kind::reduce: run_reduce(run, step, out); break;
      case Instruction::Kind::product: run_product(run, out); break;
    }
  }
}

void TileMachine::run_stores(Run& run) const {
  const std::size_t runs = outer_runs_.size();
  const Tile& tile = run.tile;
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    const Store& store = stores_[i];
    const Place& place = store_places_[i];
    const Register& value = run.registers[at(store.value)];
    const bool by_element = place.inner != 0 || !place.inner_table.empty() || columns_ == 1;
    std::byte* memory = run.memory[at(store.binding)].data;
    // A value that is constant along the columns is written only by the tile with the first column.
    if (!by_element && tile.column > 0) continue;
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      std::int64_t offset = place.offset;
      for (std::size_t r = 0; r < runs; ++r) offset += run.index(row, static_cast<int>(r), runs) * place.outer[r];
      const float* from = value.data;
      if (value.level == Level::row) from += row;
      if (value.level == Level::element) from += row * tile.columns;
      const std::int64_t from_stride = value.level == Level::element ? 1 : 0;
      if (!place.inner_table.empty()) {
        for (std::int64_t c = 0; c < tile.columns; ++c)
          store_values(from + c * from_stride, 1, memory, store.dtype,
                       offset + place.inner_table[static_cast<std::size_t>(tile.column + c)], 1, 1);
      } else {
        store_values(from, from_stride, memory, store.dtype, offset + tile.column * place.inner, place.inner,
                     by_element ? tile.columns : 1);
      }
    }
  }
}

void TileMachine::execute(const Tile& tile, const std::vector<Memory>& memory, TileMemory& scratch) const {
  Run run{tile, memory, scratch};
  run_steps(run, static_cast<int>(steps_.size()) - 1);
  run_stores(run);
}

void TileMachine::prefetch(const Tile& tile, const std::vector<Memory>& memory) const {
  constexpr std::int64_t line = 64 / sizeof(float);
  const auto fetch = [&](const Place& place, int binding, DType dtype, auto for_writing) {
    if (place.inner != 1 || bits(dtype) != 32) return;
    const auto* data = reinterpret_cast<const float*>(memory[at(binding)].data);
    for (std::int64_t row = tile.row; row < tile.row + tile.rows; ++row) {
      std::int64_t offset = place.offset + tile.column, rest = row;
      for (std::size_t i = outer_runs_.size(); i-- > 0;) {
        offset += rest % outer_runs_[i].size * place.outer[i];
        rest /= outer_runs_[i].size;
      }
      for (std::int64_t column = 0; column < tile.columns; column += line)
        __builtin_prefetch(data + offset + column, decltype(for_writing)::value, 2);
    }
  };
  for (std::size_t i = 0; i < loads_.size(); ++i) {
    const bool stored = std::any_of(stores_.begin(), stores_.end(),
                                    [&](const Store& store) { return store.binding == loads_[i].binding; });
    const auto& outer = load_plans_[i].place.outer;
    const bool broadcast = std::all_of(outer.begin(), outer.end(), [](std::int64_t stride) { return stride == 0; });
    if (!stored && !broadcast && loads_[i].indirect < 0 && loads_[i].masks.empty())
      fetch(load_plans_[i].place, loads_[i].binding, loads_[i].dtype, std::false_type());
  }
  for (std::size_t i = 0; i < stores_.size(); ++i)
    fetch(store_places_[i], stores_[i].binding, stores_[i].dtype, std::true_type());
}

const float* TileMachine::evaluate(int value, const Tile& tile, const std::vector<Memory>& memory,
                                   TileMemory& scratch) const {
  Run run{tile, memory, scratch};
  run_steps(run, value);
  return spread(run, run.registers[at(value)], static_cast<int>(slots_));
}

const float* TileMachine::evaluate_row(int value, const Tile& tile, const std::vector<Memory>& memory,
                                       TileMemory& scratch) const {
  Run run{tile, memory, scratch};
  run_steps(run, value);
  return run.registers[at(value)].data;
}

}  // namespace jerboa::cpu
