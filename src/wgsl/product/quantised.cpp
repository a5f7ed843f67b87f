#include "wgsl/product/quantised.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "base/integers.h"
#include "wgsl/product/epilogue.h"
#include "wgsl/product/scaled_rows.h"
#include "wgsl/tuned.h"

namespace jerboa::wgsl {
namespace {

constexpr int group_size = static_cast<int>(quantised_group);
constexpr int at_once = QuantisedForm::results_at_once;

constexpr int most_steps = 4;  // more would exhaust the registers

bool multiplies_halves(const Target& target, DType weights) {
  return weights == DType::i4 && target.f16 && target.f16_arithmetic && !target.software;
}

// Adjacent nibbles or bytes of a word as pairs of f16, exactly: after the right prefix bits they are the low bits of
// 1024. Nibble j of a word is value j / 2 of its group, or 16 values later if j is odd.
constexpr const char* pairs_of_nibbles =
    "fn low_pair(word: u32) -> vec2<f16> {\n"
    "  return bitcast<vec2<f16>>((word & 0x000f000fu) | 0x64006400u) - vec2<f16>(1032.0h);\n}\n"
    "fn high_pair(word: u32) -> vec2<f16> {\n"
    "  return fma(bitcast<vec2<f16>>((word & 0x00f000f0u) | 0x64006400u), vec2<f16>(0.0625h), vec2<f16>(-72.0h));\n}\n";
constexpr const char* pairs_of_bytes =
    "fn pair_of_bytes(word: u32) -> vec2<f16> {\n"
    "  return bitcast<vec2<f16>>(((word & 0x00ff00ffu) ^ 0x00800080u) | 0x64006400u) - vec2<f16>(1152.0h);\n}\n";

class QuantisedProduct {
 public:
  QuantisedProduct(KernelWriter& writer, const MatmulProblem& problem, const QuantisedForm& form)
      : writer_(writer),
        problem_(problem),
        form_(form),
        is_int4_(problem.b->dtype == DType::i4),
        groups_(static_cast<int>(problem.inner.value() / group_size)),
        shader_(writer.shader("quantised_matrix_vector", form.threads())) {
    const FoldedKernels& folded = writer.folded();
    if (folded.scaled_rows) scaled_.emplace(shader_, *folded.scaled_rows);
    if (folded.companion) companion_.emplace(KernelWriter(*folded.companion, writer.target(), writer.memories()));
  }

  void write() {
    if (!scaled_) write_prologues(shader_, problem_);
    write_epilogues();
    prepare_shader();
    const Dim blocks = groups_of(problem_.columns, form_.all_results());
    shader_.line("let row = group / {0}; let first_column = group % {0} * {1}u;", shader_.size(blocks),
                 form_.all_results());
    if (problem_.offsets != nullptr) find_group();
    shader_.line("let member = lane % {0}u; let team = lane / {0}u;", form_.team);
    if (!scaled_) shader_.line("let a_start = {};", shader_.place(problem_.a->offset, {problem_.a_row}, {"row"}));
    for (int step = 0; step < form_.steps; ++step) write_place_of_group(step);
    declare_fetched();
    shader_.open("{{");
    fetch("0u");
    shader_.close();
    if (scaled_) scaled_->begin(0);
    for (int step = 0; step < form_.steps; ++step) write_part_of_row(step);
    if (scaled_) keep_totals();
    shader_.open("for (var result = 0u; result < {}u; result += {}u) {{", form_.results, columns_at_once());
    write_sums();
    if (has_subgroups(shader_.target()))
      add_up_in_subgroups();
    else
      keep_sums();
    shader_.close();
    write_results();
    writer_.add(std::move(shader_), blocks * problem_.rows, all_operations);
  }

 private:
  using Words = std::vector<std::string>;

  // The product itself is number 0, its companion number 1. They share the loads that are in flight at once.
  int products() const { return companion_ ? 2 : 1; }
  int columns_at_once() const { return at_once / products(); }
  const MatmulProblem& of(int product) const { return product == 0 ? problem_ : *companion_; }
  // The product of one of the results that are computed at once, whose columns are adjacent.
  const MatmulProblem& problem_of(int result) const { return of(result / columns_at_once()); }

