#include <jerboa/runtime/device_kind.h>

namespace jerboa {

bool is_gpu(const Device& device) { return device.name() == "webgpu" && !webgpu_target(device.backend()).software; }

bool multiplies_f16_matrices(const Device& device) {
  return is_gpu(device) && webgpu_target(device.backend()).subgroup_matrices == SubgroupMatrices::native;
}

}  // namespace jerboa
