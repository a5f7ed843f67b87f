#pragma once

#include <jerboa/runtime/device.h>

namespace jerboa {

/// Whether a device is a real GPU, not a software driver.
bool is_gpu(const Device& device);
/// Whether it multiplies f16 matrices faster than f32, so that mixed precision pays off: a GPU with subgroup matrices.
bool multiplies_f16_matrices(const Device& device);

}  // namespace jerboa
