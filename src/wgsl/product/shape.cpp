#include "wgsl/product/shape.h"

#include <fmt/format.h>

#include "wgsl/product/problem.h"

namespace jerboa::wgsl {
namespace {

using Kind = MatmulForm::Kind;

DType multiplied_type(const TensorAccess& operand) {
  return operand.prologue.empty() ? operand.dtype : operand.prologue.back().dtype;
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::dots: return "dots";
    case Kind::vectors: return "vectors";
    case Kind::blocks: return "blocks";
    case Kind::tiles: return "tiles";
    case Kind::matrices: return "matrices";
  }
  return "";
}

}  // namespace

std::string ProductShape::str() const {
  std::string text = fmt::format("{}x{}x{} {}", rows, inner, columns, name(a));
  if (a != b) text += fmt::format(" x {}{}", name(b), mins ? " with minimums" : "");
  if (transpose_a) text += ", transposed a";
  if (transpose_b) text += ", transposed b";
  if (products > 1) text += fmt::format(", {} at once", products);
  return text;
}

std::optional<ProductShape> shape_of(const MatmulProblem& problem) {
  if (!problem.batch.empty() || problem.offsets != nullptr) return std::nullopt;
  return ProductShape{.a = multiplied_type(*problem.a),
                      .b = multiplied_type(*problem.b),
                      .mins = problem.mins != nullptr,
                      .transpose_a = !(problem.a_inner == Dim(1)),
                      .transpose_b = problem.b_inner == Dim(1) && !(problem.b_column == Dim(1)),
                      .rows = problem.rows.upper_bound(),
                      .inner = problem.inner.upper_bound(),
                      .columns = problem.columns.upper_bound(),
                      .products = problem.products};
}

std::string describe(const QuantisedForm& form) {
  return fmt::format("{} results, {} teams of {} threads{}", form.results, form.teams, form.team,
                     form.halves ? ", in f16" : "");
}

std::string describe(const MatmulForm& form) {
  std::string text = name_of(form.kind);
  if (form.kind == Kind::vectors)
    return text + fmt::format(", {} columns at once, {} threads each", form.part_columns, form.lanes);
  if (form.kind != Kind::tiles && form.kind != Kind::matrices) return text;
  text += fmt::format(" of {}x{}x{}, parts of {}x{}", form.rows, form.columns, form.inner, form.part_rows,
                      form.part_columns);
  if (form.two_buffers) text += ", two buffers";
  if (form.unrolled) text += ", unrolled";
  if (form.ahead > 0) text += fmt::format(", {} ahead", form.ahead);
  if (form.teams > 1) text += fmt::format(", {} teams", form.teams);
  if (form.chunks > 1) text += fmt::format(", {} chunks", form.chunks);
  return text;
}

bool suits(const Target& target, const MatmulProblem& problem, const MatmulForm& form) {
  if ((form.kind == Kind::vectors) != problem.suits_vectors) return false;
  if (form.kind == Kind::vectors)
    return bytes_of_vectors(target, form, problem.rows.upper_bound(), problem.products, problem.row_totals) <=
           target.workgroup_bytes;
  if (form.kind == Kind::matrices) return problem.suits_matrices;
  return form.kind != Kind::tiles || (form.workgroup_bytes(problem.halves ? 2 : 4) <= target.workgroup_bytes &&
                                      !(problem.halves && (form.teams > 1 || form.ahead > 0)));
}

}  // namespace jerboa::wgsl
