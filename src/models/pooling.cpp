#include <jerboa/models/pooling.h>
#include <jerboa/ops/ops.h>

namespace jerboa::models {
namespace {

// Tokens before the row's end: f32[batch, time, 1].
Tensor text_mask(const Tensor& hidden, const Tensor& lengths) {
  const Tensor position = unsqueeze(arange(hidden.dim(1)), {0});
  return unsqueeze(cast(less(position, unsqueeze(lengths, {1})), DType::f32), {2});
}

Tensor weighted(const Tensor& hidden, const Tensor& weights, bool root) {
  const Tensor total = sum(weights, {1});
  const Tensor divisor = root ? sqrt(total) : total;
  return sum(hidden * weights, {1}) / divisor;
}

Tensor last_token(const Tensor& hidden, const Tensor& lengths) {
  const Tensor place = reshape(lengths - 1, {hidden.dim(0), 1, 1});
  const Shape rows{hidden.dim(0), 1, hidden.dim(2)};
  return squeeze(take_along_axis(hidden, broadcast_to(place, rows), 1), {1});
}

}  // namespace

Tensor pool(const Tensor& hidden, const Tensor& given, Pooling kind) {
  const SiteScope scope(CallSite{});
  if (kind == Pooling::cls) return squeeze(slice(hidden, 1, 0, 1), {1});
  const Dim time = hidden.dim(1);
  if (kind == Pooling::last && !given) return squeeze(slice(hidden, 1, time - Dim(1), time), {1});
  if (kind == Pooling::last) return last_token(hidden, given);
  const Tensor mask = given ? text_mask(hidden, given) : full({1, time, 1}, 1);
  switch (kind) {
    case Pooling::max: return max(where(greater(mask, 0), hidden, -1e9), {1});
    case Pooling::weighted_mean: {
      const Tensor number = reshape(cast(arange(time), DType::f32) + 1, {1, time, 1});
      return weighted(hidden, mask * number, false);
    }
    default: return weighted(hidden, mask, kind == Pooling::mean_sqrt);
  }
}

Tensor unit_rows(const Tensor& x) {
  const SiteScope scope(CallSite{});
  const Tensor length = sqrt(sum(x * x, {-1}, true));
  return x / maximum(length, 1e-12);  // as PyTorch's normalize does
}

}  // namespace jerboa::models
