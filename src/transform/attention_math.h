#pragma once

#include <jerboa/ir/attrs.h>
#include <jerboa/ops/tensor.h>

namespace jerboa::detail {

/// The score of masked positions: its exponential is 0, and differences with it stay finite.
constexpr double lowest_score(DType dtype) { return dtype == DType::f16 ? -6e4 : -1e30; }

/// The operands of attention that shape its probabilities; absent ones are empty.
struct AttentionOperands {
  Tensor q, k, mask, sinks, lengths, positions;
};

/// Attention's probabilities, written out in plain ops. Heads that share a key head form a group, so everything is
/// [batch, key heads, group, time, keys].
struct AttentionProbabilities {
  Tensor weights;
  Tensor sink_weights;  ///< [batch, key heads, group, time, 1]; empty without sinks
  Tensor cap_slope;     ///< derivative of the soft cap at each score; empty without one
  Tensor query;         ///< q as [batch, key heads, group, time, size]
  Tensor key;           ///< k as [batch, key heads, 1, keys, size]
};

AttentionProbabilities attention_probabilities(const AttentionOperands& in, const AttentionAttrs& attrs);

/// A paged cache [blocks, heads, block, size] as the straight one [batch, heads, keys, size] that the table describes.
Tensor unpaged(const Tensor& cache, const Tensor& table);
/// The gradient of the paged cache from that of the straight one: a block's is the sum over those who share it.
Tensor paged_gradient(const Tensor& dstraight, const Tensor& cache, const Tensor& table);

/// [batch, heads, …] ↔ [batch, key heads, group, …]
Tensor group_heads(const Tensor& x, const Dim& key_heads);
Tensor ungroup_heads(const Tensor& x);

}  // namespace jerboa::detail
