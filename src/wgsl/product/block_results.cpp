#include "wgsl/product/block_results.h"

#include "wgsl/product/epilogue.h"

namespace jerboa::wgsl {
namespace {

// As many threads as a subgroup has, if most of them have a column and none is left without an inner element.
int sharing_lanes(const Target& target, const MatmulProblem& problem) {
  constexpr int most_lanes = 16;
  const int lanes = target.subgroup_size;
  if (!has_subgroups(target) || lanes > most_lanes || !is_multiple(problem.inner, lanes)) return 1;
  return problem.columns.upper_bound() * 2 >= lanes * BlockResults::columns ? lanes : 1;
}

}  // namespace

BlockResults::BlockResults(Shader& shader, const KernelSpec& kernel, const MatmulProblem& problem)
    : shader_(shader), problem_(problem), lanes_(sharing_lanes(shader.target(), problem)) {
  if (are_shared()) shader_.use_subgroups();
  Epilogue epilogue(shader_, kernel, problem_);
  in_fours_ = epilogue.can_take_four();
  in_fours_ ? epilogue.write_four() : epilogue.write();
}

// Threads past the last block repeat it and store nothing: the others of their subgroup need them.
Dim BlockResults::write_place() {
  const Dim down = groups_of(problem_.rows, rows), across = groups_of(problem_.columns, columns * lanes_);
  const Dim count = element_count(problem_.batch) * down * across;
  const int teams = shader_.threads() / lanes_;
  shader_.line("let wanted = group * {}u + lane / {}u; let is_block = wanted < {};", teams, lanes_,
               shader_.size(count));
  shader_.line("let number = min(wanted, {} - 1u);", shader_.size(count));
  shader_.line("let column = ((number % {0}) * {1}u + lane % {1}u) * {2}u; let rest = number / {0};",
               shader_.size(across), lanes_, columns);
  shader_.line("let row = (rest % {0}) * {1}u; let batch = rest / {0};", shader_.size(down), rows);
  for (int i = 0; i < rows; ++i) {
    shader_.line("let row_{0} = min(row + {0}u, {1} - 1u);", i, shader_.size(problem_.rows));
    shader_.line("var sum_{} = vec4f();", i);
  }
  for (int i = 0; i < columns; ++i)
    shader_.line("let column_{0} = min(column + {0}u, {1} - 1u);", i, shader_.size(problem_.columns));
  return groups_of(count, teams);
}

void BlockResults::write_results() {
  shader_.line("var sums: array<vec4f, {}>;", rows);
  for (int i = 0; i < rows; ++i) shader_.line("sums[{0}] = sum_{0};", i);
  shader_.open("if (is_block && column < {}) {{", shader_.size(problem_.columns));
  shader_.open("for (var i = 0u; i < {}; i++) {{",
               shader_.loop_end(fmt::format("min({}u, {} - row)", rows, shader_.size(problem_.rows))));
  if (in_fours_) {
    shader_.line("finish_four(batch, row + i, column, sums[i]);");
  } else {
    shader_.open("for (var j = 0u; j < {}; j++) {{",
                 shader_.loop_end(fmt::format("min({}u, {} - column)", columns, shader_.size(problem_.columns))));
    shader_.line("finish(batch, row + i, column + j, sums[i][j]);");
    shader_.close();
  }
  shader_.close();
  shader_.close();
}

}  // namespace jerboa::wgsl
