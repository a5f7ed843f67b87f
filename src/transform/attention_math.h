#pragma once

#include <jerboa/base/lowest_score.h>
#include <jerboa/ir/attrs.h>
#include <jerboa/ops/tensor.h>

namespace jerboa::detail {

/// lowest_score, within the range of a type.
constexpr double lowest_score_of(DType dtype) { return dtype == DType::f16 ? -6e4 : lowest_score; }

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

/// A paged cache [blocks, heads, block, size] as the contiguous one [batch, heads, keys, size] that the table
/// describes.
Tensor unpaged(const Tensor& cache, const Tensor& table);
/// The gradient of the paged cache from that of the contiguous one: a block's is the sum over all sequences that share
/// it.
Tensor paged_gradient(const Tensor& dstraight, const Tensor& cache, const Tensor& table);

/// The features of an 8-bit cache in this type; any other cache unchanged.
Tensor unpacked(const Tensor& cache, DType dtype);

/// [batch, heads, …] ↔ [batch, key heads, group, …]
Tensor group_heads(const Tensor& x, const Dim& key_heads);
Tensor ungroup_heads(const Tensor& x);

}  // namespace jerboa::detail
