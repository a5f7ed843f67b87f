#include <algorithm>
#include <set>

#include "base/integers.h"
#include "wgsl/body.h"
#include "wgsl/four_writer.h"
#include "wgsl/kernel_writer.h"
#include "wgsl/row_reduction.h"
#include "wgsl/tuned.h"

namespace jerboa::wgsl {
namespace {

constexpr int loop_threads = 128;

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// One thread for four elements.
void write_fours(KernelWriter& writer, const KernelSpec& kernel) {
  Shader shader = writer.shader("loop_fours", loop_threads);
  const Dim fours = groups_of(element_count(kernel.domain), 4);
  shader.line("let four = group * {}u + lane;", loop_threads);
  shader.line("if (four >= {}) {{ return; }}", shader.size(fours));
  shader.line("let element = four * 4u;");
  FourWriter(shader, kernel, kernel.domain.size() - 1, shader.split_index("element", kernel.domain))
      .store(kernel.stores);
  writer.add(shader, groups_of(fours, loop_threads));
}

// One thread per element.
void write_elements(KernelWriter& writer, const KernelSpec& kernel) {
  Shader shader = writer.shader("loop", loop_threads);
  if (suits_fours(shader, kernel, kernel.domain.size() - 1)) return write_fours(writer, kernel);
  const Dim count = element_count(kernel.domain);
  shader.line("let element = group * {}u + lane;", loop_threads);
  shader.line("if (element >= {}) {{ return; }}", shader.size(count));
  BodyWriter body(shader, kernel, shader.split_index("element", kernel.domain));
  // All loads precede the stores: a result may be in place of an operand.
  for (const Store& store : kernel.stores) body.value(store.value);
  for (const Store& store : kernel.stores) body.store(store);
  writer.add(shader, groups_of(count, loop_threads));
}

// Rows with reductions: several threads per row. The inputs of each reduction are recomputed from loads that hit the
// cache, so that a row may have any length.
class RowsWriter {
 public:
  RowsWriter(KernelWriter& writer, const KernelSpec& kernel)
      : writer_(writer),
        kernel_(kernel),
        outer_(kernel.domain.begin(), kernel.domain.end() - kernel.row_axes),
        row_(kernel.domain.end() - kernel.row_axes, kernel.domain.end()),
        width_(fours_of(writer, kernel) ? 4 : 1),
        lanes_(lanes_of(writer.target(), kernel, width_)),
        threads_(writer.target().fixed_threads > 0
                     ? writer.target().fixed_threads
                     : std::max(lanes_, std::min(writer.target().software ? loop_threads : writer.row_threads(),
                                                 writer.target().max_invocations))),
        shader_(writer.shader(width_ == 4 ? "rows_fours" : "rows", threads_)),
        body_(shader_, kernel_, {}) {}

  void write() {
    find_levels();
    const int rows_per_group = threads_ / lanes_;
    const Dim rows = element_count(outer_);
    shader_.line("let row_lane = lane % {}u;", lanes_);
    shader_.line("let wanted_row = group * {}u + lane / {}u;", rows_per_group, lanes_);
    // Threads past the last row repeat it, because of the barriers, but store nothing.
    shader_.line("let in_range = wanted_row < {};", shader_.size(rows));
    shader_.line("let row = min(wanted_row, {} - 1u);", shader_.size(rows));
    indices_ = shader_.split_index("row", outer_);
    indices_.resize(kernel_.domain.size(), "0u");
    body_.set_indices(indices_);
    for (int phase = 0; phase < phases_; ++phase) write_reductions(phase);
    write_stores();
    writer_.add(shader_, groups_of(rows, rows_per_group));
  }

 private:
  static bool fours_of(const KernelWriter& writer, const KernelSpec& kernel) {
    Shader shader = writer.shader("rows", 1);
    return suits_fours(shader, kernel, kernel.domain.size() - 1);
  }

  static int lanes_of(const Target& target, const KernelSpec& kernel, int width) {
    const RowShape shape = *row_shape_of(kernel);
    if (target.tuned != nullptr && !target.software && target.fixed_threads == 0)
      if (const RowForm* tuned = target.tuned->form_of(shape)) return tuned->lanes;
    return lanes_for(detail::divide_up(shape.columns, width), target);
  }

  // An instruction is evaluated per row (with the same value for all elements) or per element. Its phase is the number
  // of reductions that must complete in sequence before it.
  void find_levels() {
    of_element_ = varies_along(kernel_, outer_.size(), kernel_.domain.size());
    for (const Instruction& instruction : kernel_.body) {
      int phase = 0;
      for (const int operand : {instruction.a, instruction.b, instruction.c})
        if (operand >= 0) phase = std::max(phase, phase_[static_cast<std::size_t>(operand)]);
      if (instruction.kind == Instruction::Kind::reduce) phases_ = std::max(phases_, ++phase);
      phase_.push_back(phase);
    }
  }

  bool steps_along_row(const IndexMap& map) const {
    return std::any_of(map.strides.begin() + static_cast<std::ptrdiff_t>(outer_.size()), map.strides.end(),
                       [](const Dim& stride) { return !(stride == Dim(0)); });
  }

  // Row values that an instruction needs are emitted before the loop over its elements.
  void write_row_values(int number) {
    const auto at = static_cast<std::size_t>(number);
    if (!of_element_[at]) {
      body_.value(number);
      return;
    }
    const Instruction& instruction = kernel_.body[at];
    for (const int operand : {instruction.a, instruction.b, instruction.c})
      if (operand >= 0) write_row_values(operand);
  }

