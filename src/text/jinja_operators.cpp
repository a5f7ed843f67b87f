#include "text/jinja_operators.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "text/jinja_interpreter.h"
#include "text/jinja_objects.h"
#include "text/jinja_text.h"

namespace jerboa::jinja {
namespace {

constexpr const char* overflow = "the result is too large for a 64-bit integer";

std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t out = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(out, base, &out)) throw Fault(overflow);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) throw Fault(overflow);
  }
  return out;
}

// Python rounds a quotient down and gives a remainder the divisor's sign.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == -1) {
    std::int64_t out = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &out)) throw Fault(overflow);
    return out;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

Value integer_arithmetic(BinaryOp op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  switch (op) {
    case BinaryOp::add:
      if (__builtin_add_overflow(a, b, &out)) throw Fault(overflow);
      return out;
    case BinaryOp::subtract:
      if (__builtin_sub_overflow(a, b, &out)) throw Fault(overflow);
      return out;
    case BinaryOp::multiply:
      if (__builtin_mul_overflow(a, b, &out)) throw Fault(overflow);
      return out;
    case BinaryOp::divide: return static_cast<double>(a) / static_cast<double>(b);
    case BinaryOp::floor_divide: return floor_divide(a, b);
    case BinaryOp::modulo: return b == -1 ? Value(std::int64_t{0}) : Value(a - floor_divide(a, b) * b);
    case BinaryOp::power:
      if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
      return integer_power(a, b);
  }
  return None{};
}

Value float_arithmetic(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::add: return a + b;
    case BinaryOp::subtract: return a - b;
    case BinaryOp::multiply: return a * b;
    case BinaryOp::divide: return a / b;
    case BinaryOp::floor_divide: return std::floor(a / b);
    case BinaryOp::modulo: {
      const double rest = std::fmod(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    case BinaryOp::power: return std::pow(a, b);
  }
  return None{};
}

const char* symbol(BinaryOp op) {
  switch (op) {
    case BinaryOp::add: return "+";
    case BinaryOp::subtract: return "-";
    case BinaryOp::multiply: return "*";
    case BinaryOp::divide: return "/";
    case BinaryOp::floor_divide: return "//";
    case BinaryOp::modulo: return "%";
    case BinaryOp::power: return "**";
  }
  return "?";
}

Value repeat(Interpreter& interpreter, const Value& sequence, std::int64_t times) {
  const std::size_t count = times > 0 ? static_cast<std::size_t>(times) : 0;
  const std::size_t unit = sequence.is_string() ? sequence.text().size() : sequence.list()->items.size();
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(unit * (sequence.is_string() ? 1 : sizeof(Value)), count, &bytes)) bytes = SIZE_MAX;
  interpreter.charge(bytes);
  if (unit == 0) return sequence;
  if (sequence.is_string()) {
    std::string out;
    out.reserve(bytes);
    for (std::size_t i = 0; i < count; ++i) out += sequence.text();
    return out;
  }
  std::vector<Value> items;
  items.reserve(unit * count);
  for (std::size_t i = 0; i < count; ++i)
    items.insert(items.end(), sequence.list()->items.begin(), sequence.list()->items.end());
  return sequence.list()->tuple ? Value::tuple(std::move(items)) : Value(std::move(items));
}

// The position of an index, counted from the end if it is negative.
std::optional<std::size_t> resolve_index(std::int64_t index, std::size_t size) {
  if (index < 0) index += static_cast<std::int64_t>(size);
  if (index < 0 || index >= static_cast<std::int64_t>(size)) return std::nullopt;
  return static_cast<std::size_t>(index);
}

std::string missing(const Value& object, const std::string& name) {
  return fmt::format("'{}' has no attribute '{}'", object.type_name(), name);
}

}  // namespace

Value arithmetic(Interpreter& interpreter, BinaryOp op, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right})
    if (side->is_undefined()) throw Fault(*side->undefined().what);
  if (left.is_number() && right.is_number()) {
    const bool divides = op == BinaryOp::divide || op == BinaryOp::floor_divide || op == BinaryOp::modulo;
    if (divides && right.number() == 0) throw Fault("division by zero");
    if (op == BinaryOp::power && left.number() == 0 && right.number() < 0) throw Fault("division by zero");
    if (left.is_integral() && right.is_integral()) return integer_arithmetic(op, left.integer(), right.integer());
    return float_arithmetic(op, left.number(), right.number());
  }
  if (op == BinaryOp::add && left.is_string() && right.is_string()) {
    interpreter.charge(left.text().size() + right.text().size());
    return left.text() + right.text();
  }
  if (op == BinaryOp::add && left.is_list() && right.is_list() && left.list()->tuple == right.list()->tuple) {
    std::vector<Value> items = left.list()->items;
    interpreter.charge((items.size() + right.list()->items.size()) * sizeof(Value));
    items.insert(items.end(), right.list()->items.begin(), right.list()->items.end());
    return left.list()->tuple ? Value::tuple(std::move(items)) : Value(std::move(items));
  }
  if (op == BinaryOp::multiply) {
    if ((left.is_string() || left.is_list()) && right.is_integral()) return repeat(interpreter, left, right.integer());
    if ((right.is_string() || right.is_list()) && left.is_integral()) return repeat(interpreter, right, left.integer());
  }
  if (op == BinaryOp::modulo && left.is_string()) return format_percent(interpreter, left.text(), right);
  throw Fault(fmt::format("'{}' {} '{}' is not possible", left.type_name(), symbol(op), right.type_name()));
}

