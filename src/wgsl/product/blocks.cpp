#include <algorithm>

#include "wgsl/product/epilogue.h"
#include "wgsl/product/writers.h"

namespace jerboa::wgsl {
namespace {

// A matrix whose rows, in the product's first operand, or columns, in the second, meet along the inner dimension.
struct BlockOperand {
  enum class Reads { elements, along_inner, across };  // the last two: four at a time

  const TensorAccess* tensor;
  const char *name, *start;
  Dim stride, inner_stride;
  Reads reads = Reads::elements;

  BlockOperand(const Shader& shader, const TensorAccess& access, const char* operand_name, const char* operand_start,
               const std::vector<Dim>& batch, const Dim& step, const Dim& inner_step, const Dim& size,
               const Dim& inner_size)
      : tensor(&access), name(operand_name), start(operand_start), stride(step), inner_stride(inner_step) {
    if (!begins_in_fours(shader, access, batch)) return;
    if (inner_stride == Dim(1) && is_multiple(stride, 4) && is_multiple(inner_size, 4)) reads = Reads::along_inner;
    if (stride == Dim(1) && is_multiple(inner_stride, 4) && is_multiple(size, 4)) reads = Reads::across;
  }
};

// Each thread computes a block of some rows and four columns, directly from memory: software drivers have no faster
// memory than that. They load the values of a subgroup's threads one by one, which takes several times as long as to
// multiply them. The threads of a subgroup therefore have the same rows, and each loads one inner element of a row for
// all of them.
class BlockProduct {
 public:
  BlockProduct(KernelWriter& writer, const MatmulProblem& problem, int lanes)
      : writer_(writer),
        problem_(problem),
        lanes_(lanes),
        shader_(writer.shader("matmul_blocks", threads)),
        a_(shader_, *problem.a, "a", "a_start", problem.a_batch, problem.a_row, problem.a_inner, problem.rows,
           problem.inner),
        b_(shader_, *problem.b, "b", "b_start", problem.b_batch, problem.b_column, problem.b_inner, problem.columns,
           problem.inner) {}

  void write() {
    if (shares()) shader_.use_subgroups();
    write_prologues(shader_, problem_);
    Epilogue epilogue(shader_, writer_.kernel(), problem_);
    const bool in_fours = epilogue.can_take_four();
    in_fours ? epilogue.write_four() : epilogue.write();
    const Dim workgroups = write_place();
    write_batch_offsets(shader_, problem_);
    // Rows and columns past the end repeat the last one, and are not stored.
    for (int i = 0; i < rows; ++i) {
      shader_.line("let row_{0} = min(row + {0}u, {1} - 1u);", i, shader_.size(problem_.rows));
      shader_.line("var sum_{} = vec4f();", i);
    }
    for (int i = 0; i < columns; ++i)
      shader_.line("let column_{0} = min(column + {0}u, {1} - 1u);", i, shader_.size(problem_.columns));
    write_sums();
    write_results(in_fours);
    writer_.add(shader_, workgroups);
  }

 private:
  using Reads = BlockOperand::Reads;
  static constexpr int threads = 64, rows = 8, columns = 4;

  bool shares() const { return lanes_ > 1; }
  // Inner elements of a step.
  int step() const {
    if (shares()) return lanes_;
    return a_.reads == Reads::along_inner || b_.reads == Reads::along_inner ? 4 : 1;
  }

  // `row`, `column` and `batch` of this thread's first result, and `is_block`, whether there is one; returns the number
  // of workgroups.
  Dim write_place() {
    const Dim down = groups_of(problem_.rows, rows), across = groups_of(problem_.columns, columns * lanes_);
    const Dim count = element_count(problem_.batch) * down * across;
    const int teams = threads / lanes_;
    shader_.line("let wanted = group * {}u + lane / {}u; let is_block = wanted < {};", teams, lanes_,
                 shader_.size(count));
    shader_.line("let number = min(wanted, {} - 1u);", shader_.size(count));
    shader_.line("let column = ((number % {0}) * {1}u + lane % {1}u) * {2}u; let rest = number / {0};",
                 shader_.size(across), lanes_, columns);
    shader_.line("let row = (rest % {0}) * {1}u; let batch = rest / {0};", shader_.size(down), rows);
    return groups_of(count, teams);
  }

