#include "wgsl/lines.h"

namespace jerboa::wgsl {
namespace {

constexpr int element_threads = 128;

}  // namespace

Shader shader_of_elements(const KernelWriter& writer, const std::string& name, const Dim& count) {
  Shader shader = writer.shader(name, element_threads);
  shader.line("let element = group * {}u + lane;", element_threads);
  shader.line("if (element >= {}) {{ return; }}", shader.size(count));
  return shader;
}

void add_shader_of_elements(KernelWriter& writer, Shader shader, const Dim& count) {
  writer.add(std::move(shader), groups_of(count, element_threads));
}

}  // namespace jerboa::wgsl
