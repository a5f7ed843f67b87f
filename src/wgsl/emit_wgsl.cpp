#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <map>
#include <string_view>

#include <jerboa/wgsl/emit_wgsl.h>

#include "base/browser_build.h"
#include "lower/verify_gpu.h"
#include "wgsl/write_steps.h"

namespace jerboa {

std::string print_gpu(const Program& program) {
  std::string text;
  for (std::size_t i = 0; i < program.gpu.shaders.size(); ++i)
    text += fmt::format("shader {} {}:\n{}\n", i, program.gpu.shaders[i].name, program.gpu.shaders[i].source);
  for (std::size_t i = 0; i < program.gpu.steps.size(); ++i) {
    const GpuStep& step = program.gpu.steps[i];
    text += fmt::format("step {}: {} of {} workgroups [", i,
                        step.shader < 0 ? "copy" : program.gpu.shaders[static_cast<std::size_t>(step.shader)].name,
                        step.workgroups.str());
    for (const auto& binding : step.bindings) text += fmt::format("{}{} ", binding.buffer, binding.written ? "w" : "");
    text += fmt::format("] {}\n", step.label);
  }
  return text;
}

void emit_wgsl(Program& program, const Target& target) {
  program.gpu = {};
  program.gpu.emitted = true;
  std::map<std::string, int> numbers;  // of shaders
  for (wgsl::WrittenStep& written : wgsl::write_steps(program, target)) {
    if (written.step.shader >= 0) {
      const ShaderSource& source = written.shader.source;
      const auto [found, is_new] = numbers.emplace(source.source, static_cast<int>(program.gpu.shaders.size()));
      if (is_new) program.gpu.shaders.push_back(source);
      written.step.shader = found->second;
    }
    program.gpu.steps.push_back(std::move(written.step));
  }
  if (detail::is_browser_build) return;
  detail::verify_gpu(program, program.gpu);
  const char* wanted = std::getenv("JERBOA_DUMP");
  if (wanted != nullptr && std::string_view(wanted).find("wgsl") != std::string_view::npos)
    fmt::print(stderr, "--- wgsl\n{}", print_gpu(program));
}

}  // namespace jerboa
