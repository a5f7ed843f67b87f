#include <jerboa/base/lowest_score.h>
#include <jerboa/models/pooling.h>
#include <jerboa/ops/ops.h>

namespace jerboa::models {
namespace {

// Masks padding and the leading tokens that are skipped: f32[batch, time, 1], or f32[1, time, 1] for all rows.
Tensor text_mask(const Tensor& hidden, const Tensor& lengths, const Tensor& skipped) {
  if (!lengths && !skipped) return full({1, hidden.dim(1), 1}, 1);
  const Tensor position = unsqueeze(arange(hidden.dim(1)), {0});
  Tensor counted;
  if (lengths) counted = less(position, unsqueeze(lengths, {1}));
  if (skipped) {
    const Tensor behind = greater_equal(position, unsqueeze(skipped, {1}));
    counted = lengths ? logical_and(counted, behind) : behind;
  }
  return unsqueeze(cast(counted, DType::f32), {2});
}

// `least` keeps the divisor above zero where every token is skipped.
Tensor weighted(const Tensor& hidden, const Tensor& weights, bool root, double least) {
  Tensor total = sum(weights, {1});
  if (least > 0) total = maximum(total, least);
  const Tensor divisor = root ? sqrt(total) : total;
  return sum(hidden * weights, {1}) / divisor;
}

Tensor last_token(const Tensor& hidden, const Tensor& lengths) {
  const Tensor place = reshape(lengths - 1, {hidden.dim(0), 1, 1});
  const Shape rows{hidden.dim(0), 1, hidden.dim(2)};
  return squeeze(take_along_axis(hidden, broadcast_to(place, rows), 1), {1});
}

}  // namespace

Tensor pool(const Tensor& hidden, const Tensor& given, Pooling kind, const Tensor& skipped) {
  const SiteScope scope(CallSite{});
  if (kind == Pooling::cls) return squeeze(slice(hidden, 1, 0, 1), {1});
  const Dim time = hidden.dim(1);
  if (kind == Pooling::last && !given) return squeeze(slice(hidden, 1, time - Dim(1), time), {1});
  if (kind == Pooling::last) return last_token(hidden, given);
  const Tensor mask = text_mask(hidden, given, skipped);
  const double least = skipped ? 1e-9 : 0;
  switch (kind) {
    case Pooling::max: return max(where(greater(mask, 0), hidden, lowest_score), {1});
    case Pooling::weighted_mean: {
      const Tensor number = reshape(cast(arange(time), DType::f32) + 1, {1, time, 1});
      return weighted(hidden, mask * number, false, least);
    }
    default: return weighted(hidden, mask, kind == Pooling::mean_sqrt, least);
  }
}

Tensor unit_rows(const Tensor& x) {
  const SiteScope scope(CallSite{});
  const Tensor length = sqrt(sum(x * x, {-1}, true));
  return x / maximum(length, 1e-12);  // as in PyTorch's normalize
}

}  // namespace jerboa::models