  // Declares `matrix`, that of the row's group, the last that begins at the row or before it; and `in_group`, since
  // rows before the first group and after the last have none.
  void find_group() {
    const TensorAccess& offsets = *problem_.offsets;
    const std::string groups = shader_.size(problem_.b->shape[0]);
    const auto offset = [&](const std::string& number) {
      return fmt::format("u32(max(i32({}), 0i))", shader_.load(offsets, {number}));
    };
    shader_.line("var low = 0u; var high = {};", groups);
    shader_.open("while (low < high) {{");
    shader_.line("let middle = (low + high) / 2u;");
    shader_.line("if ({} > row) {{ high = middle; }} else {{ low = middle + 1u; }}", offset("middle + 1u"));
    shader_.close();
    shader_.line("let matrix = min(low, {} - 1u);", groups);
    shader_.line("let in_group = low < {} && row >= {};", groups, offset("matrix"));
  }

  void write_epilogues() {
    if (problem_.offsets != nullptr) {
      shader_.begin_function("fn finish(batch: u32, row: u32, column: u32, product: f32)");
      shader_.store(writer_.kernel().results[0], {"row", "column"}, "product");
      return shader_.end_function();
    }
    int companion_result = -1;
    if (companion_) {
      const KernelSpec& kernel = *writer_.folded().companion;
      Epilogue(shader_, kernel, *companion_).write_value("companion");
      companion_result = kernel.stores.front().binding;
    }
    Epilogue(shader_, writer_.kernel(), problem_).write(companion_result);
  }

  void prepare_shader() {
    if (!writer_.memories_overlap())
      for (int product = 0; product < products(); ++product)
        for (const TensorAccess* operand : {of(product).b, of(product).scales, of(product).mins})
          if (operand != nullptr) shader_.keep_loads_in_place(operand->binding);
    if (!shader_.target().f16) return;
    shader_.use_f16();
    shader_.declare(is_int4_ ? pairs_of_nibbles : pairs_of_bytes);
  }

  bool teams_fill_rows() const { return form_.team * form_.steps == groups_; }

  // Threads past the last group repeat it, with zeros for the row's values.
  void write_place_of_group(int step) {
    shader_.line("let wanted_{0} = member + {1}u;", step, step * form_.team);
    shader_.line(
        "let group_{0} = {1};", step,
        teams_fill_rows() ? fmt::format("wanted_{}", step) : fmt::format("min(wanted_{}, {}u)", step, groups_ - 1));
  }

  // Declares x_STEP_0 … x_STEP_7: the row's values for a group of weights, four each. For halves they are divided by
  // the largest magnitude among them, the factor, so that none of their sums overflows, and regrouped into the pairs
  // that the weights come in.
  void write_part_of_row(int step) {
    const bool fills = teams_fill_rows();
    const std::vector<std::string> totals = scaled_ && !fills ? scaled_->totals(0) : std::vector<std::string>();
    for (const std::string& total : totals) shader_.line("let {}_before_{} = {};", total, step, total);
    for (int i = 0; i < group_size / 4; ++i) {
      const std::string four = read_four(step, i);
      shader_.line("let x_{}_{} = {};", step, i,
                   fills ? four : fmt::format("select(vec4f(), {}, wanted_{} < {}u)", four, step, groups_));
    }
    for (const std::string& total : totals)
      shader_.line("{0} = select({0}_before_{1}, {0}, wanted_{1} < {2}u);", total, step, groups_);
    const auto x = [&](int i) { return fmt::format("x_{}_{}", step, i); };
    if (problem_.mins != nullptr) {
      std::string sum = x(0);
      for (int i = 1; i < group_size / 4; ++i) sum += " + " + x(i);
      shader_.line("let fours_{} = {};", step, sum);
      shader_.line("let row_sum_{0} = (fours_{0}.x + fours_{0}.y) + (fours_{0}.z + fours_{0}.w);", step);
    }
    if (!form_.halves) return;
    std::string peak = fmt::format("abs({})", x(0));
    for (int i = 1; i < group_size / 4; ++i) peak = fmt::format("max({}, abs({}))", peak, x(i));
    shader_.line("let peaks_{} = {};", step, peak);
    shader_.line("let factor_{0} = max(max(max(peaks_{0}.x, peaks_{0}.y), max(peaks_{0}.z, peaks_{0}.w)), 1e-30);",
                 step);
    shader_.line("let inverse_{0} = 1.0 / factor_{0};", step);
    for (int i = 0; i < group_size / 4; ++i)
      for (const char* part : {"xz", "yw"})
        shader_.line("let half_{0}_{1}_{2} = vec2<f16>({3}.{2} * inverse_{0});", step, i, part, x(i));
  }

