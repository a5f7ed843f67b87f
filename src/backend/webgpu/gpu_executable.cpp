#include "backend/webgpu/gpu_executable.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <map>

#include "base/integers.h"

namespace jerboa::webgpu {
namespace {

constexpr std::int64_t uniform_alignment = 256;
constexpr int failure_buffer = -1;  // stands for the failure word of a persistent run

GpuDevice::ShaderRequest shader_request(const Program& program, const GpuStep& step) {
  GpuDevice::ShaderRequest request{&program.gpu.shaders[static_cast<std::size_t>(step.shader)], {}};
  for (const auto& binding : step.bindings)
    request.bindings.push_back(binding.is_read_write() ? GpuDevice::BindingKind::write : GpuDevice::BindingKind::read);
  if (!step.sizes.empty()) request.bindings.push_back(GpuDevice::BindingKind::uniform);
  return request;
}

}  // namespace

std::vector<GpuDevice::ShaderRequest> shader_requests(const Program& program) {
  std::vector<GpuDevice::ShaderRequest> requests;
  for (const GpuStep& step : program.gpu.steps)
    if (step.shader >= 0) requests.push_back(shader_request(program, step));
  return requests;
}

GpuExecutable::GpuExecutable(std::shared_ptr<GpuDevice> device, Program program, const FindStorage& storage,
                             std::optional<float> sentinel)
    : device_(std::move(device)),
      program_(std::move(program)),
      sentinel_(sentinel),
      readbacks_(std::make_shared<ReadbackPool>(device_)) {
  const std::scoped_lock lock(device_->mutex());
  try {
    device_->check();
    allocate(storage);
    place_storage();
    compile();
    make_bind_groups();
    make_persistent();
    device_->check();
  } catch (...) {
    release();
    throw;
  }
}

GpuExecutable::~GpuExecutable() {
  const std::scoped_lock lock(device_->mutex());
  release();
}

bool are_pooled_differently(GpuDevice& device, const Program& program, const FindStorage& storage) {
  std::vector<std::pair<const Buffer*, std::shared_ptr<GpuTensor>>> members;
  for (const Buffer& buffer : program.buffers)
    if (buffer.where == Buffer::Where::storage && buffer.within >= 0)
      members.emplace_back(&buffer, std::dynamic_pointer_cast<GpuTensor>(storage(buffer.name)));
  const std::scoped_lock lock(device.mutex());
  std::map<int, const GpuMemory*> memory_of;  // by pool
  for (const auto& [buffer, tensor] : members) {
    if (tensor == nullptr) continue;
    const GpuMemory* there = tensor->memory().get();
    const GpuMemory* of_others = memory_of.emplace(buffer->within, there).first->second;
    const std::int64_t bytes = program.buffers[static_cast<std::size_t>(buffer->within)].bytes;
    if ((there->is_pool() || of_others->is_pool()) &&
        (there != of_others || tensor->offset() != buffer->inside || there->bytes() != bytes))
      return true;
  }
  return false;
}

// The library's objects are released while we hold the device; those of storage release themselves.
void GpuExecutable::release() {
  forget_next();
  steps_.clear();
  persistent_.reset();
  queries_ = {};
  for (Handle<WGPUBuffer>* buffer : {&query_values_, &query_readback_, &sizes_}) *buffer = {};
  owned_.clear();
}

std::int64_t GpuExecutable::planned_bytes() const {
  std::int64_t total = 0;
  for (const std::int64_t bytes : program_.arenas) total += bytes;
  return total;
}

void GpuExecutable::allocate(const FindStorage& storage) {
  for (std::size_t i = 0; i < program_.arenas.size(); ++i) {
    const Buffer* largest = nullptr;
    for (const Buffer& buffer : program_.buffers)
      if (buffer.where == Buffer::Where::arena && buffer.arena == static_cast<int>(i) &&
          (largest == nullptr || buffer.bytes > largest->bytes))
        largest = &buffer;
    owned_.push_back(device_->create_buffer(
        program_.arenas[i], storage_usage,
        fmt::format(
            "the memory of {} and the tensors that share it (activations are planned to take {} bytes in total)",
            largest == nullptr ? "activations" : largest->name, planned_bytes())));
    arenas_.push_back(owned_.back());
  }
  for (const Buffer& buffer : program_.buffers) {
    const bool kept = buffer.where == Buffer::Where::storage;
    storage_.push_back(kept ? std::dynamic_pointer_cast<GpuTensor>(storage(buffer.name)) : nullptr);
    if (kept && (storage_.back() == nullptr || &storage_.back()->device() != device_.get()))
      throw UsageError(fmt::format("{} is on another device; devices share no storage", buffer.name));
    if (kept || buffer.where == Buffer::Where::pool) {
      buffers_.push_back(nullptr);  // set by place_storage
      continue;
    }
    if (buffer.where == Buffer::Where::arena) {
      buffers_.push_back(arenas_[static_cast<std::size_t>(buffer.arena)]);
      continue;
    }
    owned_.push_back(device_->create_buffer(buffer.bytes, storage_usage, buffer.name));
    buffers_.push_back(owned_.back());
    if (buffer.where == Buffer::Where::constant) {
      const auto bytes = program_.constants[static_cast<std::size_t>(buffer.constant)].bytes();
      device_->write(owned_.back(), 0, bytes.data(), static_cast<std::int64_t>(bytes.size()));
    }
  }
  find_pools();
  steps_.resize(program_.gpu.steps.size());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (program_.gpu.steps[i].sizes.empty()) continue;
    steps_[i].sizes_offset = sizes_bytes_;
    const auto bytes = static_cast<std::int64_t>(program_.gpu.steps[i].sizes.size() * sizeof(std::uint32_t));
    sizes_bytes_ += detail::round_up(bytes, uniform_alignment);
  }
  if (sizes_bytes_ > 0)
    sizes_ = device_->create_buffer(sizes_bytes_, WGPUBufferUsage_Uniform | WGPUBufferUsage_CopyDst, "sizes");
}

