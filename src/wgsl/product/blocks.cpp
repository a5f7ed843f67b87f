#include "wgsl/product/epilogue.h"
#include "wgsl/product/writers.h"

namespace jerboa::wgsl {

// Each thread computes a block of 4 × 4 results, directly from memory.
void write_blocks(KernelWriter& writer, const MatmulProblem& problem) {
  constexpr int block = 4, threads = 64;
  Shader shader = writer.shader("matmul_blocks", threads);
  write_prologues(shader, problem);
  Epilogue(shader, writer.kernel(), problem).write();
  const Dim down = groups_of(problem.rows, block), across = groups_of(problem.columns, block);
  const Dim count = element_count(problem.batch) * down * across;
  shader.line("let number = group * {}u + lane;", threads);
  shader.line("if (number >= {}) {{ return; }}", shader.size(count));
  shader.line("let column = (number % {0}) * {1}u; let rest = number / {0};", shader.size(across), block);
  shader.line("let row = (rest % {0}) * {1}u; let batch = rest / {0};", shader.size(down), block);
  write_batch_offsets(shader, problem);
  // Rows and columns past the end repeat the last one, and are not stored.
  for (int i = 0; i < block; ++i) {
    shader.line("let row_{0} = min(row + {0}u, {1} - 1u);", i, shader.size(problem.rows));
    shader.line("let column_{0} = min(column + {0}u, {1} - 1u);", i, shader.size(problem.columns));
    shader.line("var sum_{} = vec4f();", i);
  }
  shader.open("for (var k = 0u; k < {}; k++) {{", shader.size(problem.inner));
  const auto b = [&](int i) {
    return read_operand(
        shader, problem, *problem.b, "b",
        place_in_matrix(shader, "b_start", "k", problem.b_inner, fmt::format("column_{}", i), problem.b_column));
  };
  const std::string first = b(0), second = b(1), third = b(2), fourth = b(3);
  shader.line("let b = vec4f({}, {}, {}, {});", first, second, third, fourth);
  for (int i = 0; i < block; ++i)
    shader.line("sum_{0} += {1} * b;", i,
                read_operand(
                    shader, problem, *problem.a, "a",
                    place_in_matrix(shader, "a_start", fmt::format("row_{}", i), problem.a_row, "k", problem.a_inner)));
  shader.close();
  for (int i = 0; i < block; ++i)
    for (int j = 0; j < block; ++j)
      shader.line(
          "if (row + {0}u < {2} && column + {1}u < {3}) {{ finish(batch, row + {0}u, column + {1}u, sum_{0}.{4}); }}",
          i, j, shader.size(problem.rows), shader.size(problem.columns), "xyzw"[j]);
  writer.add(shader, groups_of(count, threads));
}

}  // namespace jerboa::wgsl
