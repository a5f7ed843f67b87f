#include <algorithm>
#include <fmt/ranges.h>

#include "wgsl/product/epilogue.h"
#include "wgsl/product/scaled_rows.h"
#include "wgsl/product/writers.h"

namespace jerboa::wgsl {
namespace {

// WGSL expression of four elements as f32, from that of two words of 16-bit floats.
std::string four_of_pair(DType dtype, const std::string& pair) {
  if (dtype == DType::f16) return fmt::format("vec4f(unpack2x16float({0}.x), unpack2x16float({0}.y))", pair);
  return fmt::format("bitcast<vec4f>(vec4u({0}.x << 16u, {0}.x & 0xffff0000u, {0}.y << 16u, {0}.y & 0xffff0000u))",
                     pair);
}

// The same from 16 bytes, which contain two groups of four 16-bit floats.
std::string four_of(DType dtype, const std::string& bytes, int four) {
  if (bits(dtype) == 32) return fmt::format("bitcast<vec4f>({})", bytes);
  return four_of_pair(dtype, fmt::format("{}.{}", bytes, four == 0 ? "xy" : "zw"));
}

// Multiplies a few rows by the transpose of a matrix of weights, which is read once: the number of bytes in flight
// decides. A team of threads computes some columns. Each thread reads 16 bytes of weights at a time, all that it needs
// for one pass before it uses the first. A companion is computed along with the product: its weights are read in the
// same way, and its result goes to the product's epilogue.
class VectorProduct {
 public:
  VectorProduct(KernelWriter& writer, const MatmulProblem& problem, const MatmulForm& form)
      : writer_(writer),
        problem_(problem),
        form_(form),
        rows_(static_cast<int>(problem.rows.value())),
        step_(16 * 8 / bits(problem.b->dtype)),
        loads_(problem.inner.value() / step_),
        shader_(writer.shader("matrix_vector", form.threads())) {
    const FoldedKernels& folded = writer.folded();
    if (folded.companion) companion_.emplace(KernelWriter(*folded.companion, writer.target(), writer.memories()));
    if (folded.scaled_rows) scaled_.emplace(shader_, *folded.scaled_rows);
  }

  void write() {
    write_functions();
    const bool holds_rows = has_phases && form_.blocks > 0;
    const Dim across = groups_of(problem_.columns, std::int64_t{form_.columns} * std::max(1, form_.blocks));
    shader_.line("let batch = group / {0};", shader_.size(across));
    if (!holds_rows) shader_.line("let first_column = group % {} * {}u;", shader_.size(across), form_.columns);
    write_batch_offsets(shader_, problem_);
    shader_.line("let team = lane / {0}u; let part = lane % {0}u;", form_.lanes);
    if (!holds_rows)
      for (int product = 0; product < products(); ++product) write_places(product);
    for (int row = 0; row < rows_; ++row) {
      if (scaled_)
        scaled_->begin(row);
      else
        shader_.line("let a_{0} = (a_start + {0}u * {1}) / {2}u;", row, shader_.size(problem_.a_row), a_step());
    }
    if (holds_rows) {
      write_blocks(across);
    } else {
      write_sums();
      write_results();
    }
    writer_.add(shader_, element_count(problem_.batch) * across, all_operations);
  }

