#pragma once

#include <filesystem>
#include <vector>

#include <jerboa/runtime/device.h>

#include "verify/op_goldens.h"

namespace jerboa {

/// Verifies a Hugging Face folder of a text encoder. Its golden.safetensors holds `input_ids`, the `attention_mask`,
/// and one or more results: `hidden` at every token of a text, `pooled`, the normalised mean of a text's vectors, or
/// `logits` of a classification head. `token_type_ids` are optional. Throws FileError for goldens that could not fail.
/// Each value may be off by 1e-4 of a typical value's size, and so may the whole tensor.
std::vector<CaseReport> verify_encoder_goldens(const std::filesystem::path& folder, const Device& device);

}  // namespace jerboa