void GpuExecutable::find_pools() {
  for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
    if (program_.buffers[i].where != Buffer::Where::pool) continue;
    Pool pool{i, {}};
    for (std::size_t k = 0; k < program_.buffers.size(); ++k)
      if (program_.buffers[k].within == static_cast<int>(i))
        pool.members.emplace_back(storage_[k], program_.buffers[k].inside);
    pools_.push_back(std::move(pool));
  }
}

// Storage belongs to a session, and its programs may need different layouts: each run moves it to the layout it needs.
void GpuExecutable::place_storage() {
  for (Pool& pool : pools_) place(pool);
  separate_readers_from_writers();
  moves_.clear();
  for (std::size_t i = 0; i < storage_.size(); ++i) {
    moves_.push_back(storage_[i] ? storage_[i]->moves() : 0);
    if (storage_[i]) buffers_[i] = storage_[i]->buffer();
  }
}

// Holds no memory itself: the last tensor that leaves a pool frees it.
void GpuExecutable::place(Pool& pool) {
  const Buffer& whole = program_.buffers[pool.buffer];
  const GpuMemory* there = pool.members.front().first->memory().get();
  const bool placed =
      there->bytes() == whole.bytes && std::all_of(pool.members.begin(), pool.members.end(), [&](const auto& member) {
        return member.first->memory().get() == there && member.first->offset() == member.second;
      });
  if (!placed) {
    const auto fresh = std::make_shared<GpuMemory>(device_, whole.bytes, whole.name);
    for (const auto& [tensor, offset] : pool.members) tensor->move_to(fresh, offset);
  }
  pool.use = pool.members.front().first->memory()->pool_use();
  buffers_[pool.buffer] = pool.members.front().first->buffer();
}