 private:
  // The first operand is read once, and multiplied by one block of columns after another.
  void write_blocks(const Dim& across) {
    const std::int64_t each = loads_ / form_.lanes;
    for (std::int64_t k = 0; k < each; ++k)
      for (int four = 0; four < step_ / 4; ++four)
        for (int row = 0; row < rows_; ++row) {
          const std::string at = fmt::format("(part + {}u)", k * form_.lanes);
          const std::string number = fmt::format("({} * {}u + {}u)", at, step_ / 4, four);
          shader_.line("let held_{}_{}_{} = {};", row, k, four,
                       scaled_ ? scaled_->read_four(row, number) : read_four(row, number, four));
        }
    shader_.line("let first_block = group % {} * {}u;", shader_.size(across), form_.blocks);
    shader_.open("for (var block = first_block; block < min(first_block + {}u, {}); block++) {{", form_.blocks,
                 shader_.size(groups_of(problem_.columns, form_.columns)));
    shader_.line("let first_column = block * {}u;", form_.columns);
    for (int product = 0; product < products(); ++product) write_places(product);
    const std::int64_t in_pass = std::max<std::int64_t>(1, most_in_flight() / (form_.part_columns * products()));
    for (std::int64_t first = 0; first < each; first += in_pass) {
      const std::int64_t count = std::min(in_pass, each - first);
      shader_.open("{{");
      write_loads("part", first, count);
      for (std::int64_t k = first; k < first + count; ++k)
        for (int four = 0; four < step_ / 4; ++four) {
          write_weights(k, four);
          for (int row = 0; row < rows_; ++row) write_dots(row, k, four, fmt::format("held_{}_{}_{}", row, k, four));
        }
      shader_.close();
    }
    write_results();
    shader_.barrier();
    shader_.close();
  }

  // The product itself is number 0, its companion number 1.
  int products() const { return companion_ ? 2 : 1; }
  const TensorAccess& weights(int product) const { return product == 0 ? *problem_.b : *companion_->b; }
  static const char* name_of(int product) { return product == 0 ? "b" : "companion"; }
  // Elements of the first operand in 16 bytes.
  int a_step() const { return 16 * 8 / bits(problem_.a->dtype); }

  void write_functions() {
    if (!scaled_) write_prologue(shader_, *problem_.a, "a");
    for (int product = 0; product < products(); ++product) write_prologue(shader_, weights(product), name_of(product));
    int companion_result = -1;
    if (companion_) {
      const KernelSpec& kernel = *writer_.folded().companion;
      Epilogue(shader_, kernel, *companion_).write_value("companion");
      companion_result = kernel.stores.front().binding;
    }
    Epilogue(shader_, writer_.kernel(), problem_).write(companion_result);
  }

  // Declares where each column's weights begin, in 16 bytes. Columns past the end repeat the last one, and are not
  // stored.
  void write_places(int product) {
    const bool partial = !is_multiple(problem_.columns, form_.columns);
    const std::string start = product == 0 ? "b_start" : shader_.size(companion_->b->offset);
    const Dim& stride = product == 0 ? problem_.b_column : companion_->b_column;
    for (int i = 0; i < form_.part_columns; ++i) {
      const std::string column = fmt::format("first_column + team * {}u + {}u", form_.part_columns, i);
      const std::string safe =
          partial ? fmt::format("min({}, {} - 1u)", column, shader_.size(problem_.columns)) : "(" + column + ")";
      shader_.line("let weights_{}_{} = ({} + {} * {}) / {}u;", product, i, start, safe, shader_.size(stride), step_);
      for (int row = 0; row < rows_; ++row) shader_.line("var sum_{}_{}_{} = 0.0;", product, row, i);
    }
  }

  // Each thread reads every lanes-th 16 bytes of a row, some of them per pass.
  void write_sums() {
    const std::int64_t each = loads_ / form_.lanes;  // per thread
    const std::int64_t in_pass =
        std::max<std::int64_t>(1, std::min(each, most_in_flight() / (form_.part_columns * products())));
    if (each >= 2 * in_pass) {
      shader_.open("for (var begin = part; begin < {}u; begin += {}u) {{", each / in_pass * in_pass * form_.lanes,
                   in_pass * form_.lanes);
      write_pass("begin", in_pass);
      shader_.close();
    } else if (each > 0) {
      write_pass("part", in_pass);
    }
    const std::int64_t done = each / in_pass * in_pass;
    if (each > done) {
      shader_.open("{{");
      write_pass(fmt::format("(part + {}u)", done * form_.lanes), each - done);
      shader_.close();
    }
    if (each * form_.lanes == loads_) return;
    shader_.open("if (part < {}u) {{", loads_ - each * form_.lanes);
    write_pass(fmt::format("(part + {}u)", each * form_.lanes), 1);
    shader_.close();
  }

