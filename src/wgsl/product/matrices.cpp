#include <algorithm>
#include <optional>

#include "base/integers.h"
#include "wgsl/product/epilogue.h"
#include "wgsl/product/row_scales.h"
#include "wgsl/product/writers.h"
#include "wgsl/subgroup_matrix.h"

// Products of f16 by subgroups, which multiply 16×16 matrices and accumulate in f32. A workgroup's tiles of the
// operands keep their memory layout in workgroup memory, along the inner dimension or across it, and are loaded as
// row-major or column-major matrices. Each subgroup then writes its results to workgroup memory matrix by matrix, from
// where its threads read them, apply the epilogue and store four at a time.
//
// Indices stay in bounds for any sizes: reads past an operand's last four elements are clamped to them. They belong to
// rows and columns that are not stored; inner elements past the end are zeroed. An operand whose lines
// do not begin at multiples of four is read element by element.
//
// A quantised second operand is fetched as words, and becomes f16 on the way into its tile. The first may be f32 then:
// each of its rows is scaled to the range of f16, and its results are scaled back.
namespace jerboa::wgsl {
namespace {

constexpr int matrix = MatrixWriter::size;

// Two workgroups of this size fit on an NVIDIA multiprocessor, which runs at half speed with one.
constexpr int good_workgroup_bytes = 24576;

// One operand: a tile is `width` of its rows (of the second operand: columns) and form.inner deep.
struct Operand {
  const char* name;
  const TensorAccess* tensor;
  int width;
  const char* tile_start;  // the first of its rows or columns
  Dim count, stride, inner_stride;
  int inner;      // of a tile
  int threads;    // that fetch it
  int padding;    // after each line of a tile
  bool in_fours;  // whether four elements can be read at once

  bool along_inner() const { return inner_stride == Dim(1) && !(stride == Dim(1)); }
  int lines() const { return along_inner() ? width : inner; }
  int line_length() const { return along_inner() ? inner : width; }
  const Dim& line_stride() const { return along_inner() ? stride : inner_stride; }
  int pitch() const { return line_length() + padding; }
  int size() const { return lines() * pitch(); }
  int fours() const { return line_length() / 4; }  // of a line
  int unit() const { return in_fours ? 4 : 1; }    // elements that an index counts
  int lines_at_once() const { return threads / fours(); }
  int fetches() const { return lines() / lines_at_once(); }
};

class MatrixMatmul {
 public:
  MatrixMatmul(KernelWriter& writer, const MatmulProblem& problem, const MatmulForm& form)
      : writer_(writer),
        problem_(problem),
        form_(form),
        a_{"a",        problem.a,      form.rows,    "tile_row",        problem.rows, problem.a_row, problem.a_inner,
           form.inner, form.threads(), form.padding, problem.a_in_fours},
        b_{"b",
           problem.b,
           form.columns,
           "tile_column",
           problem.columns,
           problem.b_column,
           problem.b_inner,
           form.inner,
           form.threads(),
           form.padding,
           problem.b_in_fours} {
    // No chunk may be empty.
    form_.chunks = detail::divide_up(steps(), steps_of_chunk());
    if (form_.chunks > 1) partials_.emplace(writer, problem, form_.chunks);
    if (problem.scales_rows) scales_.emplace(writer, problem);
    shader_.emplace(writer.shader("matmul_matrices", form.threads()));
  }

  void write() {
    Shader& shader = *shader_;
    if (form_.ahead > 0 && !writer_.memories_overlap()) shader.keep_loads_in_place();
    declare();
    write_prologues(shader, problem_);
    write_finish();
    const Dim workgroups = write_tile_place(shader, problem_, form_);
    write_batch_offsets(shader, problem_);
    shader.line("let part_row = subgroup / {0}u * {1}u; let part_column = subgroup % {0}u * {2}u;", form_.across(),
                form_.part_rows, form_.part_columns);
    write_product();
    write_results();
    writer_.add(std::move(shader), workgroups, all_operations);
    if (partials_) partials_->write_sum(writer_);
  }

