#include <jerboa/backend/webgpu.h>
#include <jerboa/base/error.h>

// Stands in for the whole backend if Dawn's header was missing when Jerboa was built.
namespace jerboa {
namespace {

[[noreturn]] void refuse() { throw DeviceError("this Jerboa was built without WebGPU (JERBOA_WEBGPU=OFF)"); }

}  // namespace

std::shared_ptr<Backend> make_webgpu_backend(const WebGpuOptions&) { refuse(); }
std::vector<AdapterInfo> webgpu_adapters(const std::string&) { refuse(); }
const Target& webgpu_target(const Backend&) { refuse(); }
const AdapterInfo& webgpu_adapter(const Backend&) { refuse(); }
std::optional<std::filesystem::path> default_tuned_forms(const AdapterInfo&) { refuse(); }
WebGpuHandles webgpu_handles(const Backend&) { refuse(); }
WebGpuBuffer webgpu_buffer(const DeviceTensor&) { refuse(); }
void force_device_loss(Backend&) { refuse(); }
void refuse_buffers_above(Backend&, std::int64_t) { refuse(); }

}  // namespace jerboa
