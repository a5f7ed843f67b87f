#pragma once

#include <filesystem>
#include <vector>

#include <jerboa/runtime/device.h>

#include "verify/op_goldens.h"

namespace jerboa {

/// Any device as the engine that op goldens ask for.
EvaluateGraph evaluate_on(const Device& device);

/// Runs what `path` holds on a device: the cases of an op-golden file; or, of a model's folder, the training in
/// train.safetensors and the logits in golden.safetensors. Throws FileError where it is neither.
std::vector<CaseReport> verify_goldens(const std::filesystem::path& path, const Device& device);

}  // namespace jerboa
