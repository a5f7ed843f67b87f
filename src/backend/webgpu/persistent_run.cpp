#include "backend/webgpu/persistent_run.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "backend/webgpu/gpu_tensor.h"
#include "base/integers.h"

namespace jerboa::webgpu {
namespace {

constexpr std::int64_t control_bytes = 16, most_marks_bytes = std::int64_t{4} << 20;

GpuDevice::ShaderRequest shader_request(const PersistentDispatch& dispatch) {
  using Kind = GpuDevice::BindingKind;
  GpuDevice::ShaderRequest request{&dispatch.shader, {Kind::write, Kind::write}};
  for (const GpuStep::Binding& binding : dispatch.bindings)
    request.bindings.push_back(binding.written ? Kind::write : Kind::read);
  request.bindings.push_back(Kind::uniform);
  return request;
}

}  // namespace

PersistentRun::PersistentRun(GpuDevice& device, const PersistentDispatch& dispatch)
    : device_(device), dispatch_(dispatch), workgroups_(device.target().persistent_workgroups) {
  pipeline_ = device.compile({shader_request(dispatch)}).front();
  control_ = device.create_buffer(control_bytes, storage_usage, "the control words of a dispatch");
  // The probe passes a word for each thread in each of its phases.
  constexpr std::int64_t least_probed = 8;
  const std::int64_t probed = PersistentDispatch::counter_words + least_probed * workgroups_ * dispatch.shader.threads;
  words_bytes_ = 4 * std::max(dispatch.words, probed);
  words_ = device.create_buffer(words_bytes_, storage_usage, "the words that phases pass on");
  const std::vector<std::uint32_t> marks(static_cast<std::size_t>(std::min(words_bytes_, most_marks_bytes) / 4),
                                         PersistentDispatch::unwritten);
  const auto marks_bytes = static_cast<std::int64_t>(4 * marks.size());
  marks_ = device.create_buffer(marks_bytes, storage_usage, "marks of unwritten words");
  device.write(marks_, 0, marks.data(), marks_bytes);
  constexpr std::array<std::uint32_t, control_bytes / 4> zeros{};
  device.write(control_, 0, zeros.data(), control_bytes);
  table_ = device.create_buffer(static_cast<std::int64_t>(4 * dispatch.table.size()),
                                WGPUBufferUsage_Uniform | WGPUBufferUsage_CopyDst, "the table of phases");
}

std::unique_ptr<PersistentRun> PersistentRun::make(GpuDevice& device, const PersistentDispatch& dispatch,
                                                   const FindPlace& find) {
  std::unique_ptr<PersistentRun> run(new PersistentRun(device, dispatch));
  run->bind(find);
  // The shader's registers and memory may leave room for fewer concurrent workgroups.
  for (const int halvings : {0, 1}) {
    const int workgroups = device.target().persistent_workgroups >> halvings;
    if (workgroups > 0 && run->is_sound(workgroups)) {
      run->workgroups_ = workgroups;
      return run;
    }
  }
  return nullptr;
}

void PersistentRun::bind(const FindPlace& find) {
  std::vector<WGPUBindGroupEntry> entries;
  const auto add = [&](WGPUBuffer buffer, std::int64_t offset, std::int64_t bytes) {
    WGPUBindGroupEntry entry{};
    entry.binding = static_cast<std::uint32_t>(entries.size());
    entry.buffer = buffer;
    entry.offset = static_cast<std::uint64_t>(offset);
    entry.size = static_cast<std::uint64_t>(bytes);
    entries.push_back(entry);
  };
  add(control_, 0, control_bytes);
  add(words_, 0, words_bytes_);
  for (const GpuStep::Binding& binding : dispatch_.bindings) {
    const Place place = find(binding.buffer);
    add(place.buffer, place.offset, std::max<std::int64_t>(16, whole_words(binding.bytes)));
  }
  add(table_, 0, static_cast<std::int64_t>(4 * dispatch_.table.size()));
  WGPUBindGroupDescriptor descriptor{};
  descriptor.layout = pipeline_.layout;
  descriptor.entryCount = entries.size();
  descriptor.entries = entries.data();
  bindings_ = {device_.dawn().DeviceCreateBindGroup(device_.device(), &descriptor), device_.dawn().BindGroupRelease};
}

// Runs phases that only pass words on and check them, as many at a time as there are words for. A row whose first
// number is not a kernel's selects the probe. These phases take microseconds, so that a workgroup that does not run is
// detected before a driver takes the wait for a hang.
bool PersistentRun::is_sound(int workgroups) {
  constexpr std::uint32_t no_kernel = 0xffffffffu, polls = 20'000, phases = 256;
  std::vector<std::uint32_t> table(dispatch_.table.size(), no_kernel);
  const auto row = static_cast<std::size_t>(dispatch_.probe_row);
  const auto used = static_cast<std::size_t>(workgroups) * static_cast<std::size_t>(dispatch_.shader.threads);
  const std::size_t words = static_cast<std::size_t>(words_bytes_) / 4 - PersistentDispatch::counter_words;
  const auto in_run = static_cast<std::uint32_t>(std::min<std::size_t>({phases, 4 * row - 4, words / used}));
  const auto groups = static_cast<std::uint32_t>(workgroups);
  const std::array<std::uint32_t, 4> header{groups, in_run, polls, polls};
  std::copy(header.begin(), header.end(), table.begin());
  std::fill_n(table.begin() + 4, in_run, static_cast<std::uint32_t>(row));
  device_.write(table_, 0, table.data(), static_cast<std::int64_t>(4 * table.size()));
  const int wanted = std::exchange(workgroups_, workgroups);
  bool is_sound = true;
  for (std::uint32_t done = 0; is_sound && done < phases; done += in_run) is_sound = passes_words(groups, in_run);
  workgroups_ = wanted;
  constexpr std::array<std::uint32_t, control_bytes / 4> zeros{};
  device_.write(control_, 0, zeros.data(), control_bytes);
  return is_sound;
}

// Whether a run of the probe reads back the words that it passes on, and all workgroups arrive.
bool PersistentRun::passes_words(std::uint32_t workgroups, std::uint32_t phases) {
  const Dawn& dawn = device_.dawn();
  const Handle<WGPUBuffer> readback =
      device_.create_buffer(2 * control_bytes, readback_usage, "the control words of a dispatch");
  const Handle<WGPUCommandEncoder> encoder{dawn.DeviceCreateCommandEncoder(device_.device(), nullptr),
                                           dawn.CommandEncoderRelease};
  encode(encoder);
  dawn.CommandEncoderCopyBufferToBuffer(encoder, control_, 0, readback, 0, control_bytes);
  dawn.CommandEncoderCopyBufferToBuffer(encoder, words_, 0, readback, control_bytes, control_bytes);
  const Handle<WGPUCommandBuffer> commands{dawn.CommandEncoderFinish(encoder, nullptr), dawn.CommandBufferRelease};
  device_.submit({commands});
  std::array<std::uint32_t, 2 * control_bytes / 4> found{};
  std::memcpy(found.data(), device_.read(readback, 2 * control_bytes).data(), 2 * control_bytes);
  const std::uint32_t arrived = found[control_bytes / 4] - PersistentDispatch::unwritten;
  return found[failure_offset / 4] == 0 && arrived == phases * workgroups;
}

void PersistentRun::set_symbols(const SymbolValues& symbols) {
  std::vector<std::uint32_t> table;
  table.reserve(dispatch_.table.size());
  for (const Dim& value : dispatch_.table) table.push_back(static_cast<std::uint32_t>(value.evaluate(symbols)));
  table[0] = static_cast<std::uint32_t>(workgroups_);
  device_.write(table_, 0, table.data(), static_cast<std::int64_t>(4 * table.size()));
}

void PersistentRun::encode(WGPUCommandEncoder encoder) const {
  const Dawn& dawn = device_.dawn();
  for (std::int64_t first = 0; first < words_bytes_; first += most_marks_bytes)
    dawn.CommandEncoderCopyBufferToBuffer(encoder, marks_, 0, words_, static_cast<std::uint64_t>(first),
                                          static_cast<std::uint64_t>(std::min(most_marks_bytes, words_bytes_ - first)));
  WGPUComputePassEncoder pass = dawn.CommandEncoderBeginComputePass(encoder, nullptr);
  dawn.ComputePassEncoderSetPipeline(pass, pipeline_.pipeline);
  dawn.ComputePassEncoderSetBindGroup(pass, 0, bindings_, 0, nullptr);
  dawn.ComputePassEncoderDispatchWorkgroups(pass, static_cast<std::uint32_t>(workgroups_), 1, 1);
  dawn.ComputePassEncoderEnd(pass);
  dawn.ComputePassEncoderRelease(pass);
}

void note_separate_steps(std::size_t steps, const std::string& reason) {
  if (std::getenv("JERBOA_DEBUG") != nullptr)
    fmt::print(stderr, "WebGPU: {} steps remain separate dispatches: {}\n", steps, reason);
}

}  // namespace jerboa::webgpu