// A dispatch must not bind one buffer for both reading and writing, which another program's pool could cause.
void GpuExecutable::separate_readers_from_writers() {
  for (const GpuStep& step : program_.gpu.steps)
    for (const auto& written : step.bindings)
      for (const auto& read : step.bindings) {
        const auto& source = storage_[static_cast<std::size_t>(read.buffer)];
        const auto& other = storage_[static_cast<std::size_t>(written.buffer)];
        if (!written.is_read_write() || read.is_read_write() || !source || !other || source == other ||
            source->memory() != other->memory())
          continue;
        source->move_to(std::make_shared<GpuMemory>(device_, source->bytes(), source->name()), 0);
      }
}

bool GpuExecutable::was_moved() const {
  for (std::size_t i = 0; i < storage_.size(); ++i)
    if (storage_[i] && storage_[i]->moves() != moves_[i]) return true;
  return false;
}

std::int64_t GpuExecutable::start_of(int buffer) const {
  const auto number = static_cast<std::size_t>(buffer);
  return storage_[number] ? storage_[number]->offset() : program_.buffers[number].offset;
}

void GpuExecutable::compile() {
  const auto pipelines = device_->compile(shader_requests(program_));
  std::size_t next = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i)
    if (program_.gpu.steps[i].shader >= 0) steps_[i].pipeline = pipelines[next++];
}

void GpuExecutable::make_bind_groups() {
  const Dawn& dawn = device_->dawn();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const GpuStep& step = program_.gpu.steps[i];
    if (step.shader < 0) continue;
    std::vector<WGPUBindGroupEntry> entries;
    for (const auto& binding : step.bindings) {
      WGPUBindGroupEntry entry{};
      entry.binding = static_cast<std::uint32_t>(entries.size());
      entry.buffer = buffers_[static_cast<std::size_t>(binding.buffer)];
      entry.offset = static_cast<std::uint64_t>(start_of(binding.buffer) + binding.offset);
      entry.size = static_cast<std::uint64_t>(std::max<std::int64_t>(16, whole_words(binding.bytes)));
      entries.push_back(entry);
    }
    if (!step.sizes.empty()) {
      WGPUBindGroupEntry entry{};
      entry.binding = static_cast<std::uint32_t>(entries.size());
      entry.buffer = sizes_;
      entry.offset = static_cast<std::uint64_t>(steps_[i].sizes_offset);
      entry.size = (step.sizes.size() + 3) / 4 * 16;
      entries.push_back(entry);
    }
    WGPUBindGroupDescriptor descriptor{};
    descriptor.layout = steps_[i].pipeline.layout;
    descriptor.entryCount = entries.size();
    descriptor.entries = entries.data();
    steps_[i].bindings = {dawn.DeviceCreateBindGroup(device_->device(), &descriptor), dawn.BindGroupRelease};
  }
}

PersistentRun::FindPlace GpuExecutable::places() const {
  return [this](int buffer) {
    return PersistentRun::Place{buffers_[static_cast<std::size_t>(buffer)], start_of(buffer)};
  };
}

// The separate steps remain as a fallback: drivers may refuse such a long shader.
void GpuExecutable::make_persistent() {
  if (!program_.gpu.persistent) return;
  std::string reason = "its workgroups do not run concurrently, or do not see each other's writes";
  try {
    persistent_ = PersistentRun::make(*device_, *program_.gpu.persistent, places());
    device_->check();
  } catch (const DeviceLostError&) {
    throw;
  } catch (const std::exception& error) {
    persistent_.reset();
    reason = error.what();
  }
  if (!persistent_) note_separate_steps(program_.gpu.steps.size(), reason);
}

void GpuExecutable::set_symbols(const SymbolValues& symbols) {
  if (symbols_set_ && symbols == symbols_) return;
  symbols_ = symbols;
  symbols_set_ = true;
  workgroups_.clear();
  std::vector<std::uint32_t> values(static_cast<std::size_t>(sizes_bytes_) / sizeof(std::uint32_t), 0);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const GpuStep& step = program_.gpu.steps[i];
    const std::int64_t count = step.workgroups.evaluate(symbols);
    const std::int64_t across = std::min<std::int64_t>(count, device_->target().max_workgroups);
    workgroups_.push_back({static_cast<std::uint32_t>(across),
                           static_cast<std::uint32_t>(across == 0 ? 0 : detail::divide_up(count, across))});
    for (std::size_t k = 0; k < step.sizes.size(); ++k)
      values[static_cast<std::size_t>(steps_[i].sizes_offset) / 4 + k] =
          static_cast<std::uint32_t>(step.sizes[k].evaluate(symbols));
  }
  if (sizes_bytes_ > 0) device_->write(sizes_, 0, values.data(), sizes_bytes_);
  if (persistent_) persistent_->set_symbols(symbols);
}

