#include <algorithm>
#include <fmt/ranges.h>
#include <optional>

#include "base/integers.h"
#include "wgsl/product/epilogue.h"
#include "wgsl/product/writers.h"

namespace jerboa::wgsl {
namespace {

// How many f16 products are accumulated in f16: each makes the sum less exact and overflow past 65504 more likely.
constexpr int products_in_f16 = 8;

// Banks of workgroup memory, each one f32 element wide.
constexpr int banks = 32;

// Products computed from tiles in workgroup memory.
class TiledMatmul {
 public:
  TiledMatmul(KernelWriter& writer, const MatmulProblem& problem, const MatmulForm& form)
      : writer_(writer), problem_(problem), form_(form) {
    if (form.chunks > 1) partials_.emplace(writer, problem, form.chunks);
    shader_.emplace(writer.shader("matmul", form.threads()));
    if (form.ahead > 0 && !writer.memories_overlap()) shader_->keep_loads_in_place();
  }

  void write() {
    Epilogue epilogue(*shader_, writer_.kernel(), problem_);
    in_fours_ = epilogue.can_take_four() && (!partials_ || shader_->can_be_wide(partials_->memory()));
    write_prologues(*shader_, problem_);
    if (!partials_ && in_fours_) early_loads_ = epilogue.write_four_after_loads();
    if (!partials_ && !in_fours_) epilogue.write();
    const Dim workgroups = write_tile_place(*shader_, problem_, form_);
    write_batch_offsets(*shader_, problem_);
    const char* member = "lane";
    if (form_.teams > 1) {
      member = "member";
      shader_->line("let team = lane / {0}u; let member = lane % {0}u;", team_threads());
    }
    shader_->line("let thread_column = {1} % {0}u; let thread_row = {1} / {0}u;", form_.across(), member);
    write_product();
    if (form_.teams > 1) join_teams();
    write_results();
    writer_.add(std::move(*shader_), workgroups, all_operations);
    if (partials_) partials_->write_sum(writer_);
  }

 private:
  // One operand: a tile of `width` rows (of the second operand: columns), form_.inner deep. In workgroup memory each
  // inner index is a row of `pitch` elements.
  struct Operand {
    const char* name;
    const char* start;
    const TensorAccess* tensor;
    int width, padding;
    const char* tile_start;
    Dim count, stride, inner_stride;

    bool along_inner() const { return inner_stride == Dim(1); }
  };

  // Threads that fetch four elements along the inner dimension store them in four rows of the tile, and their
  // neighbours along it in rows that begin at the same bank of workgroup memory. Rows are rotated by exclusive or, so
  // that a subgroup's stores hit all 32 banks.
  bool is_swizzled(const Operand& operand) const {
    return !problem_.halves && operand.along_inner() && is_wide(operand) && operand.width % banks == 0 &&
           form_.inner >= 4 && banks % form_.inner == 0;
  }
  int pitch(const Operand& operand) const { return operand.width + (is_swizzled(operand) ? 0 : operand.padding); }

  // Vectors of four per tile.
  std::int64_t size(const Operand& operand) const { return std::int64_t{form_.inner} * pitch(operand) / 4; }
  int buffers() const { return form_.two_buffers ? 2 : 1; }
  int team_threads() const { return form_.threads() / form_.teams; }
  // The inner elements of a tile that a team multiplies.
  int team_inner() const { return form_.inner / form_.teams; }
  // The number of sets of variables that hold tiles between memory and workgroup memory.
  int held_tiles() const { return form_.ahead > 1 ? 2 : 1; }
  // An inner element among those that a team multiplies, as a WGSL expression, and its number if known.
  struct Inner {
    std::string text;
    std::optional<int> number;
  };
  std::string in_team(const std::string& k) const {
    return form_.teams == 1 ? k : fmt::format("team * {}u + {}", team_inner(), k);
  }
  // A quarter of it. Compilers do not see that it is the same for four inner elements of a team.
  std::string quarter_in_team(const Inner& k) const {
    if (!k.number || team_inner() % 4 != 0) return fmt::format("({}) / 4u", in_team(k.text));
    return in_quarters(*k.number / 4);
  }
  std::string in_quarters(int quarter) const {
    return form_.teams == 1 ? fmt::format("{}u", quarter)
                            : fmt::format("(team * {}u + {}u)", team_inner() / 4, quarter);
  }

