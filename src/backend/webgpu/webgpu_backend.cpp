#include <fmt/format.h>

#include <jerboa/backend/webgpu.h>
#include <jerboa/lower/lower.h>
#include <jerboa/lower/program_file.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "backend/webgpu/gpu_executable.h"
#include "wgsl/persistent.h"

namespace jerboa {
namespace {

// Features that the code needs and a device lacks, for a message; empty if there are none.
std::vector<std::string> missing_support(const Program& program, const Target& target) {
  std::vector<std::string> missing;
  const GpuRequirements needs = gpu_requirements(program);
  const auto need = [&](const char* what, std::int64_t wanted, std::int64_t offered) {
    if (wanted > offered) missing.push_back(fmt::format("{} of {} (the device has {})", what, wanted, offered));
  };
  if (needs.f16 && !target.f16) missing.emplace_back("f16 in shaders");
  if (needs.subgroups && target.subgroup_size == 0) missing.emplace_back("subgroups");
  for (const SubgroupMatrix& matrix : needs.subgroup_matrices)
    if (target.subgroup_matrices != SubgroupMatrices::native ||
        matrix != SubgroupMatrix{16, 16, 16, DType::f16, DType::f32})
      missing.push_back(fmt::format("subgroup matrices of {}x{}x{}", matrix.rows, matrix.columns, matrix.inner));
  need("buffers", needs.buffer_bytes, target.max_buffer_bytes);
  need("bindings", needs.binding_bytes, target.max_binding_bytes);
  need("storage buffers of a shader", needs.bindings, target.max_bindings);
  need("workgroup memory", needs.workgroup_bytes, target.workgroup_bytes);
  need("threads of a workgroup", needs.invocations, target.max_invocations);
  return missing;
}

class WebGpuBackend final : public Backend {
 public:
  explicit WebGpuBackend(const WebGpuOptions& options) : options_(options), device_(webgpu::GpuDevice::open(options)) {}

  std::string name() const override { return "webgpu"; }
  std::string description() const override {
    return fmt::format("webgpu, {} ({})", device_->info().name, device_->info().driver);
  }
  std::shared_ptr<DeviceTensor> allocate(DType dtype, const Sizes& sizes, const std::string& name) override {
    return std::make_shared<webgpu::GpuTensor>(device_, dtype, sizes, name);
  }
  std::unique_ptr<Executable> compile(const Graph& graph, const FindStorage& storage) override {
    return load(*prepare(graph), storage);
  }
  std::shared_ptr<const Program> prepare(const Graph& graph) override {
    auto program = std::make_shared<Program>(lower(graph, device_->target()));
    emit_wgsl(*program, device_->target());
    add_persistent_dispatch(*program);
    check(*program);
    compile_shaders(*program);
    return program;
  }
  std::unique_ptr<Executable> load(const Program& program, const FindStorage& storage) override {
    if (!program.gpu.emitted)
      throw UsageError("this program was compiled for the CPU; compile it for WebGPU to run it there");
    if (program.gpu.persistent && webgpu::are_pooled_differently(*device_, program, storage))
      return load(
          without_persistent_dispatch(program, "another program of the session has its parameters in other pools"),
          storage);
    check(program);
    compile_shaders(program);
    try {
      return std::make_unique<webgpu::GpuExecutable>(device_, program, storage, options_.sentinel);
    } catch (const OutOfMemoryError& error) {
      // Moving parameters into pools temporarily needs their memory twice.
      if (!program.gpu.persistent) throw;
      return load(without_persistent_dispatch(program, error.what()), storage);
    }
  }
  std::shared_ptr<Backend> for_foreign_code() override {
    if (device_->is_robust()) return nullptr;
    if (options_.device != nullptr)
      throw UsageError(
          "programs from files run only on devices that check every index in a shader; if yours "
          "does, set WebGpuOptions::robust");
    const std::scoped_lock lock(mutex_);
    if (robust_ == nullptr) {
      WebGpuOptions options = options_;
      options.adapter = device_->info().name;
      options.robust = options.validation = true;
      robust_ = std::make_shared<WebGpuBackend>(options);
    }
    return robust_;
  }
  webgpu::GpuDevice& device() const { return *device_; }

 private:
  // Decoding is many small steps; other programs gain nothing.
  void add_persistent_dispatch(Program& program) const {
    constexpr std::size_t many_steps = 8;
    if (device_->target().persistent_workgroups == 0 || options_.sentinel || program.gpu.steps.size() < many_steps)
      return;
    const std::string refusal = wgsl::make_persistent(program, device_->target());
    if (!refusal.empty()) webgpu::note_separate_steps(program.gpu.steps.size(), refusal);
  }

  // The program before its storage was pooled.
  static Program without_persistent_dispatch(Program program, const std::string& reason) {
    webgpu::note_separate_steps(program.gpu.steps.size(), reason);
    program.buffers = program.gpu.persistent->unpooled;
    program.gpu.persistent = nullptr;
    return program;
  }

  // Compiles while other threads may use the device. Without synchronisation GpuExecutable does it.
  void compile_shaders(const Program& program) const {
    if (device_->is_synchronised()) device_->compile(webgpu::shader_requests(program));
  }

  void check(const Program& program) const {
    if (program.gpu.foreign && !device_->is_robust())
      throw UsageError(
          "this program comes from a file, and this device runs only what this process compiled; load it with "
          "Session::load_program, which opens a device for it");
    const auto missing = missing_support(program, device_->target());
    if (!missing.empty())
      throw UsageError(fmt::format("{} does not support what the program needs: {}; compile it for this device",
                                   device_->info().name, fmt::join(missing, "; ")));
  }

  WebGpuOptions options_;
  std::shared_ptr<webgpu::GpuDevice> device_;
  std::mutex mutex_;
  std::shared_ptr<WebGpuBackend> robust_;  // for programs from files, once one has been loaded
};

const WebGpuBackend& as_webgpu(const Backend& backend) {
  const auto* webgpu_backend = dynamic_cast<const WebGpuBackend*>(&backend);
  if (webgpu_backend == nullptr) throw UsageError("the device " + backend.name() + " is not a WebGPU device");
  return *webgpu_backend;
}

}  // namespace

std::shared_ptr<Backend> make_webgpu_backend(const WebGpuOptions& options) {
  return std::make_shared<WebGpuBackend>(options);
}

const Target& webgpu_target(const Backend& backend) { return as_webgpu(backend).device().target(); }

const AdapterInfo& webgpu_adapter(const Backend& backend) { return as_webgpu(backend).device().info(); }

WebGpuHandles webgpu_handles(const Backend& backend) {
  webgpu::GpuDevice& device = as_webgpu(backend).device();
  return {device.instance(), device.device(), device.queue(), &device.mutex()};
}

WebGpuBuffer webgpu_buffer(const DeviceTensor& tensor) {
  const auto* gpu_tensor = dynamic_cast<const webgpu::GpuTensor*>(&tensor);
  if (gpu_tensor == nullptr) throw UsageError("this tensor is not on a WebGPU device");
  return {gpu_tensor->buffer(), gpu_tensor->offset(), gpu_tensor->bytes()};
}

void force_device_loss(Backend& backend) { as_webgpu(backend).device().lose(); }

void refuse_buffers_above(Backend& backend, std::int64_t bytes) {
  as_webgpu(backend).device().refuse_buffers_above(bytes);
}

}  // namespace jerboa
