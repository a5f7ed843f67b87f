#pragma once

#include <memory>
#include <string>

#include <jerboa/backend/backend.h>

#include "backend/webgpu/gpu_device.h"

namespace jerboa::webgpu {

inline constexpr WGPUBufferUsage storage_usage =
    WGPUBufferUsage_Storage | WGPUBufferUsage_CopyDst | WGPUBufferUsage_CopySrc;
inline constexpr WGPUBufferUsage readback_usage = WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst;

/// Copies and bindings are of whole words.
constexpr std::int64_t whole_words(std::int64_t bytes) { return (bytes + 3) / 4 * 4; }

/// Memory of a parameter or state on the device.
class GpuTensor final : public DeviceTensor {
 public:
  GpuTensor(std::shared_ptr<GpuDevice> device, DType dtype, const Sizes& sizes, const std::string& name);
  ~GpuTensor() override;
  void upload(const HostTensor& values) override;
  HostTensor download() const override;
  WGPUBuffer buffer() const { return buffer_; }

 private:
  std::shared_ptr<GpuDevice> device_;
  DType dtype_;
  Sizes sizes_;
  std::int64_t bytes_;
  Handle<WGPUBuffer> buffer_;
};

}  // namespace jerboa::webgpu
