#include "steps/sampling_graph.h"

#include <algorithm>
#include <limits>

#include <jerboa/base/lowest_score.h>
#include <jerboa/base/random.h>
#include <jerboa/generate/logprobs.h>
#include <jerboa/ops/ops.h>

#include "base/integers.h"

// Operands that trace nodes are computed in separate statements: C++ leaves the evaluation order to the compiler, and
// the graph must not depend on it.
namespace jerboa::language {
namespace {

// Bounds of log-probabilities relative to the most likely token: below them f32 has no probability to draw.
constexpr double lowest = -88, range_begin = -87;
// Rows are split into parts of this length; long rows into longer parts, so that there are not too many.
constexpr std::int64_t part_length = 512, long_part_length = 2048, long_row = 1 << 16;
// The precision of thresholds: 28 bits of the range, where f32 has 24 of each value.
constexpr int threshold_bits = 28;

// A 64-bit number as two words.
struct Wide {
  Tensor low, high;
};

Tensor word(std::uint64_t value) { return scalar(static_cast<double>(value & 0xffffffffu), DType::u32); }

Wide wide_add(const Wide& a, const Wide& b) {
  const Tensor low = a.low + b.low;
  const Tensor carry = cast(low < a.low, DType::u32);
  const Tensor high = a.high + b.high;
  return {low, high + carry};
}

// The upper word of the product of two words, from products of half words.
Tensor upper_product(const Tensor& a, std::uint32_t b) {
  const Tensor half = word(0xffff), half_bits = word(16);
  const Tensor a0 = bit_and(a, half), a1 = shift_right(a, half_bits);
  const Tensor b0 = word(b & 0xffffu), b1 = word(b >> 16);
  const Tensor p00 = a0 * b0, p01 = a0 * b1, p10 = a1 * b0, p11 = a1 * b1;
  const Tensor above = shift_right(p00, half_bits), low01 = bit_and(p01, half), low10 = bit_and(p10, half);
  const Tensor middle = above + low01 + low10;
  const Tensor high01 = shift_right(p01, half_bits), high10 = shift_right(p10, half_bits);
  const Tensor carried = shift_right(middle, half_bits);
  return p11 + high01 + high10 + carried;
}

Wide wide_multiply(const Wide& a, std::uint64_t b) {
  const auto b_low = static_cast<std::uint32_t>(b);
  const Tensor factor = word(b_low), upper_factor = word(b >> 32);
  const Tensor low = a.low * factor;
  const Tensor carried = upper_product(a.low, b_low);
  const Tensor across = a.low * upper_factor, high = a.high * factor;
  return {low, carried + across + high};
}

Wide xor_shifted(const Wide& a, int bits) {
  const Tensor right = word(static_cast<std::uint64_t>(bits)), left = word(static_cast<std::uint64_t>(32 - bits));
  const Tensor stays = shift_right(a.low, right), moves = shift_left(a.high, left);
  const Tensor low = bit_or(stays, moves);
  const Tensor high = shift_right(a.high, right);
  return {bit_xor(a.low, low), bit_xor(a.high, high)};
}

// Rows of values in parts, [rows, parts, length].
struct Parts {
  Tensor values;
  std::int64_t parts, length;
};

Tensor per_row(const Tensor& x) { return unsqueeze(x, {1, 2}); }

// Reductions over whole rows: across the parts first, for which a GPU uses a thread per position, and only then along
// the rest. The other way round would be one reduction over two axes, with one workgroup per row.
Tensor over_parts(const Tensor& x) { return sum(sum(x, {-2}), {-1}); }
Tensor largest_of_parts(const Tensor& x) { return max(max(x, {-2}), {-1}); }

Tensor as_number(const Tensor& condition) { return cast(condition, DType::f32); }

// Splits [rows, vocabulary] into parts, the last of which is padded.
Parts in_parts(const Tensor& logits, std::int64_t vocabulary) {
  const std::int64_t most = vocabulary > long_row ? long_part_length : part_length;
  const std::int64_t length = std::min(most, vocabulary), parts = detail::divide_up(vocabulary, length);
  const Tensor padded =
      parts * length == vocabulary ? logits : pad(logits, {0, 0}, {0, parts * length - vocabulary}, lowest_score);
  return {reshape(padded, {logits.dim(0), parts, length}), parts, length};
}

// Which tokens the mask's bits allow, [rows, parts, length].
Tensor allowed(const Tensor& mask, std::int64_t parts, std::int64_t length) {
  const Dim rows = mask.dim(0), words = mask.dim(1);
  const Tensor columns = unsqueeze(mask, {2}), places = arange(32, DType::u32);
  const Tensor bits = shift_right(columns, places);
  const Tensor flat = reshape(bit_and(bits, word(1)), {rows, words * Dim(32)});
  const std::int64_t have = words.value() * 32, want = parts * length;
  const Tensor fitted = have < want ? pad(flat, {0, 0}, {0, want - have}) : slice(flat, 1, 0, want);
  const Tensor in_parts = reshape(fitted, {rows, parts, length});
  return not_equal(in_parts, word(0));
}

// The token with the largest value of each row; ties give the first.
Tensor likeliest(const Parts& logits) {
  const Tensor best = max(logits.values, {2});
  const Tensor within = argmax(logits.values, 2);
  const Tensor before = arange(logits.parts) * static_cast<int>(logits.length);
  const Tensor tokens = within + before;
  const Tensor best_of_all = max(best, {1}, true);
  const Tensor is_best = equal(best, best_of_all);
  return min(where(is_best, tokens, std::numeric_limits<std::int32_t>::max()), {1});
}

// Log-probabilities relative to the most likely token of a row, which has 0.
class Weights {
 public:
  Weights(const Parts& logits, const Tensor& temperature) : parts_(logits) {
    const Tensor best = largest_of_parts(logits.values);
    // Rows with a temperature of 0 do not use the sample, but it is computed all the same.
    const Tensor divisor = maximum(temperature, 1e-5);
    const Tensor difference = logits.values - per_row(best);
    parts_.values = maximum(difference / per_row(divisor), lowest);
  }

