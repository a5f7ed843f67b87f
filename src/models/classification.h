#pragma once

#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

// Shared by poolers: graphs from the hidden states of a text to one vector or to class scores.
namespace jerboa::models {

/// The poolers' input `hidden`; throws UsageError if it is missing.
Tensor hidden_input(const GraphInputs& inputs);
/// The first token of each text: [batch, width].
Tensor first_token(const Tensor& hidden);
/// The head of a decoder that classifies: class scores from the last token of each row, by a matrix `score.weight`.
Tensor last_token_logits(const Config& config, DType weights, const Tensor& hidden, const Tensor& lengths);
/// How many classes a classification head has.
int class_count(const Config& config);

}  // namespace jerboa::models
