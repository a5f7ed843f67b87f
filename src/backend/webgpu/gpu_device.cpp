#include "backend/webgpu/gpu_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "backend/webgpu/library_warnings.h"
#include "backend/webgpu/pipeline_cache.h"
#include "backend/webgpu/resident_workgroups.h"
#include "backend/webgpu/tuned_forms.h"
#include "base/in_parallel.h"
#include "base/integers.h"
#include "wgsl/webgpu_target.h"

namespace jerboa::webgpu {
namespace {

// Features beyond the standard: subgroup matrices, and f16 on NVIDIA's driver.
constexpr const char* common_toggles[] = {"allow_unsafe_apis", "vulkan_enable_f16_on_nvidia"};
// Unless the device is to be robust: no bounds checks, and no zeroing of workgroup memory before a kernel starts, which
// kernels emitted by this process do not need. A software driver always checks, so that tests catch a kernel that does.
constexpr const char* trusting_toggles[] = {"disable_robustness", "disable_workgroup_init"};
// The threads of a subgroup may poll for words for different numbers of iterations, and must reconverge after that,
// because they exchange values.
constexpr const char* persistent_toggle = "use_spirv_reconvergence_mode";

// Valid as long as the names are.
WGPUDawnTogglesDescriptor toggles(std::span<const char* const> names) {
  WGPUDawnTogglesDescriptor descriptor{};
  descriptor.chain.sType = WGPUSType_DawnTogglesDescriptor;
  descriptor.enabledToggleCount = names.size();
  descriptor.enabledToggles = names.data();
  // Timestamps quantised to 100 µs, as in web pages, which guards against side channels, would be useless.
  static constexpr const char* disabled[] = {"timestamp_quantization"};
  descriptor.disabledToggleCount = 1;
  descriptor.disabledToggles = disabled;
  return descriptor;
}

// Valid as long as the cache is.
WGPUDawnCacheDeviceDescriptor caching(PipelineCache& cache) {
  WGPUDawnCacheDeviceDescriptor descriptor{};
  descriptor.chain.sType = WGPUSType_DawnCacheDeviceDescriptor;
  descriptor.isolationKey = text("jerboa");
  static constexpr auto view = [](const std::uint8_t* key, std::size_t size) {
    return std::string_view(reinterpret_cast<const char*>(key), size);
  };
  descriptor.dawnLoadCacheDataCallbackInfo.userdata1 = &cache;
  descriptor.dawnLoadCacheDataCallbackInfo.callback = [](std::size_t key_size, const std::uint8_t* key,
                                                         std::size_t size, std::uint8_t* value, void* from, void*) {
    auto& entries = *static_cast<PipelineCache*>(from);
    if (value == nullptr) return entries.size_of(view(key, key_size));
    return entries.load(view(key, key_size), std::as_writable_bytes(std::span(value, size))) ? size : std::size_t{0};
  };
  descriptor.dawnStoreCacheDataCallbackInfo.userdata1 = &cache;
  descriptor.dawnStoreCacheDataCallbackInfo.callback =
      [](std::size_t key_size, const std::uint8_t* key, std::size_t size, const std::uint8_t* value, void* to, void*) {
        static_cast<PipelineCache*>(to)->store(view(key, key_size), std::as_bytes(std::span(value, size)));
      };
  return descriptor;
}

// The library's log messages about a device, printed with JERBOA_DEBUG set. Errors are also reported separately, as
// exceptions.
void log(WGPULoggingType type, WGPUStringView message, void*, void*) {
  static const bool wanted = std::getenv("JERBOA_DEBUG") != nullptr;
  if (wanted || type == WGPULoggingType_Error) fmt::print(stderr, "WebGPU: {}\n", text(message));
}

// Whether a program may be one dispatch.
bool wants_persistent(const WebGpuOptions& options) {
  const char* chosen = std::getenv("JERBOA_PERSISTENT");
  return options.persistent || (chosen != nullptr && std::string_view(chosen) == "1") ||
         (options.target && options.target->persistent_workgroups > 0);
}

Handle<WGPUInstance> create_instance(const Dawn& dawn) {
  WGPUDawnTogglesDescriptor chosen = toggles(common_toggles);
  const WGPUInstanceFeatureName feature = WGPUInstanceFeatureName_TimedWaitAny;
  WGPUInstanceDescriptor descriptor{};
  descriptor.nextInChain = &chosen.chain;
  descriptor.requiredFeatureCount = 1;
  descriptor.requiredFeatures = &feature;
  WGPUInstance instance = dawn.CreateInstance(&descriptor);
  if (instance == nullptr) throw DeviceError("WebGPU: the library returned no instance");
  return {instance, dawn.InstanceRelease};
}

// Returns whether the instance could wait.
bool wait_for(const Dawn& dawn, WGPUInstance instance, WGPUFuture future) {
  WGPUFutureWaitInfo info{future, 0};
  return dawn.InstanceWaitAny(instance, 1, &info, std::numeric_limits<std::uint64_t>::max()) == WGPUWaitStatus_Success;
}

struct AdapterChoice {
  WGPUPowerPreference power = WGPUPowerPreference_HighPerformance;
  bool fallback = false;
};

Handle<WGPUAdapter> request_adapter(const Dawn& dawn, WGPUInstance instance, const AdapterChoice& choice,
                                    std::string& message) {
  WGPUDawnTogglesDescriptor chosen = toggles(common_toggles);
  WGPURequestAdapterOptions options{};
  options.nextInChain = &chosen.chain;
  options.featureLevel = WGPUFeatureLevel_Core;
  options.powerPreference = choice.power;
  options.forceFallbackAdapter = choice.fallback ? 1 : 0;
  struct Answer {
    WGPUAdapter adapter = nullptr;
    std::string message;
  } answer;
  WGPURequestAdapterCallbackInfo callback{};
  callback.mode = WGPUCallbackMode_WaitAnyOnly;
  callback.userdata1 = &answer;
  callback.callback = [](WGPURequestAdapterStatus, WGPUAdapter adapter, WGPUStringView reason, void* to, void*) {
    static_cast<Answer*>(to)->adapter = adapter;
    static_cast<Answer*>(to)->message = text(reason);
  };
  wait_for(dawn, instance, dawn.InstanceRequestAdapter(instance, &options, callback));
  message = answer.message;
  return {answer.adapter, dawn.AdapterRelease};
}

// Whether subgroups multiply 16×16 f16 matrices and accumulate in f32.
bool has_subgroup_matrices(const Dawn& dawn, WGPUAdapter adapter) {
  if (dawn.AdapterHasFeature(adapter, WGPUFeatureName_ChromiumExperimentalSubgroupMatrix) == 0) return false;
  WGPUAdapterPropertiesSubgroupMatrixConfigs offered{};
  offered.chain.sType = WGPUSType_AdapterPropertiesSubgroupMatrixConfigs;
  WGPUAdapterInfo raw{};
  raw.nextInChain = &offered.chain;
  dawn.AdapterGetInfo(adapter, &raw);
  const std::span configs(offered.configs, offered.configCount);
  const bool found = std::any_of(configs.begin(), configs.end(), [](const WGPUSubgroupMatrixConfig& config) {
    return config.componentType == WGPUSubgroupMatrixComponentType_F16 &&
           config.resultComponentType == WGPUSubgroupMatrixComponentType_F32 && config.M == 16 && config.N == 16 &&
           config.K == 16;
  });
  dawn.AdapterPropertiesSubgroupMatrixConfigsFreeMembers(offered);
  dawn.AdapterInfoFreeMembers(raw);
  return found;
}

// The folder for pipelines; empty: none.
std::filesystem::path cache_folder(const WebGpuOptions& options) {
  return options.pipeline_cache ? *options.pipeline_cache : default_pipeline_cache().value_or("");
}

AdapterInfo describe_adapter(const Dawn& dawn, WGPUAdapter adapter) {
  AdapterInfo info;
  WGPUAdapterInfo raw{};
  dawn.AdapterGetInfo(adapter, &raw);
  info.name = text(raw.device);
  info.vendor = text(raw.vendor);
  info.driver = text(raw.description);
  switch (raw.adapterType) {
    case WGPUAdapterType_DiscreteGPU: info.kind = "discrete GPU"; break;
    case WGPUAdapterType_IntegratedGPU: info.kind = "integrated GPU"; break;
    case WGPUAdapterType_CPU: info.kind = "CPU"; break;
    default: info.kind = "unknown"; break;
  }
  const auto has = [&](WGPUFeatureName feature) { return dawn.AdapterHasFeature(adapter, feature) != 0; };
  info.f16 = has(WGPUFeatureName_ShaderF16);
  info.timestamps = has(WGPUFeatureName_TimestampQuery);
  info.subgroup_matrices = has_subgroup_matrices(dawn, adapter);
  if (has(WGPUFeatureName_Subgroups)) {
    info.subgroup_min = static_cast<int>(raw.subgroupMinSize);
    info.subgroup_max = static_cast<int>(raw.subgroupMaxSize);
  }
  dawn.AdapterInfoFreeMembers(raw);
  WGPULimits limits{};
  dawn.AdapterGetLimits(adapter, &limits);
  info.max_buffer_bytes = static_cast<std::int64_t>(limits.maxBufferSize);
  info.max_binding_bytes = static_cast<std::int64_t>(limits.maxStorageBufferBindingSize);
  info.workgroup_bytes = limits.maxComputeWorkgroupStorageSize;
  info.max_bindings = static_cast<int>(limits.maxStorageBuffersPerShaderStage);
  info.max_invocations = static_cast<int>(limits.maxComputeInvocationsPerWorkgroup);
  return info;
}

// The library has a null adapter for its tests that accepts every call and does nothing.
bool computes_nothing(const Dawn& dawn, WGPUAdapter adapter) {
  WGPUAdapterInfo raw{};
  dawn.AdapterGetInfo(adapter, &raw);
  const bool null = raw.backendType == WGPUBackendType_Null;
  dawn.AdapterInfoFreeMembers(raw);
  return null;
}

// The library does not enumerate adapters: this collects what it returns for each kind of request, without duplicates.
struct Adapters {
  std::vector<std::pair<Handle<WGPUAdapter>, AdapterInfo>> list;
  std::string message;
};
Adapters find_adapters(const Dawn& dawn, WGPUInstance instance) {
  Adapters found;
  for (const AdapterChoice& choice :
       {AdapterChoice{WGPUPowerPreference_HighPerformance, false}, AdapterChoice{WGPUPowerPreference_LowPower, false},
        AdapterChoice{WGPUPowerPreference_Undefined, true}}) {
    std::string message;
    Handle<WGPUAdapter> adapter = request_adapter(dawn, instance, choice, message);
    if (!message.empty()) found.message = message;
    if (adapter == nullptr || computes_nothing(dawn, adapter)) continue;
    AdapterInfo info = describe_adapter(dawn, adapter);
    const bool known = std::any_of(found.list.begin(), found.list.end(), [&](const auto& other) {
      return other.second.name == info.name && other.second.driver == info.driver;
    });
    if (!known) found.list.emplace_back(std::move(adapter), std::move(info));
  }
  return found;
}

}  // namespace

namespace {

std::atomic<bool> ending = false;

// Open devices; never destroyed, because devices in static objects could otherwise outlive it.
struct OpenDevices {
  std::mutex mutex;
  std::set<GpuDevice*> list;
};
OpenDevices& open_devices() {
  static auto* devices = new OpenDevices;
  return *devices;
}

// Exit handlers run in reverse order: this one runs before those of drivers that are loaded by now, which cannot clean
// up under work in progress, and before the destructors of static objects that exist by now.
void watch_process_end() {
  std::atexit([] {
    if (ending.exchange(true)) return;
    const std::scoped_lock lock(open_devices().mutex);
    for (GpuDevice* device : open_devices().list) device->finish();
  });
}

}  // namespace

bool process_is_ending() { return ending; }

std::shared_ptr<GpuDevice> GpuDevice::open(const WebGpuOptions& options) {
  std::shared_ptr<GpuDevice> device(new GpuDevice());
  device->dawn_ = Dawn::open(options.library);
  device->robust_ = options.robust;
  if (options.device != nullptr)
    device->take(options);
  else
    device->request(options);
  device->queue_ = {device->dawn_->DeviceGetQueue(device->device_), device->dawn_->QueueRelease};
  const auto has = [&](WGPUFeatureName feature) {
    return device->dawn_->DeviceHasFeature(device->device_, feature) != 0;
  };
  device->timestamps_ = has(WGPUFeatureName_TimestampQuery);
  device->synchronised_ = has(WGPUFeatureName_ImplicitDeviceSynchronization);
  device->dawn_->DeviceGetLimits(device->device_, &device->limits_);
  device->make_target(options);
  Target& target = device->target_;
  if (device->info_.kind != "CPU" && target.resident_workgroups == 0) {
    const auto folder = cache_folder(options);
    target.resident_workgroups =
        resident_workgroups(*device, folder.empty() ? nullptr : &PipelineCache::shared(folder));
  }
  if (device->info_.kind != "CPU" && !device->robust_ && !options.target && wants_persistent(options)) {
    // One per multiprocessor, which has two resident workgroups.
    target.persistent_threads = std::min(512, static_cast<int>(device->limits_.maxComputeInvocationsPerWorkgroup));
    target.persistent_workgroups = target.resident_workgroups / 2;
  }
  // A test's target specifies its forms itself.
  target.tuned =
      options.target ? options.target->tuned : load_tuned_forms(options, device->info_, std::as_const(target));
  watch_process_end();
  const std::scoped_lock lock(open_devices().mutex);
  open_devices().list.insert(device.get());
  return device;
}

void GpuDevice::finish() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;  // the thread that held it has been ended
  wait_for_queue();
}

