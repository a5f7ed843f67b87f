#include "wgsl/order_steps.h"

#include <algorithm>
#include <map>

namespace jerboa::wgsl {
namespace {

// Tensors of one arena share memory.
std::pair<int, int> memory_of(const Program& program, int number) {
  const Buffer& buffer = program.buffers[static_cast<std::size_t>(number)];
  return buffer.where == Buffer::Where::arena ? std::pair(1, buffer.arena) : std::pair(0, number);
}

// The waves in which memory was last read and written.
struct LastUse {
  int read = -1, written = -1;
};

}  // namespace

void order_steps(Program& program) {
  std::vector<GpuStep>& steps = program.gpu.steps;
  std::map<std::pair<int, int>, LastUse> last;
  std::vector<std::pair<int, std::size_t>> waves;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    int wave = 0;
    for (const GpuStep::Binding& binding : steps[i].bindings) {
      const LastUse& use = last[memory_of(program, binding.buffer)];
      wave = std::max({wave, use.written + 1, binding.written ? use.read + 1 : 0});
    }
    for (const GpuStep::Binding& binding : steps[i].bindings) {
      LastUse& use = last[memory_of(program, binding.buffer)];
      use.read = std::max(use.read, wave);
      if (binding.written) use.written = wave;
    }
    waves.emplace_back(wave, i);
  }
  std::sort(waves.begin(), waves.end());
  std::vector<GpuStep> ordered;
  for (const auto& [wave, number] : waves) ordered.push_back(std::move(steps[number]));
  steps = std::move(ordered);
}

}  // namespace jerboa::wgsl
