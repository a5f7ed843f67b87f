#pragma once

#include <jerboa/ops/tensor.h>

#include "steps/step_graph.h"

// Sampling as ops, so that every device can do it and only tokens are read back. It follows the host's Sampler step by
// step: mask, temperature, top-k, top-p, min-p, and a draw in the order of the tokens.
namespace jerboa::language {

/// The token of each of [rows, outputs] logits, i32[rows, outputs]. It adds inputs, one value per row, to the graph
/// that is being traced: for `sampled` "temperature", "top_p" and "min_p" f32[rows], "top_k" i32[rows], "seed"
/// u32[rows, 2], and "draw" u32[rows, outputs], the number of each draw; and if `masked`, "mask" u32[rows, words], one
/// bit for each token that may be drawn. A row whose temperature is 0 takes the likeliest token.
Tensor draw_tokens(const Tensor& logits, Drawing drawing, bool masked, bool is_gpu);

/// In [0, 1): draw number `draw` u32[rows, outputs] of the seeds u32[rows, 2]: CounterRandom's numbers, to 24 bits.
Tensor uniform_draws(const Tensor& seed, const Tensor& draw);

}  // namespace jerboa::language
