#include <algorithm>

#include "wgsl/lines.h"
#include "wgsl/row_reduction.h"
#include "wgsl/whole_kernels.h"

// Running sums along lines. One thread scans a whole line if lines are short or the driver is a software driver;
// otherwise a workgroup scans it tile by tile: each thread sums some adjacent elements, and the prefix before them is
// computed in workgroup memory.
namespace jerboa::wgsl {
namespace {

class Cumsum {
 public:
  explicit Cumsum(KernelWriter& writer)
      : writer_(writer),
        x_(writer.kernel().operands[0]),
        out_(writer.kernel().results[0]),
        reverse_(std::get<CumsumAttrs>(writer.kernel().attrs).reverse),
        lines_(x_.shape, std::get<CumsumAttrs>(writer.kernel().attrs).axis),
        type_(value_type(x_.dtype)) {}

  void write() {
    constexpr std::int64_t short_line = 64;
    if (writer_.target().software || lines_.length.upper_bound() <= short_line)
      write_whole_lines();
    else
      write_tiles();
  }

 private:
  // The indices of the element at position `place` in scan order.
  std::vector<std::string> indices(Shader& shader, const std::string& place) const {
    const std::string at = reverse_ ? fmt::format("({} - 1u - {})", shader.size(lines_.length), place) : place;
    return lines_.indices(shader, "line", at);
  }

  void write_whole_lines() {
    Shader shader = shader_of_elements(writer_, "cumsum_lines", lines_.count());
    // Sums of runs, plus the total before each run: one long sum would lose more precision.
    shader.line("let line = element;");
    shader.line("var before = {0}(0); var total = {0}(0);", type_);
    shader.open("for (var place = 0u; place < {}; place++) {{", shader.loop_end(shader.size(lines_.length)));
    shader.line("if (place % 64u == 0u) {{ before += total; total = {}(0); }}", type_);
    const auto at = indices(shader, "place");
    shader.line("total += {};", shader.load(x_, at));
    shader.store(out_, at, "before + total");
    shader.close();
    add_shader_of_elements(writer_, std::move(shader), lines_.count());
  }

  void write_tiles() {
    const std::int64_t length = lines_.length.upper_bound(), count = lines_.count().upper_bound();
    int threads = 16;
    while (threads * 2 <= writer_.target().max_invocations && std::int64_t{threads} * values_per_thread < length)
      threads *= 2;
    const std::int64_t tile = std::int64_t{threads} * values_per_thread;
    constexpr std::int64_t enough_groups = 64;
    while (count * chunks_ < enough_groups && tile * chunks_ < length) chunks_ *= 2;
    const Dim chunk_size = groups_of(groups_of(lines_.length, chunks_), tile) * Dim(tile);
    const int sums = chunks_ > 1 ? write_chunk_sums(threads, chunk_size) : -1;
    Shader shader = writer_.shader("cumsum", threads);
    shader.shared_array("totals", type_, threads);
    write_chunk(shader, chunk_size);
    shader.line("var before = {}(0);", type_);
    if (sums >= 0)
      shader.line("for (var other = 0u; other < chunk; other++) {{ before += {}; }}",
                  shader.load(sums, fmt::format("line * {}u + other", chunks_)));
    shader.open("for (var first = chunk_start; first < chunk_end; first += {}u) {{", tile);
    shader.line("let start = first + lane * {}u;", values_per_thread);
    shader.line("var values: array<{}, {}>; var total = {}(0);", type_, values_per_thread, type_);
    for (int i = 0; i < values_per_thread; ++i) {
      shader.open("if (start + {}u < {}) {{", i, shader.size(lines_.length));
      const auto at = indices(shader, fmt::format("(start + {}u)", i));
      shader.line("total += {};", shader.load(x_, at));
      shader.close();
      shader.line("values[{}] = total;", i);
    }
    shader.line("totals[lane] = total;");
    shader.barrier();
    for (int step = 1; step < threads; step *= 2) {
      shader.line("if (lane >= {0}u) {{ total += totals[lane - {0}u]; }}", step);
      shader.barrier();
      shader.line("totals[lane] = total;");
      shader.barrier();
    }
    shader.line("var base = before;");
    shader.line("if (lane > 0u) {{ base += totals[lane - 1u]; }}");
    for (int i = 0; i < values_per_thread; ++i) {
      shader.open("if (start + {}u < {}) {{", i, shader.size(lines_.length));
      const auto at = indices(shader, fmt::format("(start + {}u)", i));
      shader.store(out_, at, fmt::format("base + values[{}]", i));
      shader.close();
    }
    shader.line("before += totals[{}u];", threads - 1);
    shader.barrier();
    shader.close();
    writer_.add(std::move(shader), lines_.count() * Dim(chunks_));
  }

  void write_chunk(Shader& shader, const Dim& chunk_size) const {
    shader.line("let line = group / {0}u; let chunk = group % {0}u;", chunks_);
    shader.line("let chunk_start = chunk * {0}; let chunk_end = min(chunk_start + {0}, {1});", shader.size(chunk_size),
                shader.size(lines_.length));
  }

  int write_chunk_sums(int threads, const Dim& chunk_size) {
    const int sums = writer_.workspace(is_float(x_.dtype) ? DType::f32 : x_.dtype, lines_.count() * Dim(chunks_));
    Shader shader = writer_.shader("cumsum_chunks", threads);
    write_chunk(shader, chunk_size);
    RowReduction total(shader, Op::sum, x_.dtype);
    shader.open("for (var place = chunk_start + lane; place < chunk_end; place += {}u) {{", threads);
    const auto at = indices(shader, "place");
    total.add(shader.load(x_, at), "place");
    shader.close();
    const std::string sum = total.finish(threads, "lane", threads);
    shader.open("if (lane == 0u) {{");
    shader.store(sums, "group", sum);
    shader.close();
    writer_.add(std::move(shader), lines_.count() * Dim(chunks_));
    return sums;
  }

  static constexpr int values_per_thread = 4;  // adjacent elements
  KernelWriter& writer_;
  const TensorAccess &x_, &out_;
  bool reverse_;
  Lines lines_;
  std::string type_;
  std::int64_t chunks_ = 1;
};

// Running maxima: a thread scans a whole line.
void write_cummax(KernelWriter& writer) {
  const TensorAccess &x = writer.kernel().operands[0], &values = writer.kernel().results[0];
  const auto& attrs = std::get<CumsumAttrs>(writer.kernel().attrs);
  const Lines lines(x.shape, attrs.axis);
  Shader shader = shader_of_elements(writer, "cummax", lines.count());
  shader.line("var best = {}(0); var found = 0u;", value_type(x.dtype));
  shader.open("for (var step = 0u; step < {}; step++) {{", shader.loop_end(shader.size(lines.length)));
  shader.line("let place = {};", attrs.reverse ? fmt::format("{} - 1u - step", shader.size(lines.length)) : "step");
  const auto at = lines.indices(shader, "element", "place");
  shader.line("let value = {};", shader.load(x, at));
  shader.line("if (step == 0u || value > best) {{ best = value; found = place; }}");
  shader.store(values, at, "best");
  shader.store(writer.kernel().results[1], at, "i32(found)");
  shader.close();
  add_shader_of_elements(writer, std::move(shader), lines.count());
}

}  // namespace

template <>
void write_whole_op<Op::cummax>(KernelWriter& writer) {
  write_cummax(writer);
}

template <>
void write_whole_op<Op::cumsum>(KernelWriter& writer) {
  Cumsum(writer).write();
}

}  // namespace jerboa::wgsl
