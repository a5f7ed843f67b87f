#include "backend/webgpu/gpu_tensor.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace jerboa::webgpu {
namespace {

// Submits the commands that encode(encoder) adds.
template <class Encode>
void submit(GpuDevice& device, const Encode& encode) {
  const Dawn& dawn = device.dawn();
  const Handle<WGPUCommandEncoder> encoder{dawn.DeviceCreateCommandEncoder(device.device(), nullptr),
                                           dawn.CommandEncoderRelease};
  encode(encoder);
  const Handle<WGPUCommandBuffer> commands{dawn.CommandEncoderFinish(encoder, nullptr), dawn.CommandBufferRelease};
  device.submit({commands});
}

// Copies whole words from one buffer to another.
void copy(GpuDevice& device, WGPUBuffer from, std::int64_t from_offset, WGPUBuffer to, std::int64_t to_offset,
          std::int64_t bytes) {
  submit(device, [&](WGPUCommandEncoder encoder) {
    device.dawn().CommandEncoderCopyBufferToBuffer(encoder, from, static_cast<std::uint64_t>(from_offset), to,
                                                   static_cast<std::uint64_t>(to_offset),
                                                   static_cast<std::uint64_t>(whole_words(bytes)));
  });
}

}  // namespace

GpuMemory::GpuMemory(std::shared_ptr<GpuDevice> device, std::int64_t bytes, const std::string& name)
    : device_(std::move(device)), bytes_(bytes), buffer_(device_->create_buffer(bytes, storage_usage, name)) {}

GpuMemory::~GpuMemory() {
  if (buffer_ == nullptr) return;
  const std::scoped_lock lock(device_->mutex());
  buffer_ = {};
}

GpuTensor::GpuTensor(std::shared_ptr<GpuDevice> device, DType dtype, const Sizes& sizes, const std::string& name)
    : device_(std::move(device)),
      dtype_(dtype),
      sizes_(sizes),
      name_(fmt::format("{} ({}{})", name, jerboa::name(dtype), to_string(sizes))),
      bytes_(bytes_of(dtype, element_count(sizes))) {
  const std::scoped_lock lock(device_->mutex());
  memory_ = std::make_shared<GpuMemory>(device_, bytes_, name_);
}

void GpuTensor::write(std::span<const std::byte> bytes) {
  const std::scoped_lock lock(device_->mutex());
  device_->write(buffer(), offset_, bytes.data(), bytes_);
  device_->check();
}

void GpuTensor::clear() {
  const std::scoped_lock lock(device_->mutex());
  submit(*device_, [&](WGPUCommandEncoder encoder) {
    device_->dawn().CommandEncoderClearBuffer(encoder, buffer(), static_cast<std::uint64_t>(offset_),
                                              static_cast<std::uint64_t>(whole_words(bytes_)));
  });
  device_->check();
}

HostTensor GpuTensor::download() const {
  const std::scoped_lock lock(device_->mutex());
  const Handle<WGPUBuffer> readback = device_->create_buffer(bytes_, readback_usage, "readback");
  copy(*device_, buffer(), offset_, readback, 0, bytes_);
  HostTensor values(dtype_, sizes_);
  const std::vector<std::byte> bytes = device_->read(readback, bytes_);
  std::copy(bytes.begin(), bytes.end(), values.bytes().begin());
  return values;
}

void GpuTensor::move_to(std::shared_ptr<GpuMemory> memory, std::int64_t offset) {
  if (bytes_ > 0) copy(*device_, buffer(), offset_, memory->buffer(), offset, bytes_);
  if (memory_.use_count() == 1) memory_->release();
  memory_ = std::move(memory);
  offset_ = offset;
  ++moves_;
}

}  // namespace jerboa::webgpu
