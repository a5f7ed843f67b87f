#include "wgsl/order_steps.h"

#include <algorithm>
#include <map>

namespace jerboa::wgsl {
namespace {

using Places = std::vector<std::vector<std::pair<int, int>>>;

// The memory that each buffer occupies, as (kind, number): tensors in one arena share it; each part of a buffer that
// contains others counts separately.
Places places_of(const Program& program) {
  constexpr int separate = 0, arena = 1, inside = 2;
  const auto is_in_arena = [](const Buffer& buffer) { return buffer.where == Buffer::Where::arena; };
  std::map<int, std::vector<std::pair<int, int>>> parts;  // by the arena, or by the buffer that contains them
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

std::vector<int> waves_of(const Program& program, const std::vector<const GpuStep*>& steps,
                          const std::vector<int>& beside) {
  const Places places = places_of(program);
  std::map<std::pair<int, int>, LastUse> last;
  const auto for_each_place = [&](const GpuStep& step, const auto& visit) {
    for (const GpuStep::Binding& binding : step.bindings)
      for (const auto& place : places[static_cast<std::size_t>(binding.buffer)]) visit(last[place], binding.written);
  };
  std::vector<int> waves;
  while (waves.size() < steps.size()) {
    const std::size_t begin = waves.size();
    std::size_t end = begin + 1;
    while (!beside.empty() && end < steps.size() && beside[begin] >= 0 && beside[end] == beside[begin]) ++end;
    for (std::size_t i = begin; i < end; ++i) {
      int wave = 0;
      for_each_place(*steps[i], [&](const LastUse& use, bool written) {
        wave = std::max({wave, use.written + 1, written ? use.read + 1 : 0});
      });
      waves.push_back(wave);
    }
    for (std::size_t i = begin; i < end; ++i)
      for_each_place(*steps[i], [&](LastUse& use, bool written) {
        use.read = std::max(use.read, waves[i]);
        if (written) use.written = std::max(use.written, waves[i]);
      });
  }
  return waves;
}

}  // namespace jerboa::wgsl
