#include "wgsl/dequantise.h"
#include "wgsl/implicit_product.h"
#include "wgsl/lines.h"
#include "wgsl/product/quantised.h"
#include "wgsl/whole_kernels.h"

// Products whose rows, or inner elements, belong to groups that only the device knows: shaders are dispatched for the
// largest possible number of tiles and find theirs from the offsets.
namespace jerboa::wgsl {
namespace {

std::string offset(Shader& shader, const TensorAccess& offsets, const std::string& number) {
  return fmt::format("u32(max(i32({}), 0i))", shader.load(offsets, {number}));
}

// `let begin` and `let end`: the rows of group `number`, within all rows.
void write_group_rows(Shader& shader, const TensorAccess& offsets, const std::string& number, const Dim& rows) {
  const std::string all = shader.size(rows);
  shader.line("let begin = min({}, {});", offset(shader, offsets, number), all);
  shader.line("let end = clamp({}, begin, {});", offset(shader, offsets, number + " + 1u"), all);
}

// Zeroes the rows before the first group and after the last. There are none in between: a group ends where the next
// begins.
void write_zeros(KernelWriter& writer, const TensorAccess& offsets, const Dim& groups) {
  const TensorAccess& out = writer.kernel().results[0];
  const Dim count = element_count(out.shape);
  Shader shader = shader_of_elements(writer, "grouped_zeros", count);
  shader.line("let row = element / {0}; let column = element % {0};", shader.size(out.shape[1]));
  shader.line("if (row >= {} && row < {}) {{ return; }}", offset(shader, offsets, "0u"),
              offset(shader, offsets, shader.size(groups)));
  shader.store(out, {"row", "column"}, "0.0");
  add_shader_of_elements(writer, std::move(shader), count);
}

// Multiplies the rows of operand 0, group by group, by the matrix `batch` of `b`.
void write_grouped(KernelWriter& writer, const std::string& name, const TensorAccess& offsets, const Dim& groups,
                   ImplicitProduct::Operand b) {
  const TensorAccess &x = writer.kernel().operands[0], &out = writer.kernel().results[0];
  const Dim& rows = x.shape[0];
  write_zeros(writer, offsets, groups);
  ImplicitProduct product;
  product.name = name;
  product.batch = 1;
  product.rows = rows;
  product.columns = out.shape[1];
  product.inner = x.shape[1];
  product.rows_of_tiles = [&](int tile_rows) { return groups_of(rows, tile_rows) + groups; };
  product.find = [&](Shader& shader, const std::string& number, int tile_rows) -> ImplicitProduct::Place {
    shader.line("var tiles = {}; var batch = 0u; var first_row = 0u; var row_end = 0u;", number);
    shader.open("for (var number = 0u; number < {}; number++) {{", shader.loop_end(shader.size(groups)));
    write_group_rows(shader, offsets, "number", rows);
    shader.line("let group_tiles = (end - begin + {0}u) / {1}u;", tile_rows - 1, tile_rows);
    shader.open("if (tiles < group_tiles) {{");
    shader.line("batch = number; first_row = begin + tiles * {}u; row_end = end;", tile_rows);
    shader.line("break;");
    shader.close();
    shader.line("tiles -= group_tiles;");
    shader.close();
    return {"first_row", "row_end", "0u", shader.size(product.inner)};
  };
  product.a = {[&](Shader& shader, const std::string& row) -> ImplicitProduct::Element {
                 return [&shader, &x, row](const std::string& k) { return shader.load(x, {row, k}); };
               },
               true};
  product.b = std::move(b);
  product.finish = [&](Shader& shader, const std::string&, const std::string& row, const std::string& column,
                       const std::string& sum) {
    shader.store(out, {row, column}, sum);
  };
  write_product(writer, product);
}

}  // namespace

template <>
void write_whole_op<Op::matmul_grouped>(KernelWriter& writer) {
  const KernelSpec& kernel = writer.kernel();
  const TensorAccess& w = kernel.operands[1];
  const bool transposed = std::get<GroupedAttrs>(kernel.attrs).transpose_b;
  write_grouped(writer, "matmul_grouped", kernel.operands[2], w.shape[0],
                {[&](Shader& shader, const std::string& column) -> ImplicitProduct::Element {
                   return [&shader, &w, column, transposed](const std::string& k) {
                     return shader.load(w, transposed ? std::vector<std::string>{"batch", column, k}
                                                      : std::vector<std::string>{"batch", k, column});
                   };
                 },
                 transposed});
}

// Weights become floats as they are stored in the tile.
template <>
void write_whole_op<Op::matmul_grouped_quantised>(KernelWriter& writer) {
  const KernelSpec& kernel = writer.kernel();
  if (write_quantised_groups(writer)) return;
  const QuantisedWeight w(kernel, 1);
  write_grouped(writer, "matmul_grouped_quantised", kernel.operands[4], w.weight.shape[0],
                {[&](Shader& shader, const std::string& column) -> ImplicitProduct::Element {
                   const std::string first =
                       shader.let("first", fmt::format("(batch * {} + {}) * {}", shader.size(w.weight.shape[1]), column,
                                                       shader.size(w.weight.shape[2])));
                   return [&shader, &w, first](const std::string& k) {
                     return w.value(shader, shader.let("index", fmt::format("{} + {}", first, k)));
                   };
                 },
                 true});
}

template <>
void write_whole_op<Op::matmul_grouped_weight_grad>(KernelWriter& writer) {
  const KernelSpec& kernel = writer.kernel();
  const TensorAccess &x = kernel.operands[0], &dy = kernel.operands[1], &offsets = kernel.operands[2],
                     &out = kernel.results[0];
  ImplicitProduct product;
  product.name = "matmul_grouped_weight_grad";
  product.batch = out.shape[0];
  product.rows = out.shape[1];
  product.columns = out.shape[2];
  product.inner = x.shape[0];
  product.rows_of_tiles = [&](int tile_rows) { return product.batch * groups_of(product.rows, tile_rows); };
  product.find = [&](Shader& shader, const std::string& number, int tile_rows) -> ImplicitProduct::Place {
    shader.line("let batch = {0} / {1}; let first_row = ({0} % {1}) * {2}u;", number,
                shader.size(groups_of(product.rows, tile_rows)), tile_rows);
    write_group_rows(shader, offsets, "batch", product.inner);
    return {"first_row", shader.size(product.rows), "begin", "end"};
  };
  product.a.at = [&](Shader& shader, const std::string& row) -> ImplicitProduct::Element {
    return [&shader, &x, row](const std::string& k) { return shader.load(x, {k, row}); };
  };
  product.b.at = [&](Shader& shader, const std::string& column) -> ImplicitProduct::Element {
    return [&shader, &dy, column](const std::string& k) { return shader.load(dy, {k, column}); };
  };
  product.finish = [&](Shader& shader, const std::string& batch, const std::string& row, const std::string& column,
                       const std::string& sum) {
    shader.store(out, {batch, row, column}, sum);
  };
  write_product(writer, product);
}

}  // namespace jerboa::wgsl
