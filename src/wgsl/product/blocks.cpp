#include <algorithm>

#include "wgsl/product/block_results.h"
#include "wgsl/product/writers.h"

namespace jerboa::wgsl {
namespace {

// A matrix whose rows, in the first operand, or columns, in the second, are multiplied along the inner dimension.
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

class BlockProduct {
 public:
  BlockProduct(KernelWriter& writer, const MatmulProblem& problem)
      : writer_(writer),
        problem_(problem),
        shader_(writer.shader("matmul_blocks", threads)),
        results_(shader_, writer.kernel(), problem),
        a_(shader_, *problem.a, "a", "a_start", problem.a_batch, problem.a_row, problem.a_inner, problem.rows,
           problem.inner),
        b_(shader_, *problem.b, "b", "b_start", problem.b_batch, problem.b_column, problem.b_inner, problem.columns,
           problem.inner) {}

  void write() {
    write_prologues(shader_, problem_);
    const Dim workgroups = results_.write_place();
    write_batch_offsets(shader_, problem_);
    write_sums();
    results_.write_results();
    writer_.add(shader_, workgroups, all_operations);
  }

 private:
  using Reads = BlockOperand::Reads;
  static constexpr int threads = 64, rows = BlockResults::rows, columns = BlockResults::columns;

  bool shares() const { return results_.are_shared(); }
  // The inner elements per step.
  int step() const {
    if (shares()) return results_.lanes();
    return a_.reads == Reads::along_inner || b_.reads == Reads::along_inner ? 4 : 1;
  }

  // One long sum would round more than sums of sums do, and software drivers have no fused multiply-add.
  void write_sums() {
    const int part = std::max(8, step());
    shader_.open("for (var part = 0u; part < {}; part += {}u) {{", shader_.loop_end(shader_.size(problem_.inner)),
                 part);
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
        shader_.line("let a_{} = {};", i, read(a_, row, fmt::format("(k + lane % {}u)", step()), false));
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

  KernelWriter& writer_;
  const MatmulProblem& problem_;
  Shader shader_;
  BlockResults results_;
  BlockOperand a_, b_;
};

}  // namespace

void write_blocks(KernelWriter& writer, const MatmulProblem& problem) { BlockProduct(writer, problem).write(); }

}  // namespace jerboa::wgsl