bool compare_with(CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::equal: return equal(left, right);
    case CompareOp::not_equal: return !equal(left, right);
    case CompareOp::in: return contains(right, left);
    case CompareOp::not_in: return !contains(right, left);
    default: break;
  }
  // NaN is unordered, which a three-way comparison cannot express.
  if (left.is_number() && right.is_number() && (std::isnan(left.number()) || std::isnan(right.number()))) return false;
  const int order = compare(left, right);
  switch (op) {
    case CompareOp::less: return order < 0;
    case CompareOp::less_equal: return order <= 0;
    case CompareOp::greater: return order > 0;
    default: return order >= 0;
  }
}

Value negate(const Value& value) {
  if (value.is_float()) return -value.number();
  std::int64_t out = 0;
  if (__builtin_sub_overflow(std::int64_t{0}, value.integer(), &out)) throw Fault(overflow);
  return out;
}

Value get_attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) throw Fault(*object.undefined().what);
  if (has_method(object, name)) return std::make_shared<BoundMethod>(object, std::string(name));
  if (object.is_dict())
    if (const Value* value = object.dict()->find(name)) return *value;
  if (object.is_object())
    if (auto value = object.object()->attribute(name)) return std::move(*value);
  return undefined(missing(object, std::string(name)));
}

Value get_item(const Value& object, const Value& index) {
  if (object.is_undefined()) throw Fault(*object.undefined().what);
  if (object.is_dict()) {
    if (const Value* value = object.dict()->find(index)) return *value;
  } else if (object.is_list() && index.is_integral()) {
    const auto& items = object.list()->items;
    if (const auto at = resolve_index(index.integer(), items.size())) return items[*at];
  } else if (object.is_string() && index.is_integral()) {
    const std::string& text = object.text();
    if (is_ascii(text)) {
      if (const auto at = resolve_index(index.integer(), text.size())) return std::string(1, text[*at]);
    } else {
      const std::u32string characters = decode_utf8(text);
      if (const auto at = resolve_index(index.integer(), characters.size()))
        return encode_utf8(std::u32string_view(characters).substr(*at, 1));
    }
  } else if (object.is_object() && index.is_string()) {
    if (auto value = object.object()->attribute(index.text())) return std::move(*value);
  }
  if (index.is_string() && has_method(object, index.text())) return get_attribute(object, index.text());
  return undefined(missing(object, index.str()));
}

Value get_slice(const Value& object, std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                std::int64_t step) {
  if (object.is_undefined()) throw Fault(*object.undefined().what);
  if (!object.is_string() && !object.is_list()) throw Fault(fmt::format("a '{}' has no slices", object.type_name()));
  if (step == 0) throw Fault("the step of a slice must not be zero");
  const bool ascii = object.is_string() && is_ascii(object.text());
  const std::u32string characters = object.is_string() && !ascii ? decode_utf8(object.text()) : std::u32string();
  const auto size = static_cast<std::int64_t>(object.is_list() ? object.list()->items.size()
                                              : ascii          ? object.text().size()
                                                               : characters.size());
  // As PySlice_AdjustIndices: out-of-range bounds are moved to the ends.
  const auto clamp = [&](std::int64_t bound) {
    if (bound < 0) bound = bound < -size ? -1 : bound + size;
    return step > 0 ? std::clamp<std::int64_t>(bound, 0, size) : std::clamp<std::int64_t>(bound, -1, size - 1);
  };
  const std::int64_t first = start ? clamp(*start) : step > 0 ? 0 : size - 1;
  const std::int64_t last = stop ? clamp(*stop) : step > 0 ? size : -1;
  std::vector<std::size_t> positions;
  if (step > 0) {
    for (std::int64_t i = first; i<last; i = step> size ? last : i + step)
      positions.push_back(static_cast<std::size_t>(i));
  } else {
    for (std::int64_t i = first; i > last; i = step < -size ? last : i + step)
      positions.push_back(static_cast<std::size_t>(i));
  }
  if (object.is_list()) {
    std::vector<Value> items;
    for (const std::size_t i : positions) items.push_back(object.list()->items[i]);
    return object.list()->tuple ? Value::tuple(std::move(items)) : Value(std::move(items));
  }
  std::string out;
  for (const std::size_t i : positions) {
    if (ascii)
      out += object.text()[i];
    else
      append_utf8(out, characters[i]);
  }
  return out;
}

}  // namespace jerboa::jinja