void GpuExecutable::upload_inputs(const RunRequest& request) {
  for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
    if (program_.buffers[i].where != Buffer::Where::input) continue;
    const auto bytes = request.inputs.at(program_.buffers[i].name).bytes();
    device_->write(buffers_[i], 0, bytes.data(), static_cast<std::int64_t>(bytes.size()));
  }
}

void GpuExecutable::fill_arenas() {
  for (std::size_t i = 0; i < arenas_.size(); ++i) {
    const std::vector<float> values(static_cast<std::size_t>(program_.arenas[i] + 3) / 4, *sentinel_);
    device_->write(arenas_[i], 0, values.data(), static_cast<std::int64_t>(values.size() * sizeof(float)));
  }
}

WGPUComputePassEncoder GpuExecutable::begin_pass(WGPUCommandEncoder encoder, std::size_t step) {
  WGPUPassTimestampWrites writes{};
  writes.querySet = queries_;
  writes.beginningOfPassWriteIndex = static_cast<std::uint32_t>(2 * step);
  writes.endOfPassWriteIndex = static_cast<std::uint32_t>(2 * step + 1);
  WGPUComputePassDescriptor descriptor{};
  if (profiling_ && queries_ != nullptr) descriptor.timestampWrites = &writes;
  return device_->dawn().CommandEncoderBeginComputePass(encoder, &descriptor);
}

void GpuExecutable::end_pass(WGPUComputePassEncoder& pass) const {
  if (pass == nullptr) return;
  device_->dawn().ComputePassEncoderEnd(pass);
  device_->dawn().ComputePassEncoderRelease(pass);
  pass = nullptr;
}

void GpuExecutable::encode_step(std::size_t number, WGPUCommandEncoder encoder, WGPUComputePassEncoder& pass) {
  const Dawn& dawn = device_->dawn();
  const GpuStep& step = program_.gpu.steps[number];
  if (step.shader < 0) {
    end_pass(pass);
    const auto &from = step.bindings[0], &to = step.bindings[1];
    const auto offset = [&](const GpuStep::Binding& binding) {
      return static_cast<std::uint64_t>(start_of(binding.buffer) + binding.offset);
    };
    dawn.CommandEncoderCopyBufferToBuffer(encoder, buffers_[static_cast<std::size_t>(from.buffer)], offset(from),
                                          buffers_[static_cast<std::size_t>(to.buffer)], offset(to),
                                          static_cast<std::uint64_t>(whole_words(from.bytes)));
    return;
  }
  if (workgroups_[number][0] == 0) return;
  // One pass per step if each step is timed.
  if (profiling_) end_pass(pass);
  if (pass == nullptr) pass = begin_pass(encoder, number);
  dawn.ComputePassEncoderSetPipeline(pass, steps_[number].pipeline.pipeline);
  dawn.ComputePassEncoderSetBindGroup(pass, 0, steps_[number].bindings, 0, nullptr);
  dawn.ComputePassEncoderDispatchWorkgroups(pass, workgroups_[number][0], workgroups_[number][1], 1);
}

void GpuExecutable::encode(WGPUCommandEncoder encoder, std::size_t first, std::size_t end) {
  WGPUComputePassEncoder pass = nullptr;
  for (std::size_t i = first; i < end; ++i) encode_step(i, encoder, pass);
  end_pass(pass);
}