  void write_product() {
    const char* vector = problem_.halves ? "vec4<f16>" : "vec4f";
    for (const Operand* operand : {&a_, &b_})
      shader_->shared_array(fmt::format("tile_{}", operand->name), vector, size(*operand) * buffers());
    for (int i = 0; i < form_.part_rows; ++i)
      for (int j = 0; j < form_.part_columns / 4; ++j) shader_->line("var sum_{}_{} = vec4f();", i, j);
    if (form_.chunks == 1) {
      shader_->line("let inner_start = 0u; let inner_end = {};", shader_->loop_end(shader_->size(problem_.inner)));
    } else {
      const Dim per_chunk =
          groups_of(groups_of(problem_.inner, form_.chunks), form_.round_inner()) * Dim(form_.round_inner());
      shader_->line("let inner_start = chunk * {0}; let inner_end = min(inner_start + {0}, {1});",
                    shader_->size(per_chunk), shader_->size(problem_.inner));
    }
    for (const Operand* operand : {&a_, &b_}) declare_fetched(*operand);
    if (form_.two_buffers)
      multiply_in_two_buffers();
    else
      multiply_in_one_buffer();
  }

  void multiply() {
    if (form_.unrolled || form_.two_buffers)
      multiply_written_out(0);
    else
      multiply_in_loop();
  }

  // The next tiles are prefetched while the current ones are multiplied.
  void multiply_in_one_buffer() {
    const int sets = held_tiles();
    for (int set = 0; set < sets; ++set) fetch_both(fmt::format("inner_start + {}u", set * form_.inner), set);
    shader_->open("for (var inner = inner_start; inner < inner_end; inner += {}u) {{", form_.round_inner());
    if (sets > 1) shader_->line("let more = inner + {}u < inner_end;", form_.round_inner());
    for (int set = 0; set < sets; ++set) {
      put_into_tiles(0, set);
      shader_->barrier();
      shader_->open("if ({}) {{", sets > 1 ? "more" : fmt::format("inner + {}u < inner_end", form_.inner));
      fetch_both(fmt::format("inner + {}u", (sets + set) * form_.inner), set);
      shader_->close();
      multiply();
      shader_->barrier();
    }
    shader_->close();
  }

  void multiply_in_loop() {
    const int depth = problem_.multiplies_in_f16 ? products_in_f16 : 1;
    shader_->open("for (var k = 0u; k < {}; k += {}u) {{", shader_->loop_end(fmt::format("{}u", team_inner())), depth);
    multiply_step({"k", std::nullopt}, depth, 0);
    shader_->close();
  }

  // Each iteration multiplies two tiles, one per buffer. The last may be past the end, and is then zero.
  void multiply_in_two_buffers() {
    const int other = held_tiles() - 1;  // holds the tiles of the second buffer
    fetch_both("inner_start", 0);
    if (other > 0) fetch_both(fmt::format("inner_start + {}u", form_.inner), other);
    put_into_tiles(0, 0);
    shader_->barrier();
    shader_->open("for (var inner = inner_start; inner < inner_end; inner += {}u) {{", form_.round_inner());
    shader_->line("let more = inner + {}u < inner_end;", form_.round_inner());
    const auto fetch_more = [&](int tile, int set) {
      shader_->open("if (more) {{");
      fetch_both(fmt::format("inner + {}u", tile * form_.inner), set);
      shader_->close();
    };
    if (other > 0)
      fetch_more(2, 0);
    else
      fetch_both(fmt::format("inner + {}u", form_.inner), 0);
    multiply_written_out(0);
    put_into_tiles(1, other);
    shader_->barrier();
    fetch_more(other > 0 ? 3 : 2, other);
    multiply_written_out(1);
    shader_->open("if (more) {{");
    put_into_tiles(0, 0);
    shader_->close();
    shader_->barrier();
    shader_->close();
  }