 private:
  static std::string sum_of(int i, int j) { return fmt::format("sum_{}_{}", i, j); }
  static std::string matrix_of(const Operand& operand, int number) {
    return fmt::format("{}_matrix_{}", operand.name, number);
  }
  int rows_of_matrices() const { return form_.part_rows / matrix; }
  int columns_of_matrices() const { return form_.part_columns / matrix; }
  std::int64_t steps() const { return detail::divide_up(problem_.inner.value(), form_.inner); }
  std::int64_t steps_of_chunk() const { return detail::divide_up(steps(), form_.chunks); }
  bool ends_within_tile() const { return !is_multiple(problem_.inner, form_.inner); }
  // Whether fetched lines may be past the operand's last.
  bool checks(const Operand& operand) const { return !is_multiple(operand.count, operand.width) || ends_within_tile(); }
  int subgroups() const { return form_.threads() / MatrixWriter::subgroup_size; }
  // f32 elements in a row of results, padded if that leaves room for a second workgroup.
  int staged_pitch() const {
    const int padded = matrix + 4;
    const int bytes = 2 * (a_.size() + b_.size()) + 4 * subgroups() * matrix * padded;
    return bytes <= good_workgroup_bytes ? padded : matrix;
  }

  void declare() {
    Shader& shader = *shader_;
    shader.shared_array("tile_a", "f16", a_.size());
    shader.shared_array("tile_b", "f16", b_.size());
    shader.shared_array("staged", "f32", std::int64_t{subgroups()} * matrix * staged_pitch());
    matrices_.emplace(shader);
  }

  // Declares what the thread fetches: its first offset in the operand and in the tile, valid for the whole loop.
  void prepare(const Operand& operand) {
    Shader& shader = *shader_;
    shader.line("let {}_four = lane % {}u;", operand.name, operand.fours());
    // Rows of 64 bytes are distributed so that half a subgroup's 8-byte stores cover all banks of workgroup memory.
    const std::string line = fmt::format("lane / {}u", operand.fours());
    shader.line("let {}_line = {};", operand.name,
                operand.line_length() == 32 && operand.lines_at_once() % 8 == 0
                    ? fmt::format("(({0}) & ~7u) | ((({0}) & 1u) << 2u) | ((({0}) >> 1u) & 3u)", line)
                    : line);
    const std::string first = operand.along_inner() ? fmt::format("({} + {}_line)", operand.tile_start, operand.name)
                                                    : fmt::format("(first_inner + {}_line)", operand.name);
    const std::string in_line = operand.along_inner() ? "first_inner" : operand.tile_start;
    const std::string line_stride = shader.size(operand.line_stride());
    if (operand.in_fours)
      shader.line("var {0}_at = ({0}_start + {1} * {2} + {3}) / 4u + {0}_four;", operand.name, first, line_stride,
                  in_line);
    else
      shader.line("var {0}_at = {0}_start + {1} * {2} + {3} + {0}_four * 4u;", operand.name, first, line_stride,
                  in_line);
    shader.line("let {0}_put = {0}_line * {1}u + {0}_four * 4u;", operand.name, operand.pitch());
    if (checks(operand))
      shader.line("let {0}_last = ({0}_start + {1}) / {2}u;", operand.name,
                  shader.place(Dim(0), {operand.stride, operand.inner_stride},
                               {fmt::format("({} - 1u)", shader.size(operand.count)),
                                fmt::format("({} - 1u)", shader.size(problem_.inner))}),
                  operand.unit());
    if (is_quantised(operand)) {
      for (int i = 0; i < operand.fetches(); ++i)
        shader.line("var {0}_{1} = 0u; var scale_{1} = 0.0; var min_{1} = 0.0;", operand.name, i);
      return;
    }
    for (int i = 0; scales_rows(operand) && i < operand.fetches(); ++i)
      shader.line("let row_scale_{} = {};", i,
                  scales_->scale(shader, fmt::format("min({} + {}u, {} - 1u)", first, operand.lines_at_once() * i,
                                                     shader.size(operand.count))));
    for (int i = 0; i < operand.fetches(); ++i)
      shader.line("var {}_{} = {}();", operand.name, i, type_of_fetched(operand));
  }