  // Four values of the row, which are multiplied by a group of weights.
  std::string read_four(int step, int four) {
    if (scaled_) return scaled_->read_four(0, fmt::format("(group_{} * {}u + {}u)", step, group_size / 4, four), "row");
    const std::string place = fmt::format("a_start + group_{} * {}u + {}u", step, group_size, 4 * four);
    return read_four_of_operand(shader_, *problem_.a, "a", place);
  }

  // Every team has the whole row, so that the first can provide the totals that the factor is computed from to all
  // others.
  void keep_totals() {
    const std::vector<std::string> totals = scaled_->totals(0);
    const int size = shader_.target().subgroup_size;
    shader_.shared_array("row_totals", "f32", std::ssize(totals) * pieces());
    for (std::size_t i = 0; i < totals.size(); ++i) {
      const std::size_t first = i * static_cast<std::size_t>(pieces());
      if (has_subgroups(shader_.target())) {
        shader_.use_subgroups();
        shader_.line("let all_{} = subgroupAdd({});", i, totals[i]);
        shader_.line("if (team == 0u && subgroup_lane == 0u) {{ row_totals[{}u + member / {}u] = all_{}; }}", first,
                     size, i);
      } else {
        shader_.line("if (team == 0u) {{ row_totals[{}u + member] = {}; }}", first, totals[i]);
      }
    }
  }

  // WGSL expression of the row's factor, after a barrier.
  std::string row_factor() {
    std::vector<std::string> totals;
    for (std::size_t i = 0; i < scaled_->totals(0).size(); ++i) {
      totals.push_back(shader_.var("row_total", "f32", "0.0"));
      shader_.line("for (var piece = 0u; piece < {}u; piece++) {{ {} += row_totals[{}u + piece]; }}", pieces(),
                   totals.back(), i * static_cast<std::size_t>(pieces()));
    }
    return scaled_->factor("row", totals);
  }

  int blocks_of_group() const { return is_int4_ ? 1 : 2; }  // of 16 bytes

  // Variables for the weights of some results, which are fetched one round ahead.
  void declare_fetched() {
    for_each_group([&](int j, int step) {
      for (int i = 0; i < blocks_of_group(); ++i) shader_.line("var next_{}_{}_{} = vec4u();", j, step, i);
      shader_.line("var next_scale_{0}_{1} = 0.0; var next_min_{0}_{1} = 0.0;", j, step);
    });
  }

  // Loads the weights of the team's results from `first` on. Memory whose loads stay in place cannot be fetched later
  // than this.
  void fetch(const std::string& first) {
    for (int j = 0; j < columns_at_once(); ++j)
      shader_.line("let column_{0} = min(first_column + team * {1}u + {3} + {0}u, {2} - 1u);", j, form_.results,
                   shader_.size(problem_.columns), first);
    for_each_group([&](int j, int step) {
      const MatmulProblem& problem = problem_of(j);
      std::string column = fmt::format("column_{}", j % columns_at_once());
      if (problem_.offsets != nullptr)
        column = fmt::format("(matrix * {} + {})", shader_.size(problem_.columns), column);
      const std::string place = fmt::format("{} * {}u + group_{}", column, groups_, step);
      for (int i = 0; i < blocks_of_group(); ++i)
        shader_.line(
            "next_{}_{}_{} = {};", j, step, i,
            shader_.load_block(problem.b->binding, fmt::format("({}) * {}u + {}u", place, blocks_of_group(), i)));
      shader_.line("next_scale_{}_{} = {};", j, step, shader_.load(problem.scales->binding, place));
      if (problem.mins != nullptr)
        shader_.line("next_min_{}_{} = {};", j, step, shader_.load(problem.mins->binding, place));
    });
  }

