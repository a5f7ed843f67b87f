#include "wgsl/lines.h"
#include "wgsl/recurrent_tokens.h"
#include "wgsl/whole_kernels.h"

// Depthwise convolution over the last tokens. One shader computes the results, with a thread for each, and a second one
// the next state, which may overwrite the state. For few tokens a thread computes a whole channel and its state:
// decoding is one dispatch.
namespace jerboa::wgsl {
namespace {

class CausalConv {
 public:
  explicit CausalConv(KernelWriter& writer)
      : writer_(writer),
        x_(writer.kernel().operands[1]),
        weight_(writer.kernel().operands[2]),
        next_(writer.kernel().results[0]),
        y_(writer.kernel().results[1]),
        tokens_(writer.kernel(), x_, 3, true),
        taps_(weight_.shape[1].value()) {}

  void write() {
    tokens_.write_other_rows(writer_);
    constexpr std::int64_t few = 4;
    const Dim lines = x_.shape[0] * x_.shape[2];
    const bool at_once = tokens_.time.upper_bound() <= few;
    if (!at_once) {
      const Dim count = element_count(x_.shape);
      Shader shader = shader_of_elements(writer_, "causal_conv1d", count);
      const auto index = shader.split_index("element", x_.shape);
      shader.line("let batch = {}; let time = {}; let channel = {};", index[0], index[1], index[2]);
      write_row(shader);
      write_element(shader, "time");
      add_shader_of_elements(writer_, std::move(shader), count);
    }
    Shader shader = shader_of_elements(writer_, at_once ? "causal_conv1d_few" : "causal_conv1d_state", lines);
    const auto index = shader.split_index("element", {x_.shape[0], x_.shape[2]});
    shader.line("let batch = {}; let channel = {};", index[0], index[1]);
    write_row(shader);
    if (at_once) {
      shader.open("for (var time = 0u; time < {}; time++) {{", shader.size(tokens_.time));
      write_element(shader, "time");
      shader.close();
    }
    write_next(shader);
    add_shader_of_elements(writer_, std::move(shader), lines);
  }

 private:
  std::int64_t before() const { return taps_ - 1; }

  void write_row(Shader& shader) const {
    tokens_.write_row(shader, "batch");
    if (tokens_.state != nullptr) tokens_.write_has_state(shader, "batch");
  }

  // Moves `token`, an i32, back to one that is not padding, or to -1.
  void write_skip(Shader& shader) const {
    if (tokens_.positions == nullptr) return;
    shader.open("while (token >= 0) {{");
    shader.line("if ({}) {{ break; }}", tokens_.is_real(shader, "batch", "u32(token)"));
    shader.line("token -= 1;");
    shader.close();
  }

  void write_element(Shader& shader, const std::string& time) const {
    shader.line("var sum = 0.0; var past = {}u; var token = i32({});", before(), time);
    shader.open("if ({}) {{", tokens_.is_real(shader, "batch", time));
    shader.open("for (var tap = {}u; tap > 0u; tap--) {{", taps_);
    shader.line("let weight = {};", shader.load(weight_, {"channel", "(tap - 1u)"}));
    write_skip(shader);
    shader.open("if (token >= 0) {{");
    shader.line("sum += weight * {};", shader.load(x_, {"batch", "u32(token)", "channel"}));
    shader.line("token -= 1;");
    shader.otherwise();
    shader.line("past -= 1u;");
    if (tokens_.state != nullptr)
      shader.line("if (has_state) {{ sum += weight * {}; }}", shader.load(*tokens_.state, {"row", "past", "channel"}));
    shader.close();
    shader.close();
    shader.close();
    shader.store(y_, {"batch", time, "channel"}, "sum");
  }

  // The newest inputs are tokens; older ones move up in the state, oldest first because it may be the same memory.
  void write_next(Shader& shader) const {
    if (before() == 0) return;
    shader.open("if (has_row) {{");
    shader.line("var token = i32({}) - 1; var tokens = 0u;", shader.size(tokens_.time));
    shader.line("var newest: array<f32, {}>;", before());
    shader.open("for (; tokens < {}u; tokens++) {{", before());
    write_skip(shader);
    shader.line("if (token < 0) {{ break; }}");
    shader.line("newest[tokens] = {}; token -= 1;", shader.load(x_, {"batch", "u32(token)", "channel"}));
    shader.close();
    shader.open("for (var place = 0u; place < {}u; place++) {{", before());
    shader.line("var value = 0.0;");
    shader.open("if (place + tokens >= {}u) {{", before());
    shader.line("value = newest[{}u - place];", before() - 1);
    shader.otherwise();
    if (tokens_.state != nullptr)
      shader.line("if (has_state) {{ value = {}; }}",
                  shader.load(*tokens_.state, {"row", "(place + tokens)", "channel"}));
    shader.close();
    shader.store(next_, {"row", "place", "channel"}, "value");
    shader.close();
    shader.close();
  }

  KernelWriter& writer_;
  const TensorAccess &x_, &weight_, &next_, &y_;
  RecurrentTokens tokens_;
  std::int64_t taps_;
};

}  // namespace

template <>
void write_whole_op<Op::causal_conv1d>(KernelWriter& writer) {
  CausalConv(writer).write();
}

}  // namespace jerboa::wgsl