  void fetch(const Operand& operand) {
    const std::int64_t line_step = operand.line_stride().value() * operand.lines_at_once() / operand.unit();
    for (int i = 0; i < operand.fetches(); ++i) {
      std::string at = fmt::format("{}_at", operand.name);
      if (i > 0) at += fmt::format(" + {}u", line_step * i);
      if (!operand.in_fours) {
        fetch_elements(operand, i, at);
        continue;
      }
      if (checks(operand)) at = fmt::format("min({}, {}_last)", at, operand.name);
      if (is_quantised(operand)) {
        fetch_quantised(operand, i, at);
        continue;
      }
      shader_->line("{}_{} = {};", operand.name, i, shader_->load_words(operand.tensor->binding, at));
    }
  }

  void fetch_elements(const Operand& operand, int i, const std::string& at) {
    std::string values = std::string(type_of_fetched(operand)) + "(vec4f(";
    for (int k = 0; k < 4; ++k) {
      std::string element = k == 0 ? at : fmt::format("{} + {}u", at, k);
      if (checks(operand)) element = fmt::format("min({}, {}_last)", element, operand.name);
      values += (k == 0 ? "" : ", ") + shader_->load(operand.tensor->binding, element);
    }
    shader_->line("{}_{} = {}));", operand.name, i, values);
  }

  static const char* type_of_fetched(const Operand& operand) {
    if (operand.tensor->dtype != DType::f16) return "vec4f";
    if (operand.in_fours) return "vec2u";
    return operand.tensor->prologue.empty() ? "vec4<f16>" : "vec4f";
  }

  bool scales_rows(const Operand& operand) const { return &operand == &a_ && scales_.has_value(); }
  bool is_quantised(const Operand& operand) const { return &operand == &b_ && problem_.scales != nullptr; }

  // Fetches four weights, in bytes or in nibbles of a word, with the scale and minimum of their group. `at` counts
  // fours.
  void fetch_quantised(const Operand& operand, int i, const std::string& at) {
    const std::string four = shader_->let("four", at), group = fmt::format("{} / 8u", four);
    const bool nibbles = operand.tensor->dtype == DType::i4;
    const std::string block = nibbles ? group : fmt::format("{} / 4u", four);
    shader_->line("{}_{} = {}[{} % 4u];", operand.name, i, shader_->load_block(operand.tensor->binding, block), four);
    shader_->line("scale_{} = {};", i, shader_->load(problem_.scales->binding, group));
    if (problem_.mins != nullptr) shader_->line("min_{} = {};", i, shader_->load(problem_.mins->binding, group));
  }

  // Of eight such words, the first four are the low nibbles of a group, the others the high ones.
  std::string dequantised(const Operand& operand, int i) const {
    std::string integers = fmt::format("vec4f(unpack4xI8({}_{}))", operand.name, i);
    if (operand.tensor->dtype == DType::i4)
      integers =
          fmt::format("(vec4f(unpack4xU8(({0}_{1} >> ({0}_four / 4u * 4u)) & 0x0f0f0f0fu)) - 8.0)", operand.name, i);
    return fmt::format("vec4<f16>({} * scale_{} + min_{})", integers, i, i);
  }

  // Stores the fetched elements as f16, for the tile that begins at inner element `k`.
  void put_into_tile(const Operand& operand) {
    for (int i = 0; i < operand.fetches(); ++i) {
      std::string four = fmt::format("{}_{}", operand.name, i);
      const bool half = operand.tensor->dtype == DType::f16, prepared = !operand.tensor->prologue.empty();
      if (half && operand.in_fours) four = fmt::format("bitcast<vec4<f16>>({})", four);
      if (prepared)
        four = fmt::format("prepare_four_{}({})", operand.name, half ? fmt::format("vec4f({})", four) : four);
      if (scales_rows(operand)) four = fmt::format("{} * row_scale_{}", four, i);
      if (prepared || !half) four = fmt::format("vec4<f16>({})", four);
      if (is_quantised(operand)) four = dequantised(operand, i);
      if (ends_within_tile()) four = fmt::format("select(vec4<f16>(), {}, {})", four, is_inside(operand, i));
      shader_->open("{{");
      shader_->line("let four = {}; let to = {}_put + {}u;", four, operand.name,
                    operand.lines_at_once() * operand.pitch() * i);
      shader_->line(
          "tile_{0}[to] = four.x; tile_{0}[to + 1u] = four.y; tile_{0}[to + 2u] = four.z; tile_{0}[to + 3u] = four.w;",
          operand.name);
      shader_->close();
    }
  }

