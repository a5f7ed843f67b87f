#include <algorithm>

#include "wgsl/linear_attention.h"

// A workgroup has some columns of one head's state in registers: a thread four adjacent columns of some rows, which are
// features of keys. What the threads of a column sum up over their rows goes through workgroup memory, once per token
// for y and once more for the delta rule. So the state is read and written once, whatever the number of tokens.
namespace jerboa::wgsl {
namespace {

constexpr int most_rows = 32;  // of a thread

std::int64_t power_of_two_up_to(std::int64_t limit) {
  std::int64_t power = 1;
  while (power * 2 <= limit) power *= 2;
  return power;
}

struct Layout {
  std::int64_t lanes = 1, parts = 1, rows = 1;  // threads along columns and along features, rows of a thread

  Layout(const Target& target, const LinearAttention& a) {
    const std::int64_t keys = a.key_size.value(), vectors = a.value_size.value() / 4;
    while (lanes < 8 && vectors % (lanes * 2) == 0) lanes *= 2;
    const std::int64_t threads = std::min<std::int64_t>(keys > 128 ? 256 : 128, target.max_invocations);
    parts = std::min(power_of_two_up_to(threads / lanes), power_of_two_up_to(keys));
    rows = (keys + parts - 1) / parts;
  }
  int threads() const { return static_cast<int>(lanes * parts); }
};

class Steps {
 public:
  Steps(KernelWriter& writer, const LinearAttention& a)
      : writer_(writer),
        a_(a),
        layout_(writer.target(), a),
        slices_(a.value_size.value() / (4 * layout_.lanes)),
        shader_(writer.shader("linear_attention_steps", layout_.threads())) {}

  void write() {
    const auto index = shader_.split_index("group", {a_.batch, a_.heads, Dim(slices_)});
    shader_.line("let batch = {}; let head = {}; let key_head = head / {};", index[0], index[1],
                 shader_.size(a_.shared));
    shader_.line("let part = lane / {0}u; let own_lane = lane % {0}u;", layout_.lanes);
    shader_.line("let column = ({} * {}u + own_lane) * 4u;", index[2], layout_.lanes);
    a_.tokens.write_row(shader_, "batch");
    a_.tokens.write_has_state(shader_, "batch");
    shader_.shared_array("sums", "vec4f", layout_.threads());
    write_state();
    shader_.open("for (var time = 0u; time < {}; time++) {{", shader_.size(a_.time));
    write_token();
    shader_.close();
    write_next();
    writer_.add(std::move(shader_), a_.batch * a_.heads * Dim(slices_));
  }

 private:
  bool is_even() const { return a_.key_size.value() % layout_.parts == 0; }
  // Of row i of the thread; past the last feature it is the last.
  std::string feature(std::int64_t i) const {
    const std::string plain = fmt::format("{}u + part", i * layout_.parts);
    return is_even() ? "(" + plain + ")" : fmt::format("min({}, {}u)", plain, a_.key_size.value() - 1);
  }
  std::string is_feature(std::int64_t i) const {
    return is_even() ? "true" : fmt::format("({}u + part < {}u)", i * layout_.parts, a_.key_size.value());
  }
  // The element of q or k for row i; 0 past the last feature.
  std::string element(const TensorAccess& tensor, std::int64_t i) {
    const std::string value = shader_.load(tensor, {"batch", "time", "key_head", feature(i)});
    return is_even() ? value : fmt::format("select(0.0, {}, {})", value, is_feature(i));
  }

  void write_state() {
    for (std::int64_t i = 0; i < layout_.rows; ++i) shader_.line("var state_{} = vec4f();", i);
    if (a_.tokens.state == nullptr) return;
    shader_.open("if (has_state) {{");
    for (std::int64_t i = 0; i < layout_.rows; ++i)
      shader_.line("state_{} = {};", i,
                   LinearAttention::load_four(shader_, *a_.tokens.state, {"row", "head", feature(i), "column"}));
    shader_.close();
  }

  // Every thread of a column gets the sum over its rows.
  void write_sum(const std::string& name) {
    shader_.line("sums[lane] = {};", name);
    shader_.barrier();
    shader_.line("{} = sums[own_lane];", name);
    shader_.line("for (var other = 1u; other < {0}u; other++) {{ {1} += sums[other * {2}u + own_lane]; }}",
                 layout_.parts, name, layout_.lanes);
    shader_.barrier();
  }

  void write_token() {
    const std::vector<std::string> gate{"batch", "time", "head"};
    shader_.line("let real = {};", a_.tokens.is_real(shader_, "batch", "time"));
    shader_.line("let decay = select(1.0, {}({}), real);", shader_.use("exp_f32"), shader_.load(a_.log_decay, gate));
    shader_.line("var written = {};", LinearAttention::load_four(shader_, a_.v, {"batch", "time", "head", "column"}));
    for (std::int64_t i = 0; i < layout_.rows; ++i) shader_.line("let key_{} = {};", i, element(a_.k, i));
    if (a_.beta != nullptr) {
      shader_.line("var read = vec4f();");
      for (std::int64_t i = 0; i < layout_.rows; ++i) shader_.line("read += key_{0} * state_{0};", i);
      write_sum("read");
      shader_.line("written = {} * (written - decay * read);", shader_.load(*a_.beta, gate));
    }
    shader_.line("written = select(vec4f(), written, vec4<bool>(real));");
    shader_.line("var y = vec4f();");
    for (std::int64_t i = 0; i < layout_.rows; ++i) {
      shader_.line("state_{0} = decay * state_{0} + key_{0} * written;", i);
      shader_.line("y += {} * state_{};", element(a_.q, i), i);
    }
    write_sum("y");
    shader_.open("if (part == 0u) {{");
    shader_.line("y = select(vec4f(), y, vec4<bool>(real));");
    LinearAttention::store_four(shader_, writer_.kernel().results[1], {"batch", "time", "head", "column"}, "y");
    shader_.close();
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
  return Layout(target, a).rows <= most_rows;
}

void write_linear_attention_steps(KernelWriter& writer, const LinearAttention& a) { Steps(writer, a).write(); }

}  // namespace jerboa::wgsl