  const Tensor& logs() const { return parts_.values; }
  static Tensor probability(const Tensor& logs) {
    const Tensor is_possible = logs > range_begin;
    return where(is_possible, exp(logs), 0);
  }
  Tensor count_above(const Tensor& threshold) const { return over_parts(as_number(logs() > per_row(threshold))); }
  Tensor count_at(const Tensor& threshold) const { return over_parts(as_number(equal(logs(), per_row(threshold)))); }
  Tensor mass_above(const Tensor& threshold) const {
    const Tensor is_above = logs() > per_row(threshold);
    return over_parts(where(is_above, probability(logs()), 0));
  }
  // The largest value below a bound.
  Tensor largest_below(const Tensor& bound) const {
    return largest_of_parts(where(logs() < per_row(bound), logs(), lowest));
  }

  // The largest value such that the total over all values from it on reaches a goal, between `low`, which is returned
  // if none does, and the top. The total is their number, or the sum of their probabilities. Every pass divides the
  // remaining interval into `ways`.
  Tensor threshold(Tensor low, const Tensor& goal, bool by_mass, int ways) const {
    Tensor high = zeros_like(low) + 1;
    const Tensor values = unsqueeze(logs(), {1});  // [rows, 1, parts, length]
    int bits = 0;
    for (int left = ways; left > 1; left /= 2) ++bits;
    const Tensor steps = cast(arange(ways - 1) + 1, DType::f32) * (1.0 / ways);
    for (int done = 0; done < threshold_bits; done += bits) {
      const Tensor begin = unsqueeze(low, {1}), end = unsqueeze(high, {1});
      const Tensor offsets = unsqueeze(high - low, {1}) * steps;
      const Tensor bounds = begin + offsets;  // [rows, ways - 1]
      const Tensor is_within = values >= unsqueeze(bounds, {2, 3});
      const Tensor parts = by_mass ? where(is_within, probability(values), 0) : as_number(is_within);
      const Tensor totals = over_parts(parts);
      const Tensor reaches = totals >= unsqueeze(goal, {1});
      const Tensor next = max(where(reaches, bounds, begin), {1});
      high = min(where(reaches, end, bounds), {1});
      low = next;
    }
    return largest_below(high);
  }

  // The index of the first element at which the running total of weight_of(values, indices) exceeds a target, or of the
  // last element with any weight.
  template <class WeightOf>
  Tensor first_beyond(const Tensor& target, const WeightOf& weight_of) const {
    const Dim rows = logs().dim(0);
    const auto length = static_cast<int>(parts_.length);
    const Tensor part_number = arange(parts_.parts);
    const Tensor starts = unsqueeze(part_number, {1}) * length, within = arange(parts_.length);
    const Tensor totals = sum(weight_of(logs(), starts + within), {2});
    const Tensor part = crossing(totals, target, part_number);
    const Tensor is_before = part_number < unsqueeze(part, {1});
    const Tensor before = sum(where(is_before, totals, 0), {1});
    const Tensor row_of_part = broadcast_to(unsqueeze(part, {1, 2}), {rows, 1, parts_.length});
    const Tensor values = take_along_axis(logs(), row_of_part, 1);
    const Tensor start = unsqueeze(part, {1, 2}) * length;
    const Tensor weights = squeeze(weight_of(values, start + within), {1});
    const Tensor rest = target - before;
    const Tensor crossed = crossing(weights, rest, within);
    return part * length + crossed;
  }

