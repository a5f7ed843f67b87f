#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/backend/backend.h>
#include <jerboa/lower/program.h>

namespace jerboa {

/// A GPU, or a software driver, as WebGPU reports it.
struct AdapterInfo {
  std::string name;                  ///< "NVIDIA H200", "llvmpipe (LLVM 15.0.6, 256 bits)"
  std::string vendor, kind, driver;  ///< kind: "discrete GPU", "integrated GPU", "CPU" or "unknown"
  bool f16 = false, timestamps = false, subgroup_matrices = false;
  int subgroup_min = 0, subgroup_max = 0;  ///< 0: no subgroups
  std::int64_t max_buffer_bytes = 0, max_binding_bytes = 0, workgroup_bytes = 0;
  int max_bindings = 0, max_invocations = 0;
};

struct WebGpuOptions {
  std::string adapter = {};  ///< part of an adapter's name; empty: the fastest one
  std::string library = {};  ///< path of libwebgpu_dawn.so; empty: searched for as docs/devices.md describes
  /// A caller-supplied device, with its instance: WGPUDevice and WGPUInstance of the same library. Both are kept alive.
  void* device = nullptr;
  void* instance = nullptr;
  bool use_f16 = true, use_subgroups = true, use_subgroup_matrices = true;  ///< off: behave as on a device without them
  bool f16_arithmetic = true;  ///< off: products of f16 are multiplied in f32 (docs/devices.md)
  bool software = true;        ///< off: ignore software adapters
  /// The library bounds-checks every index in a shader, as it must for shaders from files (Session::load_program).
  /// Without it a device runs only shaders that this process emitted, which stay in bounds by construction. Software
  /// drivers always check. For a caller-supplied device: whether it checks.
  bool robust = false;
  bool validation = true;  ///< off: the library does not validate calls, which saves some time
  /// Runs the steps of decoding as phases of one dispatch, if a probe shows that the device's workgroups run
  /// concurrently and see each other's writes (docs/devices.md). JERBOA_PERSISTENT=1 turns it on, too.
  bool persistent = false;
  bool default_limits = false;  ///< request only the limits that every WebGPU device has
  /// The folder for compiled pipelines, so that the next start need not compile them; by default one in the user's
  /// cache folder (docs/devices.md). An empty path: none.
  std::optional<std::filesystem::path> pipeline_cache = {};
  /// A file written by `jerboa tune`, whose forms the compiler uses for the kernels that were measured; a file for
  /// another device or driver is ignored. By default the file for this device in the user's cache folder, if there is
  /// one, as far as it is intact and fits the device (docs/devices.md). An empty path: none.
  std::optional<std::filesystem::path> tuned_forms = {};
  /// For tests: smaller limits than the device's own, fusion and memory planning turned off, a fill value for
  /// activations.
  std::optional<Target> target = {};
  std::optional<float> sentinel = {};
};

/// A GPU through WebGPU. Throws DeviceError that says what is missing if there is no library or no adapter.
std::shared_ptr<Backend> make_webgpu_backend(const WebGpuOptions& options = {});

/// The adapters of this machine, fastest first. Throws DeviceError if there is no library.
std::vector<AdapterInfo> webgpu_adapters(const std::string& library = "");

/// The compiler's view of the device behind a WebGPU backend.
const Target& webgpu_target(const Backend& backend);
/// The adapter behind a WebGPU backend.
const AdapterInfo& webgpu_adapter(const Backend& backend);
/// The default location of the forms tuned for an adapter: next to the folder of compiled pipelines. None if
/// JERBOA_CACHE is empty or there is no cache folder.
std::optional<std::filesystem::path> default_tuned_forms(const AdapterInfo& adapter);

/// The objects behind a WebGPU backend, for other WebGPU code of the same library. They live as long as the backend, or
/// longer if the caller adds references.
struct WebGpuHandles {
  void* instance = nullptr;     ///< WGPUInstance
  void* device = nullptr;       ///< WGPUDevice
  void* queue = nullptr;        ///< WGPUQueue
  std::mutex* mutex = nullptr;  ///< hold it during calls of the library while other threads use the device
};
WebGpuHandles webgpu_handles(const Backend& backend);
/// The location of a parameter or state (Session::storage), for storage bindings and copies. Compiling another entry
/// may move it.
struct WebGpuBuffer {
  void* buffer = nullptr;  ///< WGPUBuffer
  std::int64_t offset = 0, bytes = 0;
};
WebGpuBuffer webgpu_buffer(const DeviceTensor& tensor);

/// For tests: makes the device behave as if its driver had crashed.
void force_device_loss(Backend& backend);
/// For tests: the library refuses larger buffers as if the device's memory were full.
void refuse_buffers_above(Backend& backend, std::int64_t bytes);

}  // namespace jerboa
