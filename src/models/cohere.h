#pragma once

#include "models/llama_like.h"

namespace jerboa::models {

/// The stack of Cohere's models: attention and MLP in parallel behind one layer norm without a bias, and scaled logits.
StackForm cohere_stack(const Decoder& decoder, const Config& config);

}  // namespace jerboa::models
