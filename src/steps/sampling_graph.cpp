#include "steps/sampling_graph.h"

#include <algorithm>
#include <limits>

#include <jerboa/base/random.h>
#include <jerboa/ops/ops.h>

namespace jerboa::language {
namespace {

constexpr double excluded = -1e30;  // masks use a large finite value
// Of logarithms of probabilities, relative to the likeliest token's: below the range f32 has no probability to draw.
constexpr double lowest = -88, range_begin = -87;
// Rows are split into parts of this length; long ones into longer parts, so that there are not too many.
constexpr std::int64_t part_length = 512, long_part_length = 2048, long_row = 1 << 16;
// How finely thresholds are found: 28 bits of the range, where f32 has 24 of each value.
constexpr int threshold_bits = 28;

constexpr std::uint64_t first_factor = 0xbf58476d1ce4e5b9u, second_factor = 0x94d049bb133111ebu;  // of split_mix

// A 64-bit number as two words.
struct Wide {
  Tensor low, high;
};

Tensor word(std::uint64_t value) { return scalar(static_cast<double>(value & 0xffffffffu), DType::u32); }

Wide wide_add(const Wide& a, const Wide& b) {
  const Tensor low = a.low + b.low;
  const Tensor carry = cast(low < a.low, DType::u32);
  return {low, a.high + b.high + carry};
}

// The upper word of the product of two words, from products of half words.
Tensor upper_product(const Tensor& a, std::uint32_t b) {
  const Tensor a0 = bit_and(a, word(0xffff)), a1 = shift_right(a, word(16));
  const Tensor b0 = word(b & 0xffffu), b1 = word(b >> 16);
  const Tensor p01 = a0 * b1, p10 = a1 * b0;
  const Tensor middle = shift_right(a0 * b0, word(16)) + bit_and(p01, word(0xffff)) + bit_and(p10, word(0xffff));
  return a1 * b1 + shift_right(p01, word(16)) + shift_right(p10, word(16)) + shift_right(middle, word(16));
}

Wide wide_multiply(const Wide& a, std::uint64_t b) {
  const auto b_low = static_cast<std::uint32_t>(b);
  return {a.low * word(b_low), upper_product(a.low, b_low) + a.low * word(b >> 32) + a.high * word(b_low)};
}

Wide xor_shifted(const Wide& a, int bits) {
  const Tensor low = bit_or(shift_right(a.low, word(static_cast<std::uint64_t>(bits))),
                            shift_left(a.high, word(static_cast<std::uint64_t>(32 - bits))));
  return {bit_xor(a.low, low), bit_xor(a.high, shift_right(a.high, word(static_cast<std::uint64_t>(bits))))};
}

// Rows of values in parts, [rows, parts, length].
struct Parts {
  Tensor values;
  std::int64_t parts, length;
};

Tensor per_row(const Tensor& x) { return unsqueeze(x, {1, 2}); }

// Over whole rows: across the parts first, which a GPU does with a thread per position, and only then along what is
// left. The other way round would be one reduction over two axes, which one workgroup per row performs.
Tensor over_parts(const Tensor& x) { return sum(sum(x, {-2}), {-1}); }
Tensor largest_of_parts(const Tensor& x) { return max(max(x, {-2}), {-1}); }

Tensor as_number(const Tensor& condition) { return cast(condition, DType::f32); }

// [rows, vocabulary] in parts, the last of which is padded.
Parts in_parts(const Tensor& logits, std::int64_t vocabulary) {
  const std::int64_t most = vocabulary > long_row ? long_part_length : part_length;
  const std::int64_t length = std::min(most, vocabulary), parts = (vocabulary + length - 1) / length;
  const Tensor padded =
      parts * length == vocabulary ? logits : pad(logits, {0, 0}, {0, parts * length - vocabulary}, excluded);
  return {reshape(padded, {logits.dim(0), parts, length}), parts, length};
}

// Which tokens the mask's bits allow, [rows, parts, length].
Tensor allowed(const Tensor& mask, std::int64_t parts, std::int64_t length) {
  const Dim rows = mask.dim(0), words = mask.dim(1);
  const Tensor bits = shift_right(unsqueeze(mask, {2}), arange(32, DType::u32));
  const Tensor flat = reshape(bit_and(bits, word(1)), {rows, words * Dim(32)});
  const std::int64_t have = words.value() * 32, want = parts * length;
  const Tensor fitted = have < want ? pad(flat, {0, 0}, {0, want - have}) : slice(flat, 1, 0, want);
  return not_equal(reshape(fitted, {rows, parts, length}), word(0));
}

// The token of the largest value of each row, of equal ones the first.
Tensor likeliest(const Parts& logits) {
  const Tensor best = max(logits.values, {2});
  const Tensor tokens = argmax(logits.values, 2) + arange(logits.parts) * static_cast<int>(logits.length);
  const Tensor is_best = equal(best, max(best, {1}, true));
  return min(where(is_best, tokens, std::numeric_limits<std::int32_t>::max()), {1});
}

// Logarithms of relative probabilities: 0 for the likeliest token of a row.
class Weights {
 public:
  Weights(const Parts& logits, const Tensor& temperature) : parts_(logits) {
    const Tensor best = largest_of_parts(logits.values);
    // A temperature of 0 is not sampled, but is computed all the same.
    const Tensor divisor = maximum(temperature, 1e-5);
    parts_.values = maximum((logits.values - per_row(best)) / per_row(divisor), lowest);
  }

