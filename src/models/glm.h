#pragma once

#include "models/llama_like.h"

namespace jerboa::models {

/// Shared by the generations of GLM: interleaved rotary embedding of a part of each head, biases of queries, keys and
/// values, and an MLP with gate and up in one product. `change` adjusts the stack.
NamedTensors glm_like(const Config& given, const GraphInputs& inputs, void (*change)(StackForm& stack) = nullptr);

}  // namespace jerboa::models
