#include "backend/webgpu/gpu_results.h"

#include <algorithm>
#include <cstring>

#include <jerboa/base/error.h>

#include "backend/webgpu/gpu_tensor.h"

namespace jerboa::webgpu {
namespace {

// The range of a strided tensor's elements: from the first to one past the last.
struct Span {
  std::int64_t first = 0, end = 0;
};
Span span_of(const Sizes& sizes, const std::vector<std::int64_t>& strides, std::int64_t offset) {
  Span span{offset, offset + 1};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return {offset, offset};
    const std::int64_t reach = (sizes[i] - 1) * strides[i];
    (reach < 0 ? span.first : span.end) += reach;
  }
  return span;
}

// The elements in row-major order, from bytes that begin with element `first`.
HostTensor gather(const std::vector<std::byte>& bytes, DType dtype, const Sizes& sizes,
                  const std::vector<std::int64_t>& strides, std::int64_t start) {
  HostTensor values(dtype, sizes);
  const std::size_t width = static_cast<std::size_t>(bits(dtype)) / 8;
  std::byte* to = values.bytes().data();
  const std::int64_t count = element_count(sizes);
  std::vector<std::int64_t> index(sizes.size(), 0);
  std::int64_t at = start;
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(to + static_cast<std::size_t>(i) * width, bytes.data() + static_cast<std::size_t>(at) * width, width);
    for (std::size_t axis = sizes.size(); axis-- > 0;) {
      at += strides[axis];
      if (++index[axis] < sizes[axis]) break;
      at -= strides[axis] * sizes[axis];
      index[axis] = 0;
    }
  }
  return values;
}

}  // namespace

ReadbackPool::~ReadbackPool() {
  const std::scoped_lock lock(device_->mutex());
  free_.clear();
}

Handle<WGPUBuffer> ReadbackPool::take(std::int64_t bytes, const std::string& name) {
  const auto found = free_.find(bytes);
  if (found == free_.end()) return device_->create_buffer(bytes, readback_usage, name);
  Handle<WGPUBuffer> buffer = std::move(found->second);
  free_.erase(found);
  return buffer;
}

Readback::Readback(const Readable& readable, const SymbolValues& symbols, ReadbackPool& pool)
    : dtype(readable.dtype), sizes(evaluate(readable.shape, symbols)) {
  for (const Dim& stride : readable.strides) strides.push_back(stride.evaluate(symbols));
  const std::int64_t offset = readable.offset.evaluate(symbols), width = bits(dtype) / 8;
  const Span span = span_of(sizes, strides, offset);
  from = span.first * width / 4 * 4;
  bytes = whole_words(span.end * width - from);
  start = offset - from / width;
  buffer = pool.take(bytes, readable.name);
}

HostTensor Readback::read(GpuDevice& device) const {
  return gather(device.read(buffer, bytes), dtype, sizes, strides, start);
}

void give_back(Readbacks& readbacks, ReadbackPool& pool) {
  for (auto& [name, readback] : readbacks) pool.give_back(readback.bytes, std::move(readback.buffer));
  readbacks.clear();
}

GpuResults::~GpuResults() {
  const std::scoped_lock lock(device_->mutex());
  give_back(values_, *pool_);
}

HostTensor GpuResults::read(const std::string& name) {
  if (const auto found = known_.find(name); found != known_.end()) return found->second;
  const std::scoped_lock lock(device_->mutex());
  check_failure();
  HostTensor tensor = values_.at(name).read(*device_);
  known_.emplace(name, tensor);
  return tensor;
}

void GpuResults::check_failure() {
  const auto found = values_.find(failure);
  if (found == values_.end()) return;
  if (!has_failed_) {
    std::uint32_t word = 0;
    std::memcpy(&word, device_->read(found->second.buffer, sizeof word).data(), sizeof word);
    has_failed_ = word != 0;
  }
  if (!*has_failed_) return;
  *failed_ = true;
  throw DeviceError(
      "WebGPU: workgroups of one dispatch timed out waiting for each other, so this run and those after it did not "
      "finish; from now on each step is a separate dispatch. Reset the session's states, or load them again");
}

// Results are copied at the end of the run, so the arrival of the smallest one shows that it has ended; later runs may
// still be going.
void GpuResults::wait() {
  const std::scoped_lock lock(device_->mutex());
  check_failure();
  const auto bytes_of = [](const auto& value) { return value.second.bytes; };
  const auto smallest = std::ranges::min_element(values_, {}, bytes_of);
  if (smallest == values_.end() || smallest->second.bytes == 0) return device_->wait_for_all();
  device_->read(smallest->second.buffer, smallest->second.bytes);
}

}  // namespace jerboa::webgpu