void GpuDevice::wait_for_queue() const {
  WGPUQueueWorkDoneCallbackInfo callback{};
  callback.mode = WGPUCallbackMode_WaitAnyOnly;
  callback.callback = [](WGPUQueueWorkDoneStatus, WGPUStringView, void*, void*) {};
  wait(dawn_->QueueOnSubmittedWorkDone(queue_, callback));
}

void GpuDevice::wait_for_all() {
  wait_for_queue();
  is_idle_ = true;
  check();
}

GpuDevice::~GpuDevice() {
  {
    const std::scoped_lock lock(open_devices().mutex);
    open_devices().list.erase(this);
  }
  const std::scoped_lock lock(mutex_);
  pipelines_.clear();
  layouts_.clear();
  queue_ = {};
  device_ = {};
}

void GpuDevice::request(const WebGpuOptions& options) {
  const LibraryWarnings warnings;
  instance_ = create_instance(*dawn_);
  Adapters adapters = find_adapters(*dawn_, instance_);
  const bool any = !adapters.list.empty();
  if (!options.software) std::erase_if(adapters.list, [](const auto& adapter) { return adapter.second.kind == "CPU"; });
  if (any && adapters.list.empty()) throw DeviceError("WebGPU finds no GPU adapter, only software drivers");
  if (!any)
    throw DeviceError(
        fmt::format("WebGPU finds no adapter{}: install a Vulkan driver; ./dev setup installs a "
                    "software driver for tests",
                    adapters.message.empty() ? "" : " (" + adapters.message + ")"));
  std::vector<std::string> names;
  for (auto& [adapter, info] : adapters.list) {
    names.push_back(info.name);
    if (adapter_ != nullptr || info.name.find(options.adapter) == std::string::npos) continue;
    info_ = info;
    adapter_ = std::move(adapter);
  }
  if (adapter_ == nullptr)
    throw DeviceError(
        fmt::format("no WebGPU adapter is named {}; available: {}", options.adapter, fmt::join(names, ", ")));
  std::vector<WGPUFeatureName> features;
  if (info_.f16 && options.use_f16) features.push_back(WGPUFeatureName_ShaderF16);
  if (info_.subgroup_max > 0 && options.use_subgroups) features.push_back(WGPUFeatureName_Subgroups);
  const bool matrices = info_.subgroup_matrices && options.use_f16 && options.use_subgroups;
  if (matrices && options.use_subgroup_matrices) features.push_back(WGPUFeatureName_ChromiumExperimentalSubgroupMatrix);
  if (info_.timestamps) features.push_back(WGPUFeatureName_TimestampQuery);
  if (dawn_->AdapterHasFeature(adapter_, WGPUFeatureName_ImplicitDeviceSynchronization) != 0)
    features.push_back(WGPUFeatureName_ImplicitDeviceSynchronization);
  WGPULimits limits{};
  dawn_->AdapterGetLimits(adapter_, &limits);
  limits.nextInChain = nullptr;
  std::vector<const char*> toggles_wanted(std::begin(common_toggles), std::end(common_toggles));
  if (info_.kind != "CPU" && !options.robust)
    toggles_wanted.insert(toggles_wanted.end(), std::begin(trusting_toggles), std::end(trusting_toggles));
  if (wants_persistent(options)) toggles_wanted.push_back(persistent_toggle);
  if (!options.validation) toggles_wanted.push_back("skip_validation");
  WGPUDawnTogglesDescriptor chosen = toggles(toggles_wanted);
  const auto folder = cache_folder(options);
  WGPUDawnCacheDeviceDescriptor cache{};
  if (!folder.empty()) {
    cache = caching(PipelineCache::shared(folder));
    chosen.chain.next = &cache.chain;
  }
  WGPUDeviceDescriptor descriptor{};
  descriptor.nextInChain = &chosen.chain;
  descriptor.label = text("jerboa");
  descriptor.requiredFeatureCount = features.size();
  descriptor.requiredFeatures = features.data();
  if (!options.default_limits) descriptor.requiredLimits = &limits;
  // The loss is reported exactly once, at the latest when the library releases the device, and nothing is reported
  // after that.
  auto* reports = new std::shared_ptr<Reports>(reports_);
  descriptor.uncapturedErrorCallbackInfo.userdata1 = reports;
  descriptor.uncapturedErrorCallbackInfo.callback = [](WGPUDevice const*, WGPUErrorType, WGPUStringView message,
                                                       void* to, void*) {
    auto& shared_reports = **static_cast<std::shared_ptr<Reports>*>(to);
    const std::scoped_lock lock(shared_reports.mutex);
    shared_reports.errors.push_back(text(message));
  };
  descriptor.deviceLostCallbackInfo.mode = WGPUCallbackMode_AllowSpontaneous;
  descriptor.deviceLostCallbackInfo.userdata1 = reports;
  descriptor.deviceLostCallbackInfo.callback = [](WGPUDevice const*, WGPUDeviceLostReason, WGPUStringView message,
                                                  void* to, void*) {
    const std::unique_ptr<std::shared_ptr<Reports>> shared_reports(static_cast<std::shared_ptr<Reports>*>(to));
    const std::scoped_lock lock((*shared_reports)->mutex);
    (*shared_reports)->lost = true;
    (*shared_reports)->loss = text(message);
  };
  struct Answer {
    WGPUDevice device = nullptr;
    std::string message;
  } answer;
  WGPURequestDeviceCallbackInfo callback{};
  callback.mode = WGPUCallbackMode_WaitAnyOnly;
  callback.userdata1 = &answer;
  callback.callback = [](WGPURequestDeviceStatus, WGPUDevice device, WGPUStringView reason, void* to, void*) {
    static_cast<Answer*>(to)->device = device;
    static_cast<Answer*>(to)->message = text(reason);
  };
  wait(dawn_->AdapterRequestDevice(adapter_, &descriptor, callback));
  if (answer.device == nullptr)
    throw DeviceError(fmt::format("WebGPU: {} could not create a device: {}", info_.name, answer.message));
  device_ = {answer.device, dawn_->DeviceRelease};
  WGPULoggingCallbackInfo logging{};
  logging.callback = log;
  dawn_->DeviceSetLoggingCallback(device_, logging);
}