  // Whether the elements of a fetch are before the end of the inner dimension.
  std::string is_inside(const Operand& operand, int i) {
    const std::string inner = shader_->size(problem_.inner);
    if (!operand.along_inner())
      return fmt::format("k + {}_line + {}u < {}", operand.name, operand.lines_at_once() * i, inner);
    if (operand.in_fours) return fmt::format("k + {}_four * 4u < {}", operand.name, inner);
    return fmt::format("vec4u(0u, 1u, 2u, 3u) + k + {}_four * 4u < vec4u({})", operand.name, inner);
  }

  void write_product() {
    Shader& shader = *shader_;
    shader.line("let first_step = chunk * {}u; let first_inner = first_step * {}u;", steps_of_chunk(), form_.inner);
    for (const Operand* operand : {&a_, &b_}) prepare(*operand);
    for (int i = 0; i < rows_of_matrices(); ++i)
      for (int j = 0; j < columns_of_matrices(); ++j) matrices_->declare_sums(sum_of(i, j));
    if (ends_within_tile()) shader.line("var k = first_inner;");
    shader.line("let steps = min({}u, {}u - first_step);", steps_of_chunk(), steps());
    if (form_.ahead > 0)
      multiply_and_fetch_ahead();
    else
      multiply_as_fetched();
  }

  void multiply_as_fetched() {
    Shader& shader = *shader_;
    shader.open("for (var step = 0u; step < steps; step++) {{");
    for (const Operand* operand : {&a_, &b_}) fetch(*operand);
    for (const Operand* operand : {&a_, &b_}) put_into_tile(*operand);
    shader.barrier();
    for (int depth = 0; depth < form_.inner; depth += matrix) multiply_matrices(depth);
    shader.barrier();
    for (const Operand* operand : {&a_, &b_}) shader.line("{}_at += {}u;", operand->name, step_of(*operand));
    if (ends_within_tile()) shader.line("k += {}u;", form_.inner);
    shader.close();
  }

  // The loop counter is a float whose bound the compiler does not know: it then unrolls with an exit after each step
  // and keeps the order within each, so that the next tiles are fetched before these are multiplied. arrayLength hides
  // the bound: no operand has fewer elements than there are steps.
  void multiply_and_fetch_ahead() {
    Shader& shader = *shader_;
    for (const Operand* operand : {&a_, &b_}) fetch(*operand);
    shader.line("let last = f32(min(steps, arrayLength(&{})));", Shader::buffer_name(problem_.a->binding));
    shader.open("for (var step = 0.0; step < last; step += 1.0) {{");
    for (const Operand* operand : {&a_, &b_}) put_into_tile(*operand);
    shader.barrier();
    // Unconditional: the last step fetches the same elements again, which are not used.
    shader.line("let more = step + 1.0 < last;");
    for (const Operand* operand : {&a_, &b_})
      shader.line("{}_at += select(0u, {}u, more);", operand->name, step_of(*operand));
    if (ends_within_tile()) shader.line("k += select(0u, {}u, more);", form_.inner);
    for (const Operand* operand : {&a_, &b_}) fetch(*operand);
    for (int depth = 0; depth < form_.inner; depth += matrix) multiply_matrices(depth);
    shader.barrier();
    shader.close();
  }

  // The distance from one tile to the next, as indices count.
  std::int64_t step_of(const Operand& operand) const {
    return form_.inner * (operand.along_inner() ? 1 : operand.inner_stride.value()) / operand.unit();
  }