  // Unrolled here, because a loop would be a fifth slower: NVIDIA's compiler does not interleave its iterations.
  void multiply_written_out(int buffer) {
    const int depth = problem_.multiplies_in_f16 ? products_in_f16 : 1;
    for (int k = 0; k < team_inner(); k += depth) {
      shader_->open("{{");
      multiply_step({fmt::format("{}u", k), k}, depth, buffer);
      shader_->close();
    }
  }

  void multiply_step(const Inner& k, int depth, int buffer) {
    const char* as_vector = problem_.halves && !problem_.multiplies_in_f16 ? "vec4f" : "";
    for (int i = 0; i < form_.part_rows / 4; ++i)
      for (int d = 0; d < depth; ++d)
        shader_->line("let a_{}_{} = {}({});", i, d, as_vector,
                      in_tile(a_, k, d, fmt::format("thread_row * {}u + {}u", form_.part_rows / 4, i), buffer));
    for (int j = 0; j < form_.part_columns / 4; ++j) {
      for (int d = 0; d < depth; ++d)
        shader_->line("let b_{}_{} = {}({});", j, d, as_vector,
                      in_tile(b_, k, d, fmt::format("thread_column + {}u", j * form_.across()), buffer));
      for (int i = 0; i < form_.part_rows; ++i) {
        const auto factors = [&](int d) {
          return fmt::format("{}(a_{}_{}.{}), b_{}_{}", problem_.multiplies_in_f16 ? "vec4<f16>" : "vec4f", i / 4, d,
                             "xyzw"[i % 4], j, d);
        };
        std::string sum = problem_.multiplies_in_f16 ? "vec4<f16>()" : fmt::format("sum_{}_{}", i, j);
        for (int d = 0; d < depth; ++d) sum = fmt::format("fma({}, {})", factors(d), sum);
        shader_->line("sum_{}_{} {} {};", i, j, problem_.multiplies_in_f16 ? "+=" : "=",
                      problem_.multiplies_in_f16 ? fmt::format("vec4f({})", sum) : sum);
      }
    }
  }

  // The vector of four number `four` in the row of inner element `k` + `more`.
  std::string in_tile(const Operand& operand, const Inner& k, int more, const std::string& four, int buffer) const {
    const std::string at =
        is_swizzled(operand) ? fmt::format("(({}) ^ ({} * {}u))", four, quarter_in_team(k), swizzle() / 4) : four;
    return fmt::format("tile_{}[({} + {}u) * {}u + {} + {}u]", operand.name, in_team(k.text), more, pitch(operand) / 4,
                       at, buffer * size(operand));
  }
  // By how many elements the rows of four inner elements are rotated relative to the four before.
  int swizzle() const { return banks / (form_.inner / 4); }

  // Adds up the teams' sums through the tiles, which are no longer read. In each round a team and its counterpart
  // exchange half of their sums, so that in the end each team has the complete sums of some rows.
  void join_teams() {
    const int threads = form_.threads();
    const auto in_a = static_cast<int>(size(a_) * buffers() / threads),
               in_b = static_cast<int>(size(b_) * buffers() / threads);
    const int at_once = in_a + in_b;
    const auto place = [&](int slot, const std::string& thread) {
      return fmt::format("tile_{}[{}u + {}]", slot < in_b ? "b" : "a", (slot < in_b ? slot : slot - in_b) * threads,
                         thread);
    };
    std::vector<std::string> sums;
    for_each_vector([&](const std::string&, const std::string&, const std::string& sum) { sums.push_back(sum); });
    for (int distance = form_.teams / 2; distance > 0; distance /= 2) {
      const auto kept = static_cast<int>(sums.size() / 2);
      shader_->line("let is_later_{0} = (team & {0}u) != 0u; let other_{0} = lane ^ {1}u;", distance,
                    distance * team_threads());
      std::vector<std::string> next;
      for (int i = 0; i < kept; ++i) {
        next.push_back(fmt::format("sum_of_{}_{}", form_.teams / distance, i));
        shader_->line("var {} = select({}, {}, is_later_{});", next.back(), sums[i], sums[i + kept], distance);
      }
      for (int begin = 0; begin < kept; begin += at_once) {
        const int end = std::min(kept, begin + at_once);
        if (distance < form_.teams / 2 || begin > 0) shader_->barrier();
        for (int i = begin; i < end; ++i)
          shader_->line("{} = select({}, {}, is_later_{});", place(i - begin, "lane"), sums[i + kept], sums[i],
                        distance);
        shader_->barrier();
        for (int i = begin; i < end; ++i)
          shader_->line("{} += {};", next[i], place(i - begin, fmt::format("other_{}", distance)));
      }
      sums = std::move(next);
    }
    team_sums_ = std::move(sums);
  }

