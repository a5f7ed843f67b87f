#include "transform/recurrent_math.h"

#include <functional>

#include <jerboa/ops/ops.h>

#include "transform/checked_indices.h"

namespace jerboa::detail {
namespace {

// [rows, elements of a row]
Tensor as_table(const Tensor& state) {
  Dim width(1);
  for (int axis = 1; axis < state.rank(); ++axis) width = width * state.dim(axis);
  return reshape(state, {state.dim(0), width});
}

// Tokens of [batch, time, channels], preceded by earlier inputs, numbered without the padding; the inputs before the
// first token have the numbers -1, -2, …
class NumberedInputs {
 public:
  NumberedInputs(const Tensor& past, const Tensor& x, const Tensor& positions)
      : before_(past.dim(1).value()), all_(concat({past, x}, 1)), real_(positions >= 0) {
    count_ = cumsum(cast(real_, DType::i32), 1);
    const Tensor times = broadcast_to(arange(x.dim(1)), positions.shape());
    const Tensor numbers = where(real_, count_ - 1, -1);
    times_ = scatter(zeros(positions.shape(), DType::i32), numbers, times, 1);
  }

  const Tensor& real() const { return real_; }
  // [batch, time]: the number of tokens, without padding, up to each one
  const Tensor& count() const { return count_; }

  // The inputs with these numbers, [batch, n].
  Tensor at(const Tensor& numbers) const {
    const Tensor of_token = take_along_axis(times_, maximum(numbers, 0), 1);
    const Tensor places = maximum(where(numbers >= 0, of_token, numbers) + static_cast<double>(before_), 0);
    const Shape shape{places.dim(0), places.dim(1), all_.dim(2)};
    return take_along_axis(all_, broadcast_to(unsqueeze(places, {2}), shape), 1);
  }

 private:
  std::int64_t before_;
  Tensor all_, real_, count_, times_;
};

// The sum over taps of its inputs times its column of the weight. `inputs(i)` are those of tap i.
Tensor sum_of_taps(const Tensor& weight, const std::function<Tensor(std::int64_t)>& inputs) {
  Tensor total;
  for (std::int64_t tap = 0; tap < weight.dim(1).value(); ++tap) {
    const Tensor column = reshape(slice(weight, 1, tap, tap + 1), {weight.dim(0)});
    const Tensor product = inputs(tap) * column;
    total = total ? total + product : product;
  }
  return total;
}

// The inputs before the first token: zeros where a row starts a sequence.
Tensor past_of(const CausalConvOperands& in, const Dim& before) {
  const Dim batch = in.x.dim(0);
  if (!in.state) return zeros({batch, before, in.x.dim(2)}, in.x.dtype());
  const Tensor rows = cast(state_rows(in.state, in.slots), in.x.dtype());
  if (!in.positions) return rows;
  const Tensor starts = max(cast(equal(in.positions, 0), DType::i32), {1}) > 0;
  return where(reshape(starts, {batch, 1, 1}), 0, rows);
}

}  // namespace

Tensor state_rows(const Tensor& state, const Tensor& slots) {
  if (!slots) return state;
  const CheckedIndices rows = checked(slots, state.dim(0));
  const Tensor found = embedding(as_table(state), rows.nearest);
  Shape shape = state.shape();
  shape[0] = slots.dim(0);
  return reshape(where(unsqueeze(rows.in_range, {1}), found, 0), shape);
}

Tensor with_state_rows(const Tensor& state, const Tensor& slots, const Tensor& rows) {
  if (!slots) return rows;
  const Tensor updates = as_table(rows);
  const Tensor indices = broadcast_to(unsqueeze(slots, {1}), updates.shape());
  return reshape(scatter(as_table(state), indices, updates, 0), state.shape());
}

std::vector<Tensor> causal_conv1d_in_ops(const CausalConvOperands& in) {
  const std::int64_t taps = in.weight.dim(1).value(), before = taps - 1;
  const Dim time = in.x.dim(1);
  const Tensor past = past_of(in, before);
  Tensor y, next;
  if (in.positions) {
    const NumberedInputs inputs(past, in.x, in.positions);
    const Tensor sum = sum_of_taps(
        in.weight, [&](std::int64_t tap) { return inputs.at(inputs.count() - static_cast<double>(taps - tap)); });
    y = where(unsqueeze(inputs.real(), {2}), sum, 0);
    const Tensor total = slice(inputs.count(), 1, time - Dim(1), time);
    next = inputs.at(total + (arange(before) - static_cast<double>(before)));
  } else {
    const Tensor all = concat({past, in.x}, 1);
    y = sum_of_taps(in.weight, [&](std::int64_t tap) { return slice(all, 1, tap, Dim(tap) + time); });
    next = slice(all, 1, time, time + Dim(before));
  }
  if (!in.state) return {next, y};
  return {with_state_rows(in.state, in.slots, cast(next, in.state.dtype())), y};
}

}  // namespace jerboa::detail
