#include <algorithm>
#include <optional>

#include "base/integers.h"
#include "wgsl/computed_rows.h"
#include "wgsl/four_writer.h"
#include "wgsl/linear_attention.h"

// A workgroup holds some columns of one head's state in registers: each thread has four adjacent columns of some rows,
// which are features of keys. The threads of a column exchange their sums over rows through workgroup memory, once per
// token for y and once more for the delta rule, so that the state is read and written once, whatever the number of
// tokens. Queries, keys and results may have norms that are computed here (FoldedKernels): sums over the features of a
// key are exchanged in the same way, and for sums over the columns of y the workgroup holds all columns.
namespace jerboa::wgsl {
namespace {

constexpr int most_rows = 32;  // per thread

std::int64_t power_of_two_up_to(std::int64_t limit) {
  std::int64_t power = 1;
  while (power * 2 <= limit) power *= 2;
  return power;
}

struct Layout {
  std::int64_t lanes = 1, parts = 1, rows = 1;  // threads along columns and along features, rows of a thread

  Layout(const Target& target, const LinearAttention& a, bool whole_rows) {
    const std::int64_t keys = a.key_size.value(), vectors = a.value_size.value() / 4;
    while ((whole_rows || lanes < 8) && vectors % (lanes * 2) == 0) lanes *= 2;
    const std::int64_t threads = std::min<std::int64_t>(keys > 128 || whole_rows ? 256 : 128, target.max_invocations);
    parts = std::min(power_of_two_up_to(threads / lanes), power_of_two_up_to(keys));
    rows = detail::divide_up(keys, parts);
  }
  int threads() const { return static_cast<int>(lanes * parts); }
};

class Steps {
 public:
  Steps(KernelWriter& writer, const LinearAttention& a)
      : writer_(writer),
        a_(a),
        follower_(follower_of(writer)),
        layout_(writer.target(), a, follower_ != nullptr && follower_->row_axes > 0),
        slices_(a.value_size.value() / (4 * layout_.lanes)),
        shader_(writer.shader("linear_attention_steps", layout_.threads())) {}

  void write() {
    const auto index = shader_.split_index("group", {a_.batch, a_.heads, Dim(slices_)});
    shader_.line("let batch = {}; let head = {}; let key_head = head / {};", index[0], index[1],
                 shader_.size(a_.shared));
    shader_.line("let part = lane / {0}u; let column_lane = lane % {0}u;", layout_.lanes);
    shader_.line("let column = ({} * {}u + column_lane) * 4u;", index[2], layout_.lanes);
    a_.tokens.write_row(shader_, "batch");
    a_.tokens.write_has_state(shader_, "batch");
    shader_.shared_array("sums", "vec4f", layout_.threads());
    // Early loads must not be moved to where they are used, behind the barriers.
    if (!writer_.memories_overlap()) shader_.keep_loads_in_place();
    write_state();
    shader_.open("for (var time = 0u; time < {}; time++) {{", shader_.loop_end(shader_.size(a_.time)));
    write_token();
    shader_.close();
    write_next();
    writer_.add(std::move(shader_), a_.batch * a_.heads * Dim(slices_), all_operations);
  }

 private:
  bool is_even() const { return a_.key_size.value() % layout_.parts == 0; }
  // The feature of row i of the thread; the last one past the end.
  std::string feature(std::int64_t i) const {
    const std::string plain = fmt::format("{}u + part", i * layout_.parts);
    return is_even() ? "(" + plain + ")" : fmt::format("min({}, {}u)", plain, a_.key_size.value() - 1);
  }
  std::string is_feature(std::int64_t i) const {
    return is_even() ? "true" : fmt::format("({}u + part < {}u)", i * layout_.parts, a_.key_size.value());
  }
  // The loop that processes y, if its rows are those of y: four elements at a time are computed here.
  static const KernelSpec* follower_of(const KernelWriter& writer) {
    const auto& finished = writer.folded().finished;
    const TensorAccess& y = writer.kernel().results[1];
    const auto found = finished.find(y.binding);
    if (found == finished.end()) return nullptr;
    const KernelSpec& loop = found->second.kernel;
    return y.dtype == DType::f32 && loop.domain.back() == y.shape.back() ? &loop : nullptr;
  }

