#pragma once

#include <filesystem>
#include <vector>

#include <jerboa/runtime/device.h>

#include "verify/op_goldens.h"

namespace jerboa {

/// Runs a Hugging Face folder whose golden.safetensors holds `input_ids`, the `logits` that belong to them, and
/// `greedy`, the same ids with what greedy decoding adds, which is decoded here through the key/value caches. The
/// model's sizes come from its config.json. Throws FileError for goldens that could not fail.
/// Each logit may be off by 1e-4 of a typical one's size, and so may the whole.
std::vector<CaseReport> verify_logit_goldens(const std::filesystem::path& folder, const Device& device);

}  // namespace jerboa
