#pragma once

#include "models/llama_like.h"

// Shared by the generations of Gemma: norm weights that files store minus 1, and embeddings scaled by the square root
// of their width; Gemma 2 and 3 also have norms before and after both sublayers, and soft caps on scores and logits.
namespace jerboa::models {

/// The config with the defaults that files of Gemma 2 and 3 omit.
Config gemma_config(const Config& config);
Norm gemma_norm(const Decoder& decoder, const Config& config);
/// Throws FileError if tokens may see later ones, so that the model is not a decoder.
void refuse_bidirectional_attention(const Config& config);
StackForm gemma_stack(const Decoder& decoder, const Config& config);
/// The form of attention of Gemma 2 and 3, without its windows.
AttentionForm gemma_attention_form(const Config& config);
/// Gemma 2 or 3.
NamedTensors gemma_decoder(const Decoder& decoder, const Config& config, const AttentionForm& form);

}  // namespace jerboa::models
