#include "backend/webgpu/gpu_tensor.h"

#include <algorithm>
#include <fmt/format.h>

namespace jerboa::webgpu {

GpuTensor::GpuTensor(std::shared_ptr<GpuDevice> device, DType dtype, const Sizes& sizes, const std::string& name)
    : device_(std::move(device)), dtype_(dtype), sizes_(sizes), bytes_((element_count(sizes) * bits(dtype) + 7) / 8) {
  const std::scoped_lock lock(device_->mutex());
  buffer_ = device_->create_buffer(bytes_, storage_usage,
                                   fmt::format("{} ({}{})", name, jerboa::name(dtype), to_string(sizes)));
}

GpuTensor::~GpuTensor() {
  const std::scoped_lock lock(device_->mutex());
  buffer_ = {};
}

void GpuTensor::upload(const HostTensor& values) {
  const std::scoped_lock lock(device_->mutex());
  device_->write(buffer_, 0, values.bytes().data(), bytes_);
  device_->check();
}

HostTensor GpuTensor::download() const {
  const std::scoped_lock lock(device_->mutex());
  const Dawn& dawn = device_->dawn();
  const Handle<WGPUBuffer> readback = device_->create_buffer(bytes_, readback_usage, "readback");
  const Handle<WGPUCommandEncoder> encoder{dawn.DeviceCreateCommandEncoder(device_->device(), nullptr),
                                           dawn.CommandEncoderRelease};
  dawn.CommandEncoderCopyBufferToBuffer(encoder, buffer_, 0, readback, 0,
                                        static_cast<std::uint64_t>(whole_words(bytes_)));
  const Handle<WGPUCommandBuffer> commands{dawn.CommandEncoderFinish(encoder, nullptr), dawn.CommandBufferRelease};
  WGPUCommandBuffer list = commands;
  dawn.QueueSubmit(device_->queue(), 1, &list);
  HostTensor values(dtype_, sizes_);
  const std::vector<std::byte> bytes = device_->read(readback, bytes_);
  std::copy(bytes.begin(), bytes.end(), values.bytes().begin());
  return values;
}

}  // namespace jerboa::webgpu
