#include <algorithm>

#include "backend/cpu/reference/evaluate.h"
#include "backend/cpu/reference/loops.h"

// Ops that move elements regardless of their values.
namespace jerboa::reference {
namespace {

// out[index] = x[offset + index · strides]
void gather_strided(const Call& call, const Sizes& strides, std::int64_t offset = 0) {
  std::size_t next = 0;
  for_each_index(call.out().shape, [&](const Sizes& index) {
    call.out().data[next++] = call.in(0).data[offset + offset_of(index, strides)];
  });
}

}  // namespace

template <>
void evaluate<Op::reshape>(const Call& call) {
  call.out().data = call.in(0).data;
}

template <>
void evaluate<Op::transpose>(const Call& call) {
  const Sizes operand_strides = strides_of(call.in(0).shape);
  Sizes strides;
  for (const int axis : call.as<TransposeAttrs>().perm)
    strides.push_back(operand_strides[*resolve_axis(axis, static_cast<int>(operand_strides.size()))]);
  gather_strided(call, strides);
}

template <>
void evaluate<Op::broadcast_to>(const Call& call) {
  gather_strided(call, broadcast_strides(call.in(0).shape, call.out().shape));
}

template <>
void evaluate<Op::slice>(const Call& call) {
  const SliceRange range = *resolve_slice(call.as<SliceAttrs>(), call.graph.shape(call.node.inputs[0]));
  Sizes strides = strides_of(call.in(0).shape);
  const std::int64_t offset = call.size(range.start) * strides[range.axis];
  strides[range.axis] *= range.step;
  gather_strided(call, strides, offset);
}

template <>
void evaluate<Op::concat>(const Call& call) {
  const int axis = call.as<AxisAttrs>().axis;
  const AlongAxis out(call.out().shape, axis);
  std::int64_t start = 0;
  for (const Value* part : call.inputs) {
    const AlongAxis along(part->shape, axis);
    along.for_each_line([&](std::int64_t o, std::int64_t i) {
      for (std::int64_t p = 0; p < along.size; ++p)
        call.out().data[out.at(o, start + p, i)] = part->data[along.at(o, p, i)];
    });
    start += along.size;
  }
}

template <>
void evaluate<Op::pad>(const Call& call) {
  const auto& attrs = call.as<PadAttrs>();
  Value& out = call.out();
  std::fill(out.data.begin(), out.data.end(), attrs.value);
  const Sizes strides = strides_of(out.shape);
  const std::int64_t offset = offset_of(evaluate(attrs.before, call.symbols), strides);
  std::size_t next = 0;
  for_each_index(call.in(0).shape,
                 [&](const Sizes& index) { out.data[offset + offset_of(index, strides)] = call.in(0).data[next++]; });
}

}  // namespace jerboa::reference