  // Whether four elements can be read at once.
  bool is_wide(const Operand& operand) const {
    const TensorAccess& tensor = *operand.tensor;
    return begins_in_fours(*shader_, tensor, operand.tensor == problem_.a ? problem_.a_batch : problem_.b_batch) &&
           !is_written(tensor.binding) &&
           (operand.along_inner()
                ? is_multiple(operand.stride, 4) && is_multiple(problem_.inner, 4)
                : operand.stride == Dim(1) && is_multiple(operand.inner_stride, 4) && is_multiple(operand.count, 4));
  }

  // The type in which an operand's elements are fetched.
  const char* fetched_type(const Operand& operand) const {
    return !is_wide(operand) ? "f32" : problem_.halves ? "vec4<f16>" : "vec4f";
  }

  // The variable that holds what fetch `i` read.
  static std::string held(const Operand& operand, int i, int set) {
    return fmt::format("{}_{}{}", operand.name, i, set == 0 ? "" : "_later");
  }

  int fetches(const Operand& operand) const {
    const int total = operand.width * form_.inner / (is_wide(operand) ? 4 : 1);
    return static_cast<int>(detail::divide_up(total, form_.threads()));
  }

  void declare_fetched(const Operand& operand) {
    const int step = is_wide(operand) ? 4 : 1,
              per_row = operand.along_inner() ? form_.inner / step : operand.width / step;
    for (int i = 0; i < fetches(operand); ++i) {
      for (int set = 0; set < held_tiles(); ++set)
        shader_->line("var {} = {}();", held(operand, i, set), fetched_type(operand));
      // Adjacent threads read adjacent elements.
      const char* first = operand.along_inner() ? "inside" : "across";
      const char* second = operand.along_inner() ? "across" : "inside";
      shader_->line("let {0}_{1}_{2} = (lane + {3}u) % {4}u * {5}u; let {0}_{6}_{2} = (lane + {3}u) / {4}u;",
                    operand.name, first, i, i * form_.threads(), per_row, step, second);
      if (steps_by_fours(operand))
        shader_->line(
            "let {0}_from_{1} = ({2}) / 4u;", operand.name, i,
            place_in_matrix(*shader_, operand.start,
                            fmt::format("({} + {}_across_{})", operand.tile_start, operand.name, i), operand.stride,
                            fmt::format("{}_inside_{}", operand.name, i), operand.inner_stride));
    }
  }

  // Whether offsets count groups of four: a step then adds the same amount to all of a thread's offsets.
  bool steps_by_fours(const Operand& operand) const { return is_wide(operand) && operand.tensor->dtype == DType::f32; }

  // The four elements of the tile at `inner` that fetch `i` reads.
  std::string read_by_fours(const Operand& operand, int i, const std::string& inner) {
    const std::string step = operand.along_inner() ? fmt::format("({}) / 4u", inner)
                                                   : fmt::format("({}) * {}u", inner, operand.inner_stride.value() / 4);
    const std::string four =
        shader_->load_words(operand.tensor->binding, fmt::format("{}_from_{} + {}", operand.name, i, step));
    return operand.tensor->prologue.empty() ? four : fmt::format("prepare_four_{}({})", operand.name, four);
  }

  void fetch_both(const std::string& inner, int set) {
    for (const Operand* operand : {&a_, &b_}) fetch(*operand, inner, set);
  }
  void put_into_tiles(int buffer, int set) {
    for (const Operand* operand : {&a_, &b_}) put_into_tile(*operand, buffer * size(*operand), set);
  }

