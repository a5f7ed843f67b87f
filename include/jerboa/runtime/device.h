#pragma once

#include <memory>
#include <string>

#include <jerboa/backend/backend.h>
#include <jerboa/backend/webgpu.h>

namespace jerboa {

/// Where a session runs. A handle: copies refer to the same device.
class Device {
 public:
  explicit Device(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}

  /// The best device of this machine: a GPU if WebGPU finds one, otherwise the CPU engine.
  static Device best();
  /// A GPU through WebGPU. Throws DeviceError that says what is missing.
  static Device webgpu(const WebGpuOptions& options = {});
  /// The CPU engine with the given number of threads; 0: one per core.
  static Device cpu(int threads = 0);
  /// The oracle: every op in straightforward loops, in f32. Slow.
  static Device reference();
  /// The same in f64, without rounding to f32 between ops.
  static Device reference64();
  /// By name: "best", "cpu", "webgpu", "webgpu:NAME" with part of an adapter's name, "reference", "reference64". Throws
  /// UsageError that lists the names.
  static Device by_name(const std::string& name);

  std::string name() const { return backend_->name(); }
  /// The name and, for a GPU, a description of the adapter.
  std::string description() const { return backend_->description(); }
  Backend& backend() const { return *backend_; }

 private:
  std::shared_ptr<Backend> backend_;
};

}  // namespace jerboa
