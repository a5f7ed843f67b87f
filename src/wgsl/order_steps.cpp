#include "wgsl/order_steps.h"

#include <algorithm>
#include <map>

namespace jerboa::wgsl {
namespace {

using Places = std::vector<std::vector<std::pair<int, int>>>;

// The memory that each buffer occupies, as (kind, number): tensors of one arena share it; each part of a buffer that
// contains others counts separately.
Places places_of(const Program& program) {
  constexpr int separate = 0, arena = 1, inside = 2;
  const auto is_in_arena = [](const Buffer& buffer) { return buffer.where == Buffer::Where::arena; };
  std::map<int, std::vector<std::pair<int, int>>> parts;  // by the arena, or by the buffer that they are within
  for (std::size_t i = 0; i < program.buffers.size(); ++i)
    if (const Buffer& buffer = program.buffers[i]; buffer.within >= 0)
      parts[is_in_arena(buffer) ? -1 - buffer.arena : buffer.within].emplace_back(inside, static_cast<int>(i));
  Places places;
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    const int number = static_cast<int>(i);
    if (buffer.within >= 0) {
      places.push_back({{inside, number}});
      continue;
    }
    places.push_back({is_in_arena(buffer) ? std::pair(arena, buffer.arena) : std::pair(separate, number)});
    if (const auto found = parts.find(is_in_arena(buffer) ? -1 - buffer.arena : number); found != parts.end())
      places.back().insert(places.back().end(), found->second.begin(), found->second.end());
  }
  return places;
}

// The waves in which memory was last read and written.
struct LastUse {
  int read = -1, written = -1;
};

}  // namespace

std::vector<int> waves_of(const Program& program, const std::vector<const GpuStep*>& steps) {
  const Places places = places_of(program);
  std::map<std::pair<int, int>, LastUse> last;
  std::vector<int> waves;
  for (const GpuStep* step : steps) {
    int wave = 0;
    for (const GpuStep::Binding& binding : step->bindings) {
      for (const auto& place : places[static_cast<std::size_t>(binding.buffer)]) {
        const LastUse& use = last[place];
        wave = std::max({wave, use.written + 1, binding.written ? use.read + 1 : 0});
      }
    }
    for (const GpuStep::Binding& binding : step->bindings) {
      for (const auto& place : places[static_cast<std::size_t>(binding.buffer)]) {
        LastUse& use = last[place];
        use.read = std::max(use.read, wave);
        if (binding.written) use.written = wave;
      }
    }
    waves.push_back(wave);
  }
  return waves;
}

}  // namespace jerboa::wgsl