  template <class Use>
  void for_each_group(Use use) const {
    for (int j = 0; j < at_once; ++j)
      for (int step = 0; step < form_.steps; ++step) use(j, step);
  }

  // Declares sum_0 …: this thread's part of some results, from the fetched weights; and fetches the next ones.
  void write_sums() {
    for_each_group([&](int j, int step) {
      for (int i = 0; i < blocks_of_group(); ++i)
        shader_.line("let weights_{0}_{1}_{2} = next_{0}_{1}_{2};", j, step, i);
      shader_.line("let scale_{0}_{1} = next_scale_{0}_{1}; let min_{0}_{1} = next_min_{0}_{1};", j, step);
    });
    // Unconditional: the last results are fetched again and not used.
    fetch(fmt::format("min(result + {}u, {}u)", columns_at_once(), form_.results - columns_at_once()));
    for (int j = 0; j < at_once; ++j) shader_.line("var sum_{} = 0.0;", j);
    for_each_group([&](int j, int step) {
      Words words;
      for (int i = 0; i < blocks_of_group(); ++i)
        for (const char part : {'x', 'y', 'z', 'w'})
          words.push_back(fmt::format("weights_{}_{}_{}.{}", j, step, i, part));
      shader_.open("{{");
      write_product(step, words);
      const std::string factor = form_.halves ? fmt::format(" * factor_{}", step) : "";
      shader_.line("sum_{0} += product * (scale_{0}_{1}{2});", j, step, factor);
      if (problem_.mins != nullptr) shader_.line("sum_{0} += min_{0}_{1} * row_sum_{1};", j, step);
      shader_.close();
    });
  }

  // Declares `product`: the sum of a group of integers times the row's values.
  void write_product(int step, const Words& words) {
    const auto x = [&](std::size_t i) { return fmt::format("x_{}_{}", step, i); };
    if (form_.halves) {
      shader_.line("var pairs = vec2f();");
      for (std::size_t i = 0; i < words.size(); ++i) {
        const auto half = [&](std::size_t four, const char* part) {
          return fmt::format("half_{}_{}_{}", step, four, part);
        };
        shader_.line("let next_{0} = {1} >> 8u;", i, words[i]);
        shader_.line(
            "pairs += vec2f(fma(low_pair({0}), {2}, fma(high_pair({0}), {3}, fma(low_pair(next_{1}), {4}, "
            "high_pair(next_{1}) * {5}))));",
            words[i], i, half(i, "xz"), half(i + 4, "xz"), half(i, "yw"), half(i + 4, "yw"));
      }
      shader_.line("let product = pairs.x + pairs.y;");
    } else if (shader_.target().f16) {
      shader_.line("var pairs = vec2f();");
      const auto add = [&](const std::string& function, const std::string& word, const std::string& values) {
        shader_.line("pairs = fma(vec2f({}({})), {}, pairs);", function, word, values);
      };
      for (std::size_t i = 0; i < words.size(); ++i) {
        shader_.line("let next_{0} = {1} >> 8u;", i, words[i]);
        const std::string next = fmt::format("next_{}", i);
        if (is_int4_) {
          add("low_pair", words[i], x(i) + ".xz");
          add("high_pair", words[i], x(i + 4) + ".xz");
          add("low_pair", next, x(i) + ".yw");
          add("high_pair", next, x(i + 4) + ".yw");
        } else {
          add("pair_of_bytes", words[i], x(i) + ".xz");
          add("pair_of_bytes", next, x(i) + ".yw");
        }
      }
      shader_.line("let product = pairs.x + pairs.y;");
    } else {
      shader_.line("var product = 0.0;");
      for (std::size_t i = 0; i < words.size(); ++i) {
        if (is_int4_) {
          shader_.line("product += dot(vec4f(unpack4xU8({} & 0x0f0f0f0fu)) - 8.0, {});", words[i], x(i));
          shader_.line("product += dot(vec4f(unpack4xU8(({} >> 4u) & 0x0f0f0f0fu)) - 8.0, {});", words[i], x(i + 4));
        } else {
          shader_.line("product += dot(vec4f(unpack4xI8({})), {});", words[i], x(i));
        }
      }
    }
  }

