#pragma once

#include <string>
#include <utility>
#include <vector>

#include <jerboa/ops/tensor.h>

#include "steps/step_graph.h"

// Sampling as ops, so that every device can do it and only tokens are read back. It follows the host's Sampler step by
// step: biases, penalties, mask, temperature, top-k, top-p, min-p, and a draw in the order of the tokens.
namespace jerboa::language {

using NamedOutputs = std::vector<std::pair<std::string, Tensor>>;

/// Draws the token for each of [rows, outputs] logits: "tokens" i32[rows, outputs]. With Logprobs::drawn also
/// "logprobs" f32 of the same shape, by the logits with their biases alone; with Logprobs::listed also "likeliest"
/// i32[rows, outputs, n] and "likeliest_logprobs", n being most_logprobs or the size of the vocabulary. Adds inputs,
/// one value per row, to the graph that is being traced: for `sampled` "temperature", "top_p" and "min_p" f32[rows],
/// "top_k" i32[rows], "seed" u32[rows, 2], and "draw" u32[rows, outputs], the number of each draw; if `masked`, "mask"
/// u32[rows, words], one bit for each token that may be drawn; if `biased`, "biased_tokens" i32[rows, biased] and
/// "bias" f32 of the same shape; if `penalised`, "repetition_penalty", "presence_penalty" and "frequency_penalty"
/// f32[rows], and the tokens they apply to, "seen_tokens" i32[rows, outputs, penalised] and "seen" f32 of the same
/// shape (serving::SamplingInputs::seen), to which the tokens `taken` i32[rows] are added if they are not negative;
/// `taken` may be empty. A row whose temperature is 0 takes the most likely token.
NamedOutputs draw_tokens(const Tensor& logits, const EntryKey& key, const Tensor& taken, bool is_gpu);

/// In [0, 1): draw number `draw` u32[rows, outputs] of the seeds u32[rows, 2]: CounterRandom's numbers, to 24 bits.
Tensor uniform_draws(const Tensor& seed, const Tensor& draw);

}  // namespace jerboa::language
