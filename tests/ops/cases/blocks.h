#pragma once

#include "ops/cases/declare.h"

// Sample cases of softmax, norms, rope, attention and the loss.
namespace jerboa::test {

inline std::vector<Case> along_an_axis() {
  return {{{any({3, 9})}, AxisAttrs{-1}},  {{any({3, 5})}, AxisAttrs{0}},  {{any({2, 4, 3})}, AxisAttrs{1}},
          {{any({1})}, AxisAttrs{0}},      {{any({4, 1})}, AxisAttrs{1}},  {{any({2, 0})}, AxisAttrs{1}},
          {{any({0, 3})}, AxisAttrs{1}},   {{any({B, T})}, AxisAttrs{-1}}, {{within(-60, 60, {2, 7})}, AxisAttrs{-1}},
          {{any({7, 131})}, AxisAttrs{-1}}};
}
CASES(softmax) { return along_an_axis(); }
CASES(log_softmax) { return along_an_axis(); }
CASES(where_causal) {
  return {{{any({4, 8, 8})}, FillAttrs{-3}}, {{any({3, 5})}, FillAttrs{0}}, {{any({5, 3})}, FillAttrs{1}},
          {{any({1, 1})}, FillAttrs{0}},     {{any({0, 0})}, FillAttrs{0}}, {{any({B, 2, T, T})}, FillAttrs{-1}}};
}
CASES(causal_softmax) {
  return {{{any({4, 8, 8})}}, {{any({3, 5})}},    {{any({5, 3})}},
          {{any({1, 1})}},    {{any({2, 0, 0})}}, {{any({B, 2, T, T})}}};
}
CASES(layer_norm) {
  return {
      {{any({4, 3, 8}), any({8}), any({8})}, EpsAttrs{1e-5}}, {{any({3, 5}), absent(), absent()}, EpsAttrs{1e-5}},
      {{any({3, 5}), any({5}), absent()}, EpsAttrs{1e-2}},    {{any({3, 5}), absent(), any({5})}, EpsAttrs{1e-5}},
      {{any({4}), any({4}), any({4})}, EpsAttrs{1e-5}},       {{any({2, 1}), any({1}), any({1})}, EpsAttrs{0.1}},
      {{any({0, 4}), any({4}), any({4})}, EpsAttrs{1e-5}},    {{any({B, T, 4}), any({4}), any({4})}, EpsAttrs{1e-5}},
      {{any({2, 67}), any({67}), any({67})}, EpsAttrs{1e-5}}};
}
CASES(rms_norm) {
  return {{{any({4, 3, 8}), any({8})}, EpsAttrs{1e-6}}, {{any({3, 5}), absent()}, EpsAttrs{1e-6}},
          {{any({4}), any({4})}, EpsAttrs{1e-2}},       {{any({2, 1}), any({1})}, EpsAttrs{0.1}},
          {{any({0, 4}), any({4})}, EpsAttrs{1e-6}},    {{any({B, T, 4}), any({4})}, EpsAttrs{1e-6}},
          {{any({2, 67}), any({67})}, EpsAttrs{1e-6}}};
}
CASES(rope) {
  const auto plain = [](RopeAttrs attrs) { return Case{{any({2, 3, 5, 8}), absent()}, attrs}; };
  const RopeAttrs llama3{.scaling = RopeScaling::llama3, .factor = 8, .original_context = 16};
  const RopeAttrs yarn{.scaling = RopeScaling::yarn, .factor = 4, .original_context = 32};
  RopeAttrs loud = yarn;
  loud.attention_factor = 1.3;
  RopeAttrs backwards = yarn;
  backwards.inverse = true;
  return {plain({}),
          plain({.base = 500, .interleaved = true}),
          plain({.dims = 4}),
          plain({.dims = 6, .interleaved = true, .inverse = true}),
          plain({.scaling = RopeScaling::linear, .factor = 2}),
          plain(llama3),
          plain(yarn),
          plain(loud),
          plain(backwards),
          {{any({2, 3, 4, 6}), given({2, 4}, {7, 8, 9, 10, 0, 3, 3, 1000})}, RopeAttrs{}},
          {{any({1, 1, 1, 2}), absent()}, RopeAttrs{}},
          {{any({2, 3, 0, 4}), absent()}, RopeAttrs{}},
          {{any({B, 2, T, 4}), whole(0, 40, {B, T})}, RopeAttrs{}}};
}

// The operands of attention after q, k and v: mask, sinks, lengths, positions.
using AttentionRest = std::vector<Draw>;

struct AttentionSample {
  Shape q, k, v;
  AttentionAttrs attrs;
  AttentionRest rest{absent(), absent(), absent(), absent()};
  Draw table = absent();  // of paged keys and values
};

inline std::vector<AttentionSample> attention_samples() {
  const Shape q{2, 4, 5, 3}, k{2, 2, 5, 3}, small{2, 2, 3, 4};
  const AttentionAttrs causal{0, true, 0, 0, false};
  const Draw none = absent();
  constexpr double low = -1e9, lowest = -3e38;  // rows that are hidden in part, wholly, and not at all
  const std::vector<double> hiding{0, low, 0.5,    low,    1,      low,    low,    low, low, low, 1, 0, low,
                                   0, 2,   lowest, lowest, lowest, lowest, lowest, 0,   0,   1,   0, 0};
  return {{{2, 2, 5, 4}, {2, 2, 5, 4}, {2, 2, 5, 4}, causal, {none, none, none, none}},
          {q, k, k, causal, {none, none, none, none}},
          {q, k, {2, 2, 5, 7}, {0.4, false, 0, 0, false}, {none, none, none, none}},
          {q, k, k, {0, true, 2, 0, false}, {none, none, none, none}},
          {q, k, k, {0, true, 0, 1.5, false}, {none, none, none, none}},
          {q, k, k, causal, {none, any({4}), none, none}},
          {q, k, k, {0, true, 3, 2, false}, {any({5, 5}), any({4}), none, none}},
          {q, k, k, {}, {any({2, 1, 5, 5}), none, none, none}},
          {q, k, k, {}, {any({4, 1, 5}), none, none, none}},
          {q, k, k, {}, {given({5, 5}, hiding, DType::f32), none, none, none}},
          {q, k, k, causal, {given({5, 5}, hiding, DType::f32), any({4}), none, none}},
          {q, k, k, {}, {flags({2, 4, 5, 5}), any({4}), none, none}},
          {q, k, k, {}, {flags({5, 5}), none, none, none}},
          {{2, 4, 2, 3}, k, k, causal, {none, none, none, none}},
          {{2, 4, 2, 3}, k, k, causal, {none, none, given({2}, {3, 5}), given({2, 2}, {1, 2, 3, 4})}},
          {q, k, k, {}, {none, none, given({2}, {0, 4}), none}},
          {{2, 2, 2, 4},
           small,
           small,
           {0, true, 3, 0, true},
           {none, none, given({2}, {2, 8}), given({2, 2}, {0, 1, 6, 7})}},
          {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, causal, {none, none, none, none}},
          {{1, 2, 3, 2}, {1, 1, 0, 2}, {1, 1, 0, 2}, {}, {none, none, none, none}},
          {{B, 4, T, 2}, {B, 2, T, 2}, {B, 2, T, 2}, causal, {none, none, none, none}},
          {{B, 2, T, 2}, {B, 2, 16, 2}, {B, 2, 16, 2}, causal, {none, none, whole(5, 9, {B}), whole(0, 8, {B, T})}},
          // Paged: blocks in any order, shared, and missing where nothing is seen.
          {{2, 4, 2, 3},
           {5, 2, 4, 3},
           {5, 2, 4, 7},
           causal,
           {none, none, given({2}, {6, 11}), given({2, 2}, {4, 5, 9, 10})},
           given({2, 3}, {3, 0, -1, 4, 3, 1})},
          {{2, 2, 2, 4},
           {4, 2, 3, 4},
           {4, 2, 3, 4},
           {0, true, 3, 0, true},
           {none, any({2}), given({2}, {2, 13}), given({2, 2}, {0, 1, 11, 12})},
           given({2, 2}, {2, -1, 1, 3})},
          {{2, 2, 3, 2},
           {3, 1, 5, 2},
           {3, 1, 5, 2},
           {},
           {any({2, 1, 3, 10}), none, given({2}, {7, 0}), none},
           given({2, 2}, {2, 0, -1, -1})},
          {{B, 2, T, 2},
           {6, 2, 4, 2},
           {6, 2, 4, 2},
           causal,
           {none, none, whole(5, 9, {B}), whole(0, 8, {B, T})},
           whole(0, 5, {B, 4})}};
}

// Attention over 8-bit caches; k and v count features.
inline std::vector<AttentionSample> packed_attention_samples() {
  const AttentionAttrs causal{0, true, 0, 0, false};
  const Draw none = absent();
  std::vector<AttentionSample> samples;
  // Sizes of whole groups of scales, of parts of one, and different ones of keys and values; decoding and prompts.
  for (const std::int64_t size : {8, 20, 64, 80, 128, 256})
    for (const std::int64_t time : {1, 3})
      samples.push_back({{2, 4, time, size},
                         {2, 2, 11, size},
                         {2, 2, 11, size == 64 ? 128 : size},
                         causal,
                         {none, none, given({2}, {5, 11}), whole(3, 10, {2, time})}});
  samples.push_back({{2, 4, 2, 20},
                     {5, 2, 4, 20},
                     {5, 2, 4, 40},
                     {0, true, 3, 0, false},
                     {none, any({4}), given({2}, {6, 11}), given({2, 2}, {4, 5, 9, 10})},
                     given({2, 3}, {3, 0, -1, 4, 3, 1})});
  samples.push_back({{1, 2, 1, 64},
                     {6, 1, 16, 64},
                     {6, 1, 16, 64},
                     causal,
                     {none, none, given({1}, {70}), given({1, 1}, {69})},
                     given({1, 5}, {3, 0, 5, 4, 1})});
  samples.push_back({{2, 2, 2, 8},
                     {2, 2, 7, 8},
                     {2, 2, 7, 8},
                     {0, true, 3, 2, true},
                     {none, none, given({2}, {2, 13}), given({2, 2}, {0, 1, 11, 12})}});
  return samples;
}

inline void add_options(Case& one, const AttentionSample& sample) {
  one.operands.insert(one.operands.end(), sample.rest.begin(), sample.rest.end());
  one.operands.push_back(sample.table);
}

CASES(attention) {
  std::vector<Case> cases;
  // The log-sum-exp is there for the gradient and the kernels; the loss takes the first output.
  for (const auto& sample : attention_samples()) {
    Case one{{any(sample.q), any(sample.k), any(sample.v)}, sample.attrs, {0}};
    add_options(one, sample);
    cases.push_back(std::move(one));
  }
  for (const auto& sample : packed_attention_samples()) {
    Case one{{any(sample.q), packed_rows(sample.k), packed_rows(sample.v)}, sample.attrs, {0}};
    add_options(one, sample);
    cases.push_back(std::move(one));
  }
  return cases;
}
CASES(attention_weights) {
  std::vector<Case> cases;
  for (const auto& sample : attention_samples()) {
    if (sample.k[2] == Dim(0)) continue;
    Case one{{any(sample.q), any(sample.k)}, sample.attrs};
    add_options(one, sample);
    cases.push_back(std::move(one));
  }
  for (const auto& sample : packed_attention_samples()) {
    Case one{{any(sample.q), packed_rows(sample.k)}, sample.attrs};
    add_options(one, sample);
    cases.push_back(std::move(one));
  }
  return cases;
}
CASES(attention_grad) {
  std::vector<Case> cases;
  for (const auto& sample : attention_samples()) {
    if (sample.k[2] == Dim(0) || sample.table.kind != Draw::Kind::absent) continue;
    const auto forward = [attrs = sample.attrs](const std::vector<Tensor>& x, std::size_t output) {
      std::vector<Operand> operands{x[0], x[1], x[2]};
      for (std::size_t i = 6; i < 10; ++i) operands.push_back(x[i] ? Operand(x[i]) : Operand());
      return apply(Op::attention, operands, attrs)[output];
    };
    const Shape out{sample.q[0], sample.q[1], sample.q[2], sample.v[3]};
    const auto& a = sample.attrs;
    const bool float_mask = sample.rest[0].kind != Draw::Kind::absent && is_float(sample.rest[0].dtype);
    Case one{{any(sample.q), any(sample.k), any(sample.v),
              computed([forward](const std::vector<Tensor>& x) { return forward(x, 0); }),
              computed([forward](const std::vector<Tensor>& x) { return forward(x, 1); }), any(out)},
             AttentionGradAttrs{a.scale, a.causal, a.window, a.soft_cap, a.ring, float_mask}};
    one.operands.insert(one.operands.end(), sample.rest.begin(), sample.rest.end());
    cases.push_back(std::move(one));
  }
  return cases;
}

CASES(cross_entropy) {
  return {{{any({2, 5, 8}), whole(0, 7, {2, 5}), absent()}, CrossEntropyAttrs{}},
          {{any({5, 8}), whole(0, 7, {5}), absent()}, CrossEntropyAttrs{0.1}},
          {{any({6, 4}), given({6}, {0, -1, 3, -100, 2, 1}), absent()}, CrossEntropyAttrs{0.2}},
          {{any({6, 4}), whole(-1, 3, {6}), any({6})}, CrossEntropyAttrs{}},
          {{any({3, 4}), whole(0, 3, {3}), any({3})}, CrossEntropyAttrs{0.3}},
          {{any({7}), given({}, {3}), absent()}, CrossEntropyAttrs{}},
          {{any({2, 1}), given({2}, {0, 0}), absent()}, CrossEntropyAttrs{}},
          {{any({0, 4}), whole(0, 3, {0}), absent()}, CrossEntropyAttrs{}},
          {{any({B, T, 6}), whole(-1, 5, {B, T}), any({B, T})}, CrossEntropyAttrs{0.1}}};
}
CASES(swiglu) {
  return {
      {{any({3, 8}), any({3, 8})}}, {{any({2, 3}), any({3})}}, {{any({0}), any({0})}}, {{any({T, 2}), any({T, 2})}}};
}
CASES(geglu) {
  return {{{any({3, 8}), any({3, 8})}, GeluAttrs{}},
          {{any({2, 3}), any({3})}, GeluAttrs{GeluForm::tanh}},
          {{any({0}), any({0})}, GeluAttrs{}},
          {{any({T, 2}), any({T, 2})}, GeluAttrs{}}};
}

}  // namespace jerboa::test
