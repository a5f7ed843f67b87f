#include "wgsl/product/row_scales.h"

namespace jerboa::wgsl {

// Magnitudes are compared by their bits, which also finds those that a device flushes to zero. The scale's exponent and
// that of its inverse are those of normal numbers.
RowScales::RowScales(KernelWriter& writer, const MatmulProblem& problem)
    : memory_(writer.workspace(DType::f32, problem.rows)) {
  constexpr int threads = 128;
  Shader shader = writer.shader("row_scales", threads);
  write_prologue(shader, *problem.a, "a");
  shader.shared_array("peak", "atomic<u32>", 1);
  shader.line("if (lane == 0u) {{ atomicStore(&peak[0], 0u); }}");
  shader.line("let start = {};", shader.place(problem.a->offset, {problem.a_row}, {"group"}));
  shader.line("var magnitudes = vec4u();");
  shader.open("for (var k = lane * 4u; k < {}; k += {}u) {{", shader.size(problem.inner), threads * 4);
  const std::string four = read_four_of_operand(shader, *problem.a, "a", "start + k");
  shader.line("magnitudes = max(magnitudes, bitcast<vec4u>({}) & vec4u(0x7fffffffu));", four);
  shader.close();
  shader.barrier();
  shader.line("let largest = max(magnitudes.xy, magnitudes.zw);");
  shader.line("atomicMax(&peak[0], max(largest.x, largest.y));");
  shader.barrier();
  shader.open("if (lane == 0u) {{");
  shader.store(memory_, "group", "bitcast<f32>(min(268u - (atomicLoad(&peak[0]) >> 23u), 253u) << 23u)");
  shader.close();
  writer.add(std::move(shader), problem.rows);
}

std::string RowScales::scale(Shader& shader, const std::string& row) const { return shader.load(memory_, row); }

std::string RowScales::inverse(Shader& shader, const std::string& row) const {
  return fmt::format("bitcast<f32>(0x7f000000u - bitcast<u32>({}))", shader.load(memory_, row));
}

}  // namespace jerboa::wgsl
