#include "backend/cpu/guard.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>

#include <jerboa/base/error.h>

namespace jerboa::cpu {
namespace {

// Byte pairs that are a signalling NaN as f32 and a NaN as f16, which no arithmetic produces.
constexpr std::uint16_t poison_bits = 0x7fa5;

void fill_with_poison(std::byte* begin, const std::byte* end) {
  for (; end - begin >= 2; begin += 2) std::memcpy(begin, &poison_bits, sizeof(poison_bits));
}

}  // namespace

Guard::Guard(const Program& program, SymbolValues symbols, std::vector<std::byte*> memory,
             std::vector<Region> persistent, const std::vector<Region>& scratch)
    : program_(program), symbols_(std::move(symbols)), memory_(std::move(memory)), regions_(std::move(persistent)) {
  for (const Region& region : scratch) {
    fill_with_poison(region.data, region.data + region.bytes);
    regions_.push_back(region);
  }
  for (const Region& region : regions_) known_.emplace_back(region.data, region.data + region.bytes);
}

Guard::Range Guard::range_of(int buffer) const {
  const Buffer& tensor_buffer = program_.buffers[static_cast<std::size_t>(buffer)];
  std::byte* begin = memory_[static_cast<std::size_t>(buffer)];
  return {begin, begin + tensor_buffer.elements.evaluate(symbols_) * bits(tensor_buffer.dtype) / 8};
}

std::vector<int> Guard::written_by(std::size_t dispatch) const {
  std::vector<int> buffers;
  for (const Dispatch::Part& part : program_.cpu.dispatches[dispatch].parts) {
    const auto written = written_bindings(program_.cpu.kernels[static_cast<std::size_t>(part.kernel)]);
    for (std::size_t i = 0; i < written.size(); ++i)
      if (written[i]) buffers.push_back(part.buffers[i]);
  }
  return buffers;
}

bool Guard::begins_life(int buffer, std::size_t dispatch) const {
  const Buffer& tensor_buffer = program_.buffers[static_cast<std::size_t>(buffer)];
  return tensor_buffer.where == Buffer::Where::arena && tensor_buffer.first == static_cast<int>(dispatch);
}

void Guard::remember(const Range& range) {
  for (std::size_t i = 0; i < regions_.size(); ++i)
    if (regions_[i].data <= range.begin && range.end <= regions_[i].data + regions_[i].bytes)
      std::copy(range.begin, range.end, known_[i].begin() + (range.begin - regions_[i].data));
}

void Guard::poison(const Range& range) {
  fill_with_poison(range.begin, range.end);
  remember(range);
}

void Guard::before(std::size_t dispatch) {
  for (const int buffer : written_by(dispatch))
    if (begins_life(buffer, dispatch)) poison(range_of(buffer));
}

void Guard::after(std::size_t dispatch) {
  const auto written = written_by(dispatch);
  std::vector<Range> ranges;
  ranges.reserve(written.size());
  for (const int buffer : written) ranges.push_back(range_of(buffer));
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (std::size_t i = 0; i < regions_.size(); ++i) expect_unchanged(i, ranges, dispatch);
  for (const Range& range : ranges) remember(range);
  for (const int buffer : written)
    if (begins_life(buffer, dispatch)) expect_whole(buffer, dispatch);
  for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (buffer.where == Buffer::Where::arena && buffer.last == static_cast<int>(dispatch))
      poison({memory_[i], memory_[i] + buffer.bytes});
  }
}

void Guard::expect_unchanged(std::size_t region, std::vector<Range> ranges, std::size_t dispatch) const {
  const auto& [name, data, bytes] = regions_[region];
  ranges.push_back({data + bytes, data + bytes});
  std::byte* at = data;
  for (const Range& range : ranges) {
    std::byte* const end = std::clamp(range.begin, at, data + bytes);
    const std::byte* wanted = known_[region].data() + (at - data);
    if (end != at && std::memcmp(at, wanted, static_cast<std::size_t>(end - at)) != 0)
      throw GraphError(fmt::format("{} wrote outside its results: {}", describe(dispatch),
                                   owner_of(regions_[region], std::mismatch(at, end, wanted).first, dispatch)));
    at = std::clamp(range.end, at, data + bytes);
  }
}

void Guard::expect_whole(int buffer, std::size_t dispatch) const {
  const auto [begin, end] = range_of(buffer);
  const std::int64_t size = bits(program_.buffers[static_cast<std::size_t>(buffer)].dtype) / 8;
  for (const std::byte* at = begin; at < end; at += size) {
    std::uint16_t pairs[2] = {poison_bits, poison_bits};
    std::memcpy(pairs, at, static_cast<std::size_t>(size));
    if (pairs[0] == poison_bits && pairs[1] == poison_bits)
      throw GraphError(fmt::format("{} did not write element {} of {}", describe(dispatch), (at - begin) / size,
                                   program_.buffers[static_cast<std::size_t>(buffer)].name));
  }
}

std::string Guard::owner_of(const Region& region, const std::byte* place, std::size_t dispatch) const {
  for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    const bool alive = buffer.where != Buffer::Where::arena ||
                       (buffer.first <= static_cast<int>(dispatch) && static_cast<int>(dispatch) <= buffer.last);
    if (alive && memory_[i] != nullptr && memory_[i] <= place && place < memory_[i] + buffer.bytes)
      return fmt::format("byte {} of {}", place - memory_[i], buffer.name);
  }
  return fmt::format("byte {} of {}, where no buffer is", place - region.data, region.name);
}

std::string Guard::describe(std::size_t dispatch) const {
  return fmt::format("dispatch {} ({})", dispatch, program_.cpu.dispatches[dispatch].parts[0].label);
}

}  // namespace jerboa::cpu
