#pragma once

#include <filesystem>
#include <vector>

#include <jerboa/runtime/device.h>

#include "verify/op_goldens.h"

namespace jerboa {

/// Verifies a Hugging Face folder. Its golden.safetensors holds `input_ids`, their `logits`, and `greedy`, the same ids
/// with their greedy continuation, which is decoded here through the key/value caches. The model's sizes come from its
/// config.json. Throws FileError for goldens that could not fail. Each logit may be off by 1e-4 of a typical logit's
/// size, and so may the whole tensor.
std::vector<CaseReport> verify_logit_goldens(const std::filesystem::path& folder, const Device& device);

}  // namespace jerboa