  // One long sum would round more than sums of sums do, and drivers on the CPU have no fused multiply-add.
  void write_sums() {
    const int part = std::max(8, lanes_);
    shader_.open("for (var part = 0u; part < {}; part += {}u) {{", shader_.size(problem_.inner), part);
    for (int i = 0; i < rows; ++i) shader_.line("var part_{} = vec4f();", i);
    shader_.open("for (var k = part; k < min(part + {}u, {}); k += {}u) {{", part, shader_.size(problem_.inner),
                 step());
    read_rows();
    for (int k = 0; k < step(); ++k) {
      if (b_.reads == Reads::along_inner && k % 4 == 0) read_columns(k);
      add_products(k);
    }
    shader_.close();
    for (int i = 0; i < rows; ++i) shader_.line("sum_{0} += part_{0};", i);
    shader_.close();
  }

  void read_rows() {
    for (int i = 0; i < rows; ++i) {
      const std::string row = fmt::format("row_{}", i);
      if (shares())
        shader_.line("let a_{} = {};", i, read(a_, row, fmt::format("(k + lane % {}u)", lanes_), false));
      else if (a_.reads == Reads::along_inner)
        shader_.line("let a_{} = {};", i, read(a_, row, "k", true));
    }
  }

  void read_columns(int k) {
    for (int i = 0; i < columns; ++i)
      shader_.line("let b_{}_{} = {};", k / 4, i,
                   read(b_, fmt::format("column_{}", i), fmt::format("(k + {}u)", k), true));
  }

  // Adds the products of one of a step's inner elements.
  void add_products(int k) {
    const std::string at = fmt::format("(k + {}u)", k);
    if (b_.reads == Reads::across) {
      shader_.line("let across_{} = {};", k, read(b_, "column_0", at, true));
    } else {
      std::string values[columns];
      for (int i = 0; i < columns; ++i)
        values[i] = b_.reads == Reads::along_inner ? fmt::format("b_{}_{}.{}", k / 4, i, "xyzw"[k % 4])
                                                   : read(b_, fmt::format("column_{}", i), at, false);
      shader_.line("let across_{} = vec4f({}, {}, {}, {});", k, values[0], values[1], values[2], values[3]);
    }
    if (!shares() && a_.reads == Reads::across)
      for (int i = 0; i < rows; i += 4)
        shader_.line("let down_{}_{} = {};", k, i / 4, read(a_, fmt::format("row_{}", i), at, true));
    for (int i = 0; i < rows; ++i) shader_.line("part_{} += {} * across_{};", i, row_value(i, k, at), k);
  }

  std::string row_value(int i, int k, const std::string& at) {
    if (shares()) return fmt::format("subgroupBroadcast(a_{}, {}u)", i, k);
    if (a_.reads == Reads::along_inner) return fmt::format("a_{}.{}", i, "xyzw"[k]);
    if (a_.reads == Reads::across) return fmt::format("down_{}_{}.{}", k, i / 4, "xyzw"[i % 4]);
    return read(a_, fmt::format("row_{}", i), at, false);
  }

  std::string read(const BlockOperand& operand, const std::string& at, const std::string& k, bool four) {
    const std::string place = place_in_matrix(shader_, operand.start, at, operand.stride, k, operand.inner_stride);
    return four ? read_four_of_operand(shader_, *operand.tensor, operand.name, place)
                : read_operand(shader_, problem_, *operand.tensor, operand.name, place);
  }

  void write_results(bool in_fours) {
    for (int i = 0; i < rows; ++i) {
      shader_.open("if (is_block && row + {}u < {} && column < {}) {{", i, shader_.size(problem_.rows),
                   shader_.size(problem_.columns));
      if (in_fours)
        shader_.line("finish_four(batch, row + {0}u, column, sum_{0});", i);
      else
        for (int j = 0; j < columns; ++j)
          shader_.line("if (column + {1}u < {2}) {{ finish(batch, row + {0}u, column + {1}u, sum_{0}.{3}); }}", i, j,
                       shader_.size(problem_.columns), "xyzw"[j]);
      shader_.close();
    }
  }

  KernelWriter& writer_;
  const MatmulProblem& problem_;
  int lanes_;
  Shader shader_;
  BlockOperand a_, b_;
};

}  // namespace

// As many threads as a subgroup has, if it pays and if none of them is left without an inner element.
int sharing_lanes(const Target& target, const MatmulProblem& problem) {
  const int lanes = target.subgroup_size;
  const bool is_power = lanes > 1 && (lanes & (lanes - 1)) == 0;
  constexpr int most_lanes = 16, columns_of_thread = 4;
  if (!is_power || lanes > most_lanes || !is_multiple(problem.inner, lanes)) return 1;
  return problem.columns.upper_bound() * 2 >= lanes * columns_of_thread ? lanes : 1;
}

void write_blocks(KernelWriter& writer, const MatmulProblem& problem) {
  BlockProduct(writer, problem, sharing_lanes(writer.target(), problem)).write();
}

}  // namespace jerboa::wgsl