  // The loop over a thread's elements: `column` is the first of each group of width_.
  template <class Write>
  void for_each_column(const Write& write) {
    std::vector<std::string> known = body_.known();
    shader_.open("for (var column = row_lane * {}u; column < {}; column += {}u) {{", width_,
                 shader_.size(element_count(row_)), lanes_ * width_);
    std::vector<std::string> indices = indices_;
    const auto along_row = shader_.split_index("column", row_);
    std::copy(along_row.begin(), along_row.end(), indices.begin() + static_cast<std::ptrdiff_t>(outer_.size()));
    if (width_ == 4) {
      FourWriter four(shader_, kernel_, kernel_.domain.size() - 1, indices);
      for (std::size_t i = 0; i < known.size(); ++i)
        if (!known[i].empty()) four.set_common(static_cast<int>(i), known[i]);
      write(four);
    } else {
      body_.set_indices(std::move(indices));
      write(body_);
      body_.set_indices(indices_);
      body_.forget_since(std::move(known));
    }
    shader_.close();
  }

  void write_reductions(int phase) {
    std::vector<int> reductions;
    for (std::size_t i = 0; i < kernel_.body.size(); ++i)
      if (kernel_.body[i].kind == Instruction::Kind::reduce && phase_[i] == phase + 1)
        reductions.push_back(static_cast<int>(i));
    std::vector<RowReduction> totals;
    for (const int number : reductions) {
      const Instruction& instruction = kernel_.body[static_cast<std::size_t>(number)];
      write_row_values(instruction.a);
      totals.emplace_back(shader_, instruction.op, kernel_.body[static_cast<std::size_t>(instruction.a)].dtype);
    }
    for_each_column(Overloaded{[&](BodyWriter& body) {
                                 for (std::size_t i = 0; i < reductions.size(); ++i)
                                   totals[i].add(body.value(reduced(reductions[i])), "column");
                               },
                               [&](FourWriter& four) {
                                 for (std::size_t i = 0; i < reductions.size(); ++i)
                                   totals[i].add_four(four.values(reduced(reductions[i])), "column");
                               }});
    for (std::size_t i = 0; i < reductions.size(); ++i)
      body_.set(reductions[i], totals[i].finish(lanes_, "row_lane", threads_));
  }

  int reduced(int reduction) const { return kernel_.body[static_cast<std::size_t>(reduction)].a; }

  void write_stores() {
    std::vector<Store> of_elements;
    for (const Store& store : kernel_.stores) {
      write_row_values(store.value);
      if (steps_along_row(store.map)) of_elements.push_back(store);
    }
    if (!of_elements.empty()) {
      shader_.open("if (in_range) {{");
      for_each_column(Overloaded{[&](BodyWriter& body) {
                                   for (const Store& store : of_elements) body.value(store.value);
                                   for (const Store& store : of_elements) body.store(store);
                                 },
                                 [&](FourWriter& four) { four.store(of_elements); }});
      shader_.close();
    }
    if (replaces_row_values()) shader_.line("storageBarrier();");
    shader_.open("if (in_range && row_lane == 0u) {{");
    for (const Store& store : kernel_.stores)
      if (!steps_along_row(store.map)) body_.store(store);
    shader_.close();
  }

  // Whether a row's value overwrites one that all threads of the row read.
  bool replaces_row_values() const {
    return std::any_of(kernel_.stores.begin(), kernel_.stores.end(), [&](const Store& store) {
      return !steps_along_row(store.map) &&
             std::any_of(kernel_.loads.begin(), kernel_.loads.end(),
                         [&](const Load& load) { return load.binding == store.binding; });
    });
  }

  KernelWriter& writer_;
  const KernelSpec& kernel_;
  std::vector<Dim> outer_, row_;
  int width_;  // elements that a thread handles at once
  int lanes_, threads_;
  Shader shader_;
  BodyWriter body_;
  std::vector<std::string> indices_;
  std::vector<bool> of_element_;
  std::vector<int> phase_;
  int phases_ = 0;
};

}  // namespace

std::string RowShape::str() const { return fmt::format("{} rows of {}", rows, columns); }

std::optional<RowShape> row_shape_of(const KernelSpec& kernel) {
  if (kernel.kind != KernelSpec::Kind::loop || kernel.row_axes == 0) return std::nullopt;
  const auto row = kernel.domain.end() - kernel.row_axes;
  return RowShape{element_count(std::vector<Dim>(kernel.domain.begin(), row)).upper_bound(),
                  element_count(std::vector<Dim>(row, kernel.domain.end())).upper_bound()};
}

std::vector<RowForm> row_candidates(const Target& target, const RowShape& shape) {
  std::vector<RowForm> forms;
  if (target.software) return forms;
  // A thread processes 4 elements at a time, or loops.
  for (int lanes = 1; lanes <= target.max_invocations && std::int64_t{lanes} < shape.columns; lanes *= 2)
    if (std::int64_t{lanes} * 128 >= shape.columns) forms.push_back({lanes});
  return forms;
}

void write_loop(KernelWriter& writer) {
  const KernelSpec kernel = merge_axes(writer.kernel());
  if (writer.kernel().row_axes == 0)
    write_elements(writer, kernel);
  else
    RowsWriter(writer, kernel).write();
}

}  // namespace jerboa::wgsl