// On a caller-supplied device the caller's callbacks stay in force.
void GpuDevice::take(const WebGpuOptions& options) {
  if (options.instance == nullptr)
    throw UsageError("a WebGPU device supplied by the caller needs the instance it was created from as well");
  dawn_->InstanceAddRef(static_cast<WGPUInstance>(options.instance));
  instance_ = {static_cast<WGPUInstance>(options.instance), dawn_->InstanceRelease};
  dawn_->DeviceAddRef(static_cast<WGPUDevice>(options.device));
  device_ = {static_cast<WGPUDevice>(options.device), dawn_->DeviceRelease};
  adapter_ = {dawn_->DeviceGetAdapter(device_), dawn_->AdapterRelease};
  info_ = describe_adapter(*dawn_, adapter_);
  taken_ = true;
}

void GpuDevice::make_target(const WebGpuOptions& options) {
  const auto has = [&](WGPUFeatureName feature) { return dawn_->DeviceHasFeature(device_, feature) != 0; };
  Target target = webgpu_target({
      .max_buffer_bytes = limits_.maxBufferSize,
      .max_binding_bytes = limits_.maxStorageBufferBindingSize,
      .max_bindings = limits_.maxStorageBuffersPerShaderStage,
      .max_workgroups = limits_.maxComputeWorkgroupsPerDimension,
      .max_invocations = limits_.maxComputeInvocationsPerWorkgroup,
      .workgroup_bytes = limits_.maxComputeWorkgroupStorageSize,
      .f16 = has(WGPUFeatureName_ShaderF16),
      .subgroups = has(WGPUFeatureName_Subgroups),
      // A caller-supplied device may lack features of its adapter.
      .subgroup_matrices = info_.subgroup_matrices && has(WGPUFeatureName_ChromiumExperimentalSubgroupMatrix),
      .subgroup_min = info_.subgroup_min,
      .subgroup_max = info_.subgroup_max,
      .software = info_.kind == "CPU",
  });
  target.f16_arithmetic = options.f16_arithmetic;
  if (options.target) {
    const Target& wanted = *options.target;
    target.fuse = wanted.fuse;
    target.plan = wanted.plan;
    target.pool_updates = wanted.pool_updates;
    target.max_buffer_bytes = std::min(target.max_buffer_bytes, wanted.max_buffer_bytes);
    target.max_binding_bytes = std::min(target.max_binding_bytes, wanted.max_binding_bytes);
    target.max_bindings = std::min(target.max_bindings, wanted.max_bindings);
    target.max_workgroups = std::min(target.max_workgroups, wanted.max_workgroups);
    target.max_invocations = std::min(target.max_invocations, wanted.max_invocations);
    target.workgroup_bytes = std::min(target.workgroup_bytes, wanted.workgroup_bytes);
    target.f16 = target.f16 && wanted.f16;
    target.f16_arithmetic = target.f16_arithmetic && wanted.f16_arithmetic;
    target.subgroup_size = std::min(target.subgroup_size, wanted.subgroup_size);
    if (wanted.subgroup_matrices != SubgroupMatrices::native) target.subgroup_matrices = wanted.subgroup_matrices;
    if (wanted.resident_workgroups > 0) target.resident_workgroups = wanted.resident_workgroups;
    target.software = wanted.software;
    target.persistent_workgroups = wanted.persistent_workgroups;
    target.persistent_threads =
        std::min(wanted.persistent_threads, static_cast<int>(limits_.maxComputeInvocationsPerWorkgroup));
  }
  target_ = target;
}

