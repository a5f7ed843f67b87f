#pragma once

#include "models/llama_like.h"

// Shared by OLMo 2 and 3: norms after both sublayers, and norms over the queries and the keys of all heads together.
namespace jerboa::models {

/// The config with the defaults that files omit.
Config olmo_config(const Config& config);
AttentionForm olmo_attention_form(const Decoder& decoder, const Config& config);

}  // namespace jerboa::models