  // Loads the matrix of an operand that begins at a row or column of the subgroup's part and an inner element of the
  // tile.
  void load_matrix(const Operand& operand, const char* part, int at, int depth, int number) {
    const std::string place = operand.along_inner()
                                  ? fmt::format("({} + {}u) * {}u + {}u", part, at, operand.pitch(), depth)
                                  : fmt::format("{}u + {} + {}u", depth * operand.pitch(), part, at);
    const bool left = &operand == &a_;
    matrices_->load(left ? MatrixWriter::Kind::left : MatrixWriter::Kind::right,
                    left == operand.along_inner() ? MatrixWriter::Order::rows : MatrixWriter::Order::columns,
                    matrix_of(operand, number), {fmt::format("tile_{}", operand.name), place, operand.pitch()});
  }

  void multiply_matrices(int depth) {
    shader_->open("{{");
    for (int i = 0; i < rows_of_matrices(); ++i) load_matrix(a_, "part_row", i * matrix, depth, i);
    for (int j = 0; j < columns_of_matrices(); ++j) {
      load_matrix(b_, "part_column", j * matrix, depth, j);
      for (int i = 0; i < rows_of_matrices(); ++i)
        matrices_->multiply(matrix_of(a_, i), matrix_of(b_, j), sum_of(i, j));
    }
    shader_->close();
  }

  // Writes `fn finish_staged(…)`: four results at `start` in workgroup memory.
  void write_finish() {
    Shader& shader = *shader_;
    Epilogue epilogue(shader, writer_.kernel(), problem_);
    const bool in_fours = epilogue.can_take_four() && (!partials_ || shader.can_be_wide(partials_->memory()));
    if (!partials_ && in_fours) epilogue.write_four();
    if (!partials_ && !in_fours) epilogue.write();
    shader.begin_function("fn finish_staged(batch: u32, chunk: u32, row: u32, column: u32, start: u32)");
    shader.line("if (row >= {}) {{ return; }}", shader.size(problem_.rows));
    shader.line("let four = vec4f(staged[start], staged[start + 1u], staged[start + 2u], staged[start + 3u]){};",
                scales_ ? " * " + scales_->inverse(shader, "row") : "");
    for (int k = 0; k < (in_fours ? 1 : 4); ++k) {
      const std::string column = k == 0 ? "column" : fmt::format("column + {}u", k);
      const std::string result = in_fours ? "four" : fmt::format("four.{}", "xyzw"[k]);
      shader.open("if ({} < {}) {{", column, shader.size(problem_.columns));
      if (!partials_)
        shader.line("{}(batch, row, {}, {});", in_fours ? "finish_four" : "finish", column, result);
      else if (in_fours)
        shader.store_four(partials_->memory(), partials_->place(shader, "row", column), result);
      else
        shader.store(partials_->memory(), partials_->place(shader, "row", column), result);
      shader.close();
    }
    shader.end_function();
  }

  void write_results() {
    Shader& shader = *shader_;
    shader.line("let staged_start = subgroup * {}u;", matrix * staged_pitch());
    // Four threads per row, which then store whole 32-byte sectors.
    shader.line("let lane_row = subgroup_lane / 4u; let lane_column = subgroup_lane % 4u * 4u;");
    shader.line("let lane_start = staged_start + lane_row * {}u + lane_column;", staged_pitch());
    shader.line(
        "let first_row = tile_row + part_row + lane_row; let first_column = tile_column + part_column + lane_column;");
    for (int i = 0; i < rows_of_matrices(); ++i)
      for (int j = 0; j < columns_of_matrices(); ++j) {
        matrices_->store(sum_of(i, j), {"staged", "staged_start", staged_pitch()});
        shader.barrier();
        for (int half = 0; half < 2; ++half)
          shader.line("finish_staged(batch, chunk, first_row + {}u, first_column + {}u, lane_start + {}u);",
                      i * matrix + half * 8, j * matrix, half * 8 * staged_pitch());
        shader.barrier();
      }
  }

  KernelWriter& writer_;
  const MatmulProblem& problem_;
  MatmulForm form_;
  Operand a_, b_;
  std::optional<PartialResults> partials_;
  std::optional<RowScales> scales_;
  std::optional<Shader> shader_;
  std::optional<MatrixWriter> matrices_;
};

}  // namespace

void write_matrices(KernelWriter& writer, const MatmulProblem& problem, const MatmulForm& form) {
  MatrixMatmul(writer, problem, form).write();
}

}  // namespace jerboa::wgsl
