#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <webgpu.h>

namespace jerboa::webgpu {

// Functions of the library that this host calls, without their prefix "wgpu".
// clang-format off
#define JERBOA_WEBGPU_FUNCTIONS(F) \
  F(AdapterGetInfo) F(AdapterGetLimits) F(AdapterHasFeature) F(AdapterInfoFreeMembers) \
  F(AdapterPropertiesSubgroupMatrixConfigsFreeMembers) F(AdapterRelease) F(AdapterRequestDevice) \
  F(BindGroupLayoutRelease) F(BindGroupRelease) F(BufferDestroy) F(BufferGetConstMappedRange) F(BufferMapAsync) \
  F(BufferRelease) F(BufferUnmap) F(CommandBufferRelease) F(CommandEncoderBeginComputePass) \
  F(CommandEncoderClearBuffer) F(CommandEncoderCopyBufferToBuffer) F(CommandEncoderFinish) F(CommandEncoderRelease) \
  F(CommandEncoderResolveQuerySet) F(ComputePassEncoderDispatchWorkgroups) F(ComputePassEncoderEnd) \
  F(ComputePassEncoderRelease) F(ComputePassEncoderSetBindGroup) F(ComputePassEncoderSetPipeline) \
  F(ComputePipelineRelease) F(CreateInstance) F(DeviceAddRef) F(DeviceCreateBindGroup) F(DeviceCreateBindGroupLayout) \
  F(DeviceCreateBuffer) F(DeviceCreateCommandEncoder) F(DeviceCreateComputePipeline) F(DeviceCreatePipelineLayout) \
  F(DeviceCreateQuerySet) F(DeviceCreateShaderModule) F(DeviceForceLoss) F(DeviceGetAdapter) F(DeviceGetLimits) \
  F(DeviceGetLostFuture) F(DeviceGetQueue) F(DeviceHasFeature) F(DevicePopErrorScope) F(DevicePushErrorScope) \
  F(DeviceRelease) F(DeviceSetLoggingCallback) F(DeviceTick) F(InstanceAddRef) F(InstanceRelease) \
  F(InstanceRequestAdapter) F(InstanceWaitAny) F(PipelineLayoutRelease) F(QuerySetRelease) \
  F(QueueOnSubmittedWorkDone) F(QueueRelease) F(QueueSubmit) F(QueueWriteBuffer) F(ShaderModuleGetCompilationInfo) \
  F(ShaderModuleRelease)
// clang-format on

/// The WebGPU library, opened at run time.
class Dawn {
 public:
  /// Opens it once per process. `path`: its location, or "" to search: JERBOA_WEBGPU_LIBRARY, next to the executable,
  /// the path at build time, and the system's search path. Throws DeviceError that lists what was tried.
  static std::shared_ptr<const Dawn> open(const std::string& path);

#define JERBOA_DECLARE(name) decltype(&::wgpu##name) name = nullptr;
  JERBOA_WEBGPU_FUNCTIONS(JERBOA_DECLARE)
#undef JERBOA_DECLARE

 private:
  void find_functions(void* library, const std::string& path);
};

inline WGPUStringView text(std::string_view text) { return {text.data(), text.size()}; }
inline std::string text(WGPUStringView view) {
  if (view.data == nullptr) return {};
  return view.length == WGPU_STRLEN ? std::string(view.data) : std::string(view.data, view.length);
}

}  // namespace jerboa::webgpu
