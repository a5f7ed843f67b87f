#pragma once

#include <filesystem>
#include <vector>

#include <jerboa/runtime/device.h>

#include "verify/op_goldens.h"

namespace jerboa {

/// Runs a Hugging Face folder of a text encoder whose golden.safetensors holds `input_ids`, the `attention_mask` that
/// says where texts end, and what belongs to them: `hidden` at every token of a text, `pooled`, the mean of a text's
/// vectors, normalised, or `logits` of a classification head. `token_type_ids` are optional. Throws FileError for
/// goldens that could not fail. Each value may be off by 1e-4 of a typical one's size, and so may the whole.
std::vector<CaseReport> verify_encoder_goldens(const std::filesystem::path& folder, const Device& device);

}  // namespace jerboa