  std::string if_feature(std::int64_t i, const std::string& value) const {
    return is_even() ? value : fmt::format("select(0.0, {}, {})", value, is_feature(i));
  }

  // Elements of q or k, one for each of the thread's rows; 0 past the last feature.
  struct Elements {
    const TensorAccess& tensor;
    const char* name;
    std::vector<BodyWriter> bodies = {};  // by row, where they are computed from sums
    std::vector<int> sums = {};           // instructions
  };

  // Declares NAME_0 … of q and k, after all of them have been loaded.
  void write_elements(std::vector<Elements>& both) {
    std::vector<std::string> totals;
    for (Elements& elements : both)
      for (const int sum : elements.sums) {
        const int summed = kernel_of(elements)->body[static_cast<std::size_t>(sum)].a;
        std::string text;
        for (std::int64_t i = 0; i < layout_.rows; ++i)
          text += (i > 0 ? " + " : "") + if_feature(i, elements.bodies[static_cast<std::size_t>(i)].value(summed));
        totals.push_back(shader_.let("total", text));
      }
    std::vector<std::string> all;
    for (std::size_t i = 0; i < totals.size(); i += 4) all.push_back(write_totals(totals, i));
    std::size_t number = 0;
    for (Elements& elements : both) {
      for (const int sum : elements.sums) {
        const std::string total = fmt::format("{}.{}", all[number / 4], "xyzw"[number % 4]);
        for (BodyWriter& body : elements.bodies) body.set(sum, total);
        ++number;
      }
      if (const KernelSpec* kernel = kernel_of(elements))
        for (std::int64_t i = 0; i < layout_.rows; ++i) {
          const int stored = kernel->stores.front().value;
          shader_.line("let {}_{} = {};", elements.name, i,
                       if_feature(i, elements.bodies[static_cast<std::size_t>(i)].value(stored)));
        }
    }
  }

  const KernelSpec* kernel_of(const Elements& elements) const {
    const auto& computed = writer_.folded().computed;
    const auto found = computed.find(elements.tensor.binding);
    return found != computed.end() && found->second.row_axes > 0 ? &found->second : nullptr;
  }

  void load(Elements& elements) {
    const KernelSpec* kernel = kernel_of(elements);
    for (std::int64_t i = 0; i < layout_.rows; ++i) {
      const std::vector<std::string> indices{"batch", "time", "key_head", feature(i)};
      if (kernel == nullptr) {
        shader_.line("let {}_{} = {};", elements.name, i, if_feature(i, shader_.load(elements.tensor, indices)));
        continue;
      }
      const std::string place =
          shader_.let("place", shader_.place(elements.tensor.offset, elements.tensor.strides, indices));
      BodyWriter& body = elements.bodies.emplace_back(shader_, *kernel, shader_.split_index(place, kernel->domain));
      for (std::size_t k = 0; k < kernel->body.size(); ++k)
        if (kernel->body[k].kind == Instruction::Kind::load) body.value(static_cast<int>(k));
    }
    for (std::size_t i = 0; kernel != nullptr && i < kernel->body.size(); ++i)
      if (kernel->body[i].kind == Instruction::Kind::reduce) elements.sums.push_back(static_cast<int>(i));
  }

  // Sums up to four totals over all features, from the threads' parts.
  std::string write_totals(const std::vector<std::string>& totals, std::size_t from) {
    std::string values[4];
    for (std::size_t k = 0; k < 4; ++k) values[k] = from + k < totals.size() ? totals[from + k] : "0.0";
    std::string all = shader_.var("totals", "vec4f",
                                  fmt::format("vec4f({}, {}, {}, {})", values[0], values[1], values[2], values[3]));
    write_sum(all);
    return all;
  }