void GpuExecutable::resolve_times(WGPUCommandEncoder encoder) {
  if (!profiling_ || queries_ == nullptr) return;
  const auto count = static_cast<std::uint32_t>(2 * steps_.size());
  device_->dawn().CommandEncoderResolveQuerySet(encoder, queries_, 0, count, query_values_, 0);
  device_->dawn().CommandEncoderCopyBufferToBuffer(encoder, query_values_, 0, query_readback_, 0,
                                                   count * sizeof(std::uint64_t));
}

void GpuExecutable::copy_results(WGPUCommandEncoder encoder, Recording& recording) {
  const Wanted& wanted = recording.wanted;
  const auto place_of = [&](int buffer) {
    if (buffer == failure_buffer) return PersistentRun::Place{persistent_->control(), PersistentRun::failure_offset};
    if (wanted.persistent) {
      const auto& words_of = program_.gpu.persistent->words_of;
      const auto found = words_of.find(buffer);
      if (found != words_of.end()) return PersistentRun::Place{persistent_->words(), 4 * found->second};
    }
    return PersistentRun::Place{buffers_[static_cast<std::size_t>(buffer)], start_of(buffer)};
  };
  const auto keep = [&](const Readable& readable) {
    Readback readback(readable, wanted.symbols, *readbacks_);
    const auto [buffer, base] = place_of(readable.buffer);
    if (readback.bytes > 0)
      device_->dawn().CommandEncoderCopyBufferToBuffer(encoder, buffer,
                                                       static_cast<std::uint64_t>(base + readback.from),
                                                       readback.buffer, 0, static_cast<std::uint64_t>(readback.bytes));
    recording.results.emplace(readable.name, std::move(readback));
  };
  for (const Readable& output : program_.outputs) keep(output);
  for (const Readable& capture : program_.captures)
    if (std::find(wanted.captures.begin(), wanted.captures.end(), capture.name) != wanted.captures.end()) keep(capture);
  // Runs in separate steps read it too: a failed persistent run may have left their states half updated.
  if (!persistent_) return;
  Readable failure;
  failure.name = GpuResults::failure;
  failure.dtype = DType::u32;
  failure.buffer = failure_buffer;
  keep(failure);
}

GpuExecutable::Recording GpuExecutable::record(const Wanted& wanted) {
  const Dawn& dawn = device_->dawn();
  Recording recording{wanted, {}, {}};
  // With many steps, the first ones run long enough for the others to be translated in the meantime
  // (GpuDevice::submit).
  constexpr std::size_t many = 24, part = 4;
  const std::size_t first = steps_.size() < many || profiling_ || wanted.persistent ? 0 : steps_.size() / part;
  const auto add = [&](const auto& encode_into) {
    const Handle<WGPUCommandEncoder> encoder{dawn.DeviceCreateCommandEncoder(device_->device(), nullptr),
                                             dawn.CommandEncoderRelease};
    encode_into(encoder);
    recording.commands.emplace_back(dawn.CommandEncoderFinish(encoder, nullptr), dawn.CommandBufferRelease);
  };
  if (first > 0) add([&](WGPUCommandEncoder encoder) { encode(encoder, 0, first); });
  add([&](WGPUCommandEncoder encoder) {
    if (wanted.persistent)
      persistent_->encode(encoder);
    else
      encode(encoder, first, steps_.size());
    resolve_times(encoder);
    copy_results(encoder, recording);
  });
  return recording;
}

void GpuExecutable::forget_next() {
  if (next_) give_back(next_->results, *readbacks_);
  next_.reset();
}

GpuExecutable::Recording GpuExecutable::take_recording(const Wanted& wanted) {
  if (!next_ || !(next_->wanted == wanted)) {
    forget_next();
    return record(wanted);
  }
  Recording recording = std::move(*next_);
  next_.reset();
  return recording;
}

// This run has already succeeded: if there is no memory for the next run's results, that run will report it.
void GpuExecutable::record_next(const Wanted& wanted) {
  try {
    next_ = record(wanted);
  } catch (const OutOfMemoryError&) {
    next_.reset();
  }
}

