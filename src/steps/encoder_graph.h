#pragma once

#include <optional>

#include <jerboa/compile/graphs.h>
#include <jerboa/models/config.h>
#include <jerboa/models/pooling.h>

namespace jerboa::language {

/// The inputs of a text encoder: ids i32[batch, time], padded at the end, lengths i32[batch], and for families that are
/// encoders token_types i32[batch, time].
InputSpecs encoder_inputs(const models::Config& config, const Dim& batch, const Dim& time);

/// How the vectors of a text's tokens are combined into one.
struct Embedding {
  models::Pooling pooling = models::Pooling::mean;
  bool normalise = false;  ///< to a length of 1
};

/// The output "hidden" f32[batch, time, width]; with `embedding` also "pooled" f32[batch, width]; and "logits" if the
/// model classifies texts. Throws UsageError if the family reads no text.
Graph encoder_graph(const models::Config& config, DType weights, const Dim& batch, const Dim& time,
                    const std::optional<Embedding>& embedding = {});

}  // namespace jerboa::language
