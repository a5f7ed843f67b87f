#pragma once

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <jerboa/backend/webgpu.h>
#include <jerboa/base/error.h>

#include "backend/webgpu/dawn.h"

namespace jerboa::webgpu {

/// Whether the process is ending. A driver may already have cleaned up by the time that static objects are destroyed,
/// so that their handles must be left to the system.
bool process_is_ending();

/// Owns one object of the library.
template <class T>
class Handle {
 public:
  using Release = void (*)(T);
  Handle() = default;
  Handle(T object, Release release) : object_(object), release_(release) {}
  Handle(Handle&& other) noexcept : object_(other.object_), release_(other.release_) { other.object_ = nullptr; }
  Handle& operator=(Handle&& other) noexcept {
    std::swap(object_, other.object_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Handle() {
    if (object_ != nullptr && !process_is_ending()) release_(object_);
  }
  // NOLINTNEXTLINE(google-explicit-constructor): used wherever the object itself is
  operator T() const { return object_; }

 private:
  T object_ = nullptr;
  Release release_ = nullptr;
};

/// The errors that a device reported, from the library's threads and perhaps after the GpuDevice is destroyed.
struct Reports {
  std::mutex mutex;
  std::vector<std::string> errors;
  bool lost = false;
  std::string loss;
};

/// A device with its queue, its pipelines and its pending errors. Only one thread at a time may call into a device:
/// hold `mutex` around calls. `compile` needs it only on a device that is not synchronised.
class GpuDevice {
 public:
  static std::shared_ptr<GpuDevice> open(const WebGpuOptions& options);
  ~GpuDevice();
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  const Dawn& dawn() const { return *dawn_; }
  WGPUDevice device() const { return device_; }
  WGPUQueue queue() const { return queue_; }
  WGPUInstance instance() const { return instance_; }
  const AdapterInfo& info() const { return info_; }
  const Target& target() const { return target_; }
  bool has_timestamps() const { return timestamps_; }
  /// Whether it may run untrusted shaders (WebGpuOptions::robust).
  bool is_robust() const { return robust_; }
  /// Whether the library lets several threads call into the device. It holds no lock while the driver compiles.
  bool is_synchronised() const { return synchronised_; }
  std::mutex& mutex() { return mutex_; }

  /// Throws any error that the device reported since the last call: a loss, or an error that no call expected.
  void check();
  void wait(WGPUFuture future) const;
  /// Submits commands in this order. The library translates them on submission, in about a microsecond per dispatch, so
  /// an idle device gets them one by one, and starts the first while the others are translated.
  void submit(const std::vector<WGPUCommandBuffer>& commands);
  /// Waits for everything that was submitted. Throws any error that the device reported.
  void wait_for_all();
  /// The same at the end of the process, when nobody holds the device.
  void finish();
  /// Allocates memory, rounded up to whole words. Throws OutOfMemoryError that names it.
  Handle<WGPUBuffer> create_buffer(std::int64_t bytes, WGPUBufferUsage usage, const std::string& name);
  void write(WGPUBuffer buffer, std::int64_t offset, const void* data, std::int64_t bytes);
  std::vector<std::byte> read(WGPUBuffer mappable, std::int64_t bytes);

  /// One storage buffer or uniform of a shader.
  enum class BindingKind : std::uint8_t { read, write, uniform };
  struct Pipeline {
    WGPUComputePipeline pipeline = nullptr;
    WGPUBindGroupLayout layout = nullptr;
  };
  /// Compiles shaders, on all cores if the device is synchronised. Identical source is compiled once per device.
  struct ShaderRequest {
    const ShaderSource* source = nullptr;
    std::vector<BindingKind> bindings;
  };
  std::vector<Pipeline> compile(const std::vector<ShaderRequest>& requests);

  void lose();
  void refuse_buffers_above(std::int64_t bytes) { refused_above_ = bytes; }

 private:
  GpuDevice() = default;
  struct Layout {
    Handle<WGPUBindGroupLayout> bindings;
    Handle<WGPUPipelineLayout> pipeline;
  };

  void wait_for_queue() const;
  bool is_lost();
  std::string loss() const;
  void request(const WebGpuOptions& options);
  void take(const WebGpuOptions& options);
  void describe(WGPUAdapter adapter);
  void make_target(const WebGpuOptions& options);
  const Layout& layout(const std::vector<BindingKind>& bindings);
  /// One request for each source without a pipeline, after making the layouts of all.
  std::vector<const ShaderRequest*> missing_of(const std::vector<ShaderRequest>& requests);
  void make_pipeline(const ShaderRequest& request);
  Handle<WGPUShaderModule> module(const ShaderSource& source);
  [[noreturn]] void refuse(const ShaderSource& source, WGPUShaderModule module, const std::string& message) const;
  std::string pop_error_scope() const;
  /// The error that the call causes on this thread.
  template <class Call>
  std::string error_of(const Call& call) const;

  std::shared_ptr<const Dawn> dawn_;
  Handle<WGPUInstance> instance_;
  Handle<WGPUAdapter> adapter_;
  Handle<WGPUDevice> device_;
  Handle<WGPUQueue> queue_;
  AdapterInfo info_;
  WGPULimits limits_{};
  Target target_;
  bool timestamps_ = false, robust_ = false, synchronised_ = false;
  mutable std::atomic<bool> can_sleep_ = true;  // while waiting; a caller-supplied instance may not support it
  std::int64_t refused_above_ = std::numeric_limits<std::int64_t>::max();
  bool is_idle_ = true;  // nothing was submitted since the last read
  bool taken_ = false;   // caller-supplied, with the caller's callbacks
  std::mutex mutex_;
  std::shared_ptr<Reports> reports_ = std::make_shared<Reports>();
  std::once_flag compiled_;     // set by the first compilation
  std::mutex pipelines_mutex_;  // guards the following members
  std::map<std::vector<BindingKind>, Layout> layouts_;
  std::map<std::string, Handle<WGPUComputePipeline>> pipelines_;
};

}  // namespace jerboa::webgpu
