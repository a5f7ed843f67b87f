#include "wgsl/webgpu_target.h"

#include <algorithm>
#include <cctype>

#include <jerboa/wgsl/software_drivers.h>

namespace jerboa {
namespace {

// The number of workgroups of 128 threads and 24 KiB that run concurrently, by adapter name, for hosts that do not
// measure it (backend/webgpu/resident_workgroups.h): WebGPU does not report the number of multiprocessors.
int resident_workgroups(const std::string& adapter) { return adapter.find("H200") != std::string::npos ? 264 : 0; }

std::int64_t bounded(std::uint64_t bytes) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(bytes, std::uint64_t{1} << 40));
}

}  // namespace

Target webgpu_target(const WebGpuFacts& facts) {
  Target target = Target::webgpu_default();
  target.max_buffer_bytes = bounded(facts.max_buffer_bytes);
  // Rounded down to a multiple of every alignment, so that parts of a tensor can be bound one after another.
  target.max_binding_bytes = bounded(facts.max_binding_bytes) / 256 * 256;
  target.max_bindings = static_cast<int>(facts.max_bindings);
  target.max_workgroups = static_cast<int>(facts.max_workgroups);
  target.max_invocations = static_cast<int>(std::min(facts.max_invocations, 256u));
  target.workgroup_bytes = facts.workgroup_bytes;
  target.f16 = facts.f16;
  if (facts.subgroups && facts.subgroup_min == facts.subgroup_max) target.subgroup_size = facts.subgroup_max;
  if (target.f16 && target.subgroup_size == 32 && facts.subgroup_matrices)
    target.subgroup_matrices = SubgroupMatrices::native;
  target.resident_workgroups = resident_workgroups(facts.adapter);
  target.software = facts.software;
  if (target.software) target.unroll = 1;
  return target;
}

std::span<const std::string_view> software_driver_names() {
  static constexpr std::string_view names[] = {"llvmpipe", "lavapipe", "swiftshader", "basic render driver"};
  return names;
}

bool names_software_driver(const std::string& description) {
  std::string lower(description.size(), ' ');
  std::transform(description.begin(), description.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const std::string_view name : software_driver_names())
    if (lower.find(name) != std::string::npos) return true;
  return false;
}

}  // namespace jerboa
