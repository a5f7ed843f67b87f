#include "ir/shape_rules.h"

// Rules for ops that carry a state from token to token.
namespace jerboa::shape_rule {
namespace {

// Checks positions [batch, time] at operand i, and slots [batch] after them.
void check_tokens(const Call& call, std::size_t i, const Dim& batch, const Dim& time) {
  if (call.has(i)) call.want_integer(i);
  call.want_shape(i, {batch, time});
  if (!call.has(i + 1)) return;
  call.want_integer(i + 1);
  call.want_shape(i + 1, {batch});
  if (!call.has(0)) call.fail("slots need a state, of which they are rows");
}

// The type of the next state: that of the state, whose rows are those of the batch unless there are slots. A state may
// have another type than x.
TensorType next_state(const Call& call, std::size_t slots, const Shape& rows) {
  if (!call.has(0)) return {call.in(1).dtype, rows};
  call.want_float(0);
  Shape wanted = rows;
  if (call.has(slots) && call.rank(0) > 0) wanted[0] = call.shape(0)[0];
  call.want_shape(0, wanted);
  return call.in(0);
}

// Checks q, k, v, log_decay and beta, and returns [batch, heads, key size, value size].
Shape check_linear_attention(const Call& call) {
  call.want_float(1);
  for (std::size_t i = 1; i < 6; ++i) {
    if (!call.has(i)) continue;
    call.want_same_dtype(1, i);
    call.want_rank(i, i < 4 ? 4 : 3);
  }
  const Shape &k = call.shape(2), &v = call.shape(3);
  call.want_shape(1, k);
  if (!(k[0] == v[0]) || !(k[1] == v[1]))
    call.fail("k {} and v {} must agree in batch and time", to_string(k), to_string(v));
  if (!divide_exactly(v[2], k[2]))
    call.fail("{} heads of v are not a multiple of the {} of q and k", v[2].str(), k[2].str());
  for (const std::size_t i : {4, 5}) call.want_shape(i, {v[0], v[1], v[2]});
  return {v[0], v[2], k[3], v[3]};
}

}  // namespace

Types causal_conv1d(const Call& call) {
  call.want_float(1);
  call.want_rank(1, 3);
  call.want_rank(2, 2);
  call.want_same_dtype(1, 2);
  const Shape &x = call.shape(1), &weight = call.shape(2);
  if (!weight[1].is_constant() || weight[1].value() < 1)
    call.fail("weight {} must have a fixed number of taps", to_string(weight));
  call.want_shape(2, {x[2], weight[1]});
  check_tokens(call, 3, x[0], x[1]);
  return {next_state(call, 4, {x[0], weight[1] - Dim(1), x[2]}), call.in(1)};
}

Types linear_attention(const Call& call) {
  const Shape rows = check_linear_attention(call);
  check_tokens(call, 6, rows[0], call.shape(3)[1]);
  return {next_state(call, 7, rows), call.in(3)};
}

Types linear_attention_grad(const Call& call) {
  const Shape rows = check_linear_attention(call);
  if (call.has(6)) call.want_integer(6);
  call.want_shape(6, {rows[0], call.shape(3)[1]});
  for (const std::size_t i : {0, 7}) {
    if (call.has(i)) call.want_float(i);
    call.want_shape(i, rows);
  }
  call.want_same_dtype(1, 8);
  call.want_shape(8, call.shape(3));
  Types types{call.in(1), call.in(2), call.in(3), call.in(4)};
  for (const std::size_t i : {5, 0})
    if (call.has(i)) types.push_back(call.in(i));
  return types;
}

}  // namespace jerboa::shape_rule
