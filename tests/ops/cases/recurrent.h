#pragma once

#include "ops/cases/declare.h"

// Sample cases of the ops that carry a state from token to token.
namespace jerboa::test {

CASES(causal_conv1d) {
  const Draw none = absent();
  return {{{any({2, 3, 4}), any({2, 5, 4}), any({4, 4}), none, none}},
          {{none, any({2, 5, 4}), any({4, 4}), none, none}},
          // One token, fewer tokens than the state has, one tap, two.
          {{any({2, 3, 4}), any({2, 1, 4}), any({4, 4}), none, none}},
          {{any({1, 4, 3}), any({1, 2, 3}), any({3, 5}), none, none}},
          {{any({2, 0, 3}), any({2, 4, 3}), any({3, 1}), none, none}},
          {{any({1, 1, 5}), any({1, 7, 5}), any({5, 2}), none, none}},
          {{any({1, 2, 3}), any({1, 0, 3}), any({3, 3}), none, none}},
          {{any({0, 2, 3}), any({0, 4, 3}), any({3, 3}), none, none}},
          // Padding first, last and in between; all of it; a row that starts a sequence.
          {{any({4, 3, 3}), any({4, 5, 3}), any({3, 4}),
            given({4, 5}, {-1, -1, 7, 8, 9, 3, 4, -1, 5, -1, -1, -1, -1, -1, -1, -1, 0, 1, 2, 3}), none}},
          {{none, any({2, 4, 2}), any({2, 3}), given({2, 4}, {-1, 0, 1, 2, 5, 6, 7, 8}), none}},
          {{any({2, 2, 3}), any({2, 1, 3}), any({3, 3}), given({2, 1}, {0, 4}), none}},
          // Slots, one of them missing.
          {{any({5, 2, 3}), any({3, 4, 3}), any({3, 3}), none, given({3}, {4, -1, 1})}},
          {{any({4, 3, 2}), any({3, 2, 2}), any({2, 4}), given({3, 2}, {-1, 3, 0, 1, 8, 9}), given({3}, {2, 0, 4})}},
          {{any({B, 3, 4}), any({B, T, 4}), any({4, 4}), none, none}},
          {{any({4, 3, 4}), any({B, T, 4}), any({4, 4}), given({B, T}, {-1, -1, 4, 5, 6, 0, 1, 2, -1, 3}),
            given({B}, {3, 1})}}};
}

struct LinearAttentionSample {
  Shape k, v;  // of [batch, time, heads, size]
  bool beta = false, state = true;
  Draw positions = absent(), slots = absent();
  Dim rows = 0;  // of the state, where there are slots
};

inline std::vector<LinearAttentionSample> linear_attention_samples() {
  const Draw none = absent();
  std::vector<LinearAttentionSample> samples;
  for (const bool beta : {false, true}) {
    samples.insert(samples.end(),
                   {{{2, 5, 2, 3}, {2, 5, 2, 4}, beta},
                    {{2, 5, 2, 3}, {2, 5, 2, 4}, beta, false},
                    // Heads that share q and k, one token, several chunks, no token.
                    {{1, 4, 2, 5}, {1, 4, 6, 2}, beta},
                    {{2, 1, 2, 4}, {2, 1, 4, 3}, beta},
                    {{1, 70, 1, 3}, {1, 70, 2, 2}, beta},
                    {{1, 0, 2, 3}, {1, 0, 2, 4}, beta},
                    {{0, 3, 2, 3}, {0, 3, 2, 4}, beta},
                    {{1, 1, 1, 1}, {1, 1, 1, 1}, beta},
                    // Padding, a row that starts a sequence, a row of padding only.
                    {{4, 5, 1, 3}, {4, 5, 2, 3}, beta, true, given({4, 5}, {-1, -1, 7,  8,  9,  3,  4, -1, 5, -1,
                                                                            -1, -1, -1, -1, -1, -1, 0, 1,  2, 3})},
                    {{2, 4, 1, 2}, {2, 4, 1, 3}, beta, false, given({2, 4}, {-1, 0, 1, 2, 5, 6, 7, 8})},
                    {{2, 1, 1, 2}, {2, 1, 2, 3}, beta, true, given({2, 1}, {0, 6})},
                    // Slots, some of them missing.
                    {{3, 4, 1, 2}, {3, 4, 2, 3}, beta, true, none, given({3}, {4, -1, 1}), 5},
                    {{3, 1, 2, 3}, {3, 1, 2, 4}, beta, true, given({3, 1}, {3, 0, -1}), given({3}, {2, 0, 9}), 4},
                    {{B, T, 1, 3}, {B, T, 2, 2}, beta},
                    {{B, T, 1, 3},
                     {B, T, 2, 2},
                     beta,
                     true,
                     given({B, T}, {-1, -1, 4, 5, 6, 0, 1, 2, -1, 3}),
                     given({B}, {3, 1}),
                     4}});
  }
  return samples;
}

inline Shape state_shape(const LinearAttentionSample& sample, const Dim& rows) {
  return {rows, sample.v[2], sample.k[3], sample.v[3]};
}

// state, q, k, v, log_decay, beta and positions. Keys are short, so that the delta rule forgets and does not grow.
inline std::vector<Draw> linear_attention_operands(const LinearAttentionSample& sample, const Dim& rows) {
  const Shape gates{sample.v[0], sample.v[1], sample.v[2]};
  return {sample.state ? any(state_shape(sample, rows)) : absent(),
          any(sample.k),
          within(-0.8, 0.8, sample.k),
          any(sample.v),
          within(-1.5, -0.01, gates),
          sample.beta ? within(0.1, 0.9, gates) : absent(),
          sample.positions};
}

CASES(linear_attention) {
  std::vector<Case> cases;
  for (const auto& sample : linear_attention_samples()) {
    const bool has_slots = sample.slots.kind != Draw::Kind::absent;
    Case one{linear_attention_operands(sample, has_slots ? sample.rows : sample.v[0])};
    one.operands.push_back(sample.slots);
    cases.push_back(std::move(one));
  }
  return cases;
}
CASES(linear_attention_grad) {
  std::vector<Case> cases;
  for (const auto& sample : linear_attention_samples()) {
    if (sample.slots.kind != Draw::Kind::absent) continue;
    Case one{linear_attention_operands(sample, sample.v[0])};
    one.operands.push_back(sample.state ? any(state_shape(sample, sample.v[0])) : absent());
    one.operands.push_back(any(sample.v));
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace jerboa::test
