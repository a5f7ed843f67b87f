#include "transform/attention_math.h"

#include <cmath>

#include <jerboa/ir/packed_cache.h>
#include <jerboa/ops/ops.h>

#include "base/integers.h"

namespace jerboa::detail {
namespace {

void restrict(Tensor& visible, const Tensor& condition) {
  visible = visible ? logical_and(visible, condition) : condition;
}

// The position of each key: [keys], or [batch, 1, 1, 1, keys] for a ring.
Tensor key_positions(const AttentionOperands& in, const AttentionAttrs& attrs) {
  const Dim keys = in.k.dim(2);
  const Tensor slot = arange(keys);
  if (!attrs.ring) return slot;
  // Slot j holds the largest position p < length with p = j modulo the capacity.
  const Tensor last = reshape(in.lengths, {in.lengths.dim(0), 1, 1, 1, 1}) - 1;
  const Tensor behind = last - slot;
  const Tensor capacity = scalar(static_cast<double>(keys.value()), DType::i32);
  const Tensor wrapped = mod(mod(behind, capacity) + capacity, capacity);
  return last - wrapped;
}

// [batch or 1, 1, 1, time, 1]
Tensor query_positions(const AttentionOperands& in) {
  const Dim time = in.q.dim(2), keys = in.k.dim(2);
  if (in.positions) return reshape(in.positions, {in.positions.dim(0), 1, 1, time, 1});
  // Without positions the queries are the last `time` keys.
  const Tensor all = arange(keys);
  const Tensor last = time == keys ? all : slice(all, 0, keys - time, keys);
  return reshape(last, {1, 1, 1, time, 1});
}

Tensor visibility(const AttentionOperands& in, const AttentionAttrs& attrs, const Shape& scores, const Dim& key_heads) {
  Tensor visible;
  const Tensor key_at = key_positions(in, attrs);
  if (attrs.ring) restrict(visible, key_at >= 0);
  if (in.lengths) restrict(visible, key_at < reshape(in.lengths, {in.lengths.dim(0), 1, 1, 1, 1}));
  if (attrs.causal) {
    const Tensor query_at = query_positions(in);
    restrict(visible, key_at <= query_at);
    if (attrs.window > 0) restrict(visible, key_at > query_at - attrs.window);
  }
  if (in.mask) {
    const DType dtype = in.mask.dtype();
    const Tensor seen = dtype == DType::boolean ? in.mask : in.mask > hidden_key(dtype);
    restrict(visible, group_heads(broadcast_to(seen, {in.q.dim(0), in.q.dim(1), in.q.dim(2), in.k.dim(2)}), key_heads));
  }
  return visible ? broadcast_to(visible, scores) : visible;
}

// Splits each word into `parts` bit fields, lowest first: […, words] → […, words * parts].
Tensor parts_of_words(const Tensor& words, int parts) {
  const int width = 32 / parts;
  Shape shape = words.shape();
  shape.back() = shape.back() * Dim(parts);
  const Tensor shifts = arange(parts, DType::u32) * width;
  const Tensor shifted = shift_right(unsqueeze(words, {-1}), shifts);
  return reshape(bit_and(shifted, (1 << width) - 1), shape);
}

// A positive bf16 from its bits: 1.fraction times a power of two, of which each bit of the exponent is a factor. For
// exponents above the bias, set bits multiply; below it, clear bits divide. Intermediate results are normal if the
// final one is, in whatever order a compiler multiplies: GPUs may flush subnormal numbers to 0.
Tensor float_of_bits(const Tensor& bits) {
  const Tensor fraction = cast(bit_and(bits, 127), DType::f32);
  Tensor value = (fraction + 128) * 0x1p-7;
  const Tensor is_large = bits >= 128 << 7;
  for (int bit = 0; bit < 7; ++bit) {
    const Tensor is_set = bit_and(bits, 128 << bit) > 0;
    const double factor = std::exp2(1 << bit);
    const Tensor above = where(is_set, value * factor, value);
    const Tensor below = where(is_set, value, value / factor);
    value = where(is_large, above, below);
  }
  value = where(is_large, value * 2, value);
  return where(bits > 0, value, 0.0);
}

}  // namespace

Tensor group_heads(const Tensor& x, const Dim& key_heads) {
  Shape shape = x.shape();
  const Dim group = *divide_exactly(shape[1], key_heads);
  shape[1] = key_heads;
  shape.insert(shape.begin() + 2, group);
  return reshape(x, shape);
}

Tensor ungroup_heads(const Tensor& x) {
  Shape shape = x.shape();
  shape[1] = shape[1] * shape[2];
  shape.erase(shape.begin() + 2);
  return reshape(x, shape);
}

Tensor unpaged(const Tensor& cache, const Tensor& table) {
  const Dim heads = cache.dim(1), block = cache.dim(2), size = cache.dim(3);
  const Tensor flat = reshape(cache, {cache.dim(0), heads * block * size});
  const Tensor rows = embedding(flat, maximum(table, 0));  // negative entries occur only for keys that nothing sees
  const Tensor blocks = reshape(rows, {table.dim(0), table.dim(1), heads, block, size});
  return reshape(swap_axes(blocks, 1, 2), {table.dim(0), heads, table.dim(1) * block, size});
}

Tensor paged_gradient(const Tensor& dstraight, const Tensor& cache, const Tensor& table) {
  const Dim heads = cache.dim(1), block = cache.dim(2), size = cache.dim(3);
  const Tensor blocks = reshape(dstraight, {table.dim(0), heads, table.dim(1), block, size});
  const Tensor rows = reshape(swap_axes(blocks, 1, 2), {table.dim(0), table.dim(1), heads * block * size});
  return reshape(embedding_grad(table, rows, cache.dim(0)), cache.shape());
}

Tensor unpacked(const Tensor& cache, DType dtype) {
  if (cache.dtype() != packed_cache) return cache;
  const std::int64_t size = unpacked_size(cache.dim(3).value());
  const std::int64_t groups = divide_up(size, features_per_scale);
  const Tensor bytes = parts_of_words(slice(cache, 3, 0, size / features_per_word), features_per_word);
  const Tensor positive = cast(bytes, DType::f32);
  const Tensor numbers = where(bytes >= 128, positive - 256, positive);
  const Tensor halves = parts_of_words(slice(cache, 3, size / features_per_word, cache.dim(3)), 2);
  const Tensor scales = float_of_bits(slice(halves, 3, 0, groups));
  Shape repeated = scales.shape();
  repeated.back() = features_per_scale;
  repeated.insert(repeated.end() - 1, Dim(groups));
  const Tensor of_groups = broadcast_to(unsqueeze(scales, {-1}), repeated);
  repeated.pop_back();
  repeated.back() = Dim(groups * features_per_scale);
  const Tensor factors = slice(reshape(of_groups, repeated), 3, 0, size);
  return cast(numbers * factors, dtype);
}

AttentionProbabilities attention_probabilities(const AttentionOperands& in, const AttentionAttrs& attrs) {
  AttentionProbabilities result;
  const Dim key_heads = in.k.dim(1);
  const DType dtype = in.q.dtype();
  result.query = group_heads(in.q, key_heads);
  result.key = unsqueeze(in.k, {2});
  const double scale = attrs.scale != 0 ? attrs.scale : 1 / std::sqrt(static_cast<double>(in.q.dim(3).value()));
  Tensor scores = matmul(result.query, result.key, {.transpose_b = true}) * scale;
  if (attrs.soft_cap > 0) {
    const Tensor bent = tanh(scores / attrs.soft_cap);
    scores = bent * attrs.soft_cap;
    result.cap_slope = 1 - bent * bent;
  }
  if (in.mask && is_float(in.mask.dtype()))
    scores =
        scores + group_heads(broadcast_to(in.mask, {in.q.dim(0), in.q.dim(1), in.q.dim(2), in.k.dim(2)}), key_heads);
  const Tensor visible = visibility(in, attrs, scores.shape(), key_heads);
  if (visible) scores = where(visible, scores, lowest_score_of(dtype));

  Tensor top = max(scores, {-1}, true);
  Tensor sink;
  if (in.sinks) {
    sink = reshape(in.sinks, {1, key_heads, *divide_exactly(in.q.dim(1), key_heads), 1, 1});
    top = maximum(top, sink);
  }
  Tensor exponentials = exp(scores - top);
  if (visible) exponentials = where(visible, exponentials, 0);
  Tensor total = sum(exponentials, {-1}, true);
  Tensor sink_exponential;
  if (in.sinks) {
    sink_exponential = exp(sink - top);
    total = total + sink_exponential;
  }
  // The largest term is 1, so the bound only affects a row that sees nothing.
  total = maximum(total, 0.5);
  result.weights = exponentials / total;
  if (in.sinks) result.sink_weights = sink_exponential / total;
  return result;
}

}  // namespace jerboa::detail
