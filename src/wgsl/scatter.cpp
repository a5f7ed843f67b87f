#include <algorithm>

#include "wgsl/lines.h"
#include "wgsl/sort_lines.h"
#include "wgsl/whole_kernels.h"

// Scatters without atomics: each written element has exactly one thread that writes it. Updates with equal indices are
// found by scanning the whole line if it is short, otherwise in lists sorted by index.
namespace jerboa::wgsl {
namespace {

bool is_multiple(const Dim& size, std::int64_t of) { return size.is_constant() && size.value() % of == 0; }

// Adds the rows of dy by the id of their position.
class EmbeddingGrad {
 public:
  explicit EmbeddingGrad(KernelWriter& writer)
      : writer_(writer),
        ids_(writer.kernel().operands[0]),
        dy_(writer.kernel().operands[1]),
        out_(writer.kernel().results[0]),
        count_(element_count(ids_.shape)),
        rows_(out_.shape[0]),
        width_(out_.shape[1]) {}

  void write() {
    const std::int64_t count = count_.upper_bound();
    constexpr std::int64_t few = 64, little = 1 << 20;
    if (count <= few || count * rows_.upper_bound() * width_.upper_bound() <= little) return write_by_scanning();
    const SortedLines sorted =
        sort_lines(writer_, 1, count_,
                   [&](Shader& shader, const std::string&, const std::string& place) { return id(shader, place); });
    const int starts = write_starts(sorted);
    wide_ = can_be_wide(writer_.shader("", 1));
    write_sums(sorted, starts, write_block_sums(sorted));
  }

 private:
  // As u32: an out-of-range id equals no row.
  std::string id(Shader& shader, const std::string& position) const {
    return fmt::format("u32({})", shader.load(ids_, shader.split_index(position, ids_.shape)));
  }

  std::string dy_place(Shader& shader, const std::string& position, const std::string& column) const {
    auto indices = shader.split_index(position, ids_.shape);
    indices.push_back(column);
    return shader.place(dy_.offset, dy_.strides, indices);
  }

  // Each result scans all ids.
  void write_by_scanning() {
    Shader shader = shader_of_elements(writer_, "embedding_grad_small", rows_ * width_);
    shader.line("let row = element / {0}; let column = element % {0};", shader.size(width_));
    shader.line("var sum = 0.0;");
    shader.open("for (var position = 0u; position < {}; position++) {{", shader.loop_end(shader.size(count_)));
    shader.open("if ({} == row) {{", id(shader, "position"));
    const std::string place = dy_place(shader, "position", "column");
    shader.line("sum += {};", shader.load(dy_.binding, place));
    shader.close();
    shader.close();
    shader.store(out_, {"row", "column"}, "sum");
    add_shader_of_elements(writer_, std::move(shader), rows_ * width_);
  }

  // Computes where each row's positions begin in the sorted list.
  int write_starts(const SortedLines& sorted) {
    const Dim count = rows_ + Dim(1);
    const int starts = writer_.workspace(DType::u32, count);
    Shader shader = shader_of_elements(writer_, "embedding_grad_starts", count);
    shader.line("var low = 0u; var high = {};", shader.size(count_));
    shader.open("while (low < high) {{");
    shader.line("let middle = (low + high) / 2u;");
    shader.line("if ({} < element) {{ low = middle + 1u; }} else {{ high = middle; }}",
                shader.load(sorted.keys, "middle"));
    shader.close();
    shader.store(starts, "element", "low");
    add_shader_of_elements(writer_, std::move(shader), count);
    return starts;
  }

  bool can_be_wide(const Shader& shader) const {
    const auto fits = [&](const TensorAccess& tensor) {
      return shader.can_be_wide(tensor.binding) && tensor.strides.back() == Dim(1) && is_multiple(tensor.offset, 4) &&
             std::all_of(tensor.strides.begin(), tensor.strides.end() - 1,
                         [](const Dim& stride) { return is_multiple(stride, 4); });
    };
    return is_multiple(width_, 4) && fits(dy_) && fits(out_);
  }

  Dim across() const { return wide_ ? groups_of(width_, 4) : width_; }

