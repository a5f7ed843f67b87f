#include "wgsl/subgroup_matrix.h"

namespace jerboa::wgsl {
namespace {

const char* text_of(MatrixWriter::Kind kind) { return kind == MatrixWriter::Kind::left ? "left" : "right"; }

}  // namespace

MatrixWriter::MatrixWriter(Shader& shader)
    : shader_(shader), emulated_(shader.target().subgroup_matrices == SubgroupMatrices::emulated) {
  if (!emulated_) {
    shader.use_subgroup_matrices();
    return;
  }
  shader.use_f16();
  // Compilers must not know the trip counts of loops: with all of them unrolled, software drivers take minutes.
  shader.declare("var<private> sixteen: u32;\n");
  shader.line("sixteen = 16u + (group >> 31u);");  // which no compiler can know to be 16
  shader.line("let subgroup = lane / {0}u; let subgroup_lane = lane % {0}u;", subgroup_size);
}

void MatrixWriter::declare_sums(const std::string& name) {
  // Not `var NAME: TYPE;`, which would keep its value from the loop's last iteration.
  shader_.line("var {} = {}();", name, emulated_ ? "array<f32, 8>" : "subgroup_matrix_result<f32, 16, 16>");
}

void MatrixWriter::clear_sums(const std::string& name) {
  shader_.line("{} = {}();", name, emulated_ ? "array<f32, 8>" : "subgroup_matrix_result<f32, 16, 16>");
}

void MatrixWriter::load(Kind kind, Order order, const std::string& name, const Place& place) {
  if (emulated_)
    shader_.line("var {} = {}({}, {}u, subgroup_lane);", name, load_function(kind, order, place.array), place.start,
                 place.pitch);
  else
    shader_.line("let {} = subgroupMatrixLoad<subgroup_matrix_{}<f16, 16, 16>, {}>(&{}, {}, {}u);", name, text_of(kind),
                 order == Order::rows ? "row_major" : "col_major", place.array, place.start, place.pitch);
}

void MatrixWriter::multiply(const std::string& left, const std::string& right, const std::string& sums) {
  if (!emulated_) {
    shader_.line("{2} = subgroupMatrixMultiplyAccumulate({0}, {1}, {2});", left, right, sums);
    return;
  }
  shader_.declare(
      "fn multiply_matrices(left: ptr<function, array<f32, 16>>, right: ptr<function, array<f32, 128>>,\n"
      "                     sums: ptr<function, array<f32, 8>>) {\n"
      "  for (var i = 0u; i < sixteen * 8u; i++) { (*sums)[i % 8u] += (*left)[i / 8u] * (*right)[i]; }\n}\n");
  shader_.line("multiply_matrices(&{}, &{}, &{});", left, right, sums);
}

void MatrixWriter::store(const std::string& sums, const Place& place) {
  if (emulated_)
    shader_.line("{}({}, {}u, subgroup_lane, {});", store_function(place.array), place.start, place.pitch, sums);
  else
    shader_.line("subgroupMatrixStore<row_major>(&{}, {}, {}, {}u);", place.array, place.start, sums, place.pitch);
}

// Thread i has the sums of row i / 2, columns i % 2 * 8 … + 7: it needs that row of a left matrix, and those columns of
// a right one.
std::string MatrixWriter::load_function(Kind kind, Order order, const std::string& array) {
  std::string name = fmt::format("load_{}_by_{}_{}", text_of(kind), order == Order::rows ? "rows" : "columns", array);
  const bool left = kind == Kind::left, by_rows = order == Order::rows;
  const std::string row = left ? "lane / 2u" : "i / 8u", column = left ? "i" : "(lane % 2u * 8u + i % 8u)";
  const int count = left ? 16 : 128;
  shader_.declare(fmt::format(
      "fn {}(start: u32, pitch: u32, lane: u32) -> array<f32, {}> {{\n"
      "  var matrix: array<f32, {}>;\n"
      "  for (var i = 0u; i < {}; i++) {{ matrix[i] = f32({}[start + {} * pitch + {}]); }}\n"
      "  return matrix;\n}}\n",
      name, count, count, left ? "sixteen" : "sixteen * 8u", array, by_rows ? row : column, by_rows ? column : row));
  return name;
}

std::string MatrixWriter::store_function(const std::string& array) {
  std::string name = fmt::format("store_matrix_{}", array);
  shader_.declare(
      fmt::format("fn {}(start: u32, pitch: u32, lane: u32, sums: array<f32, 8>) {{\n"
                  "  var elements = sums;\n"
                  "  for (var i = 0u; i < sixteen / 2u; i++) {{ {}[start + lane / 2u * pitch + lane % 2u * 8u + i] = "
                  "elements[i]; }}\n}}\n",
                  name, array));
  return name;
}

}  // namespace jerboa::wgsl
