#include <fmt/format.h>

#include <jerboa/backend/cpu.h>
#include <jerboa/backend/reference.h>
#include <jerboa/base/error.h>
#include <jerboa/runtime/device.h>

namespace jerboa {

Device Device::best() { return cpu(); }
Device Device::cpu(int threads) {
  CpuOptions options;
  options.threads = threads;
  return Device(make_cpu_backend(options));
}
Device Device::reference() { return Device(make_reference_backend(Precision::f32)); }
Device Device::reference64() { return Device(make_reference_backend(Precision::f64)); }

Device Device::by_name(const std::string& name) {
  if (name == "best") return best();
  if (name == "cpu") return cpu();
  if (name == "reference") return reference();
  if (name == "reference64") return reference64();
  throw UsageError(fmt::format("no device is named {}; there are best, cpu, reference and reference64", name));
}

}  // namespace jerboa
