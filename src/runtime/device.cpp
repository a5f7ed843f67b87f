#include <fmt/format.h>

#include <jerboa/backend/cpu.h>
#include <jerboa/backend/reference.h>
#include <jerboa/base/error.h>
#include <jerboa/runtime/device.h>

namespace jerboa {

Device Device::best() {
  try {
    // A software driver is slower than the CPU engine.
    return webgpu({.software = false});
  } catch (const DeviceError&) {
    // No library or no GPU: fall back to the CPU.
  }
  return cpu();
}
Device Device::webgpu(const WebGpuOptions& options) { return Device(make_webgpu_backend(options)); }
Device Device::cpu(int threads) {
  CpuOptions options;
  options.threads = threads;
  options.integer_products = true;
  return Device(make_cpu_backend(options));
}
Device Device::reference() { return Device(make_reference_backend(ReferencePrecision::f32)); }
Device Device::reference64() { return Device(make_reference_backend(ReferencePrecision::f64)); }

Device Device::by_name(const std::string& name) {
  if (name == "best") return best();
  if (name == "cpu") return cpu();
  if (name == "webgpu") return webgpu();
  if (constexpr std::string_view prefix = "webgpu:"; name.starts_with(prefix))
    return webgpu({.adapter = name.substr(prefix.size())});
  if (name == "reference") return reference();
  if (name == "reference64") return reference64();
  throw UsageError(
      fmt::format("no device is named {}; available: best, cpu, webgpu, webgpu:NAME, reference and reference64", name));
}

}  // namespace jerboa
