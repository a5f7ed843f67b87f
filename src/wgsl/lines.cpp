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

void add_shader_of_elements(KernelWriter& writer, Shader shader, const Dim& count, OperationShare operations) {
  writer.add(std::move(shader), groups_of(count, element_threads), operations);
}

void write_copy(KernelWriter& writer, const TensorAccess& from, const TensorAccess& to) {
  const Dim count = element_count(to.shape);
  Shader shader = shader_of_elements(writer, "copy", count);
  const auto indices = shader.split_index("element", to.shape);
  shader.store(to, indices, shader.load(from, indices));
  add_shader_of_elements(writer, std::move(shader), count);
}

}  // namespace jerboa::wgsl
