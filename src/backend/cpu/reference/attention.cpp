#include <algorithm>
#include <cmath>
#include <limits>

#include <jerboa/base/lowest_score.h>

#include "backend/cpu/reference/evaluate.h"
#include "backend/cpu/reference/loops.h"
#include "backend/cpu/reference/packed_rows.h"

// Attention and its gradient, from the dense formulas.
namespace jerboa::reference {
namespace {

// The operands of attention by name, whatever the op, and where their elements are.
struct Attention {
  const Value &q, &k, &v;
  const Value *mask, *sinks, *lengths, *positions, *table;
  AttentionAttrs attrs;
  std::int64_t batch = q.shape[0], heads = q.shape[1], time = q.shape[2], size = q.shape[3];
  std::int64_t key_heads = k.shape[1], value_size = v.shape[3];
  std::int64_t block = k.shape[2], keys = table != nullptr ? table->shape[1] * block : block;
  double scale = attrs.scale != 0 ? attrs.scale : 1 / std::sqrt(static_cast<double>(size));
  Sizes mask_strides = mask != nullptr ? broadcast_strides(mask->shape, {batch, heads, time, keys}) : Sizes();

  std::int64_t shared(std::int64_t h) const { return h / (heads / key_heads); }
  std::int64_t query_at(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return ((b * heads + h) * time + t) * size;
  }
  std::int64_t out_at(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return ((b * heads + h) * time + t) * value_size;
  }
  std::int64_t key_at(std::int64_t b, std::int64_t h, std::int64_t s) const { return key_row(b, h, s) * size; }
  std::int64_t value_at(std::int64_t b, std::int64_t h, std::int64_t s) const { return key_row(b, h, s) * value_size; }
  // A contiguous cache has one block per sequence. Invalid block numbers in a table occur only for keys that nothing
  // sees.
  std::int64_t key_row(std::int64_t b, std::int64_t h, std::int64_t s) const {
    std::int64_t number = b;
    if (table != nullptr)
      number = std::clamp<std::int64_t>(static_cast<std::int64_t>(table->data[b * table->shape[1] + s / block]), 0,
                                        k.shape[0] - 1);
    return (number * key_heads + shared(h)) * block + s % block;
  }
  std::int64_t mask_at(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t s) const {
    return offset_of({b, h, t, s}, mask_strides);
  }

  // The position in slot s; negative if it is empty.
  std::int64_t key_position(std::int64_t b, std::int64_t s) const {
    if (!attrs.ring) return s;
    const std::int64_t last = static_cast<std::int64_t>(lengths->data[b]) - 1;
    const std::int64_t behind = ((last - s) % keys + keys) % keys;
    return last - behind;
  }