  // Calls `f` with each product's number and each of a team's columns.
  template <class F>
  void for_each_column(F f) const {
    for (int product = 0; product < products(); ++product)
      for (int i = 0; i < form_.part_columns; ++i) f(product, i);
  }

  std::int64_t most_in_flight() const { return shader_.target().software ? 2 : 16; }

  // Loads `count` times 16 bytes of each column; number k is at `from` plus k times the number of lanes.
  void write_loads(const std::string& from, std::int64_t first, std::int64_t count) {
    for (std::int64_t k = first; k < first + count; ++k)
      for_each_column([&](int product, int i) {
        const std::string place = fmt::format("weights_{}_{} + {} + {}u", product, i, from, k * form_.lanes);
        shader_.line("let w_{}_{}_{} = {};", product, i, k,
                     shader_.load_sixteen_bytes(weights(product).binding, place));
      });
  }

  // Processes the 16 bytes numbered `from` and every lanes-th after them, `count` in all.
  void write_pass(const std::string& from, std::int64_t count) {
    write_loads(from, 0, count);
    for (std::int64_t k = 0; k < count; ++k)
      for (int four = 0; four < step_ / 4; ++four)
        write_products(fmt::format("({} + {}u)", from, k * form_.lanes), k, four);
  }

  // Multiplies four weights of each column; `at`: the number of their 16 bytes.
  void write_products(const std::string& at, std::int64_t k, int four) {
    write_weights(k, four);
    for (int row = 0; row < rows_; ++row) {
      const std::string number = fmt::format("({} * {}u + {}u)", at, step_ / 4, four);
      const std::string x = shader_.let("x", scaled_ ? scaled_->read_four(row, number) : read_four(row, number, four));
      write_dots(row, k, four, x);
    }
  }

  void write_weights(std::int64_t k, int four) {
    for_each_column([&](int product, int i) {
      const TensorAccess& operand = weights(product);
      const std::string given = four_of(operand.dtype, fmt::format("w_{}_{}_{}", product, i, k), four);
      shader_.line("let v_{}_{}_{}_{} = {};", product, i, k, four, prepared(operand, name_of(product), given));
    });
  }

  void write_dots(int row, std::int64_t k, int four, const std::string& x) {
    for_each_column([&](int product, int i) {
      shader_.line("sum_{0}_{1}_{2} += dot(v_{0}_{2}_{3}_{4}, {5});", product, row, i, k, four, x);
    });
  }

  // Four elements of a row of the first operand, by the index of the four; adjacent threads read adjacent ones.
  std::string read_four(int row, const std::string& number, int four) {
    const int fours = a_step() / 4;  // in 16 bytes
    const std::string place =
        fours == 1 ? fmt::format("a_{} + {}", row, number) : fmt::format("a_{} + {} / {}u", row, number, fours);
    const std::string bytes = shader_.load_sixteen_bytes(problem_.a->binding, place);
    if (fours == 1) return prepared(*problem_.a, "a", four_of(problem_.a->dtype, bytes, 0));
    // With 16-bit weights, a thread needs both halves of 16 bytes; with 32-bit weights, the one that `number` selects.
    if (step_ / 4 == fours) return prepared(*problem_.a, "a", four_of(problem_.a->dtype, bytes, four));
    const std::string both = shader_.let("both", bytes);
    const std::string pair = shader_.let("pair", fmt::format("select({0}.xy, {0}.zw, ({1} & 1u) == 1u)", both, number));
    return prepared(*problem_.a, "a", four_of_pair(problem_.a->dtype, pair));
  }

  static std::string prepared(const TensorAccess& operand, const char* name, const std::string& four) {
    return operand.prologue.empty() ? four : fmt::format("prepare_four_{}({})", name, four);
  }

