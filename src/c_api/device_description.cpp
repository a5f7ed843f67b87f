#include "c_api/device_description.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "wgsl/webgpu_target.h"

namespace jerboa::c_api {
namespace {

constexpr std::int64_t max_bytes = std::int64_t{1} << 53;  // exact in a JavaScript number

void read_limits(WebGpuFacts& facts, Fields limits) {
  const auto bytes = [&](const char* key, std::uint64_t otherwise) {
    return static_cast<std::uint64_t>(limits.integer(key, static_cast<std::int64_t>(otherwise), 1, max_bytes));
  };
  const auto count = [&](const char* key, std::uint32_t otherwise) {
    return static_cast<std::uint32_t>(limits.integer(key, otherwise, 1));
  };
  facts.max_buffer_bytes = bytes("maxBufferSize", facts.max_buffer_bytes);
  facts.max_binding_bytes = bytes("maxStorageBufferBindingSize", facts.max_binding_bytes);
  facts.max_bindings = count("maxStorageBuffersPerShaderStage", facts.max_bindings);
  facts.max_workgroups = count("maxComputeWorkgroupsPerDimension", facts.max_workgroups);
  facts.max_invocations = count("maxComputeInvocationsPerWorkgroup", facts.max_invocations);
  facts.workgroup_bytes = count("maxComputeWorkgroupStorageSize", facts.workgroup_bytes);
}

void read_features(WebGpuFacts& facts, const nlohmann::json& features) {
  if (!features.is_null() && !features.is_array()) throw UsageError("device: features must be a list of names");
  for (const auto& feature : features) {
    facts.f16 = facts.f16 || feature == "shader-f16";
    facts.subgroups = facts.subgroups || feature == "subgroups";
    facts.subgroup_matrices = facts.subgroup_matrices || feature == "chromium-experimental-subgroup-matrix";
  }
}

void read_info(WebGpuFacts& facts, Fields info) {
  facts.subgroup_min = info.count("subgroupMinSize", 0);
  facts.subgroup_max = info.count("subgroupMaxSize", 0);
  facts.adapter = info.text("device", "");
  const std::string texts = facts.adapter + ' ' + info.text("architecture", "") + ' ' + info.text("description", "");
  facts.software = info.flag("isFallbackAdapter", false) || names_software_driver(texts);
}

}  // namespace

Target target_of(const nlohmann::json& device) {
  Fields fields(device, "device");
  WebGpuFacts facts;
  read_limits(facts, {fields.value("limits"), "device: limits"});
  read_features(facts, fields.value("features"));
  read_info(facts, {fields.value("info"), "device: info"});
  fields.finish();
  return webgpu_target(facts);
}

}  // namespace jerboa::c_api
