#pragma once

#include <filesystem>
#include <vector>

#include <jerboa/runtime/device.h>

#include "verify/op_goldens.h"

namespace jerboa {

/// Adapts any device to the engine interface of op goldens.
EvaluateGraph evaluate_on(const Device& device);

/// Runs the goldens in `path` on a device: the cases of an op-golden file or, for a model's folder, the training in
/// train.safetensors and the results in golden.safetensors (a decoder's logits, an encoder's hidden states). Throws
/// FileError if it is neither.
std::vector<CaseReport> verify_goldens(const std::filesystem::path& path, const Device& device);

}  // namespace jerboa
