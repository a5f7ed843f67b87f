#include <fmt/format.h>

#include <jerboa/backend/webgpu.h>
#include <jerboa/lower/lower.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "backend/webgpu/gpu_executable.h"

namespace jerboa {
namespace {

class WebGpuBackend final : public Backend {
 public:
  explicit WebGpuBackend(const WebGpuOptions& options)
      : device_(webgpu::GpuDevice::open(options)), sentinel_(options.sentinel) {}

  std::string name() const override { return "webgpu"; }
  std::string description() const override {
    return fmt::format("webgpu, {} ({})", device_->info().name, device_->info().driver);
  }
  std::shared_ptr<DeviceTensor> allocate(DType dtype, const Sizes& sizes, const std::string& name) override {
    return std::make_shared<webgpu::GpuTensor>(device_, dtype, sizes, name);
  }
  std::unique_ptr<Executable> compile(const Graph& graph, const FindStorage& storage) override {
    Program program = lower(graph, device_->target());
    emit_wgsl(program, device_->target());
    return load(program, storage);
  }
  std::unique_ptr<Executable> load(const Program& program, const FindStorage& storage) override {
    if (!program.gpu.emitted)
      throw UsageError("this program was compiled for the CPU; compile it for WebGPU to run it there");
    if (program.gpu.uses_subgroup_matrices && device_->target().subgroup_matrices != SubgroupMatrices::native)
      throw UsageError(fmt::format("this program needs subgroup matrices, which {} lacks; compile it for this device",
                                   device_->info().name));
    return std::make_unique<webgpu::GpuExecutable>(device_, program, storage, sentinel_);
  }
  webgpu::GpuDevice& device() const { return *device_; }

 private:
  std::shared_ptr<webgpu::GpuDevice> device_;
  std::optional<float> sentinel_;
};

const WebGpuBackend& as_webgpu(const Backend& backend) {
  const auto* own = dynamic_cast<const WebGpuBackend*>(&backend);
  if (own == nullptr) throw UsageError("the device " + backend.name() + " is no WebGPU device");
  return *own;
}

}  // namespace

std::shared_ptr<Backend> make_webgpu_backend(const WebGpuOptions& options) {
  return std::make_shared<WebGpuBackend>(options);
}

const Target& webgpu_target(const Backend& backend) { return as_webgpu(backend).device().target(); }

WebGpuHandles webgpu_handles(const Backend& backend) {
  webgpu::GpuDevice& device = as_webgpu(backend).device();
  return {device.instance(), device.device(), device.queue(), &device.mutex()};
}

WebGpuBuffer webgpu_buffer(const DeviceTensor& tensor) {
  const auto* own = dynamic_cast<const webgpu::GpuTensor*>(&tensor);
  if (own == nullptr) throw UsageError("this tensor is not on a WebGPU device");
  return {own->buffer(), own->offset(), own->bytes()};
}

void force_device_loss(Backend& backend) { as_webgpu(backend).device().lose(); }

void refuse_buffers_above(Backend& backend, std::int64_t bytes) {
  as_webgpu(backend).device().refuse_buffers_above(bytes);
}

}  // namespace jerboa