 private:
  static Tensor crossing(const Tensor& weights, const Tensor& target, const Tensor& numbers) {
    const Tensor running = cumsum(weights);
    const Tensor is_passed = running <= unsqueeze(target, {1});
    const Tensor passed = sum(cast(is_passed, DType::i32), {1});
    const Tensor last = max(where(weights > 0, numbers, 0), {1});
    return minimum(passed, last);
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
  const Tensor is_limited = settings.top_k > 0, limit = cast(settings.top_k, DType::f32);
  const Tensor k = where(is_limited, limit, everything);
  const Tensor kth = weights.threshold(zeros_like(k) + range_begin, k, false, ways);
  // Among values equal to the last one kept, the first ones are kept.
  const Tensor room = k - weights.count_above(kth), equal_ones = weights.count_at(kth);
  const Tensor kth_quota = minimum(room, equal_ones);
  const Tensor mass = weights.mass_above(kth), mass_at = kth_quota * Weights::probability(kth);
  const Tensor total = mass + mass_at;

  const Tensor goal = settings.top_p * total;
  const Tensor keeps_all = settings.top_p >= 1;
  const Tensor last = where(keeps_all, kth, weights.threshold(kth, goal, true, ways));
  const Tensor shortfall = goal - weights.mass_above(last), each = maximum(Weights::probability(last), 1e-38);
  const Tensor missing = shortfall / each;
  const Tensor last_quota = maximum(-floor(1e-4 - missing), 1);  // rounded up, except for rounding errors
  const Tensor is_kth = equal(last, kth), smaller_quota = minimum(last_quota, kth_quota);
  const Tensor within_both = where(is_kth, smaller_quota, last_quota);
  const Tensor quota = where(keeps_all, kth_quota, within_both);

  const Tensor bound = weights.first_beyond(
      quota - 0.5, [&](const Tensor& values, const Tensor&) { return as_number(equal(values, per_row(last))); });
  const auto kept = [&](const Tensor& values, const Tensor& indices) {
    const Tensor is_last = equal(values, per_row(last)), is_within = indices <= per_row(bound);
    const Tensor is_first = logical_and(is_last, is_within);
    const Tensor is_above = values > per_row(last);
    const Tensor is_kept = logical_or(is_above, is_first);
    const Tensor probability = Weights::probability(values);
    const Tensor is_likely = probability >= per_row(settings.min_p);
    return where(logical_and(is_kept, is_likely), probability, 0);
  };
  const Tensor starts = unsqueeze(arange(logits.parts), {1}) * static_cast<int>(logits.length);
  const Tensor within = arange(logits.length);
  const Tensor indices = starts + within;
  return weights.first_beyond(settings.uniform * over_parts(kept(weights.logs(), indices)), kept);
}

// Inputs of a step's rows, each repeated for all outputs of its row: [rows * outputs].
struct RowInputs {
  std::int64_t rows, outputs;