  void fetch(const Operand& operand, const std::string& inner, int set) {
    const bool checks_count = !is_multiple(operand.count, operand.width);
    const bool checks_inner = !is_multiple(problem_.inner, form_.chunks * form_.round_inner());
    const int total = operand.width * form_.inner / (is_wide(operand) ? 4 : 1);
    for (int i = 0; i < fetches(operand); ++i) {
      shader_->open("{{");
      shader_->line("let at = {} + {}_across_{}; let k = {} + {}_inside_{};", operand.tile_start, operand.name, i,
                    inner, operand.name, i);
      const std::string from =
          place_in_matrix(*shader_, operand.start, "at", operand.stride, "k", operand.inner_stride);
      std::vector<std::string> conditions;
      if (checks_count) conditions.push_back(fmt::format("at < {}", shader_->size(operand.count)));
      if (checks_inner) conditions.emplace_back("k < inner_end");
      if ((i + 1) * form_.threads() > total)
        conditions.push_back(fmt::format("lane + {}u < {}u", i * form_.threads(), total));
      const std::string fetched =
          steps_by_fours(operand) ? read_by_fours(operand, i, inner)
          : !is_wide(operand)     ? read_operand(*shader_, problem_, *operand.tensor, operand.name, from)
          : problem_.halves       ? shader_->load_four_halves(operand.tensor->binding, from)
                                  : read_four_of_operand(*shader_, *operand.tensor, operand.name, from);
      if (conditions.empty()) {
        shader_->line("{} = {};", held(operand, i, set), fetched);
      } else {
        shader_->line("{} = {}();", held(operand, i, set), fetched_type(operand));
        shader_->line("if ({}) {{ {} = {}; }}", fmt::join(conditions, " && "), held(operand, i, set), fetched);
      }
      shader_->close();
    }
  }

  void put_into_tile(const Operand& operand, std::int64_t start, int set) {
    const int total = operand.width * form_.inner / (is_wide(operand) ? 4 : 1);
    for (int i = 0; i < fetches(operand); ++i) {
      const bool partial = (i + 1) * form_.threads() > total;
      if (partial) shader_->open("if (lane + {}u < {}u) {{", i * form_.threads(), total);
      const std::string inside = fmt::format("{}_inside_{}", operand.name, i), from = held(operand, i, set);
      std::string across = fmt::format("{}_across_{}", operand.name, i);
      if (is_swizzled(operand)) across = fmt::format("({} ^ ({} / 4u * {}u))", across, inside, swizzle());
      if (!is_wide(operand)) {
        shader_->line("tile_{0}[({1} * {3}u + {2}) / 4u + {6}u][{2} % 4u] = {5}({4});", operand.name, inside, across,
                      pitch(operand), from, problem_.halves ? "f16" : "", start);
      } else if (operand.along_inner()) {
        for (int j = 0; j < 4; ++j)
          shader_->line("tile_{0}[(({1} + {5}u) * {3}u + {2}) / 4u + {7}u][{2} % 4u] = {4}.{6};", operand.name, inside,
                        across, pitch(operand), from, j, "xyzw"[j], start);
      } else {
        shader_->line("tile_{0}[({1} * {3}u + {2}) / 4u + {5}u] = {4};", operand.name, inside, across, pitch(operand),
                      from, start);
      }
      if (partial) shader_->close();
    }
  }

  bool is_written(int binding) const {
    const auto& stores = writer_.kernel().stores;
    return std::any_of(stores.begin(), stores.end(), [&](const Store& store) { return store.binding == binding; });
  }

  // The rows of results that the thread stores.
  int final_rows() const { return form_.part_rows / form_.teams; }

