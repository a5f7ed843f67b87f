#include "wgsl/product/quantised_blocks.h"

#include <algorithm>

#include "wgsl/product/block_results.h"

namespace jerboa::wgsl {
namespace {

// Processes one group of weights after another: the rows of a block share the cost of unpacking them.
class QuantisedBlocks {
 public:
  QuantisedBlocks(KernelWriter& writer, const MatmulProblem& problem)
      : writer_(writer),
        problem_(problem),
        is_int4_(problem.b->dtype == DType::i4),
        shader_(writer.shader("quantised_blocks", threads)),
        results_(shader_, writer.kernel(), problem) {}

  void write() {
    write_prologue(shader_, *problem_.a, "a");
    const Dim workgroups = results_.write_place();
    for (int i = 0; i < rows; ++i)
      shader_.line("let a_{} = {};", i,
                   shader_.place(problem_.a->offset, {problem_.a_row}, {fmt::format("row_{}", i)}));
    const std::string groups = shader_.size(Dim(problem_.inner.value() / group_size));
    for (int i = 0; i < columns; ++i) shader_.line("let groups_{0} = column_{0} * {1};", i, groups);
    shader_.open("for (var part = 0u; part < {}; part++) {{", shader_.loop_end(groups));
    write_group();
    shader_.close();
    results_.write_results();
    writer_.add(shader_, workgroups, all_operations);
  }

 private:
  static constexpr int threads = 32, rows = BlockResults::rows, columns = BlockResults::columns;
  static constexpr int group_size = static_cast<int>(quantised_group), fours = group_size / 4;

  void write_group() {
    for (int i = 0; i < columns; ++i) {
      shader_.line("let at_{0} = groups_{0} + part;", i);
      for (int block = 0; block < blocks(); ++block)
        shader_.line("let weights_{}_{} = {};", i, block,
                     shader_.load_block(problem_.b->binding, fmt::format("at_{} * {}u + {}u", i, blocks(), block)));
    }
    for (int i = 0; i < rows; ++i) {
      read_row(i);
      shader_.line("var part_{} = vec4f();", i);
      if (problem_.mins != nullptr) shader_.line("var values_{} = vec4f();", i);
    }
    for (int four = 0; four < fours; ++four) add_products(four);
    shader_.line("let scale = {};", of_columns(*problem_.scales));
    if (problem_.mins != nullptr) shader_.line("let least = {};", of_columns(*problem_.mins));
    for (int i = 0; i < rows; ++i) {
      shader_.line("sum_{0} += part_{0} * scale;", i);
      if (problem_.mins != nullptr) shader_.line("sum_{0} += least * dot(values_{0}, vec4f(1.0));", i);
    }
  }

  int blocks() const { return is_int4_ ? 1 : 2; }  // of 16 bytes, in a group
  int sharers() const { return std::min(results_.lanes(), fours); }

  // Declares x_ROW_0 …: the fours of the row's values that this thread loads, every sharers-th.
  void read_row(int i) {
    for (int first = 0; first < fours; first += sharers()) {
      const std::string place =
          fmt::format("a_{} + part * {}u + ({}u + lane % {}u) * 4u", i, group_size, first, sharers());
      shader_.line("let x_{}_{} = {};", i, first / sharers(), read_four_of_operand(shader_, *problem_.a, "a", place));
    }
  }

  // Adds the products of four values of each row with the corresponding weights of the group.
  void add_products(int four) {
    shader_.open("{{");
    shader_.line("let matrix = mat4x4f({}, {}, {}, {});", weights(0, four), weights(1, four), weights(2, four),
                 weights(3, four));
    for (int i = 0; i < rows; ++i) {
      std::string x = fmt::format("x_{}_{}", i, four / sharers());
      if (results_.are_shared()) x = shader_.let("x", fmt::format("subgroupBroadcast({}, {}u)", x, four % sharers()));
      shader_.line("part_{} += {} * matrix;", i, x);
      if (problem_.mins != nullptr) shader_.line("values_{} += {};", i, x);
    }
    shader_.close();
  }

  // Four integers of a column's group. Nibble j of a word of int4 is value j / 2, or 16 values later if j is odd.
  std::string weights(int column, int four) const {
    const std::string word = fmt::format("weights_{}_{}.{}", column, is_int4_ ? 0 : four / 4, "xyzw"[four % 4]);
    if (!is_int4_) return fmt::format("vec4f(unpack4xI8({}))", word);
    return fmt::format("vec4f(unpack4xU8({} & 0x0f0f0f0fu)) - 8.0", four < 4 ? word : fmt::format("({} >> 4u)", word));
  }

  std::string of_columns(const TensorAccess& tensor) {
    std::string values[columns];
    for (int i = 0; i < columns; ++i) values[i] = shader_.load(tensor.binding, fmt::format("at_{}", i));
    return fmt::format("vec4f({}, {}, {}, {})", values[0], values[1], values[2], values[3]);
  }

  KernelWriter& writer_;
  const MatmulProblem& problem_;
  bool is_int4_;
  Shader shader_;
  BlockResults results_;
};

}  // namespace

bool suits_quantised_blocks(const KernelWriter& writer, const MatmulProblem& problem) {
  const Shader shader = writer.shader("matmul", 1);
  return problem.scales != nullptr && problem.batch.empty() && is_multiple(problem.inner, quantised_group) &&
         shader.can_load_blocks(problem.b->binding) && problem.a_inner == Dim(1) && is_multiple(problem.a_row, 4) &&
         begins_in_fours(shader, *problem.a, {});
}

void write_quantised_blocks(KernelWriter& writer, const MatmulProblem& problem) {
  QuantisedBlocks(writer, problem).write();
}

}  // namespace jerboa::wgsl
