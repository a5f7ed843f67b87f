#pragma once

#include <cstdint>
#include <string>

#include <jerboa/lower/program.h>

namespace jerboa {

/// The properties that a WebGPU device reports, natively or in a browser. The defaults are guaranteed on every device.
struct WebGpuFacts {
  std::uint64_t max_buffer_bytes = 256 << 20, max_binding_bytes = 128 << 20;
  std::uint32_t max_bindings = 8, max_workgroups = 65535, max_invocations = 256, workgroup_bytes = 16384;
  bool f16 = false, subgroups = false, subgroup_matrices = false;
  int subgroup_min = 0, subgroup_max = 0;
  std::string adapter = {};  ///< its name, if known
  bool software = false;     ///< it runs on the CPU
};

/// The compiler's target for such a device.
Target webgpu_target(const WebGpuFacts& facts);

/// Whether an adapter's description names a software driver.
bool names_software_driver(const std::string& description);

}  // namespace jerboa
