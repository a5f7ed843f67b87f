#include <algorithm>

#include "wgsl/product/epilogue.h"
#include "wgsl/product/writers.h"

namespace jerboa::wgsl {

// Several threads share one result.
void write_dots(KernelWriter& writer, const MatmulProblem& problem) {
  const Target& target = writer.target();
  // Threads follow the contiguous dimension: the inner elements of a row of weights, or the columns.
  const bool along_inner = problem.b_inner == Dim(1);
  const int threads = target.software ? 32 : 128;
  int lanes = 1;
  while (lanes < (along_inner ? std::min(threads, 32) : std::min(threads, 8)) &&
         std::int64_t{lanes} * 4 < problem.inner.upper_bound())
    lanes *= 2;
  const int results = threads / lanes;
  Shader shader = writer.shader("matrix_vector", threads);
  write_prologues(shader, problem);
  Epilogue(shader, writer.kernel(), problem).write();
  // Threads that share a result are adjacent, or in rows across the columns.
  shader.line("let part = {};", along_inner ? fmt::format("lane % {}u", lanes) : fmt::format("lane / {}u", results));
  const std::string number = along_inner ? fmt::format("lane / {}u", lanes) : fmt::format("lane % {}u", results);
  shader.line("let wanted = group * {}u + {};", results, number);
  const Dim count = element_count(problem.batch) * problem.rows * problem.columns;
  shader.line("let in_range = wanted < {};", shader.size(count));
  shader.line("let result = min(wanted, {} - 1u);", shader.size(count));
  shader.line("let column = result % {}; let row_of_all = result / {};", shader.size(problem.columns),
              shader.size(problem.columns));
  shader.line("let row = row_of_all % {}; let batch = row_of_all / {};", shader.size(problem.rows),
              shader.size(problem.rows));
  write_batch_offsets(shader, problem);
  shader.line("var sum = 0.0;");
  const bool fours = problem.halves && along_inner && problem.a_inner == Dim(1) && is_multiple(problem.inner, 4) &&
                     is_multiple(problem.a_row, 4) && is_multiple(problem.b_column, 4) &&
                     begins_in_fours(shader, *problem.a, problem.a_batch) &&
                     begins_in_fours(shader, *problem.b, problem.b_batch);
  const int step_inner = fours ? 4 : 1;
  shader.open("for (var k = part * {0}u; k < {1}; k += {2}u) {{", step_inner, shader.size(problem.inner),
              lanes * step_inner);
  const std::string a = place_in_matrix(shader, "a_start", "row", problem.a_row, "k", problem.a_inner),
                    b = place_in_matrix(shader, "b_start", "k", problem.b_inner, "column", problem.b_column);
  if (!fours)
    shader.line("sum += {} * {};", read_operand(shader, problem, *problem.a, "a", a),
                read_operand(shader, problem, *problem.b, "b", b));
  else if (problem.multiplies_in_f16)
    shader.line("sum += f32(dot({}, {}));", shader.load_four_halves(problem.a->binding, a),
                shader.load_four_halves(problem.b->binding, b));
  else
    shader.line("sum += dot({}, {});", shader.load_four(problem.a->binding, a),
                shader.load_four(problem.b->binding, b));
  shader.close();
  if (lanes > 1) {
    shader.shared_array("parts", "f32", threads);
    shader.line("parts[lane] = sum;");
    const int step_size = along_inner ? 1 : results;
    for (int step = lanes / 2; step > 0; step /= 2) {
      shader.barrier();
      shader.line("if (part < {}u) {{ sum += parts[lane + {}u]; parts[lane] = sum; }}", step, step * step_size);
    }
  }
  shader.line("if (in_range && part == 0u) {{ finish(batch, row, column, sum); }}");
  writer.add(shader, groups_of(count, results), all_operations);
}

}  // namespace jerboa::wgsl
