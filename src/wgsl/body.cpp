#include "wgsl/body.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <jerboa/base/error.h>

#include "base/value_range.h"
#include "lower/axes.h"

namespace jerboa::wgsl {
namespace {

std::string call(Shader& shader, const std::string& function, const std::string& arguments) {
  return fmt::format("{}({})", shader.use(function), arguments);
}

std::string cast(Shader& shader, DType from, DType to, const std::string& x) {
  if (to == DType::boolean) {
    if (from == DType::boolean) return x;
    return fmt::format("({} != {})", x, literal(0, from));
  }
  if (from == DType::boolean) return fmt::format("select({}, {}, {})", literal(0, to), literal(1, to), x);
  if (is_float(from)) {
    if (to == DType::f32) return x;
    if (to == DType::f16 && shader.target().f16) {  // quantizeToF16 is slow on NVIDIA GPUs
      shader.use_f16();
      return fmt::format("f32(f16({}))", x);
    }
    if (to == DType::f16) return fmt::format("quantizeToF16({})", x);
    if (to == DType::bf16) return fmt::format("bitcast<f32>({})", call(shader, "round_bf16", x));
    // The upper bounds of the clamps are the largest f32 below 2^31 and 2^32.
    if (to == DType::i32)
      return fmt::format("select(i32(clamp({0}, -2147483648.0f, 2147483520.0f)), 2147483647i, {0} >= 2147483648.0f)",
                         x);
    return fmt::format("select(u32(clamp({0}, 0.0f, 4294967040.0f)), 4294967295u, {0} >= 4294967296.0f)", x);
  }
  return fmt::format("{}({})", value_type(to), x);
}

std::string whole_power(Shader& shader, const std::string& x, int exponent) {
  std::string result, power = x;
  for (int rest = std::abs(exponent); rest > 0; rest >>= 1) {
    if ((rest & 1) != 0) result = result.empty() ? power : shader.let("power", fmt::format("{} * {}", result, power));
    if (rest > 1) power = shader.let("power", fmt::format("{0} * {0}", power));
  }
  if (result.empty()) return "1.0f";
  return exponent < 0 ? fmt::format("(1.0 / {})", result) : result;
}

std::string fixed_power(Shader& shader, const std::string& x, double exponent) {
  if (exponent == std::nearbyint(exponent) && std::abs(exponent) <= 64)
    return whole_power(shader, x, static_cast<int>(exponent));
  if (exponent == 0.5) return fmt::format("sqrt({})", x);
  return call(shader, "pow_f32", fmt::format("{}, {}", x, literal(exponent, DType::f32)));
}

std::string clamp(const Instruction& instruction, DType dtype, std::string x) {
  // Infinite bounds do not clamp.
  if (std::isfinite(instruction.number)) x = fmt::format("max({}, {})", x, literal(instruction.number, dtype));
  if (std::isfinite(instruction.number2)) x = fmt::format("min({}, {})", x, literal(instruction.number2, dtype));
  return x;
}

std::string gelu(Shader& shader, const Instruction& instruction, const std::string& x) {
  if (instruction.index == static_cast<int>(GeluForm::tanh))
    return fmt::format(
        "({0} * {1})", x,
        call(shader, "sigmoid_f32", fmt::format("1.59576912f * ({0} + 0.044715f * {0} * {0} * {0})", x)));
  return fmt::format("(0.5 * {0} * (1.0 + {1}))", x, call(shader, "erf_f32", fmt::format("0.707106781f * {}", x)));
}

}  // namespace

std::string apply(Shader& shader, const Instruction& instruction, DType operand, const std::string& a,
                  const std::string& b, const std::string& c) {
  const bool floats = is_float(operand);
  const auto infix = [&](const char* op) { return fmt::format("({} {} {})", a, op, b); };
  switch (instruction.op) {
    case Op::neg: return operand == DType::u32 ? fmt::format("(0u - {})", a) : fmt::format("(-{})", a);
    case Op::abs: return fmt::format("abs({})", a);
    case Op::sqrt: return fmt::format("sqrt({})", a);
    case Op::rsqrt: return fmt::format("(1.0 / sqrt({}))", a);
    case Op::log: return call(shader, "log_f32", a);
    case Op::exp: return call(shader, "exp_f32", a);
    case Op::expm1: return call(shader, "expm1_f32", a);
    case Op::sin: return call(shader, "sin_f32", a);
    case Op::cos: return call(shader, "cos_f32", a);
    case Op::tanh: return call(shader, "tanh_f32", a);
    case Op::sigmoid: return call(shader, "sigmoid_f32", a);
    case Op::erf: return call(shader, "erf_f32", a);
    case Op::relu: return fmt::format("max({}, 0.0)", a);
    case Op::silu: return fmt::format("({} * {})", a, call(shader, "sigmoid_f32", a));
    case Op::gelu: return gelu(shader, instruction, a);
    case Op::softplus:
      return fmt::format("(max({}, 0.0) + {})", a,
                         call(shader, "log1p_f32", call(shader, "exp_f32", fmt::format("-abs({})", a))));
    case Op::floor: return fmt::format("floor({})", a);
    case Op::round: return fmt::format("round({})", a);
    case Op::clamp: return clamp(instruction, operand, a);
    case Op::cast: return cast(shader, operand, instruction.dtype, a);
    case Op::logical_not: return fmt::format("(!{})", a);
    case Op::bit_not: return fmt::format("(~{})", a);
    case Op::add: return infix("+");
    case Op::sub: return infix("-");
    case Op::mul: return infix("*");
    case Op::div: return infix("/");
    case Op::pow:
      return instruction.b < 0 ? fixed_power(shader, a, instruction.number)
                               : call(shader, "pow_f32", fmt::format("{}, {}", a, b));
    case Op::maximum: return fmt::format("max({}, {})", a, b);
    case Op::minimum: return fmt::format("min({}, {})", a, b);
    case Op::mod: return floats ? call(shader, "mod_f32", fmt::format("{}, {}", a, b)) : infix("%");
    case Op::equal: return infix("==");
    case Op::not_equal: return infix("!=");
    // WGSL does not order bools.
    case Op::less: return operand == DType::boolean ? fmt::format("(!{} && {})", a, b) : infix("<");
    case Op::less_equal: return operand == DType::boolean ? fmt::format("(!{} || {})", a, b) : infix("<=");
    case Op::greater: return operand == DType::boolean ? fmt::format("({} && !{})", a, b) : infix(">");
    case Op::greater_equal: return operand == DType::boolean ? fmt::format("({} || !{})", a, b) : infix(">=");
    case Op::logical_and: return infix("&&");
    case Op::logical_or: return infix("||");
    case Op::bit_and: return infix("&");
    case Op::bit_or: return infix("|");
    case Op::bit_xor: return infix("^");
    case Op::shift_left: return fmt::format("({} << (u32({}) & 31u))", a, b);
    case Op::shift_right: return fmt::format("({} >> (u32({}) & 31u))", a, b);
    case Op::where: return fmt::format("select({}, {}, {})", c, b, a);
    case Op::random:
      return call(shader,
                  instruction.index == static_cast<int>(Distribution::uniform) ? "random_uniform" : "random_normal",
                  fmt::format("{}, {}, {}, {}u", a, b, c, static_cast<std::uint32_t>(instruction.number)));
    default: throw GraphError(fmt::format("no WGSL for the element-wise op {}", name(instruction.op)));
  }
}

std::string neutral(Op reduction, DType dtype) {
  if (reduction == Op::all_finite) return "true";
  const bool highest = reduction == Op::min;
  if (!highest && reduction != Op::max && reduction != Op::argmax) return literal(0, dtype);
  return literal(highest ? detail::highest_value(dtype) : detail::lowest_value(dtype), dtype);
}

std::string combine(Op reduction, DType, const std::string& a, const std::string& b) {
  switch (reduction) {
    case Op::max: return fmt::format("max({}, {})", a, b);
    case Op::min: return fmt::format("min({}, {})", a, b);
    case Op::all_finite: return fmt::format("({} && {})", a, b);
    default: return fmt::format("({} + {})", a, b);
  }
}

BodyWriter::BodyWriter(Shader& shader, const KernelSpec& kernel, std::vector<std::string> indices)
    : shader_(shader), kernel_(kernel), indices_(std::move(indices)), names_(kernel.body.size()) {}

const std::string& BodyWriter::value(int number) {
  const auto at = static_cast<std::size_t>(number);
  if (!names_[at].empty()) return names_[at];
  const Instruction& instruction = kernel_.body[at];
  switch (instruction.kind) {
    case Instruction::Kind::constant:
      names_[at] = instruction.dim == Dim(0) ? literal(instruction.number, instruction.dtype)
                                             : fmt::format("i32({})", shader_.size(instruction.dim));
      break;
    case Instruction::Kind::position:
      names_[at] = shader_.let(
          "at", fmt::format("i32({})", shader_.place(instruction.dim, {instruction.dim_scale},
                                                     {indices_[static_cast<std::size_t>(instruction.index)]})));
      break;
    case Instruction::Kind::load: names_[at] = write_load(instruction); break;
    case Instruction::Kind::compute: names_[at] = compute(instruction); break;
    case Instruction::Kind::reduce:
    case Instruction::Kind::product: throw GraphError("internal: a reduction or product is used before it is computed");
  }
  return names_[at];
}

std::string BodyWriter::compute(const Instruction& instruction) {
  const DType operand =
      kernel_.body[static_cast<std::size_t>(instruction.op == Op::where ? instruction.b : instruction.a)].dtype;
  const auto text = [&](int operand_number) { return operand_number < 0 ? std::string() : value(operand_number); };
  const std::string a = text(instruction.a), b = text(instruction.b), c = text(instruction.c);
  return shader_.let("v", apply(shader_, instruction, operand, a, b, c));
}

std::string BodyWriter::write_load(const Instruction& instruction) {
  const Load& load = kernel_.loads[static_cast<std::size_t>(instruction.index)];
  std::string place = shader_.place(load.map, indices_);
  if (load.indirect >= 0) {
    const bool natural = kernel_.body[static_cast<std::size_t>(load.indirect)].dtype == DType::u32;
    const std::string& index = value(load.indirect);
    const std::string row = fmt::format("min({}, {} - 1u)", natural ? index : fmt::format("u32(max({}, 0i))", index),
                                        shader_.size(load.indirect_limit));
    place += fmt::format(" + {} * {}", row, shader_.size(load.indirect_stride));
  }
  if (load.masks.empty()) return shader_.let("v", shader_.load(load.binding, place));
  std::string name = shader_.var("v", value_type(load.dtype), literal(load.fill, load.dtype));
  shader_.open("if ({}) {{", inside_masks(shader_, load, indices_));
  shader_.line("{} = {};", name, shader_.load(load.binding, place));
  shader_.close();
  return name;
}

std::string inside_masks(Shader& shader, const Load& load, const std::vector<std::string>& indices) {
  std::string inside;
  for (const Mask& mask : load.masks) {
    const std::string& index = indices[static_cast<std::size_t>(mask.axis)];
    if (!inside.empty()) inside += " && ";
    inside +=
        fmt::format("i32({0}) >= i32({1}) && i32({0}) < i32({2})", index, shader.size(mask.from), shader.size(mask.to));
  }
  return inside;
}

void BodyWriter::store(const Store& store) {
  const std::string text = value(store.value);
  shader_.store(store.binding, shader_.place(store.map, indices_), text);
}

bool is_row_major(const Shape& domain, const IndexMap& map) {
  return map.offset == Dim(0) && detail::is_row_major(domain, map.strides);
}

KernelSpec merge_axes(const KernelSpec& kernel) {
  const std::size_t rank = kernel.domain.size();
  const std::size_t outer = rank - static_cast<std::size_t>(kernel.row_axes);
  std::vector<std::vector<Dim>> all_strides;
  for (const Load& load : kernel.loads) all_strides.push_back(load.map.strides);
  for (const Store& store : kernel.stores) all_strides.push_back(store.map.strides);
  const detail::AxisMerger<Dim> merger(kernel, std::move(all_strides));
  // The new axis of each old one, and for each new axis the innermost of its old ones, whose stride it takes.
  std::vector<int> new_axis(rank, 0);
  std::vector<std::size_t> last;
  KernelSpec merged = kernel;
  merged.domain.clear();
  merged.row_axes = 0;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const bool merges = axis > 0 && axis != outer && merger.can_merge(axis - 1, axis, kernel.domain[axis]);
    if (merges) {
      merged.domain.back() = merged.domain.back() * kernel.domain[axis];
      last.back() = axis;
    } else {
      merged.domain.push_back(kernel.domain[axis]);
      last.push_back(axis);
      if (axis >= outer) ++merged.row_axes;
    }
    new_axis[axis] = static_cast<int>(last.size()) - 1;
  }
  const auto shorten = [&](IndexMap& map) {
    std::vector<Dim> strides;
    for (const std::size_t axis : last) strides.push_back(map.strides[axis]);
    map.strides = std::move(strides);
  };
  for (Load& load : merged.loads) {
    shorten(load.map);
    for (Mask& mask : load.masks) mask.axis = new_axis[static_cast<std::size_t>(mask.axis)];
  }
  for (Store& store : merged.stores) shorten(store.map);
  for (Instruction& instruction : merged.body)
    if (instruction.kind == Instruction::Kind::position)
      instruction.index = new_axis[static_cast<std::size_t>(instruction.index)];
  return merged;
}

}  // namespace jerboa::wgsl
