#include "wgsl/product/quantised_blocks.h"

#include <algorithm>

#include "wgsl/product/epilogue.h"
#include "wgsl/product/writers.h"

namespace jerboa::wgsl {
namespace {

// Each thread computes a block of some rows and four columns, directly from memory, one group of weights after another:
// what it costs to unpack them is shared by the rows. The threads of a subgroup have the same rows, and share what it
// costs to load those (see blocks.cpp).
class QuantisedBlocks {
 public:
  QuantisedBlocks(KernelWriter& writer, const MatmulProblem& problem, int lanes)
      : writer_(writer),
        problem_(problem),
        lanes_(lanes),
        is_int4_(problem.b->dtype == DType::i4),
        shader_(writer.shader("quantised_blocks", threads)) {}

  void write() {
    if (lanes_ > 1) shader_.use_subgroups();
    write_prologue(shader_, *problem_.a, "a");
    Epilogue(shader_, writer_.kernel(), problem_).write_four();
    const Dim down = groups_of(problem_.rows, rows), across = groups_of(problem_.columns, columns * lanes_);
    const int teams = threads / lanes_;
    shader_.line("let wanted = group * {}u + lane / {}u; let is_block = wanted < {};", teams, lanes_,
                 shader_.size(down * across));
    shader_.line("let number = min(wanted, {} - 1u);", shader_.size(down * across));
    shader_.line("let column = ((number % {0}) * {1}u + lane % {1}u) * {2}u; let row = (number / {0}) * {3}u;",
                 shader_.size(across), lanes_, columns, rows);
    // Rows and columns past the end repeat the last one, and are not stored.
    for (int i = 0; i < rows; ++i) {
      const std::string row = fmt::format("min(row + {}u, {} - 1u)", i, shader_.size(problem_.rows));
      shader_.line("let a_{} = {};", i, shader_.place(problem_.a->offset, {problem_.a_row}, {row}));
      shader_.line("var sum_{} = vec4f();", i);
    }
    const Dim groups(problem_.inner.value() / group_size);
    for (int i = 0; i < columns; ++i)
      shader_.line("let groups_{0} = min(column + {0}u, {1} - 1u) * {2};", i, shader_.size(problem_.columns),
                   shader_.size(groups));
    shader_.open("for (var part = 0u; part < {}; part++) {{", shader_.size(groups));
    write_group();
    shader_.close();
    for (int i = 0; i < rows; ++i)
      shader_.line(
          "if (is_block && row + {0}u < {1} && column < {2}) {{ finish_four(0u, row + {0}u, column, sum_{0}); }}", i,
          shader_.size(problem_.rows), shader_.size(problem_.columns));
    writer_.add(shader_, groups_of(down * across, teams));
  }

 private:
  static constexpr int threads = 32, rows = 8, columns = 4;
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
  int sharers() const { return std::min(lanes_, fours); }

  // x_ROW_0 …: the fours of the row's values that this thread loads, every sharers-th.
  void read_row(int i) {
    for (int first = 0; first < fours; first += sharers()) {
      const std::string place =
          fmt::format("a_{} + part * {}u + ({}u + lane % {}u) * 4u", i, group_size, first, sharers());
      shader_.line("let x_{}_{} = {};", i, first / sharers(), read_four_of_operand(shader_, *problem_.a, "a", place));
    }
  }

  // Adds the products of four values of each row with the weights of the group that they meet.
  void add_products(int four) {
    shader_.open("{{");
    shader_.line("let matrix = mat4x4f({}, {}, {}, {});", weights(0, four), weights(1, four), weights(2, four),
                 weights(3, four));
    for (int i = 0; i < rows; ++i) {
      std::string x = fmt::format("x_{}_{}", i, four / sharers());
      if (lanes_ > 1) x = shader_.let("x", fmt::format("subgroupBroadcast({}, {}u)", x, four % sharers()));
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
  int lanes_;
  bool is_int4_;
  Shader shader_;
};

}  // namespace

bool suits_quantised_blocks(const KernelWriter& writer, const MatmulProblem& problem) {
  const Shader shader = writer.shader("matmul", 1);
  return problem.scales != nullptr && problem.batch.empty() && is_multiple(problem.columns, 4) &&
         is_multiple(problem.inner, quantised_group) && shader.can_load_blocks(problem.b->binding) &&
         problem.a_inner == Dim(1) && is_multiple(problem.a_row, 4) && begins_in_fours(shader, *problem.a, {});
}

void write_quantised_blocks(KernelWriter& writer, const MatmulProblem& problem) {
  QuantisedBlocks(writer, problem, sharing_lanes(writer.target(), problem)).write();
}

}  // namespace jerboa::wgsl