  // Declares `row` and `column` of the thread, which has one column or four, and its `sum`.
  void write_thread_columns(Shader& shader) const {
    shader.line("let row = element / {0}; let column = element % {0}{1};", shader.size(across()), wide_ ? " * 4u" : "");
    shader.line("var sum = {};", wide_ ? "vec4f()" : "0.0");
  }

  std::string load(Shader& shader, int memory, const std::string& place) const {
    return wide_ ? shader.load_four(memory, place) : shader.load(memory, place);
  }
  void store(Shader& shader, int memory, const std::string& place) const {
    if (wide_)
      shader.store_four(memory, place, "sum");
    else
      shader.store(memory, place, "sum");
  }

  // Adds the rows of dy from `next` to `end` of the sorted positions, in order, with four loads in flight.
  void write_rows(Shader& shader, const SortedLines& sorted, const std::string& end) const {
    const auto value = [&](const std::string& rank) {
      const std::string position = shader.let("position", shader.load(sorted.places, rank));
      return shader.let("value", load(shader, dy_.binding, dy_place(shader, position, "column")));
    };
    shader.open("for (; next + 4u <= {0}; next += 4u) {{", end);
    const std::string a = value("next"), b = value("next + 1u"), c = value("next + 2u"), d = value("next + 3u");
    shader.line("sum = sum + {} + {} + {} + {};", a, b, c, d);
    shader.close();
    shader.open("for (; next < {}; next++) {{", end);
    const std::string last = value("next");
    shader.line("sum += {};", last);
    shader.close();
  }

  // One id may occur at most positions, so blocks of sorted positions with the same id are summed first.
  int write_block_sums(const SortedLines& sorted) {
    const Dim blocks = floor_divide(count_, block), count = blocks * across();
    const int sums = writer_.workspace(DType::f32, groups_of(count_, block) * width_);
    Shader shader = shader_of_elements(writer_, "embedding_grad_blocks", count);
    write_thread_columns(shader);
    shader.line("var next = row * {0}u; let end = next + {0}u;", block);
    const std::string first = shader.load(sorted.keys, "next"), last = shader.load(sorted.keys, "end - 1u");
    shader.line("if ({} != {}) {{ return; }}", first, last);
    write_rows(shader, sorted, "end");
    store(shader, sums, fmt::format("row * {} + column", shader.size(width_)));
    add_shader_of_elements(writer_, std::move(shader), count);
    return sums;
  }

  void write_sums(const SortedLines& sorted, int starts, int block_sums) {
    const Dim count = rows_ * across();
    Shader shader = shader_of_elements(writer_, "embedding_grad", count);
    write_thread_columns(shader);
    shader.line("var next = {}; let end = {};", shader.load(starts, "row"), shader.load(starts, "row + 1u"));
    shader.line("let first_block = min((next + {0}u) / {1}u * {1}u, end);", block - 1, block);
    write_rows(shader, sorted, "first_block");
    shader.open("for (; next + {0}u <= end; next += {0}u) {{", block);
    shader.line("sum += {};",
                load(shader, block_sums, fmt::format("next / {}u * {} + column", block, shader.size(width_))));
    shader.close();
    write_rows(shader, sorted, "end");
    store(shader, out_.binding, shader.place(out_.offset, out_.strides, {"row", "column"}));
    add_shader_of_elements(writer_, std::move(shader), count);
  }

  static constexpr int block = 32;
  KernelWriter& writer_;
  const TensorAccess &ids_, &dy_, &out_;
  Dim count_, rows_, width_;
  bool wide_ = false;
};

// Updates along an axis. Among those that share an index, one thread does the work: it overwrites with the last, or
// adds all in order.
class ScatterAlong {
 public:
  ScatterAlong(KernelWriter& writer, bool adds)
      : writer_(writer),
        adds_(adds),
        indices_(writer.kernel().operands[1]),
        updates_(writer.kernel().operands[2]),
        out_(writer.kernel().results[0]),
        lines_(indices_.shape, std::get<AxisAttrs>(writer.kernel().attrs).axis),
        size_(out_.shape[lines_.axis]) {}

  void write() {
    const TensorAccess& x = writer_.kernel().operands[0];
    if (x.binding != out_.binding) write_copy(writer_, x, out_);
    constexpr std::int64_t few = 128;
    if (lines_.length.upper_bound() <= few)
      write_by_scanning();
    else
      write_sorted();
  }