  bool visible(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t s) const {
    const std::int64_t key = key_position(b, s);
    const std::int64_t query =
        positions != nullptr ? static_cast<std::int64_t>(positions->data[b * time + t]) : t + keys - time;
    if (key < 0) return false;
    if (lengths != nullptr && key >= static_cast<std::int64_t>(lengths->data[b])) return false;
    if (attrs.causal && key > query) return false;
    if (attrs.window > 0 && key <= query - attrs.window) return false;
    if (mask == nullptr) return true;
    const double value = mask->data[mask_at(b, h, t, s)];
    return mask->dtype == DType::boolean ? value != 0 : value > hidden_key(mask->dtype);
  }
};

// The features of an 8-bit cache.
Value unpacked(const Value& cache) {
  Sizes shape = cache.shape;
  const std::int64_t words = shape[3], size = shape[3] = unpacked_size(words);
  Value result{DType::f32, shape, std::vector<double>(static_cast<std::size_t>(element_count(shape)))};
  for (std::int64_t row = 0; row < shape[0] * shape[1] * shape[2]; ++row)
    unpack_row(cache.data.data() + row * words, size, result.data.data() + row * size);
  return result;
}

Attention operands(const Call& call, std::size_t options, const AttentionAttrs& attrs) {
  const auto optional = [&](std::size_t i) {
    return options + i < call.inputs.size() ? call.inputs[options + i] : nullptr;
  };
  return {call.in(0), call.in(1), call.in(2), optional(0), optional(1), optional(2), optional(3), optional(4), attrs};
}

// One query's probabilities over the keys; 0 for those that it does not see.
struct Row {
  std::vector<double> probability;
  std::vector<double> slope;  // of the soft cap at each score
  double sink = 0;            // the sink's probability
  double lse = unseen_lse;
};

// `lse`, if it is already known, is that of the row.
Row attend(const Attention& a, std::int64_t b, std::int64_t h, std::int64_t t, const double* lse = nullptr) {
  Row row{std::vector<double>(a.keys, 0), std::vector<double>(a.keys, 1)};
  std::vector<double> scores(a.keys, 0);
  std::vector<bool> seen(a.keys, false);
  double top = a.sinks != nullptr ? a.sinks->data[h] : -std::numeric_limits<double>::infinity();
  for (std::int64_t s = 0; s < a.keys; ++s) {
    seen[s] = a.visible(b, h, t, s);
    if (!seen[s]) continue;
    double score = 0;
    for (std::int64_t i = 0; i < a.size; ++i)
      score += a.q.data[a.query_at(b, h, t) + i] * a.k.data[a.key_at(b, h, s) + i];
    score *= a.scale;
    if (a.attrs.soft_cap > 0) {
      const double bent = std::tanh(score / a.attrs.soft_cap);
      row.slope[s] = 1 - bent * bent;
      score = bent * a.attrs.soft_cap;
    }
    if (a.mask != nullptr && is_float(a.mask->dtype)) score += a.mask->data[a.mask_at(b, h, t, s)];
    seen[s] = score != -std::numeric_limits<double>::infinity();
    if (!seen[s]) continue;
    scores[s] = score;
    top = std::max(top, score);
  }
  double total = a.sinks != nullptr ? std::exp(a.sinks->data[h] - top) : 0;
  for (std::int64_t s = 0; s < a.keys; ++s)
    if (seen[s]) total += std::exp(scores[s] - top);
  if (total == 0) return row;
  row.lse = lse != nullptr ? *lse : top + std::log(total);
  for (std::int64_t s = 0; s < a.keys; ++s)
    if (seen[s]) row.probability[s] = std::exp(scores[s] - row.lse);
  if (a.sinks != nullptr) row.sink = std::exp(a.sinks->data[h] - row.lse);
  return row;
}

}  // namespace

template <>
void evaluate<Op::attention>(const Call& call) {
  if (call.in(1).dtype == packed_cache) {
    const Value k = unpacked(call.in(1)), v = unpacked(call.in(2));
    Call wide = call;
    wide.inputs[1] = &k;
    wide.inputs[2] = &v;
    return evaluate<Op::attention>(wide);
  }
  const Attention a = operands(call, 3, call.as<AttentionAttrs>());
  for_each_index({a.batch, a.heads, a.time}, [&](const Sizes& index) {
    const std::int64_t b = index[0], h = index[1], t = index[2];
    const Row row = attend(a, b, h, t);
    for (std::int64_t s = 0; s < a.keys; ++s)
      for (std::int64_t i = 0; i < a.value_size; ++i)
        call.out(0).data[a.out_at(b, h, t) + i] += row.probability[s] * a.v.data[a.value_at(b, h, s) + i];
    call.out(1).data[(b * a.heads + h) * a.time + t] = row.lse;
  });
}

template <>
void evaluate<Op::attention_grad>(const Call& call) {
  const auto& attrs = call.as<AttentionGradAttrs>();
  const Attention a = operands(call, 6, {attrs.scale, attrs.causal, attrs.window, attrs.soft_cap, attrs.ring});
  const std::vector<double>&out = call.in(3).data, &lse = call.in(4).data, &dout = call.in(5).data;
  std::vector<double>&dq = call.out(0).data, &dk = call.out(1).data, &dv = call.out(2).data;
  double* dsinks = a.sinks != nullptr ? call.out(3).data.data() : nullptr;
  double* dmask = attrs.mask_grad ? call.outputs.back().data.data() : nullptr;
  for_each_index({a.batch, a.heads, a.time}, [&](const Sizes& index) {
    const std::int64_t b = index[0], h = index[1], t = index[2];
    const Row row = attend(a, b, h, t, &lse[(b * a.heads + h) * a.time + t]);
    // The gradient of each probability, and their mean weighted by the probabilities, which is that of the output.
    std::vector<double> dprobability(a.keys, 0);
    double mean = 0;
    for (std::int64_t i = 0; i < a.value_size; ++i) mean += dout[a.out_at(b, h, t) + i] * out[a.out_at(b, h, t) + i];
    for (std::int64_t s = 0; s < a.keys; ++s) {
      for (std::int64_t i = 0; i < a.value_size; ++i) {
        const double dy = dout[a.out_at(b, h, t) + i];
        dprobability[s] += dy * a.v.data[a.value_at(b, h, s) + i];
        dv[a.value_at(b, h, s) + i] += row.probability[s] * dy;
      }
    }
    for (std::int64_t s = 0; s < a.keys; ++s) {
      const double dscore = row.probability[s] * (dprobability[s] - mean);
      if (dmask != nullptr) dmask[a.mask_at(b, h, t, s)] += dscore;
      const double dproduct = dscore * row.slope[s] * a.scale;
      for (std::int64_t i = 0; i < a.size; ++i) {
        dq[a.query_at(b, h, t) + i] += dproduct * a.k.data[a.key_at(b, h, s) + i];
        dk[a.key_at(b, h, s) + i] += dproduct * a.q.data[a.query_at(b, h, t) + i];
      }
    }
    if (dsinks != nullptr) dsinks[h] -= row.sink * mean;  // the sink has no value, so its own dprobability is 0
  });
}

}  // namespace jerboa::reference