  const Tensor& logs() const { return parts_.values; }
  static Tensor probability(const Tensor& logs) { return where(logs > range_begin, exp(logs), 0); }
  Tensor count_above(const Tensor& threshold) const { return over_parts(as_number(logs() > per_row(threshold))); }
  Tensor count_at(const Tensor& threshold) const { return over_parts(as_number(equal(logs(), per_row(threshold)))); }
  Tensor mass_above(const Tensor& threshold) const {
    return over_parts(where(logs() > per_row(threshold), probability(logs()), 0));
  }
  // The largest value below a bound.
  Tensor largest_below(const Tensor& bound) const {
    return largest_of_parts(where(logs() < per_row(bound), logs(), lowest));
  }

  // The largest value for which the total of all values from it on reaches a goal, between `low`, for which it does or
  // which is returned if none does, and the top. The total counts the values, or adds up their probabilities. Every
  // pass divides the interval that is left into `ways`.
  Tensor threshold(Tensor low, const Tensor& goal, bool by_mass, int ways) const {
    Tensor high = zeros_like(low) + 1;
    const Tensor values = unsqueeze(logs(), {1});  // [rows, 1, parts, length]
    int bits = 0;
    for (int left = ways; left > 1; left /= 2) ++bits;
    const Tensor steps = cast(arange(ways - 1) + 1, DType::f32) * (1.0 / ways);
    for (int done = 0; done < threshold_bits; done += bits) {
      const Tensor bounds = unsqueeze(low, {1}) + unsqueeze(high - low, {1}) * steps;  // [rows, ways - 1]
      const Tensor is_within = values >= unsqueeze(bounds, {2, 3});
      const Tensor parts = by_mass ? where(is_within, probability(values), 0) : as_number(is_within);
      const Tensor reaches = over_parts(parts) >= unsqueeze(goal, {1});
      const Tensor next = max(where(reaches, bounds, unsqueeze(low, {1})), {1});
      high = min(where(reaches, unsqueeze(high, {1}), bounds), {1});
      low = next;
    }
    return largest_below(high);
  }

  // The index of the first element at which the running total of weight_of(values, indices) exceeds a target, or of the
  // last that has any weight.
  template <class WeightOf>
  Tensor first_beyond(const Tensor& target, const WeightOf& weight_of) const {
    const Dim rows = logs().dim(0);
    const auto length = static_cast<int>(parts_.length);
    const Tensor part_number = arange(parts_.parts);
    const Tensor totals = sum(weight_of(logs(), unsqueeze(part_number, {1}) * length + arange(parts_.length)), {2});
    const Tensor part = crossing(totals, target, part_number);
    const Tensor before = sum(where(part_number < unsqueeze(part, {1}), totals, 0), {1});
    const Tensor row_of_part = broadcast_to(unsqueeze(part, {1, 2}), {rows, 1, parts_.length});
    const Tensor values = take_along_axis(logs(), row_of_part, 1);
    const Tensor within = arange(parts_.length);
    const Tensor weights = squeeze(weight_of(values, unsqueeze(part, {1, 2}) * length + within), {1});
    return part * length + crossing(weights, target - before, within);
  }

 private:
  static Tensor crossing(const Tensor& weights, const Tensor& target, const Tensor& numbers) {
    const Tensor passed = sum(cast(cumsum(weights) <= unsqueeze(target, {1}), DType::i32), {1});
    return minimum(passed, max(where(weights > 0, numbers, 0), {1}));
  }

