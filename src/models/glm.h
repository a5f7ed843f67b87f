#pragma once

#include "models/llama_like.h"

namespace jerboa::models {

/// What GLM's generations share: rotary pairs of neighbours in a part of each head, biases of queries, keys and values,
/// and an MLP whose gate and values come from one product. `change` may change what surrounds them.
NamedTensors glm_like(const Config& given, const GraphInputs& inputs, void (*change)(StackForm& stack) = nullptr);

}  // namespace jerboa::models
