#include <algorithm>
#include <set>

#include "wgsl/body.h"
#include "wgsl/kernel_writer.h"
#include "wgsl/row_reduction.h"

namespace jerboa::wgsl {
namespace {

constexpr int loop_threads = 128;

// One thread per element.
void write_elements(KernelWriter& writer, const KernelSpec& kernel) {
  Shader shader = writer.shader("loop", loop_threads);
  const Dim count = element_count(kernel.domain);
  shader.line("let element = group * {}u + lane;", loop_threads);
  shader.line("if (element >= {}) {{ return; }}", shader.size(count));
  BodyWriter body(shader, kernel, shader.split_index("element", kernel.domain));
  // All loads come before the stores: a result may be in place of an operand.
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
        lanes_(lanes_for(element_count(row_).upper_bound(), writer.target())),
        threads_(std::max(lanes_, std::min(64, writer.target().max_invocations))),
        shader_(writer.shader("rows", threads_)),
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
  // An instruction is per row (the same for all its elements) or per element. Its phase is the number of reductions
  // that must complete in sequence before it.
  void find_levels() {
    for (const Instruction& instruction : kernel_.body) {
      bool of_element = false;
      int phase = 0;
      for (const int operand : {instruction.a, instruction.b, instruction.c}) {
        if (operand < 0) continue;
        of_element = of_element || of_element_[static_cast<std::size_t>(operand)];
        phase = std::max(phase, phase_[static_cast<std::size_t>(operand)]);
      }
      const int outer = static_cast<int>(outer_.size());
      if (instruction.kind == Instruction::Kind::position) of_element = instruction.index >= outer;
      if (instruction.kind == Instruction::Kind::load) {
        const Load& load = kernel_.loads[static_cast<std::size_t>(instruction.index)];
        of_element = of_element || steps_along_row(load.map);
        for (const Mask& mask : load.masks) of_element = of_element || mask.axis >= outer;
      }
      if (instruction.kind == Instruction::Kind::reduce) {
        of_element = false;
        ++phase;
        phases_ = std::max(phases_, phase);
      }
      of_element_.push_back(of_element);
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

  void open_element_loop() {
    known_ = body_.known();
    shader_.open("for (var column = row_lane; column < {}; column += {}u) {{", shader_.size(element_count(row_)),
                 lanes_);
    std::vector<std::string> indices = indices_;
    const auto along_row = shader_.split_index("column", row_);
    std::copy(along_row.begin(), along_row.end(), indices.begin() + static_cast<std::ptrdiff_t>(outer_.size()));
    body_.set_indices(std::move(indices));
  }

  void close_element_loop() {
    shader_.close();
    body_.forget_since(known_);
    body_.set_indices(indices_);
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
    open_element_loop();
    for (std::size_t i = 0; i < reductions.size(); ++i)
      totals[i].add(body_.value(kernel_.body[static_cast<std::size_t>(reductions[i])].a), "column");
    close_element_loop();
    for (std::size_t i = 0; i < reductions.size(); ++i)
      body_.set(reductions[i], totals[i].finish(lanes_, "row_lane", threads_));
  }

  void write_stores() {
    bool any = false;
    for (const Store& store : kernel_.stores) {
      write_row_values(store.value);
      any = any || steps_along_row(store.map);
    }
    if (any) {
      shader_.open("if (in_range) {{");
      open_element_loop();
      for (const Store& store : kernel_.stores)
        if (steps_along_row(store.map)) body_.value(store.value);
      for (const Store& store : kernel_.stores)
        if (steps_along_row(store.map)) body_.store(store);
      close_element_loop();
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
  int lanes_, threads_;
  Shader shader_;
  BodyWriter body_;
  std::vector<std::string> indices_, known_;
  std::vector<bool> of_element_;
  std::vector<int> phase_;
  int phases_ = 0;
};

}  // namespace

void write_loop(KernelWriter& writer) {
  const KernelSpec kernel = merge_axes(writer.kernel());
  if (writer.kernel().row_axes == 0)
    write_elements(writer, kernel);
  else
    RowsWriter(writer, kernel).write();
}

}  // namespace jerboa::wgsl
