#pragma once

#include <memory>
#include <string>

#include <jerboa/backend/backend.h>

#include "backend/webgpu/gpu_device.h"
#include "base/integers.h"

namespace jerboa::webgpu {

inline constexpr WGPUBufferUsage storage_usage =
    WGPUBufferUsage_Storage | WGPUBufferUsage_CopyDst | WGPUBufferUsage_CopySrc;
inline constexpr WGPUBufferUsage readback_usage = WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst;

using detail::whole_words;

/// A buffer that one or several parameters and states share. It is created while the caller holds the device.
class GpuMemory {
 public:
  GpuMemory(std::shared_ptr<GpuDevice> device, std::int64_t bytes, const std::string& name);
  ~GpuMemory();
  /// Frees the buffer while the caller holds the device; otherwise the destructor does, which waits for the device.
  void release() { buffer_ = {}; }
  WGPUBuffer buffer() const { return buffer_; }
  std::int64_t bytes() const { return bytes_; }
  /// A token that a program holds while it has tensors pooled here.
  std::shared_ptr<const void> pool_use() const { return pool_use_; }
  bool is_pool() const { return pool_use_.use_count() > 1; }

 private:
  std::shared_ptr<GpuDevice> device_;
  std::int64_t bytes_;
  Handle<WGPUBuffer> buffer_;
  std::shared_ptr<const void> pool_use_ = std::make_shared<char>();
};

/// A parameter or state on the device.
class GpuTensor final : public DeviceTensor {
 public:
  GpuTensor(std::shared_ptr<GpuDevice> device, DType dtype, const Sizes& sizes, const std::string& name);
  HostTensor download() const override;
  void clear() override;

  const std::string& name() const { return name_; }
  const GpuDevice& device() const { return *device_; }
  const std::shared_ptr<GpuMemory>& memory() const { return memory_; }
  WGPUBuffer buffer() const { return memory_->buffer(); }
  std::int64_t offset() const { return offset_; }
  std::int64_t bytes() const override { return bytes_; }
  /// How often it was moved: anything created for its location is stale once this changes.
  int moves() const { return moves_; }
  /// Moves it, values included, while the caller holds the device.
  void move_to(std::shared_ptr<GpuMemory> memory, std::int64_t offset);

 private:
  void write(std::span<const std::byte> bytes) override;

  std::shared_ptr<GpuDevice> device_;
  DType dtype_;
  Sizes sizes_;
  std::string name_;
  std::int64_t bytes_;
  std::shared_ptr<GpuMemory> memory_;
  std::int64_t offset_ = 0;
  int moves_ = 0;
};

}  // namespace jerboa::webgpu
