#pragma once

#include "models/llama_like.h"

// What OLMo 2 and 3 share: norms after both halves of a layer, and of all queries and all keys at once.
namespace jerboa::models {

/// The config with the defaults that files omit.
Config olmo_config(const Config& config);
AttentionForm olmo_attention_form(const Decoder& decoder, const Config& config);

}  // namespace jerboa::models