  // The number of partial sums per result in workgroup memory.
  int pieces() const {
    return has_subgroups(shader_.target()) ? form_.team / shader_.target().subgroup_size : form_.team;
  }

  // Each exchange also halves the number of sums that a thread has, so that four sums cost little more than one.
  void add_up_in_subgroups() {
    shader_.use_subgroups();
    const int size = shader_.target().subgroup_size;
    const auto exchange = [&](const std::string& to, const std::string& first, const std::string& second,
                              int distance) {
      shader_.line(
          "let {0} = select({1}, {2}, (subgroup_lane & {3}u) != 0u) + subgroupShuffleXor(select({2}, {1}, "
          "(subgroup_lane & {3}u) != 0u), {3}u);",
          to, first, second, distance);
    };
    exchange("pair_0", "sum_0", "sum_2", size / 2);
    exchange("pair_1", "sum_1", "sum_3", size / 2);
    exchange("single", "pair_0", "pair_1", size / 4);
    shader_.line("var total = single;");
    for (int distance = size / 8; distance > 0; distance /= 2)
      shader_.line("total += subgroupShuffleXor(total, {}u);", distance);
    shader_.line("let result_lane = subgroup_lane / {}u;", size / 4);
    shader_.open("if (subgroup_lane % {}u == 0u) {{", size / 4);
    shader_.line("parts[({} + result_lane % {}u) * {}u + member / {}u] = total;",
                 first_part(fmt::format("result_lane / {}u", columns_at_once())), columns_at_once(), pieces(), size);
    shader_.close();
    shader_.shared_array("parts", "f32", std::int64_t{form_.all_results()} * products() * pieces());
  }

  // The number of a team's first result in a round, after those of the products before.
  std::string first_part(const std::string& product) const {
    return fmt::format("{} * {}u + team * {}u + result", product, form_.all_results(), form_.results);
  }

  void keep_sums() {
    for (int j = 0; j < at_once; ++j)
      shader_.line("parts[({} + {}u) * {}u + member] = sum_{};", first_part(fmt::format("{}u", j / columns_at_once())),
                   j % columns_at_once(), pieces(), j);
    shader_.shared_array("parts", "f32", std::int64_t{form_.all_results()} * products() * pieces());
  }

  void write_results() {
    shader_.barrier();
    const std::string factor = scaled_ ? row_factor() : "";
    shader_.open("for (var number = lane; number < {}u; number += {}u) {{", form_.all_results(), form_.threads());
    std::vector<std::string> sums;
    for (int product = 0; product < products(); ++product) {
      sums.push_back(shader_.var("sum", "f32", "0.0"));
      shader_.line("for (var piece = 0u; piece < {0}u; piece++) {{ {1} += parts[(number + {2}u) * {0}u + piece]; }}",
                   pieces(), sums.back(), product * form_.all_results());
      if (scaled_) shader_.line("{} *= {};", sums.back(), factor);
    }
    shader_.line("let column = first_column + number;");
    if (problem_.offsets != nullptr) sums[0] = fmt::format("select(0.0, {}, in_group)", sums[0]);
    if (companion_) sums[1] = fmt::format("companion(0u, row, column, {})", sums[1]);
    shader_.line("if (column < {}) {{ finish(0u, row, column, {}); }}", shader_.size(problem_.columns),
                 fmt::join(sums, ", "));
    shader_.close();
  }

