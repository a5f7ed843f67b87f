#include "wgsl/four_writer.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "wgsl/product/problem.h"

namespace jerboa::wgsl {

std::vector<bool> varies_along(const KernelSpec& kernel, std::size_t first, std::size_t end) {
  const auto is_inside = [&](int axis) {
    return static_cast<std::size_t>(axis) >= first && static_cast<std::size_t>(axis) < end;
  };
  const auto steps = [&](const Load& load) {
    for (std::size_t axis = first; axis < end; ++axis)
      if (!(load.map.strides[axis] == Dim(0))) return true;
    return std::any_of(load.masks.begin(), load.masks.end(), [&](const Mask& mask) { return is_inside(mask.axis); });
  };
  const std::size_t kept = kernel.domain.size() - static_cast<std::size_t>(kernel.row_axes);
  std::vector<bool> varies;
  for (const Instruction& instruction : kernel.body) {
    bool any = false;
    for (const int operand : {instruction.a, instruction.b, instruction.c})
      if (operand >= 0) any = any || varies[static_cast<std::size_t>(operand)];
    if (instruction.kind == Instruction::Kind::position) any = is_inside(instruction.index);
    if (instruction.kind == Instruction::Kind::load)
      any = any || steps(kernel.loads[static_cast<std::size_t>(instruction.index)]);
    if (instruction.kind == Instruction::Kind::reduce) any = any && first < kept;
    if (instruction.kind == Instruction::Kind::product) any = true;
    varies.push_back(any);
  }
  return varies;
}

bool suits_fours(Shader& shader, const KernelSpec& kernel, std::size_t axis) {
  // With four elements per thread, fewer elements leave a device idle. Software drivers compile the text slowly.
  const std::int64_t fewest_elements = kernel.row_axes > 0 ? 1 << 20 : 1 << 15;
  if (shader.target().software || kernel.domain.empty() || !is_multiple(kernel.domain[axis], 4) ||
      element_count(kernel.domain).upper_bound() < fewest_elements)
    return false;
  const FourWriter four(shader, kernel, axis, std::vector<std::string>(kernel.domain.size(), "0u"));
  return std::any_of(kernel.loads.begin(), kernel.loads.end(),
                     [&](const Load& load) { return four.is_adjacent(load); }) ||
         std::any_of(kernel.stores.begin(), kernel.stores.end(),
                     [&](const Store& store) { return four.is_adjacent(store); });
}

FourWriter::FourWriter(Shader& shader, const KernelSpec& kernel, std::size_t axis, std::vector<std::string> indices,
                       std::vector<int> separate)
    : shader_(shader),
      kernel_(kernel),
      axis_(axis),
      first_(std::move(indices)),
      separate_(std::move(separate)),
      varies_(varies_along(kernel, axis, axis + 1)),
      written_(kernel.body.size(), false) {
  for (int k = 0; k < 4; ++k) {
    std::vector<std::string> shifted = first_;
    if (k > 0) shifted[axis] = fmt::format("({} + {}u)", first_[axis], k);
    bodies_.emplace_back(shader, kernel, std::move(shifted));
  }
}

void FourWriter::set(int instruction, const std::string& four) {
  for (std::size_t k = 0; k < 4; ++k) bodies_[k].set(instruction, fmt::format("{}.{}", four, "xyzw"[k]));
  written_[static_cast<std::size_t>(instruction)] = true;
}

void FourWriter::set_common(int instruction, const std::string& text) {
  for (BodyWriter& body : bodies_) body.set(instruction, text);
  written_[static_cast<std::size_t>(instruction)] = true;
}

// Whether the four elements are adjacent in memory, and aligned.
bool FourWriter::is_adjacent(int binding, const IndexMap& map) const {
  if (std::find(separate_.begin(), separate_.end(), binding) != separate_.end() || !shader_.can_be_wide(binding) ||
      !is_multiple(map.offset, 4) || !(map.strides[axis_] == Dim(1)))
    return false;
  for (std::size_t axis = 0; axis < map.strides.size(); ++axis)
    if (axis != axis_ && !is_multiple(map.strides[axis], 4)) return false;
  return true;
}

// Padding must begin and end between groups of four.
bool FourWriter::is_adjacent(const Load& load) const {
  return load.indirect < 0 && is_adjacent(load.binding, load.map) &&
         std::all_of(load.masks.begin(), load.masks.end(), [&](const Mask& mask) {
           return static_cast<std::size_t>(mask.axis) != axis_ ||
                  (is_multiple(mask.from, 4) && is_multiple(mask.to, 4));
         });
}

std::string FourWriter::read_four(const Load& load) {
  const std::string place = shader_.place(load.map, first_);
  if (!load.masks.empty() && !branches_) {
    const std::string inside = shader_.let("inside", inside_masks(shader_, load, first_));
    const std::string given =
        shader_.let("four", shader_.load_four(load.binding, fmt::format("select(0u, {}, {})", place, inside)));
    return shader_.let("four", fmt::format("select(vec4f({}), {}, {})", literal(load.fill, load.dtype), given, inside));
  }
  const std::string four = shader_.load_four(load.binding, place);
  if (load.masks.empty()) return shader_.let("four", four);
  std::string name = shader_.var("four", "vec4f", fmt::format("vec4f({})", literal(load.fill, load.dtype)));
  shader_.open("if ({}) {{", inside_masks(shader_, load, first_));
  shader_.line("{} = {};", name, four);
  shader_.close();
  return name;
}

std::array<std::string, 4> FourWriter::values(int instruction) {
  const auto at = static_cast<std::size_t>(instruction);
  if (!written_[at]) {
    const Instruction& step = kernel_.body[at];
    if (!varies_[at]) {
      set_common(instruction, bodies_[0].value(instruction));
    } else if (step.kind == Instruction::Kind::load &&
               is_adjacent(kernel_.loads[static_cast<std::size_t>(step.index)])) {
      set(instruction, read_four(kernel_.loads[static_cast<std::size_t>(step.index)]));
    } else {
      // Operands come first, so that they are read together if possible.
      for (const int operand : {step.a, step.b, step.c})
        if (operand >= 0) values(operand);
      if (step.kind == Instruction::Kind::load)
        if (const int from = kernel_.loads[static_cast<std::size_t>(step.index)].indirect; from >= 0) values(from);
      for (BodyWriter& body : bodies_) body.value(instruction);
      written_[at] = true;
    }
  }
  std::array<std::string, 4> four;
  for (std::size_t k = 0; k < 4; ++k) four[k] = bodies_[k].value(instruction);
  return four;
}

void FourWriter::store(const std::vector<Store>& stores) {
  for (const Store& store : stores) values(store.value);
  for (const Store& store : stores) {
    if (is_adjacent(store))
      shader_.store_four(store.binding, shader_.place(store.map, first_),
                         fmt::format("vec4f({})", fmt::join(values(store.value), ", ")));
    else
      for (BodyWriter& body : bodies_) body.store(store);
  }
}

}  // namespace jerboa::wgsl
