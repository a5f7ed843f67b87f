#pragma once

#include "models/llama_like.h"

// What Gemma 2 and 3 share: norms before and after both halves of a layer, whose weights files store minus 1,
// embeddings scaled by the root of their width, and caps on scores and logits.
namespace jerboa::models {

/// The config with the defaults that both families omit.
Config gemma_config(const Config& config);
Norm gemma_norm(const Decoder& decoder, const Config& config);
/// The form of attention, without its windows.
AttentionForm gemma_attention_form(const Config& config);
NamedTensors gemma_decoder(const Decoder& decoder, const Config& config, const AttentionForm& form);

}  // namespace jerboa::models
