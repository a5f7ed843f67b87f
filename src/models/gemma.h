#pragma once

#include "models/llama_like.h"

// What Gemma's generations share: norms whose weights files store minus 1 and embeddings scaled by the root of their
// width; in Gemma 2 and 3 also norms before and after both halves of a layer, and caps on scores and logits.
namespace jerboa::models {

/// The config with the defaults that files of Gemma 2 and 3 omit.
Config gemma_config(const Config& config);
Norm gemma_norm(const Decoder& decoder, const Config& config);
/// Throws FileError for a model that is not a decoder.
void refuse_bidirectional_attention(const Config& config);
StackForm gemma_stack(const Decoder& decoder, const Config& config);
/// The form of attention of Gemma 2 and 3, without its windows.
AttentionForm gemma_attention_form(const Config& config);
/// Gemma 2 or 3.
NamedTensors gemma_decoder(const Decoder& decoder, const Config& config, const AttentionForm& form);

}  // namespace jerboa::models