 private:
  std::string index(Shader& shader, const std::string& line, const std::string& place) const {
    return fmt::format("u32({})", shader.load(indices_, lines_.indices(shader, line, place)));
  }
  std::string update(Shader& shader, const std::string& place) const {
    return shader.load(updates_, lines_.indices(shader, "line", place));
  }
  void add(Shader& shader, const std::string& place) const {
    const std::string value = update(shader, place);
    shader.line("total = total {} {};", out_.dtype == DType::boolean ? "||" : "+", value);
  }

  void write_by_scanning() {
    const Dim count = lines_.count() * lines_.length;
    Shader shader = shader_of_elements(writer_, "scatter_small", count);
    // Adjacent lines in memory go to adjacent threads.
    shader.line("let line = element % {0}; let place = element / {0};", shader.size(lines_.count()));
    shader.line("let index = {};", index(shader, "line", "place"));
    shader.line("if (index >= {}) {{ return; }}", shader.size(size_));
    const std::string length = shader.size(lines_.length);
    // When overwriting, the last update writes; when adding, the first adds them all.
    shader.open("for (var other = {}; other < {}; other++) {{", adds_ ? "0u" : "place + 1u", adds_ ? "place" : length);
    shader.line("if ({} == index) {{ return; }}", index(shader, "line", "other"));
    shader.close();
    const auto to = lines_.indices(shader, "line", "index");
    if (adds_) {
      shader.line("var total = {};", shader.load(out_, to));
      shader.open("for (var other = place; other < {}; other++) {{", length);
      shader.open("if ({} == index) {{", index(shader, "line", "other"));
      add(shader, "other");
      shader.close();
      shader.close();
      shader.store(out_, to, "total");
    } else {
      shader.store(out_, to, update(shader, "place"));
    }
    add_shader_of_elements(writer_, std::move(shader), count);
  }

  void write_sorted() {
    const SortedLines sorted = sort_lines(
        writer_, lines_.count(), lines_.length,
        [&](Shader& shader, const std::string& line, const std::string& place) { return index(shader, line, place); });
    const Dim count = lines_.count() * lines_.length;
    Shader shader = shader_of_elements(writer_, "scatter", count);
    const std::string length = shader.size(lines_.length);
    shader.line("let rank = element % {0}; let line = element / {0};", length);
    shader.line("let index = {};", shader.load(sorted.keys, "element"));
    shader.line("if (index >= {}) {{ return; }}", shader.size(size_));
    if (adds_) {
      shader.open("if (rank > 0u) {{");
      shader.line("if ({} == index) {{ return; }}", shader.load(sorted.keys, "element - 1u"));
      shader.close();
      const auto to = lines_.indices(shader, "line", "index");
      shader.line("var total = {};", shader.load(out_, to));
      shader.line("let end = element - rank + {};", length);
      shader.open("for (var next = element; next < end; next++) {{");
      shader.line("if ({} != index) {{ break; }}", shader.load(sorted.keys, "next"));
      shader.line("let place = {};", shader.load(sorted.places, "next"));
      add(shader, "place");
      shader.close();
      shader.store(out_, to, "total");
    } else {
      shader.open("if (rank + 1u < {}) {{", length);
      shader.line("if ({} == index) {{ return; }}", shader.load(sorted.keys, "element + 1u"));
      shader.close();
      shader.line("let place = {};", shader.load(sorted.places, "element"));
      const auto to = lines_.indices(shader, "line", "index");
      shader.store(out_, to, update(shader, "place"));
    }
    add_shader_of_elements(writer_, std::move(shader), count);
  }

  KernelWriter& writer_;
  bool adds_;
  const TensorAccess &indices_, &updates_, &out_;
  Lines lines_;
  Dim size_;
};

}  // namespace

template <>
void write_whole_op<Op::embedding_grad>(KernelWriter& writer) {
  EmbeddingGrad(writer).write();
}

template <>
void write_whole_op<Op::scatter>(KernelWriter& writer) {
  ScatterAlong(writer, false).write();
}

template <>
void write_whole_op<Op::scatter_add>(KernelWriter& writer) {
  ScatterAlong(writer, true).write();
}

}  // namespace jerboa::wgsl