  KernelWriter& writer_;
  const MatmulProblem& problem_;
  QuantisedForm form_;
  bool is_int4_;
  int groups_;
  Shader shader_;
  std::optional<MatmulProblem> companion_;
  std::optional<ScaledRows> scaled_;
};

}  // namespace

std::optional<QuantisedForm> choose_quantised(const KernelWriter& writer, const MatmulProblem& problem) {
  const Target& target = writer.target();
  // Rows that share a weight are soon faster in tiles; those of different groups read different weights anyway.
  const std::int64_t few_rows = problem.offsets != nullptr ? 32 : 4;
  const std::optional<KernelSpec>& companion = writer.folded().companion;
  if (problem.scales == nullptr || problem.rows.upper_bound() > few_rows) return std::nullopt;
  if (companion && companion->operands.size() != writer.kernel().operands.size()) return std::nullopt;
  if (!problem.batch.empty() || !problem.columns.is_constant() || !is_multiple(problem.inner, group_size) ||
      problem.columns.value() * problem.inner.value() < many_weights)
    return std::nullopt;
  const Shader shader = writer.shader("matmul", 1);
  if (!shader.can_load_blocks(problem.b->binding) || !(problem.a_inner == Dim(1)) || !is_multiple(problem.a_row, 4) ||
      !begins_in_fours(shader, *problem.a, {}))
    return std::nullopt;
  if (target.tuned != nullptr && target.fixed_threads == 0)
    if (const QuantisedForm* tuned = target.tuned->quantised_form_of(problem)) return *tuned;

  // A team of some subgroups, chosen so that as few threads as possible are left without work.
  const int groups = static_cast<int>(problem.inner.value() / group_size);
  const int unit = has_subgroups(target) ? target.subgroup_size : 32;
  const int most_threads = std::min(target.max_invocations, 256) / unit * unit;
  constexpr int usual_threads = 128, most_results = 32;
  QuantisedForm form;
  form.results = most_results;
  form.steps = static_cast<int>(detail::divide_up(groups, most_threads));
  form.team = static_cast<int>(detail::round_up(detail::divide_up(groups, form.steps), unit));
  form.teams = std::max(1, std::min(usual_threads, target.max_invocations) / form.team);
  form.halves = multiplies_halves(target, problem.b->dtype);
  if (form.steps > most_steps) return std::nullopt;

  // Many results for each value of the row, while the whole device has work: on an H200, which has 264, the best have
  // 256 or more.
  const std::int64_t wanted = target.resident_workgroups > 0 ? target.resident_workgroups * 15 / 16 : 256;
  const auto bytes = [&] {
    const int numbers = form.all_results() * problem.products + (writer.folded().scaled_rows ? 1 : 0);
    return std::int64_t{4} * numbers * (has_subgroups(target) ? form.team / unit : form.team);
  };
  const std::int64_t rows = problem.offsets != nullptr ? problem.rows.upper_bound() : 1;
  const auto workgroups = [&] { return rows * detail::divide_up(problem.columns.value(), form.all_results()); };
  while (form.results > QuantisedForm::results_at_once && (workgroups() < wanted || bytes() > target.workgroup_bytes))
    form.results /= 2;
  return form;
}

std::vector<QuantisedForm> quantised_candidates(const Target& target, DType weights, std::int64_t inner, int products) {
  const std::int64_t groups = inner / group_size;
  const int unit = has_subgroups(target) ? target.subgroup_size : 32;
  const int most_threads = std::min(target.max_invocations, 256) / unit * unit;
  std::vector<QuantisedForm> forms;
  for (int steps = 1; steps <= most_steps; ++steps)
    for (const int teams : {1, 2, 4})
      for (const int results : {4, 8, 16, 32}) {
        const std::int64_t team = detail::round_up(detail::divide_up(groups, steps), unit);
        if (team * teams > most_threads || (steps - 1) * team >= groups) continue;
        QuantisedForm form{static_cast<int>(team), teams, steps, results, multiplies_halves(target, weights)};
        // Includes the sum of squares of a norm before it.
        const std::int64_t numbers = std::int64_t{form.all_results()} * products + 1;
        if (4 * numbers * (has_subgroups(target) ? form.team / unit : form.team) <= target.workgroup_bytes)
          forms.push_back(form);
      }
  return forms;
}

void write_quantised(KernelWriter& writer, const MatmulProblem& problem, const QuantisedForm& form) {
  QuantisedProduct(writer, problem, form).write();
}

bool write_quantised_groups(KernelWriter& writer) {
  const MatmulProblem problem = MatmulProblem::of_groups(writer.kernel());
  const std::optional<QuantisedForm> form = choose_quantised(writer, problem);
  if (form) write_quantised(writer, problem, *form);
  return form.has_value();
}

}  // namespace jerboa::wgsl
