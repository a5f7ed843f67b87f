#include "ir/shape_rules.h"

namespace jerboa::shape_rule {

int Call::axis(int given, std::size_t input) const {
  const auto resolved = resolve_axis(given, rank(input));
  if (!resolved) fail("axis {} is out of range for {}", given, to_string(shape(input)));
  return *resolved;
}

void Call::want_rank(std::size_t i, int wanted) const {
  if (rank(i) != wanted) fail("{} must have {} axes, not {}", info(op).operands[i].name, wanted, to_string(shape(i)));
}

void Call::want_rank_at_least(std::size_t i, int wanted) const {
  if (rank(i) < wanted)
    fail("{} must have at least {} axes, not {}", info(op).operands[i].name, wanted, to_string(shape(i)));
}

void Call::want_shape(std::size_t i, const Shape& wanted) const {
  if (has(i) && shape(i) != wanted)
    fail("{} must be {}, not {}", info(op).operands[i].name, to_string(wanted), to_string(shape(i)));
}

void Call::want_float(std::size_t i) const {
  if (!is_float(in(i).dtype))
    fail("{} must be of a float type, not {}; cast it", info(op).operands[i].name, name(in(i).dtype));
}

void Call::want_integer(std::size_t i) const {
  if (!is_integer(in(i).dtype))
    fail("{} must be of an integer type, not {}; cast it", info(op).operands[i].name, name(in(i).dtype));
}

void Call::want_same_dtype(std::size_t i, std::size_t j) const {
  if (in(i).dtype != in(j).dtype)
    fail("types {} and {} differ; cast one of them", name(in(i).dtype), name(in(j).dtype));
}

namespace {

Shape broadcast_operands(const Call& call, std::size_t i, std::size_t j) {
  auto shape = broadcast(call.shape(i), call.shape(j));
  if (!shape) call.fail("{} and {} do not broadcast", to_string(call.shape(i)), to_string(call.shape(j)));
  return *shape;
}

Types binary(const Call& call) {
  call.want_same_dtype(0, 1);
  return {{call.in(0).dtype, broadcast_operands(call, 0, 1)}};
}

void want_numeric(const Call& call, std::size_t i) {
  if (!is_numeric(call.in(i).dtype)) call.fail("{} tensors have no arithmetic; cast them", name(call.in(i).dtype));
}

void want_boolean(const Call& call, std::size_t i) {
  if (call.in(i).dtype != DType::boolean)
    call.fail("{} must be boolean, not {}; compare it", info(call.op).operands[i].name, name(call.in(i).dtype));
}

}  // namespace

Types leaf(const Call& call) { call.fail("a leaf's type is given, not inferred"); }

Types const_scalar(const Call& call) { return {{call.as<ConstScalarAttrs>().dtype, {}}}; }

Types arange(const Call& call) {
  const auto& attrs = call.as<ArangeAttrs>();
  if (!is_numeric(attrs.dtype)) call.fail("the type must be numeric, not {}", name(attrs.dtype));
  if (attrs.length.lower_bound() < 0) call.fail("a length of {} may be negative", attrs.length.str());
  return {{attrs.dtype, {attrs.length}}};
}

Types random(const Call& call) {
  if (call.in(0).dtype != DType::u32 || call.shape(0) != Shape{2})
    call.fail("the key must be u32[2], not {}", to_string(call.in(0)));
  return {{DType::f32, call.as<RandomAttrs>().shape}};
}

Types unary_numeric(const Call& call) {
  want_numeric(call, 0);
  return {call.in(0)};
}

Types unary_float(const Call& call) {
  call.want_float(0);
  return {call.in(0)};
}

Types unary_bool(const Call& call) {
  want_boolean(call, 0);
  return {call.in(0)};
}

Types unary_integer(const Call& call) {
  call.want_integer(0);
  return {call.in(0)};
}

Types cast(const Call& call) {
  const DType to = call.as<CastAttrs>().dtype;
  if (bits(to) < 16 || bits(call.in(0).dtype) < 16) call.fail("{} is a storage type", name(to));
  return {{to, call.shape(0)}};
}

Types binary_numeric(const Call& call) {
  want_numeric(call, 0);
  return binary(call);
}

Types binary_float(const Call& call) {
  call.want_float(0);
  return binary(call);
}

Types binary_bool(const Call& call) {
  want_boolean(call, 0);
  want_boolean(call, 1);
  return binary(call);
}

Types binary_integer(const Call& call) {
  call.want_integer(0);
  return binary(call);
}

Types power(const Call& call) {
  call.want_float(0);
  return call.has(1) ? binary(call) : Types{call.in(0)};
}

Types compare(const Call& call) {
  call.want_same_dtype(0, 1);
  return {{DType::boolean, broadcast_operands(call, 0, 1)}};
}

Types where(const Call& call) {
  want_boolean(call, 0);
  call.want_same_dtype(1, 2);
  const Shape values = broadcast_operands(call, 1, 2);
  const auto shape = broadcast(call.shape(0), values);
  if (!shape) call.fail("condition {} and values {} do not broadcast", to_string(call.shape(0)), to_string(values));
  return {{call.in(1).dtype, *shape}};
}

}  // namespace jerboa::shape_rule
