#include "wgsl/linear_attention.h"

#include <algorithm>

#include "wgsl/lines.h"
#include "wgsl/whole_kernels.h"

namespace jerboa::wgsl {

LinearAttention::LinearAttention(const KernelSpec& kernel, bool with_slots)
    : q(kernel.operands[1]),
      k(kernel.operands[2]),
      v(kernel.operands[3]),
      log_decay(kernel.operands[4]),
      beta(kernel.operands[5].binding >= 0 ? &kernel.operands[5] : nullptr),
      tokens(kernel, v, 6, with_slots),
      batch(v.shape[0]),
      time(v.shape[1]),
      heads(v.shape[2]),
      groups(k.shape[2]),
      shared(*divide_exactly(heads, groups)),
      key_size(k.shape[3]),
      value_size(v.shape[3]) {}

void LinearAttention::write_column(Shader& shader, const std::string& number) const {
  const auto index = shader.split_index(number, {batch, heads, value_size});
  shader.line("let batch = {}; let head = {}; let column = {};", index[0], index[1], index[2]);
  shader.line("let key_head = head / {};", shader.size(shared));
}

namespace {

bool is_aligned(const Shader& shader, const TensorAccess& tensor) {
  const auto by_four = [](const Dim& size) { return size.is_constant() && size.value() % 4 == 0; };
  return shader.can_be_wide(tensor.binding) && tensor.strides.back() == Dim(1) && by_four(tensor.offset) &&
         std::all_of(tensor.strides.begin(), tensor.strides.end() - 1, by_four);
}

std::vector<std::string> moved(std::vector<std::string> indices, int by) {
  indices.back() = fmt::format("({} + {}u)", indices.back(), by);
  return indices;
}

}  // namespace

std::string LinearAttention::load_four(Shader& shader, const TensorAccess& tensor,
                                       const std::vector<std::string>& indices) {
  if (is_aligned(shader, tensor))
    return shader.load_four(tensor.binding, shader.place(tensor.offset, tensor.strides, indices));
  std::string values;
  for (int i = 0; i < 4; ++i) values += (i > 0 ? ", " : "") + shader.load(tensor, moved(indices, i));
  return "vec4f(" + values + ")";
}

void LinearAttention::store_four(Shader& shader, const TensorAccess& tensor, const std::vector<std::string>& indices,
                                 const std::string& value) {
  if (is_aligned(shader, tensor))
    return shader.store_four(tensor.binding, shader.place(tensor.offset, tensor.strides, indices), value);
  for (int i = 0; i < 4; ++i) shader.store(tensor, moved(indices, i), fmt::format("{}.{}", value, "xyzw"[i]));
}

LinearAttentionGates::LinearAttentionGates(KernelWriter& writer, const LinearAttention& a, std::int64_t chunk)
    : time_(a.time),
      heads_(a.heads),
      count_(a.batch * a.time * a.heads),
      workspace_(writer.workspace(DType::f32, count_ * Dim(3) + a.batch)) {
  // One thread for each chunk of a head, and at least one, to record whether there is a state.
  const Dim chunks = a.time == Dim(0) ? Dim(1) : groups_of(a.time, chunk), threads = a.batch * a.heads * chunks;
  Shader shader = shader_of_elements(writer, "linear_attention_gates", threads);
  const auto index = shader.split_index("element", {a.batch, a.heads, chunks});
  shader.line("let batch = {}; let head = {}; let chunk = {};", index[0], index[1], index[2]);
  shader.line("let start = chunk * {0}u; let end = min(start + {0}u, {1});", chunk, shader.size(a.time));
  shader.line("var since = 1.0;");
  shader.open("for (var time = start; time < end; time++) {{");
  shader.line("var decay = 1.0; var factor = 0.0;");
  shader.open("if ({}) {{", a.tokens.is_real(shader, "batch", "time"));
  shader.line("decay = {}({}); since *= decay;", shader.use("exp_f32"),
              shader.load(a.log_decay, {"batch", "time", "head"}));
  shader.line("factor = {};", a.beta != nullptr ? shader.load(*a.beta, {"batch", "time", "head"}) : "1.0");
  shader.close();
  shader.store(workspace_, place(shader, Of::decay, "time"), "decay");
  shader.store(workspace_, place(shader, Of::factor, "time"), "factor");
  shader.store(workspace_, place(shader, Of::since, "time"), "since");
  shader.close();
  shader.open("if (head == 0u && chunk == 0u) {{");
  a.tokens.write_row(shader, "batch");
  a.tokens.write_has_state(shader, "batch");
  shader.store(workspace_, flag_place(shader), "select(0.0, 1.0, has_state)");
  shader.close();
  add_shader_of_elements(writer, std::move(shader), threads);
}

std::string LinearAttentionGates::place(Shader& shader, Of which, const std::string& time) const {
  return fmt::format("{}u * {} + (batch * {} + {}) * {} + head", static_cast<int>(which), shader.size(count_),
                     shader.size(time_), time, shader.size(heads_));
}

std::string LinearAttentionGates::flag_place(Shader& shader) const {
  return fmt::format("{} + batch", shader.size(count_ * Dim(3)));
}

std::string LinearAttentionGates::load(Shader& shader, Of which, const std::string& time) const {
  return shader.load(workspace_, place(shader, which, time));
}

std::string LinearAttentionGates::has_state(Shader& shader) const {
  return fmt::format("({} > 0.0)", shader.load(workspace_, flag_place(shader)));
}

void LinearAttentionGates::write_decay(Shader& shader, const std::string& name, const std::string& s,
                                       const std::string& t) const {
  shader.line("var {} = 1.0;", name);
  shader.line("for (var between = {} + 1u; between <= {}; between++) {{ {} *= {}; }}", s, t, name,
              load(shader, Of::decay, "between"));
}

StateColumn::StateColumn(KernelWriter& writer, const LinearAttention& attention)
    : key_size_(attention.key_size), columns_(attention.columns()) {
  constexpr std::int64_t longest_array = 1024;
  if (key_size_.upper_bound() > longest_array) workspace_ = writer.workspace(DType::f32, key_size_ * columns_);
}

void StateColumn::declare(Shader& shader) const {
  if (workspace_ < 0) {
    shader.line("var state = array<f32, {}>();", key_size_.upper_bound());
    return;
  }
  open_loop(shader);
  set(shader, "feature", "0.0");
  shader.close();
}

std::string StateColumn::at(Shader& shader, const std::string& feature) const {
  if (workspace_ < 0) return fmt::format("state[{}]", feature);
  return shader.load(workspace_, fmt::format("{} * {} + element", feature, shader.size(columns_)));
}

void StateColumn::set(Shader& shader, const std::string& feature, const std::string& value) const {
  if (workspace_ < 0)
    shader.line("state[{}] = {};", feature, value);
  else
    shader.store(workspace_, fmt::format("{} * {} + element", feature, shader.size(columns_)), value);
}

void StateColumn::open_loop(Shader& shader) const {
  shader.open("for (var feature = 0u; feature < {}; feature++) {{", shader.loop_end(shader.size(key_size_)));
}

namespace {

// For software drivers, and sizes that no other form supports: each thread holds one column of a state and processes
// the tokens one by one. Sums over the features are split into four parts, which round less than one long sum.
void write_columns(KernelWriter& writer, const LinearAttention& a) {
  const TensorAccess &next = writer.kernel().results[0], &y = writer.kernel().results[1];
  const StateColumn state(writer, a);
  Shader shader = shader_of_elements(writer, "linear_attention_columns", a.columns());
  a.write_column(shader, "element");
  a.tokens.write_row(shader, "batch");
  a.tokens.write_has_state(shader, "batch");
  state.declare(shader);
  if (a.tokens.state != nullptr) {
    shader.open("if (has_state) {{");
    state.open_loop(shader);
    state.set(shader, "feature", shader.load(*a.tokens.state, {"row", "head", "feature", "column"}));
    shader.close();
    shader.close();
  }
  const std::vector<std::string> key{"batch", "time", "key_head", "feature"};
  const std::vector<std::string> value{"batch", "time", "head", "column"};
  const std::vector<std::string> gate{"batch", "time", "head"};
  shader.open("for (var time = 0u; time < {}; time++) {{", shader.size(a.time));
  shader.line("var sum = 0.0; var sums = vec4f();");
  shader.open("if ({}) {{", a.tokens.is_real(shader, "batch", "time"));
  shader.line("let decay = {}({});", shader.use("exp_f32"), shader.load(a.log_decay, gate));
  shader.line("var written = {};", shader.load(a.v, value));
  if (a.beta != nullptr) {
    shader.line("var reads = vec4f();");
    state.open_loop(shader);
    shader.line("reads[feature & 3u] += {} * {};", shader.load(a.k, key), state.at(shader, "feature"));
    shader.close();
    shader.line("let read = (reads.x + reads.y) + (reads.z + reads.w);");
    shader.line("written = {} * (written - decay * read);", shader.load(*a.beta, gate));
  }
  state.open_loop(shader);
  shader.line("let updated = decay * {} + {} * written;", state.at(shader, "feature"), shader.load(a.k, key));
  state.set(shader, "feature", "updated");
  shader.line("sums[feature & 3u] += {} * updated;", shader.load(a.q, key));
  shader.close();
  shader.line("sum = (sums.x + sums.y) + (sums.z + sums.w);");
  shader.close();
  shader.store(y, value, "sum");
  shader.close();
  shader.open("if (has_row) {{");
  state.open_loop(shader);
  shader.store(next, {"row", "head", "feature", "column"}, state.at(shader, "feature"));
  shader.close();
  shader.close();
  add_shader_of_elements(writer, std::move(shader), a.columns(), all_operations);
}

}  // namespace

template <>
void write_whole_op<Op::linear_attention>(KernelWriter& writer) {
  const LinearAttention attention(writer.kernel(), true);
  attention.tokens.write_other_rows(writer);
  if (suits_linear_attention_steps(writer.target(), attention))
    write_linear_attention_steps(writer, attention);
  else if (suits_linear_attention_chunks(writer.target(), attention))
    write_linear_attention_chunks(writer, attention);
  else
    write_columns(writer, attention);
}

}  // namespace jerboa::wgsl