  void write_state() {
    for (std::int64_t i = 0; i < layout_.rows; ++i) shader_.line("var state_{} = vec4f();", i);
    if (a_.tokens.state == nullptr) return;
    // A load behind a branch would wait for the condition.
    shader_.line("let safe_row = select(0u, row, has_row);");
    for (std::int64_t i = 0; i < layout_.rows; ++i)
      shader_.line("state_{} = {};", i,
                   LinearAttention::load_four(shader_, *a_.tokens.state, {"safe_row", "head", feature(i), "column"}));
    shader_.open("if (!has_state) {{");
    for (std::int64_t i = 0; i < layout_.rows; ++i) shader_.line("state_{} = vec4f();", i);
    shader_.close();
  }

  // Gives every thread of a column the sum over its rows.
  void write_sum(const std::string& name) {
    shader_.line("sums[lane] = {};", name);
    shader_.barrier();
    shader_.line("{} = sums[column_lane];", name);
    shader_.line("for (var other = 1u; other < {}; other++) {{ {} += sums[other * {}u + column_lane]; }}",
                 shader_.loop_end(fmt::format("{}u", layout_.parts)), name, layout_.lanes);
    shader_.barrier();
  }

  // Everything that a token needs is loaded before the first barrier.
  void write_token() {
    const std::vector<std::string> gate{"batch", "time", "head"};
    const std::vector<std::string> indices{"batch", "time", "head", "column"};
    shader_.line("let real = {};", a_.tokens.is_real(shader_, "batch", "time"));
    shader_.line("let log_decay = {};", shader_.load(a_.log_decay, gate));
    if (a_.beta != nullptr) shader_.line("let beta = {};", shader_.load(*a_.beta, gate));
    shader_.line("var written = {};", value(indices));
    std::vector<Elements> both{{a_.k, "key"}, {a_.q, "query"}};
    for (Elements& elements : both) load(elements);
    shader_.line("var y = vec4f();");
    std::optional<FourWriter> follower;
    if (follower_ != nullptr) begin_follower(follower, indices);
    write_elements(both);
    shader_.line("let decay = select(1.0, {}(log_decay), real);", shader_.use("exp_f32"));
    if (a_.beta != nullptr) {
      shader_.line("var read = vec4f();");
      for (std::int64_t i = 0; i < layout_.rows; ++i) shader_.line("read += key_{0} * state_{0};", i);
      write_sum("read");
      shader_.line("written = beta * (written - decay * read);");
    }
    shader_.line("written = select(vec4f(), written, vec4<bool>(real));");
    for (std::int64_t i = 0; i < layout_.rows; ++i) {
      shader_.line("state_{0} = decay * state_{0} + key_{0} * written;", i);
      shader_.line("y += query_{0} * state_{0};", i);
    }
    write_sum("y");
    shader_.line("y = select(vec4f(), y, vec4<bool>(real));");
    if (follower) write_sums_of_follower(*follower);
    shader_.open("if (part == 0u) {{");
    if (follower)
      follower->store(follower_->stores);
    else
      LinearAttention::store_four(shader_, writer_.kernel().results[1], indices, "y");
    shader_.close();
  }

  // Four elements of v. Their common subexpressions, such as a token's step, are computed once.
  std::string value(const std::vector<std::string>& indices) {
    const auto& computed = writer_.folded().computed;
    const auto found = computed.find(a_.v.binding);
    if (found == computed.end() || !(found->second.domain.back() == a_.value_size) || !has_rows_of(a_.v, a_.value_size))
      return LinearAttention::load_four(shader_, a_.v, indices);
    const KernelSpec& loop = found->second;
    const std::string place = shader_.let("place", shader_.place(a_.v.offset, a_.v.strides, indices));
    FourWriter four(shader_, loop, loop.domain.size() - 1, shader_.split_index(place, loop.domain));
    const auto values = four.values(loop.stores.front().value);
    return fmt::format("vec4f({}, {}, {}, {})", values[0], values[1], values[2], values[3]);
  }