  Parts parts_;
};

struct Settings {
  Tensor temperature, top_k, top_p, min_p, uniform;
};

Tensor sampled(const Parts& logits, const Settings& settings, std::int64_t vocabulary, bool is_gpu) {
  const int ways = is_gpu ? 8 : 4;  // a GPU waits at every pass
  const Weights weights(logits, settings.temperature);
  const Tensor everything = zeros_like(settings.temperature) + static_cast<double>(vocabulary);
  const Tensor k = where(settings.top_k > 0, cast(settings.top_k, DType::f32), everything);
  const Tensor kth = weights.threshold(zeros_like(k) + range_begin, k, false, ways);
  // Of values equal to the last one kept, the first are kept.
  const Tensor kth_quota = minimum(k - weights.count_above(kth), weights.count_at(kth));
  const Tensor total = weights.mass_above(kth) + kth_quota * Weights::probability(kth);

  const Tensor goal = settings.top_p * total;
  const Tensor keeps_all = settings.top_p >= 1;
  const Tensor last = where(keeps_all, kth, weights.threshold(kth, goal, true, ways));
  const Tensor missing = (goal - weights.mass_above(last)) / maximum(Weights::probability(last), 1e-38);
  const Tensor last_quota = maximum(-floor(1e-4 - missing), 1);  // rounded up, but not for a rounding error
  const Tensor within_both = where(equal(last, kth), minimum(last_quota, kth_quota), last_quota);
  const Tensor quota = where(keeps_all, kth_quota, within_both);

  const Tensor bound = weights.first_beyond(
      quota - 0.5, [&](const Tensor& values, const Tensor&) { return as_number(equal(values, per_row(last))); });
  const auto kept = [&](const Tensor& values, const Tensor& indices) {
    const Tensor is_first = logical_and(equal(values, per_row(last)), indices <= per_row(bound));
    const Tensor is_kept = logical_or(values > per_row(last), is_first);
    const Tensor probability = Weights::probability(values);
    return where(logical_and(is_kept, probability >= per_row(settings.min_p)), probability, 0);
  };
  const Tensor indices = unsqueeze(arange(logits.parts), {1}) * static_cast<int>(logits.length) + arange(logits.length);
  return weights.first_beyond(settings.uniform * over_parts(kept(weights.logs(), indices)), kept);
}

}  // namespace

Tensor uniform_draws(const Tensor& seed, const Tensor& draw) {
  const Wide first{slice(seed, 1, 0, 1), slice(seed, 1, 1, 2)};
  const Wide count{draw + word(1), zeros_like(draw)};
  Wide mixed = wide_add(wide_multiply(count, split_mix_step), first);
  mixed = wide_multiply(xor_shifted(mixed, 30), first_factor);
  mixed = wide_multiply(xor_shifted(mixed, 27), second_factor);
  mixed = xor_shifted(mixed, 31);
  return cast(shift_right(mixed.high, word(8)), DType::f32) * 0x1p-24;
}

Tensor draw_tokens(const Tensor& logits, Drawing drawing, bool masked, bool is_gpu) {
  const std::int64_t rows = logits.dim(0).value(), outputs = logits.dim(1).value(), count = logits.dim(2).value();
  // A setting of a row holds for each of its outputs.
  const auto repeated = [&](const Tensor& setting) {
    return reshape(broadcast_to(unsqueeze(setting, {1}), {rows, outputs}), {rows * outputs});
  };
  Parts parts = in_parts(reshape(logits, {rows * outputs, count}), count);
  if (masked) {
    const std::int64_t words = (count + 31) / 32;
    const Tensor bits = tensor_input("mask", {rows, words}, DType::u32);
    const Tensor each = reshape(broadcast_to(unsqueeze(bits, {1}), {rows, outputs, words}), {rows * outputs, words});
    parts.values = where(allowed(each, parts.parts, parts.length), parts.values, excluded);
  }
  Tensor tokens = likeliest(parts);
  if (drawing == Drawing::sampled) {
    const Tensor temperature = repeated(tensor_input("temperature", {rows}));
    const Tensor top_k = repeated(tensor_input("top_k", {rows}, DType::i32));
    const Tensor top_p = repeated(tensor_input("top_p", {rows}));
    const Tensor min_p = repeated(tensor_input("min_p", {rows}));
    const Tensor seed = tensor_input("seed", {rows, 2}, DType::u32);
    const Tensor uniform =
        reshape(uniform_draws(seed, tensor_input("draw", {rows, outputs}, DType::u32)), {rows * outputs});
    const Tensor drawn = sampled(parts, {temperature, top_k, top_p, min_p, uniform}, count, is_gpu);
    tokens = where(temperature > 0, drawn, tokens);
  }
  return reshape(tokens, {rows, outputs});
}

}  // namespace jerboa::language