  Tensor repeated(const Tensor& values) const {
    return reshape(broadcast_to(unsqueeze(values, {1}), {rows, outputs}), {rows * outputs});
  }
  Tensor repeated_list(const Tensor& lists) const {
    const Dim size = lists.dim(1);
    return reshape(broadcast_to(unsqueeze(lists, {1}), {rows, outputs, size}), {rows * outputs, size});
  }
  Tensor setting(const char* name, DType dtype = DType::f32) const {
    return repeated(tensor_input(name, {rows}, dtype));
  }
  Tensor list(const char* name, std::int64_t size, DType dtype = DType::f32) const {
    return repeated_list(tensor_input(name, {rows, size}, dtype));
  }
  // A list for each output.
  Tensor lists(const char* name, std::int64_t size, DType dtype = DType::f32) const {
    return reshape(tensor_input(name, {rows, outputs, size}, dtype), {rows * outputs, size});
  }
};

// Values of some tokens of each row as [rows, vocabulary]; values of equal tokens are added up.
Tensor spread(const Tensor& logits, const Tensor& tokens, const Tensor& values) {
  return scatter_add(zeros_like(logits), tokens, values, 1);
}

Tensor biased(const Tensor& logits, const RowInputs& in, int size) {
  const Tensor tokens = in.list("biased_tokens", size, DType::i32);
  const Tensor values = in.list("bias", size);
  return logits + spread(logits, tokens, values);
}

Tensor penalised(const Tensor& logits, const RowInputs& in, int size, const Tensor& taken) {
  Tensor tokens = in.lists("seen_tokens", size, DType::i32);
  Tensor values = in.lists("seen", size);
  if (taken) {
    const Tensor last = unsqueeze(in.repeated(taken), {1});
    const Tensor is_taken = as_number(last >= 0);
    tokens = concat({tokens, maximum(last, 0)}, 1);
    values = concat({values, is_taken}, 1);
  }
  const Tensor seen = spread(logits, tokens, values);
  const Tensor count = floor(seen);  // a token of the prompt alone counts as less than one
  const Tensor repetition = unsqueeze(in.setting("repetition_penalty"), {1});
  const Tensor presence = unsqueeze(in.setting("presence_penalty"), {1});
  const Tensor frequency = unsqueeze(in.setting("frequency_penalty"), {1});
  const Tensor divided = logits / repetition, multiplied = logits * repetition;
  const Tensor repeated = where(logits > 0, divided, multiplied);
  const Tensor by_count = frequency * count;
  const Tensor subtracted = where(count > 0, presence + by_count, 0);
  const Tensor lowered = repeated - subtracted;
  return where(seen > 0, lowered, logits);
}

// Adds the log-probabilities of the tokens drawn from logits [rows, vocabulary], as outputs [rows of the step,
// outputs].
void add_logprobs(NamedOutputs& results, const Tensor& logits, const Tensor& tokens, const RowInputs& in, bool lists) {
  const std::int64_t count = logits.dim(1).value();
  const Parts parts = in_parts(logits, count);
  const Tensor best = largest_of_parts(parts.values);
  const Tensor total = over_parts(exp(parts.values - per_row(best)));
  const Tensor log_total = log(total);
  const Tensor log_sum = unsqueeze(best + log_total, {1});
  const Tensor drawn = take_along_axis(logits, unsqueeze(tokens, {1}));
  results.emplace_back("logprobs", reshape(drawn - log_sum, {in.rows, in.outputs}));
  if (!lists) return;
  const std::int64_t listed = std::min<std::int64_t>(most_logprobs, count);
  const TopK found = top_k(logits, static_cast<int>(listed));
  results.emplace_back("likeliest", reshape(found.indices, {in.rows, in.outputs, listed}));
  results.emplace_back("likeliest_logprobs", reshape(found.values - log_sum, {in.rows, in.outputs, listed}));
}

}  // namespace

Tensor uniform_draws(const Tensor& seed, const Tensor& draw) {
  const Wide first{slice(seed, 1, 0, 1), slice(seed, 1, 1, 2)};
  const Wide count{draw + word(1), zeros_like(draw)};
  Wide mixed = wide_add(wide_multiply(count, split_mix_step), first);
  mixed = wide_multiply(xor_shifted(mixed, 30), split_mix_factors[0]);
  mixed = wide_multiply(xor_shifted(mixed, 27), split_mix_factors[1]);
  mixed = xor_shifted(mixed, 31);
  return cast(shift_right(mixed.high, word(8)), DType::f32) * 0x1p-24;
}

NamedOutputs draw_tokens(const Tensor& all_logits, const EntryKey& key, const Tensor& taken, bool is_gpu) {
  const RowInputs in{all_logits.dim(0).value(), all_logits.dim(1).value()};
  const std::int64_t count = all_logits.dim(2).value();
  Tensor logits = reshape(all_logits, {in.rows * in.outputs, count});
  if (key.biased > 0) logits = biased(logits, in, key.biased);
  const Tensor unpenalised_logits = logits;
  if (key.penalised > 0) logits = penalised(logits, in, key.penalised, taken);
  Parts parts = in_parts(logits, count);
  if (key.masked) {
    const Tensor is_allowed =
        allowed(in.list("mask", detail::divide_up(count, 32), DType::u32), parts.parts, parts.length);
    parts.values = where(is_allowed, parts.values, lowest_score);
  }
  Tensor tokens = likeliest(parts);
  if (key.drawing == Drawing::sampled) {
    const Tensor temperature = in.setting("temperature");
    const Tensor top_k = in.setting("top_k", DType::i32);
    const Tensor top_p = in.setting("top_p");
    const Tensor min_p = in.setting("min_p");
    const Tensor seed = tensor_input("seed", {in.rows, 2}, DType::u32);
    const Tensor draw = tensor_input("draw", {in.rows, in.outputs}, DType::u32);
    const Tensor uniform = reshape(uniform_draws(seed, draw), {in.rows * in.outputs});
    const Tensor drawn = sampled(parts, {temperature, top_k, top_p, min_p, uniform}, count, is_gpu);
    tokens = where(temperature > 0, drawn, tokens);
  }
  NamedOutputs results{{"tokens", reshape(tokens, {in.rows, in.outputs})}};
  if (key.logprobs != Logprobs::none)
    add_logprobs(results, unpenalised_logits, tokens, in, key.logprobs == Logprobs::listed);
  return results;
}

}  // namespace jerboa::language