  // Begins the evaluation of what is computed from four elements of y, `y` among them.
  void begin_follower(std::optional<FourWriter>& four, const std::vector<std::string>& indices) {
    const TensorAccess& y = writer_.kernel().results[1];
    const KernelSpec& loop = *follower_;
    const std::string place = shader_.let("place", shader_.place(y.offset, y.strides, indices));
    four.emplace(shader_, loop, loop.domain.size() - 1, shader_.split_index(place, loop.domain));
    for (std::size_t i = 0; i < loop.body.size(); ++i) {
      if (loop.body[i].kind != Instruction::Kind::load) continue;
      if (loop.loads[static_cast<std::size_t>(loop.body[i].index)].binding == y.binding)
        four->set(static_cast<int>(i), "y");
      else
        four->values(static_cast<int>(i));
    }
  }

  // The threads of a row of y, which are adjacent, add up their parts of its sums.
  void write_sums_of_follower(FourWriter& four) {
    const KernelSpec& loop = *follower_;
    const bool by_subgroups = shader_.target().subgroup_size == layout_.lanes;
    for (std::size_t i = 0; i < loop.body.size(); ++i) {
      if (loop.body[i].kind != Instruction::Kind::reduce) continue;
      const auto values = four.values(loop.body[i].a);
      const std::string part_sum =
          shader_.let("part_sum", fmt::format("({} + {}) + ({} + {})", values[0], values[1], values[2], values[3]));
      if (by_subgroups) {
        shader_.use_subgroups();
        four.set_common(static_cast<int>(i), shader_.let("total", fmt::format("subgroupAdd({})", part_sum)));
        continue;
      }
      shader_.line("sums[lane].x = {};", part_sum);
      shader_.barrier();
      const std::string total = shader_.var("total", "f32", "0.0");
      shader_.line("for (var other = 0u; other < {}; other++) {{ {} += sums[part * {}u + other].x; }}",
                   shader_.loop_end(fmt::format("{}u", layout_.lanes)), total, layout_.lanes);
      shader_.barrier();
      four.set_common(static_cast<int>(i), total);
    }
    for (const Store& store : loop.stores) four.values(store.value);
  }

  void write_next() {
    const TensorAccess& next = writer_.kernel().results[0];
    for (std::int64_t i = 0; i < layout_.rows; ++i) {
      shader_.open("if (has_row && {}) {{", is_feature(i));
      LinearAttention::store_four(shader_, next, {"row", "head", feature(i), "column"}, fmt::format("state_{}", i));
      shader_.close();
    }
  }

  KernelWriter& writer_;
  const LinearAttention& a_;
  const KernelSpec* follower_;
  Layout layout_;
  std::int64_t slices_;
  Shader shader_;
};

}  // namespace

bool suits_linear_attention_steps(const Target& target, const LinearAttention& a) {
  constexpr std::int64_t few = 16;
  if (target.software || a.time.upper_bound() > few || !a.key_size.is_constant() || !a.value_size.is_constant())
    return false;
  if (a.key_size.value() == 0 || a.value_size.value() == 0 || a.value_size.value() % 4 != 0) return false;
  return Layout(target, a, false).rows <= most_rows;
}

bool suits_rows_of_linear_attention_steps(const Target& target, const LinearAttention& a) {
  if (!suits_linear_attention_steps(target, a)) return false;
  const Layout layout(target, a, true);
  return layout.lanes * 4 == a.value_size.value() && layout.threads() <= target.max_invocations &&
         layout.rows <= most_rows;
}

void write_linear_attention_steps(KernelWriter& writer, const LinearAttention& a) { Steps(writer, a).write(); }

}  // namespace jerboa::wgsl
