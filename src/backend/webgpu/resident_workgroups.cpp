#include "backend/webgpu/resident_workgroups.h"

#include <array>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <set>

namespace jerboa::webgpu {
namespace {

constexpr std::uint32_t launched = 8192;
constexpr std::int64_t workgroup_bytes = 24 << 10;
constexpr int threads = 128;

// Workgroups stay until the first one has waited long enough for all others that fit to start, and those that start
// later exit at once. Waits are bounded, and nothing relies on workgroups running concurrently: on a device that runs
// them one after another the answer is 1.
ShaderSource counting_shader() {
  return {"resident_workgroups",
          fmt::format(
              R"(struct Counters {{ running: atomic<u32>, most: atomic<u32>, over: atomic<u32>, unused: atomic<u32> }}
@group(0) @binding(0) var<storage, read_write> counters: Counters;
var<workgroup> memory: array<atomic<u32>, {0}>;
@compute @workgroup_size({1})
fn main(@builtin(local_invocation_index) lane: u32) {{
  atomicStore(&memory[lane * {2}u], lane);
  if (lane == 0u && atomicLoad(&counters.over) == 0u) {{
    atomicMax(&counters.most, atomicAdd(&counters.running, 1u) + 1u);
    for (var polls = 0u; polls < 500u && atomicLoad(&counters.over) == 0u; polls++) {{
      atomicMax(&counters.most, atomicLoad(&counters.running));
    }}
    atomicStore(&counters.over, 1u);
    atomicSub(&counters.running, 1u);
  }}
  workgroupBarrier();
  if (atomicLoad(&memory[lane * {2}u]) != lane) {{ atomicAdd(&counters.unused, 1u); }}
}}
)",
              workgroup_bytes / 4, threads, workgroup_bytes / 4 / threads),
          threads, workgroup_bytes};
}

class Counter {
 public:
  explicit Counter(GpuDevice& device)
      : device_(device),
        source_(counting_shader()),
        pipeline_(device.compile({{&source_, {GpuDevice::BindingKind::write}}}).front()),
        counters_(device.create_buffer(
            bytes, WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst, source_.name)),
        readback_(device.create_buffer(bytes, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst, source_.name)) {
    const Dawn& dawn = device.dawn();
    WGPUBindGroupEntry entry{};
    entry.buffer = counters_;
    entry.size = bytes;
    WGPUBindGroupDescriptor descriptor{};
    descriptor.layout = pipeline_.layout;
    descriptor.entryCount = 1;
    descriptor.entries = &entry;
    bindings_ = {dawn.DeviceCreateBindGroup(device.device(), &descriptor), dawn.BindGroupRelease};
  }

  std::uint32_t count() {
    const Dawn& dawn = device_.dawn();
    constexpr std::array<std::uint32_t, 4> zeros{};
    device_.write(counters_, 0, zeros.data(), bytes);
    const Handle<WGPUCommandEncoder> encoder{dawn.DeviceCreateCommandEncoder(device_.device(), nullptr),
                                             dawn.CommandEncoderRelease};
    WGPUComputePassEncoder pass = dawn.CommandEncoderBeginComputePass(encoder, nullptr);
    dawn.ComputePassEncoderSetPipeline(pass, pipeline_.pipeline);
    dawn.ComputePassEncoderSetBindGroup(pass, 0, bindings_, 0, nullptr);
    dawn.ComputePassEncoderDispatchWorkgroups(pass, launched, 1, 1);
    dawn.ComputePassEncoderEnd(pass);
    dawn.ComputePassEncoderRelease(pass);
    dawn.CommandEncoderCopyBufferToBuffer(encoder, counters_, 0, readback_, 0, bytes);
    const Handle<WGPUCommandBuffer> commands{dawn.CommandEncoderFinish(encoder, nullptr), dawn.CommandBufferRelease};
    device_.submit({commands});
    std::array<std::uint32_t, 4> values{};
    std::memcpy(values.data(), device_.read(readback_, bytes).data(), bytes);
    return values[1];
  }

 private:
  static constexpr std::int64_t bytes = 4 * sizeof(std::uint32_t);
  GpuDevice& device_;
  ShaderSource source_;
  GpuDevice::Pipeline pipeline_;
  Handle<WGPUBuffer> counters_, readback_;
  Handle<WGPUBindGroup> bindings_;
};

// A GPU that works for others at the same time counts fewer, and not the same number each time.
std::optional<int> agreed_count(const std::function<int()>& count) {
  constexpr int rounds = 3, tries = 4;
  for (int round = 0; round < rounds; ++round) {
    std::set<int> counts;
    for (int i = 0; i < tries; ++i) counts.insert(count());
    if (counts.size() == 1) return *counts.begin();
  }
  return std::nullopt;
}

}  // namespace

int known_count(PipelineCache* cache, std::string_view key, const std::function<int()>& count) {
  std::int32_t value = 0;
  const std::span bytes(reinterpret_cast<std::byte*>(&value), sizeof value);
  if (cache != nullptr && cache->size_of(key) == sizeof value && cache->load(key, bytes)) return value;
  const std::optional<int> agreed = agreed_count(count);
  if (!agreed) return 0;
  value = *agreed;
  if (cache != nullptr) cache->store(key, bytes);
  return value;
}

int resident_workgroups(GpuDevice& device, PipelineCache* cache) {
  const Target& target = device.target();
  if (target.workgroup_bytes < workgroup_bytes || target.max_invocations < threads) return 0;
  const AdapterInfo& info = device.info();
  std::optional<Counter> counter;
  return known_count(cache, fmt::format("resident workgroups 2|{}|{}|{}", info.name, info.vendor, info.driver), [&] {
    const std::scoped_lock lock(device.mutex());
    if (!counter) counter.emplace(device);
    const std::uint32_t most = counter->count();
    return most < launched ? static_cast<int>(most) : 0;
  });
}

}  // namespace jerboa::webgpu