  // Values of which the threads of a team have parts, to be added up in workgroup memory: the sums, and the inputs of
  // the rows' factors.
  std::vector<std::string> shared_values() const {
    std::vector<std::string> values;
    for (int i = 0; i < form_.part_columns; ++i)
      for (int row = 0; row < rows_; ++row)
        for (int product = 0; product < products(); ++product)
          values.push_back(fmt::format("sum_{}_{}_{}", product, row, i));
    for (int row = 0; scaled_ && row < rows_; ++row)
      for (const std::string& total : scaled_->totals(row)) values.push_back(total);
    return values;
  }

  // Adds up the parts of a team's threads; then some threads finish a result each.
  void write_results() {
    const int size = shader_.target().subgroup_size;
    const bool by_subgroups = size > 1 && form_.lanes % size == 0;
    const int parts = by_subgroups ? form_.lanes / size : form_.lanes;  // of each value
    const std::vector<std::string> values = shared_values();
    if (by_subgroups) shader_.use_subgroups();
    shader_.shared_array("parts", "f32", std::ssize(values) * form_.across() * parts);
    shader_.line("let team_parts = team * {}u;", values.size() * static_cast<std::size_t>(parts));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t first = i * static_cast<std::size_t>(parts);
      if (by_subgroups) {
        const std::string all = shader_.let("all", fmt::format("subgroupAdd({})", values[i]));
        shader_.line("if (subgroup_lane == 0u) {{ parts[team_parts + {}u + part / {}u] = {}; }}", first, size, all);
      } else {
        shader_.line("parts[team_parts + {}u + part] = {};", first, values[i]);
      }
    }
    shader_.barrier();
    const int per_team = form_.part_columns * rows_;
    shader_.open("for (var number = lane; number < {}u; number += {}u) {{", form_.across() * per_team, form_.threads());
    shader_.line("let column = first_column + number / {0}u; let row = number % {0}u;", rows_);
    shader_.line("let team_values = number / {}u * {}u;", per_team, values.size());
    const auto total = [&](const std::string& value) {
      const std::string from = shader_.let("from", fmt::format("(team_values + {}) * {}u", value, parts));
      const std::string sum = shader_.var("total", "f32", fmt::format("parts[{}]", from));
      if (parts > 1) shader_.line("for (var i = 1u; i < {}u; i++) {{ {} += parts[{} + i]; }}", parts, sum, from);
      return sum;
    };
    std::vector<std::string> sums;
    for (int product = 0; product < products(); ++product)
      sums.push_back(total(fmt::format("number % {}u * {}u + {}u", per_team, products(), product)));
    if (scaled_) {
      const std::size_t each = scaled_->totals(0).size();
      std::vector<std::string> totals;
      for (std::size_t i = 0; i < each; ++i)
        totals.push_back(total(fmt::format("{}u + row * {}u + {}u", per_team * products(), each, i)));
      const std::string factor = scaled_->factor("row", totals);
      for (std::string& sum : sums) sum = fmt::format("({} * {})", sum, factor);
    }
    if (companion_) sums[1] = fmt::format("companion(batch, row, column, {})", sums[1]);
    const std::string finish = fmt::format("finish(batch, row, column, {});", fmt::join(sums, ", "));
    if (is_multiple(problem_.columns, form_.columns))
      shader_.line("{}", finish);
    else
      shader_.line("if (column < {}) {{ {} }}", shader_.size(problem_.columns), finish);
    shader_.close();
  }

  KernelWriter& writer_;
  const MatmulProblem& problem_;
  const MatmulForm& form_;
  int rows_, step_;     // step_: weights in 16 bytes
  std::int64_t loads_;  // of 16 bytes in a row of weights
  Shader shader_;
  std::optional<MatmulProblem> companion_;
  std::optional<ScaledRows> scaled_;
};

}  // namespace

void write_vectors(KernelWriter& writer, const MatmulProblem& problem, const MatmulForm& form) {
  VectorProduct(writer, problem, form).write();
}

}  // namespace jerboa::wgsl
