#include <jerboa/ir/packed_cache.h>

#include "ir/shape_rules.h"

// Rules for softmax, norms, attention, losses and state.
namespace jerboa::shape_rule {
namespace {

void want_vector(const Call& call, std::size_t i, const Dim& size) {
  if (!call.has(i)) return;
  call.want_same_dtype(0, i);
  if (call.shape(i) != Shape{size})
    call.fail("{} must be [{}], not {}", info(call.op).operands[i].name, size.str(), to_string(call.shape(i)));
}

void want_scalar(const Call& call, std::size_t i) { call.want_shape(i, {}); }

// The operands of attention from `first` on: mask, sinks, lengths, positions.
void check_attention_options(const Call& call, std::size_t first, const Shape& scores) {
  if (call.has(first)) {
    if (call.in(first).dtype != DType::boolean) call.want_same_dtype(0, first);
    if (!broadcasts_to(call.shape(first), scores))
      call.fail("mask {} does not broadcast to {}", to_string(call.shape(first)), to_string(scores));
  }
  if (call.has(first + 1)) call.want_same_dtype(0, first + 1);
  call.want_shape(first + 1, {scores[1]});
  for (const std::size_t i : {first + 2, first + 3})
    if (call.has(i)) call.want_integer(i);
  call.want_shape(first + 2, {scores[0]});
  call.want_shape(first + 3, {scores[0], scores[2]});
}

constexpr std::size_t no_table = 99;  // for an op whose keys are never paged

// The table of a paged cache [blocks, heads, block, size]. Returns the number of keys.
Dim check_table(const Call& call, std::size_t table, const Dim& batch, const Shape& cache) {
  call.want_integer(table);
  call.want_rank(table, 2);
  if (!(call.shape(table)[0] == batch))
    call.fail("table {} must have one row for each of {} sequences", to_string(call.shape(table)), batch.str());
  // Kernels replace invalid block numbers by a valid one, so there must be one.
  for (const std::size_t axis : {0, 2})
    if (!cache[axis].is_constant() || cache[axis].value() < 1)
      call.fail("a paged cache of {} must have a fixed number of blocks, and at least one", to_string(cache));
  return call.shape(table)[1] * cache[2];
}

// The features of a row of k or v, which has q's type or belongs to an 8-bit cache.
Dim features_of(const Call& call, std::size_t i) {
  const Dim& words = call.shape(i)[3];
  if (call.in(i).dtype != packed_cache) {
    call.want_same_dtype(0, i);
    return words;
  }
  if (call.op == Op::attention_grad) call.fail("an 8-bit cache has no gradient");
  const std::int64_t size = words.is_constant() ? unpacked_size(words.value()) : -1;
  if (size < 0)
    call.fail("{} {} is an 8-bit cache, but no row of one has {} words", info(call.op).operands[i].name,
              to_string(call.shape(i)), words.str());
  return size;
}

// Checks q and k, and returns [batch, heads, time, keys]. `table` is the operand for paged keys.
Shape score_shape(const Call& call, std::size_t table) {
  call.want_float(0);
  for (std::size_t i = 0; i < 2; ++i) call.want_rank(i, 4);
  const Shape &q = call.shape(0), &k = call.shape(1);
  const bool paged = call.has(table), packed = call.in(1).dtype == packed_cache;
  const Dim size = features_of(call, 1);
  if (!(paged || q[0] == k[0]) || !(q[3] == size))
    call.fail("q {} and k {}{} must agree in {}head size", to_string(q), to_string(k),
              packed ? fmt::format(", which holds {} features in 8 bits,", size.str()) : "", paged ? "" : "batch and ");
  if (paged && !call.has(table - 2)) call.fail("paged keys need lengths, which say how many there are");
  if (!divide_exactly(q[1], k[1]))
    call.fail("{} query heads are not a multiple of {} key heads", q[1].str(), k[1].str());
  return {q[0], q[1], q[2], paged ? check_table(call, table, q[0], k) : k[2]};
}

template <class A>
void check_attention_attrs(const Call& call, const A& attrs, std::size_t lengths) {
  if (attrs.window < 0) call.fail("window must not be negative");
  if (attrs.soft_cap < 0) call.fail("soft_cap must not be negative");
  if (attrs.window > 0 && !attrs.causal) call.fail("a window needs causal attention");
  if (attrs.ring && !(call.has(lengths) && call.has(lengths + 1)))
    call.fail("a ring of keys needs lengths and positions, which say what each slot holds");
}

// Checks v, and returns the features of a value.
Dim check_v(const Call& call) {
  call.want_rank(2, 4);
  call.want_same_dtype(1, 2);
  const Shape &k = call.shape(1), &v = call.shape(2);
  if (!(k[0] == v[0]) || !(k[1] == v[1]) || !(k[2] == v[2]))
    call.fail("k {} and v {} must agree except in head size", to_string(k), to_string(v));
  return features_of(call, 2);
}

void check_packed_rows(const Call& call, const Dim& size, const Dim& words) {
  if (!size.is_constant() || !can_pack(size.value()))
    call.fail("an 8-bit cache holds rows of a multiple of {} features, not of {}", features_per_word, size.str());
  if (!(words == Dim(packed_words(size.value()))))
    call.fail("rows of {} features are {} words of an 8-bit cache, not {}", size.str(), packed_words(size.value()),
              words.str());
}

}  // namespace

Types axis_float(const Call& call) {
  call.want_float(0);
  call.axis(call.as<AxisAttrs>().axis);
  return {call.in(0)};
}

Types causal(const Call& call) {
  call.want_float(0);
  call.want_rank_at_least(0, 2);
  return {call.in(0)};
}

Types norm(const Call& call) {
  call.want_float(0);
  call.want_rank_at_least(0, 1);
  for (std::size_t i = 1; i < call.inputs.size(); ++i) want_vector(call, i, call.shape(0).back());
  return {call.in(0)};
}

Types rope(const Call& call) {
  const auto& attrs = call.as<RopeAttrs>();
  call.want_float(0);
  call.want_rank(0, 4);
  const Shape& x = call.shape(0);
  const std::int64_t size = x[3].value();
  const std::int64_t dims = attrs.dims == 0 ? size : attrs.dims;
  if (dims < 2 || dims % 2 != 0 || dims > size)
    call.fail("dims = {} must be even, at least 2 and at most the head size {}", dims, size);
  if ((attrs.scaling == RopeScaling::llama3 || attrs.scaling == RopeScaling::yarn) && attrs.original_context < 1)
    call.fail("this scaling needs original_context");
  if (call.has(1)) call.want_integer(1);
  call.want_shape(1, {x[0], x[2]});
  return {call.in(0)};
}

Types attention(const Call& call) {
  const Shape scores = score_shape(call, 7);
  const Dim value_size = check_v(call);
  check_attention_attrs(call, call.as<AttentionAttrs>(), 5);
  check_attention_options(call, 3, scores);
  return {{call.in(0).dtype, {scores[0], scores[1], scores[2], value_size}},
          {DType::f32, {scores[0], scores[1], scores[2]}}};
}

Types attention_grad(const Call& call) {
  const auto& attrs = call.as<AttentionGradAttrs>();
  const Shape scores = score_shape(call, no_table);
  check_v(call);
  check_attention_attrs(call, attrs, 8);
  check_attention_options(call, 6, scores);
  const Shape out{scores[0], scores[1], scores[2], call.shape(2)[3]};
  call.want_shape(3, out);
  call.want_shape(4, {scores[0], scores[1], scores[2]});
  call.want_shape(5, out);
  Types types{call.in(0), call.in(1), call.in(2)};
  if (call.has(7)) types.push_back(call.in(7));
  if (attrs.mask_grad) {
    if (!call.has(6) || !is_float(call.in(6).dtype)) call.fail("mask_grad needs a float mask");
    types.push_back(call.in(6));
  }
  return types;
}

Types attention_weights(const Call& call) {
  const Shape scores = score_shape(call, 6);
  check_attention_attrs(call, call.as<AttentionAttrs>(), 4);
  check_attention_options(call, 2, scores);
  return {{call.in(0).dtype, scores}};
}

Types cross_entropy(const Call& call) {
  call.want_float(0);
  call.want_integer(1);
  call.want_rank_at_least(0, 1);
  Shape positions = call.shape(0);
  positions.pop_back();
  call.want_shape(1, positions);
  if (call.has(2)) call.want_same_dtype(0, 2);
  call.want_shape(2, positions);
  return {{call.in(0).dtype, positions}};
}

Types adam_update(const Call& call) {
  call.want_float(0);
  for (std::size_t i = 1; i < 4; ++i) {
    call.want_same_dtype(0, i);
    call.want_shape(i, call.shape(0));
  }
  want_scalar(call, 4);
  want_scalar(call, 5);
  call.want_same_dtype(0, 4);
  call.want_integer(5);
  return {call.in(0), call.in(2), call.in(3)};
}

Types sgd_update(const Call& call) {
  call.want_float(0);
  for (std::size_t i = 1; i < 4; ++i)
    if (call.has(i)) call.want_same_dtype(0, i);
  call.want_shape(1, call.shape(0));
  want_scalar(call, 2);
  call.want_shape(3, call.shape(0));
  if ((call.as<SgdAttrs>().momentum != 0) != call.has(3)) call.fail("momentum and a velocity go together");
  return call.has(3) ? Types{call.in(0), call.in(3)} : Types{call.in(0)};
}

Types cache_append(const Call& call) {
  for (std::size_t i = 0; i < 2; ++i) call.want_rank(i, 4);
  const bool paged = call.has(3), packs = call.in(0).dtype == packed_cache && is_float(call.in(1).dtype);
  if (!packs) call.want_same_dtype(0, 1);
  call.want_integer(2);
  const Shape &cache = call.shape(0), &values = call.shape(1);
  if (!(paged || cache[0] == values[0]) || !(cache[1] == values[1]) || !(packs || cache[3] == values[3]))
    call.fail("cache {} and values {} must agree except in {}{}", to_string(cache), to_string(values),
              paged ? "batch and time" : "time", packs ? " and size" : "");
  if (packs) check_packed_rows(call, values[3], cache[3]);
  if (paged) check_table(call, 3, values[0], cache);
  call.want_shape(2, {values[0], values[2]});
  return {call.in(0)};
}

}  // namespace jerboa::shape_rule