void GpuDevice::wait(WGPUFuture future) const {
  if (can_sleep_) can_sleep_ = wait_for(*dawn_, instance_, future);
  if (can_sleep_) return;
  WGPUFutureWaitInfo info{future, 0};
  while (dawn_->InstanceWaitAny(instance_, 1, &info, 0) == WGPUWaitStatus_TimedOut)
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

bool GpuDevice::is_lost() {
  if (taken_) {  // the callbacks are the caller's
    WGPUFutureWaitInfo info{dawn_->DeviceGetLostFuture(device_), 0};
    return dawn_->InstanceWaitAny(instance_, 1, &info, 0) == WGPUWaitStatus_Success;
  }
  const std::scoped_lock lock(reports_->mutex);
  return reports_->lost;
}

std::string GpuDevice::loss() const {
  const std::scoped_lock lock(reports_->mutex);
  return reports_->loss.empty() ? "no reason is known" : reports_->loss;
}

void GpuDevice::check() {
  dawn_->DeviceTick(device_);
  if (is_lost())
    throw DeviceLostError(
        fmt::format("the WebGPU device {} is lost: {}; make a new device and a new session on it", info_.name, loss()));
  const std::scoped_lock lock(reports_->mutex);
  if (reports_->errors.empty()) return;
  const std::string message = fmt::format("WebGPU on {}: {}", info_.name, fmt::join(reports_->errors, "; "));
  reports_->errors.clear();
  throw DeviceError(message);
}

void GpuDevice::lose() {
  const std::scoped_lock lock(mutex_);
  dawn_->DeviceForceLoss(device_, WGPUDeviceLostReason_Unknown, text("a loss was requested"));
}

std::string GpuDevice::pop_error_scope() const {
  std::string error;
  WGPUPopErrorScopeCallbackInfo callback{};
  callback.mode = WGPUCallbackMode_WaitAnyOnly;
  callback.userdata1 = &error;
  callback.callback = [](WGPUPopErrorScopeStatus, WGPUErrorType type, WGPUStringView message, void* to, void*) {
    if (type != WGPUErrorType_NoError) *static_cast<std::string*>(to) = text(message);
  };
  wait(dawn_->DevicePopErrorScope(device_, callback));
  return error;
}

Handle<WGPUBuffer> GpuDevice::create_buffer(std::int64_t bytes, WGPUBufferUsage usage, const std::string& name) {
  WGPUBufferDescriptor descriptor{};
  descriptor.label = text(name);
  // Shaders read vectors of four, so buffers hold whole vectors.
  descriptor.size = static_cast<std::uint64_t>(std::max<std::int64_t>(16, detail::round_up(bytes, 16)));
  descriptor.usage = usage;
  check();
  if (descriptor.size > limits_.maxBufferSize)
    throw OutOfMemoryError(fmt::format("{} takes {} bytes, but {} allows buffers of {} bytes at most", name,
                                       descriptor.size, info_.name, limits_.maxBufferSize));
  WGPUDawnFakeBufferOOMForTesting refused{};
  refused.chain.sType = WGPUSType_DawnFakeBufferOOMForTesting;
  refused.fakeOOMAtDevice = 1;
  if (bytes > refused_above_) descriptor.nextInChain = &refused.chain;
  dawn_->DevicePushErrorScope(device_, WGPUErrorFilter_OutOfMemory);
  Handle<WGPUBuffer> buffer{dawn_->DeviceCreateBuffer(device_, &descriptor), dawn_->BufferRelease};
  const std::string error = pop_error_scope();
  check();
  if (!error.empty() || buffer == nullptr)
    throw OutOfMemoryError(
        fmt::format("{} is out of memory allocating {} ({} bytes): {}", info_.name, name, descriptor.size, error));
  return buffer;
}

void GpuDevice::write(WGPUBuffer buffer, std::int64_t offset, const void* data, std::int64_t bytes) {
  const std::int64_t whole = bytes / 4 * 4;
  if (whole > 0)
    dawn_->QueueWriteBuffer(queue_, buffer, static_cast<std::uint64_t>(offset), data, static_cast<std::size_t>(whole));
  if (whole == bytes) return;
  std::uint32_t rest = 0;
  std::memcpy(&rest, static_cast<const std::byte*>(data) + whole, static_cast<std::size_t>(bytes - whole));
  dawn_->QueueWriteBuffer(queue_, buffer, static_cast<std::uint64_t>(offset + whole), &rest, sizeof(rest));
}

void GpuDevice::submit(const std::vector<WGPUCommandBuffer>& commands) {
  const std::size_t at_once = std::exchange(is_idle_, false) ? 1 : commands.size();
  for (std::size_t i = 0; i < commands.size(); i += at_once) dawn_->QueueSubmit(queue_, at_once, commands.data() + i);
}

std::vector<std::byte> GpuDevice::read(WGPUBuffer mappable, std::int64_t bytes) {
  std::vector<std::byte> result(static_cast<std::size_t>(bytes));
  if (bytes == 0) return result;
  std::string error;
  WGPUBufferMapCallbackInfo callback{};
  callback.mode = WGPUCallbackMode_WaitAnyOnly;
  callback.userdata1 = &error;
  callback.callback = [](WGPUMapAsyncStatus status, WGPUStringView message, void* to, void*) {
    if (status != WGPUMapAsyncStatus_Success) *static_cast<std::string*>(to) = text(message) + " ";
  };
  const auto size = static_cast<std::size_t>(detail::whole_words(bytes));
  wait(dawn_->BufferMapAsync(mappable, WGPUMapMode_Read, 0, size, callback));
  if (error.empty()) {
    std::memcpy(result.data(), dawn_->BufferGetConstMappedRange(mappable, 0, size), result.size());
    dawn_->BufferUnmap(mappable);
    is_idle_ = true;
  }
  check();
  if (!error.empty()) throw DeviceError(fmt::format("WebGPU on {}: reading back failed: {}", info_.name, error));
  return result;
}

const GpuDevice::Layout& GpuDevice::layout(const std::vector<BindingKind>& bindings) {
  if (const auto found = layouts_.find(bindings); found != layouts_.end()) return found->second;
  std::vector<WGPUBindGroupLayoutEntry> entries;
  for (std::size_t i = 0; i < bindings.size(); ++i) {
    WGPUBindGroupLayoutEntry entry{};
    entry.binding = static_cast<std::uint32_t>(i);
    entry.visibility = WGPUShaderStage_Compute;
    entry.buffer.type = bindings[i] == BindingKind::uniform ? WGPUBufferBindingType_Uniform
                        : bindings[i] == BindingKind::read  ? WGPUBufferBindingType_ReadOnlyStorage
                                                            : WGPUBufferBindingType_Storage;
    entries.push_back(entry);
  }
  WGPUBindGroupLayoutDescriptor descriptor{};
  descriptor.entryCount = entries.size();
  descriptor.entries = entries.data();
  Layout layout;
  layout.bindings = {dawn_->DeviceCreateBindGroupLayout(device_, &descriptor), dawn_->BindGroupLayoutRelease};
  WGPUBindGroupLayout group = layout.bindings;
  WGPUPipelineLayoutDescriptor pipeline{};
  pipeline.bindGroupLayoutCount = 1;
  pipeline.bindGroupLayouts = &group;
  layout.pipeline = {dawn_->DeviceCreatePipelineLayout(device_, &pipeline), dawn_->PipelineLayoutRelease};
  check();
  return layouts_.emplace(bindings, std::move(layout)).first->second;
}

void GpuDevice::refuse(const ShaderSource& source, WGPUShaderModule module, const std::string& message) const {
  struct Found {
    std::uint64_t line = 0;
    std::string text;
  } found;
  WGPUCompilationInfoCallbackInfo callback{};
  callback.mode = WGPUCallbackMode_WaitAnyOnly;
  callback.userdata1 = &found;
  callback.callback = [](WGPUCompilationInfoRequestStatus, const WGPUCompilationInfo* info, void* to, void*) {
    for (std::size_t i = 0; info != nullptr && i < info->messageCount; ++i) {
      if (info->messages[i].type != WGPUCompilationMessageType_Error) continue;
      *static_cast<Found*>(to) = {info->messages[i].lineNum, text(info->messages[i].message)};
      return;
    }
  };
  wait(dawn_->ShaderModuleGetCompilationInfo(module, callback));
  std::string line;
  std::size_t start = 0;
  for (std::uint64_t number = 1; number < found.line && start != std::string::npos; ++number)
    start = source.source.find('\n', start) + 1;
  if (found.line > 0) line = source.source.substr(start, source.source.find('\n', start) - start);
  throw ShaderError(fmt::format("the kernel {} does not compile: line {}: {}\n  {}\n{}\nThe complete source:\n{}",
                                source.name, found.line, found.text, line, message, source.source));
}

Handle<WGPUShaderModule> GpuDevice::module(const ShaderSource& source) {
  WGPUShaderSourceWGSL wgsl{};
  wgsl.chain.sType = WGPUSType_ShaderSourceWGSL;
  wgsl.code = text(source.source);
  WGPUShaderModuleDescriptor descriptor{};
  descriptor.nextInChain = &wgsl.chain;
  descriptor.label = text(source.name);
  dawn_->DevicePushErrorScope(device_, WGPUErrorFilter_Validation);
  Handle<WGPUShaderModule> module{dawn_->DeviceCreateShaderModule(device_, &descriptor), dawn_->ShaderModuleRelease};
  const std::string error = pop_error_scope();
  check();
  if (!error.empty()) refuse(source, module, error);
  return module;
}

template <class Call>
std::string GpuDevice::error_of(const Call& call) const {
  constexpr WGPUErrorFilter filters[] = {WGPUErrorFilter_OutOfMemory, WGPUErrorFilter_Internal,
                                         WGPUErrorFilter_Validation};
  for (const WGPUErrorFilter filter : filters) dawn_->DevicePushErrorScope(device_, filter);
  call();
  std::string errors;
  for (std::size_t i = 0; i < std::size(filters); ++i) errors += pop_error_scope();
  return errors;
}

std::vector<const GpuDevice::ShaderRequest*> GpuDevice::missing_of(const std::vector<ShaderRequest>& requests) {
  const std::scoped_lock lock(pipelines_mutex_);
  std::vector<const ShaderRequest*> missing;
  std::set<std::string_view> sources;
  for (const ShaderRequest& request : requests) {
    layout(request.bindings);
    if (!pipelines_.contains(request.source->source) && sources.insert(request.source->source).second)
      missing.push_back(&request);
  }
  return missing;
}

void GpuDevice::make_pipeline(const ShaderRequest& request) {
  const Handle<WGPUShaderModule> module = this->module(*request.source);
  WGPUComputePipelineDescriptor descriptor{};
  descriptor.label = text(request.source->name);
  descriptor.compute.module = module;
  descriptor.compute.entryPoint = text("main");
  {
    const std::scoped_lock lock(pipelines_mutex_);
    descriptor.layout = layout(request.bindings).pipeline;
  }
  Handle<WGPUComputePipeline> pipeline;
  const std::string error = error_of([&] {
    pipeline = {dawn_->DeviceCreateComputePipeline(device_, &descriptor), dawn_->ComputePipelineRelease};
  });
  check();
  if (!error.empty() || pipeline == nullptr)
    throw ShaderError(
        fmt::format("the kernel {} does not compile: {}\n{}", request.source->name, error, request.source->source));
  const std::scoped_lock lock(pipelines_mutex_);
  pipelines_.emplace(request.source->source, std::move(pipeline));  // unless another thread was faster
}

// The library has only two threads of its own for asynchronous pipeline creation, which is too few.
std::vector<GpuDevice::Pipeline> GpuDevice::compile(const std::vector<ShaderRequest>& requests) {
  const std::vector<const ShaderRequest*> missing = missing_of(requests);
  const auto make = [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t i = first; i < end; ++i) make_pipeline(*missing[static_cast<std::size_t>(i)]);
  };
  if (is_synchronised())
    detail::in_parallel(std::ssize(missing), 1, make);
  else
    make(0, std::ssize(missing));
  if (!missing.empty()) std::call_once(compiled_, watch_process_end);  // drivers may load their compiler only now
  const std::scoped_lock lock(pipelines_mutex_);
  std::vector<Pipeline> result;
  for (const ShaderRequest& request : requests)
    result.push_back({pipelines_.at(request.source->source), layout(request.bindings).bindings});
  return result;
}

}  // namespace jerboa::webgpu

namespace jerboa {

std::vector<AdapterInfo> webgpu_adapters(const std::string& library) {
  const auto dawn = webgpu::Dawn::open(library);
  const webgpu::LibraryWarnings warnings;
  const auto instance = webgpu::create_instance(*dawn);
  std::vector<AdapterInfo> result;
  for (auto& [adapter, info] : webgpu::find_adapters(*dawn, instance).list) result.push_back(std::move(info));
  return result;
}

}  // namespace jerboa