std::unique_ptr<RunResults> GpuExecutable::run(const RunRequest& request) {
  const std::scoped_lock lock(device_->mutex());
  device_->check();
  if (was_moved()) {
    forget_next();
    place_storage();
    make_bind_groups();
    if (persistent_) persistent_->bind(places());
  }
  if (*failed_ && persistent_) {
    forget_next();
    persistent_.reset();
  }
  const Wanted wanted{request.symbols, request.captures, persistent_ && !profiling_ && request.captures.empty()};
  set_symbols(wanted.symbols);
  if (sentinel_) fill_arenas();
  upload_inputs(request);
  Recording recording = take_recording(wanted);
  device_->submit({recording.commands.begin(), recording.commands.end()});
  device_->check();
  if (profiling_ && queries_ != nullptr) read_times();
  if (last_ == wanted && !profiling_) record_next(wanted);
  last_ = wanted;
  return std::make_unique<GpuResults>(device_, readbacks_, std::move(recording.results), failed_);
}

MemoryReport GpuExecutable::memory_report() const {
  MemoryReport report;
  for (const Buffer& buffer : program_.buffers) {
    if (buffer.where == Buffer::Where::storage) report.persistent += buffer.bytes;
    if (buffer.where == Buffer::Where::arena && buffer.within < 0)
      report.tensors.push_back({buffer.name, buffer.bytes, buffer.offset, buffer.first, buffer.last});
  }
  report.activations = planned_bytes();
  return report;
}

void GpuExecutable::set_profiling(bool on) {
  const std::scoped_lock lock(device_->mutex());
  device_->check();
  profiling_ = on;
  forget_next();
  times_.clear();
  first_stamp_.reset();
  if (!on || queries_ != nullptr || steps_.empty()) return;
  if (!device_->has_timestamps())
    throw UsageError("this WebGPU device has no timestamps, so its kernels cannot be timed one by one");
  WGPUQuerySetDescriptor descriptor{};
  descriptor.type = WGPUQueryType_Timestamp;
  descriptor.count = static_cast<std::uint32_t>(2 * steps_.size());
  queries_ = {device_->dawn().DeviceCreateQuerySet(device_->device(), &descriptor), device_->dawn().QuerySetRelease};
  const auto bytes = static_cast<std::int64_t>(descriptor.count * sizeof(std::uint64_t));
  query_values_ = device_->create_buffer(bytes, WGPUBufferUsage_QueryResolve | WGPUBufferUsage_CopySrc, "timestamps");
  query_readback_ = device_->create_buffer(bytes, readback_usage, "timestamps");
}

double GpuExecutable::bound_bytes(const GpuStep& step) const {
  double total = 0;
  for (const GpuStep::Binding& binding : step.bindings) {
    const Buffer& buffer = program_.buffers[static_cast<std::size_t>(binding.buffer)];
    const std::int64_t used = buffer.elements.evaluate(symbols_) * bits(buffer.dtype) / 8;
    total += static_cast<double>(std::min(binding.bytes, used));
  }
  return total;
}

void GpuExecutable::read_times() {
  const auto bytes =
      device_->read(query_readback_, static_cast<std::int64_t>(2 * steps_.size() * sizeof(std::uint64_t)));
  std::vector<std::uint64_t> stamps(2 * steps_.size());
  std::memcpy(stamps.data(), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const GpuStep& step = program_.gpu.steps[i];
    if (step.shader < 0 || workgroups_[i][0] == 0) continue;
    const std::uint64_t start = stamps[2 * i], end = stamps[2 * i + 1];
    if (!first_stamp_) first_stamp_ = start;
    times_.push_back({step.label, program_.gpu.shaders[static_cast<std::size_t>(step.shader)].name,
                      end > start ? static_cast<double>(end - start) * 1e-9 : 0,
                      start > *first_stamp_ ? static_cast<double>(start - *first_stamp_) * 1e-9 : 0,
                      static_cast<double>(step.operations.evaluate(symbols_)), bound_bytes(step)});
  }
}

std::vector<KernelTime> GpuExecutable::profile() const { return times_; }

}  // namespace jerboa::webgpu
