#pragma once

#include <filesystem>
#include <vector>

#include <jerboa/runtime/device.h>
#include <jerboa/transform/precision.h>

#include "verify/op_goldens.h"

namespace jerboa {

/// Trains the model of a Hugging Face folder as its train.safetensors did: `ids` [steps, batch, time + 1], mean
/// next-token cross-entropy, AdamW with a rate of 1e-3, betas 0.9 and 0.95, eps 1e-8 and a decay of 0.1 on every
/// parameter. Checks `losses`, the gradients of the first step, grad/NAME, and the parameters at the end,
/// afterSTEPS/NAME. A parameter without a golden fails, as does a golden without a parameter. In mixed precision the
/// tolerance is derived from f16 instead.
std::vector<CaseReport> verify_train_goldens(const std::filesystem::path& folder, const Device& device,
                                             const Tolerance& tolerance = {}, Precision precision = Precision::full);

}  // namespace jerboa