  // Calls `f` for each vector of results that the thread has before teams are joined, with expressions of its row and
  // first column.
  template <class F>
  void for_each_vector(F f) {
    for (int i = 0; i < form_.part_rows; ++i)
      for (int j = 0; j < form_.part_columns / 4; ++j)
        f(fmt::format("row_{}", i), fmt::format("column_{}", j), fmt::format("sum_{}_{}", i, j));
  }
  // The same for the results that it stores.
  template <class F>
  void for_each_result(F f) {
    if (form_.teams == 1) return for_each_vector(f);
    const int per_row = form_.part_columns / 4;
    for (int i = 0; i < static_cast<int>(team_sums_.size()); ++i)
      f(fmt::format("row_{}", i / per_row), fmt::format("column_{}", i % per_row), team_sums_[i]);
  }
  void name_places() {
    const std::string team = form_.teams == 1 ? "" : fmt::format(" + team * {}u", final_rows());
    for (int i = 0; i < final_rows(); ++i)
      shader_->line("let row_{0} = tile_row + thread_row * {1}u{2} + {0}u;", i, form_.part_rows, team);
    for (int j = 0; j < form_.part_columns / 4; ++j)
      shader_->line("let column_{0} = tile_column + (thread_column + {1}u) * 4u;", j, j * form_.across());
  }
  std::string early_arguments(const std::string& sum) const {
    std::string text;
    for (int i = 0; i < early_loads_; ++i) text += fmt::format(", {}_early_{}", sum, i);
    return text;
  }

  std::string inside(const std::string& row, const std::string& column, int by = 0) {
    std::string text;
    if (!is_multiple(problem_.rows, form_.rows)) text = fmt::format("{} < {}", row, shader_->size(problem_.rows));
    if (!is_multiple(problem_.columns, form_.columns)) {
      if (!text.empty()) text += " && ";
      text += by == 0 ? fmt::format("{} < {}", column, shader_->size(problem_.columns))
                      : fmt::format("{} + {}u < {}", column, by, shader_->size(problem_.columns));
    }
    return text.empty() ? "true" : text;
  }

  // Loads the epilogue's inputs for all of the thread's results, before the first of them is stored.
  void load_early() {
    for_each_result([&](const std::string& row, const std::string& column, const std::string& sum) {
      const auto bounded = [&](const std::string& index, const Dim& count, int tile, int step) {
        return is_multiple(count, tile) ? index : fmt::format("min({}, {} - {}u)", index, shader_->size(count), step);
      };
      for (int i = 0; i < early_loads_; ++i)
        shader_->line("let {0}_early_{1} = early_{1}(batch, {2}, {3});", sum, i,
                      bounded(row, problem_.rows, form_.rows, 1), bounded(column, problem_.columns, form_.columns, 4));
    });
  }

  void write_results() {
    name_places();
    if (early_loads_ > 0) load_early();
    for_each_result([&](const std::string& row, const std::string& column, const std::string& sum) {
      if (in_fours_) {
        shader_->open("if ({}) {{", inside(row, column));
        if (partials_)
          shader_->store_four(partials_->memory(), partials_->place(*shader_, row, column), sum);
        else
          shader_->line("finish_four(batch, {}, {}, {}{});", row, column, sum, early_arguments(sum));
        shader_->close();
        return;
      }
      for (int k = 0; k < 4; ++k) {
        shader_->open("if ({}) {{", inside(row, column, k));
        if (partials_)
          shader_->store(partials_->memory(), partials_->place(*shader_, row, fmt::format("{} + {}u", column, k)),
                         fmt::format("{}.{}", sum, "xyzw"[k]));
        else
          shader_->line("finish(batch, {}, {} + {}u, {}.{});", row, column, k, sum, "xyzw"[k]);
        shader_->close();
      }
    });
  }

  KernelWriter& writer_;
  const MatmulProblem& problem_;
  const MatmulForm& form_;
  const Operand a_{"a",        "a_start",     problem_.a,     form_.rows,      form_.padding,
                   "tile_row", problem_.rows, problem_.a_row, problem_.a_inner};
  const Operand b_{"b",           "b_start",        problem_.b,        form_.columns,   0,
                   "tile_column", problem_.columns, problem_.b_column, problem_.b_inner};
  std::optional<PartialResults> partials_;
  std::optional<Shader> shader_;
  bool in_fours_ = false;               // results are stored in fours
  int early_loads_ = 0;                 // of the epilogue, for each vector of results
  std::vector<std::string> team_sums_;  // by row: the sums of a thread after teams are joined
};

}  // namespace

void write_tiles(KernelWriter& writer, const MatmulProblem& problem, const MatmulForm& form) {
  TiledMatmul(writer, problem, form).write();
}

}  // namespace jerboa::wgsl
