#include <algorithm>
#include <optional>

#include "wgsl/linear_attention.h"
#include "wgsl/lines.h"
#include "wgsl/row_reduction.h"
#include "wgsl/whole_kernels.h"

// The gradient of linear attention, in chunks of tokens. With S the state before a chunk and E the gradient of the one
// after it, g the sum of the log decays from the chunk's first token on, D[t, s] = exp(g[t] - g[s]), r = v - k P for
// the delta rule (else v), u = beta r, and du the gradient of u, dr = beta du:
//   dq = (D ∘ dy uᵀ) k + exp(g) dy Sᵀ
//   dk = (D ∘ dy uᵀ)ᵀ q + exp(g of the last - g) u Eᵀ - (D ∘ dr uᵀ) k - (D ∘ dr uᵀ)ᵀ k - exp(g) dr Sᵀ
//   dv = dr, dbeta = du r, dstate = E before the first chunk.
// The gradient of g is y dy - (v - r) dr - u du, plus E of the chunk times the state after it; a log decay contributes
// to g at its token and all later ones of the chunk. Exponentials of g and its differences are computed as products of
// decays. Two shaders iterate over the tokens, forwards for S, r and y and backwards for E and du, with a column of the
// state in each thread; the others compute all chunks in parallel.
namespace jerboa::wgsl {
namespace {

// Long enough that neither the squares of chunks nor the states between them take more memory than the tokens' vectors.
int chunk_for(const LinearAttention& a) {
  const std::int64_t size = std::max(a.key_size.upper_bound(), a.value_size.upper_bound());
  int chunk = 4;
  while (chunk < 32 && chunk < size) chunk *= 2;
  return chunk;
}

class LinearAttentionGrad {
 public:
  explicit LinearAttentionGrad(KernelWriter& writer)
      : writer_(writer),
        a_(writer.kernel(), false),
        dnext_(writer.kernel().operands[7]),
        dy_(writer.kernel().operands[8]),
        chunk_(chunk_for(a_)),
        chunks_(groups_of(a_.time, chunk_)),
        value_count_(element_count(a_.v.shape)),
        state_count_(a_.batch * a_.heads * (chunks_ + Dim(1)) * a_.key_size * a_.value_size),
        square_count_(a_.batch * a_.heads * chunks_ * Dim(std::int64_t{chunk_} * chunk_)) {}

  void write() {
    if (a_.batch == Dim(0)) return;
    values_ = writer_.workspace(DType::f32, value_count_ * Dim(3));
    states_ = writer_.workspace(DType::f32, state_count_ * Dim(2));
    of_dy_ = writer_.workspace(DType::f32, square_count_);
    if (a_.beta != nullptr) of_dr_ = writer_.workspace(DType::f32, square_count_);
    dk_ = writer_.workspace(DType::f32, element_count(a_.k.shape));
    gates_.emplace(writer_, a_, chunk_);
    write_forwards();
    write_backwards();
    write_squares(Square::dy_u);
    if (a_.beta != nullptr) write_squares(Square::dr_u);
    write_dq();
    write_dk();
    write_dv();
    write_dgates();
    if (a_.tokens.state != nullptr) write_dstate();
  }

 private:
  // The layout of the workspaces: r, y and du are [batch, time, heads, value size]; S and E are [batch, heads, chunks +
  // 1, key size, value size].
  using Gate = LinearAttentionGates::Of;
  enum class Values { r, y, du };
  enum class States { s, e };
  enum class Square { dy_u, dr_u };

  std::string gate(Shader& shader, Gate which, const std::string& time) const {
    return gates_->load(shader, which, time);
  }
  std::string value_place(Shader& shader, Values which, const std::string& time, const std::string& column) {
    return fmt::format("{}u * {} + ((batch * {} + {}) * {} + head) * {} + {}", static_cast<int>(which),
                       shader.size(value_count_), shader.size(a_.time), time, shader.size(a_.heads),
                       shader.size(a_.value_size), column);
  }
  std::string value(Shader& shader, Values which, const std::string& time, const std::string& column) {
    return shader.load(values_, value_place(shader, which, time, column));
  }
  std::string state_place(Shader& shader, States which, const std::string& number, const std::string& feature,
                          const std::string& column) {
    return fmt::format("{}u * {} + (((batch * {} + head) * {} + {}) * {} + {}) * {} + {}", static_cast<int>(which),
                       shader.size(state_count_), shader.size(a_.heads), shader.size(chunks_ + Dim(1)), number,
                       shader.size(a_.key_size), feature, shader.size(a_.value_size), column);
  }
  // Separate workspaces, because no shader needs to bind both.
  int squares(Square which) const { return which == Square::dy_u ? of_dy_ : of_dr_; }
  std::string square_place(Shader& shader, const std::string& row, const std::string& column) {
    return fmt::format("(((batch * {} + head) * {} + chunk) * {}u + {}) * {}u + {}", shader.size(a_.heads),
                       shader.size(chunks_), chunk_, row, chunk_, column);
  }
  std::string square(Shader& shader, Square which, const std::string& row, const std::string& column) {
    return shader.load(squares(which), square_place(shader, row, column));
  }
  // Declares the range of tokens of a `chunk`: `start` and `end`.
  void write_chunk(Shader& shader) {
    shader.line("let start = chunk * {0}u; let end = min(start + {0}u, {1});", chunk_, shader.size(a_.time));
  }
  void open_columns(Shader& shader) const {
    shader.open("for (var column = 0u; column < {}; column++) {{", shader.loop_end(shader.size(a_.value_size)));
  }

  void store_state(Shader& shader, const StateColumn& state, States which, const std::string& number) {
    state.open_loop(shader);
    shader.store(states_, state_place(shader, which, number, "feature", "column"), state.at(shader, "feature"));
    shader.close();
  }

  void write_forwards() {
    const StateColumn state(writer_, a_);
    Shader shader = shader_of_elements(writer_, "linear_attention_forwards", a_.columns());
    a_.write_column(shader, "element");
    state.declare(shader);
    if (a_.tokens.state != nullptr) {
      shader.open("if {} {{", gates_->has_state(shader));
      state.open_loop(shader);
      state.set(shader, "feature", shader.load(*a_.tokens.state, {"batch", "head", "feature", "column"}));
      shader.close();
      shader.close();
    }
    const std::vector<std::string> key{"batch", "time", "key_head", "feature"};
    shader.open("for (var time = 0u; time < {}; time++) {{", shader.loop_end(shader.size(a_.time)));
    shader.open("if (time % {}u == 0u) {{", chunk_);
    store_state(shader, state, States::s, fmt::format("time / {}u", chunk_));
    shader.close();
    shader.line("let decay = {};", gate(shader, Gate::decay, "time"));
    shader.line("var r = {};", shader.load(a_.v, {"batch", "time", "head", "column"}));
    if (a_.beta != nullptr) {
      shader.line("var read = 0.0;");
      state.open_loop(shader);
      shader.line("read += {} * {};", shader.load(a_.k, key), state.at(shader, "feature"));
      shader.close();
      shader.line("r -= decay * read;");
    }
    shader.line("let u = {} * r;", gate(shader, Gate::factor, "time"));
    shader.line("var y = 0.0;");
    state.open_loop(shader);
    shader.line("let updated = decay * {} + {} * u;", state.at(shader, "feature"), shader.load(a_.k, key));
    state.set(shader, "feature", "updated");
    shader.line("y += {} * updated;", shader.load(a_.q, key));
    shader.close();
    shader.store(values_, value_place(shader, Values::r, "time", "column"), "r");
    shader.store(values_, value_place(shader, Values::y, "time", "column"), "y");
    shader.close();
    store_state(shader, state, States::s, shader.size(chunks_));
    add_shader_of_elements(writer_, std::move(shader), a_.columns(), OperationShare{1, 3});
  }

  void write_backwards() {
    const StateColumn state(writer_, a_);
    Shader shader = shader_of_elements(writer_, "linear_attention_backwards", a_.columns());
    a_.write_column(shader, "element");
    state.declare(shader);
    if (dnext_.binding >= 0) {
      state.open_loop(shader);
      state.set(shader, "feature", shader.load(dnext_, {"batch", "head", "feature", "column"}));
      shader.close();
    }
    store_state(shader, state, States::e, shader.size(chunks_));
    const std::vector<std::string> key{"batch", "time", "key_head", "feature"};
    shader.open("for (var later = {}; later > 0u; later--) {{", shader.size(a_.time));
    shader.line("let time = later - 1u;");
    // A padding token changes nothing, and its dy does not count.
    shader.line("let factor = {};", gate(shader, Gate::factor, "time"));
    shader.line("let dy = select(0.0, {}, {});", shader.load(dy_, {"batch", "time", "head", "column"}),
                a_.tokens.is_real(shader, "batch", "time"));
    shader.line("var du = 0.0;");
    state.open_loop(shader);
    shader.line("let updated = {} + {} * dy;", state.at(shader, "feature"), shader.load(a_.q, key));
    state.set(shader, "feature", "updated");
    shader.line("du += {} * updated;", shader.load(a_.k, key));
    shader.close();
    shader.store(values_, value_place(shader, Values::du, "time", "column"), "du");
    shader.line("let decay = {};", gate(shader, Gate::decay, "time"));
    state.open_loop(shader);
    const std::string kept = state.at(shader, "feature");
    state.set(shader, "feature",
              a_.beta != nullptr ? fmt::format("decay * ({} - {} * factor * du)", kept, shader.load(a_.k, key))
                                 : fmt::format("decay * {}", kept));
    shader.close();
    shader.open("if (time % {}u == 0u) {{", chunk_);
    store_state(shader, state, States::e, fmt::format("time / {}u", chunk_));
    shader.close();
    shader.close();
    add_shader_of_elements(writer_, std::move(shader), a_.columns(), OperationShare{1, 3});
  }

  // Computes D ∘ dy uᵀ or D ∘ dr uᵀ of every chunk, with zeros where a token does not see another.
  void write_squares(Square which) {
    Shader shader = shader_of_elements(writer_, "linear_attention_squares", square_count_);
    const auto index = shader.split_index("element", {a_.batch, a_.heads, chunks_, Dim(chunk_), Dim(chunk_)});
    shader.line("let batch = {}; let head = {}; let chunk = {};", index[0], index[1], index[2]);
    write_chunk(shader);
    shader.line("let t = start + {}; let s = start + {};", index[3], index[4]);
    shader.line("var sum = 0.0;");
    const bool of_dy = which == Square::dy_u;
    shader.open("if (t < end && s {} t) {{", of_dy ? "<=" : "<");
    open_columns(shader);
    shader.line("sum += {} * {};", value(shader, Values::r, "s", "column"),
                of_dy ? shader.load(dy_, {"batch", "t", "head", "column"}) : value(shader, Values::du, "t", "column"));
    shader.close();
    gates_->write_decay(shader, "decay", "s", "t");
    shader.line("decay *= {};", gate(shader, Gate::factor, "s"));
    if (of_dy)
      shader.line("sum = select(0.0, sum * decay, {});", a_.tokens.is_real(shader, "batch", "t"));
    else
      shader.line("sum *= decay * {};", gate(shader, Gate::factor, "t"));
    shader.close();
    shader.store(squares(which), square_place(shader, index[3], index[4]), "sum");
    add_shader_of_elements(writer_, std::move(shader), square_count_);
  }

  // Begins a shader with a thread for each element of q or k, and in it a loop over the heads that share it.
  // `continued`: its sums start from the partial dk stored so far.
  Shader open_keys(const std::string& name, bool continued = false) {
    Shader shader = shader_of_elements(writer_, name, element_count(a_.k.shape));
    const auto index = shader.split_index("element", a_.k.shape);
    shader.line("let batch = {}; let time = {}; let key_head = {}; let feature = {};", index[0], index[1], index[2],
                index[3]);
    shader.line("let chunk = time / {0}u; let chunk_row = time % {0}u;", chunk_);
    write_chunk(shader);
    shader.line("var sum = {};", continued ? shader.load(dk_, "element") : "0.0");
    shader.open("if ({}) {{", a_.tokens.is_real(shader, "batch", "time"));
    shader.line("let first_head = key_head * {};", shader.size(a_.shared));
    shader.open("for (var head = first_head; head < first_head + {}; head++) {{", shader.size(a_.shared));
    return shader;
  }
  // Stores the sum as a result, which includes the products with the states, or as a partial dk.
  void close_keys(Shader shader, const TensorAccess* result) {
    shader.close();
    shader.close();
    if (result != nullptr)
      shader.store(*result, {"batch", "time", "key_head", "feature"}, "sum");
    else
      shader.store(dk_, "element", "sum");
    add_shader_of_elements(writer_, std::move(shader), element_count(a_.k.shape),
                           OperationShare{result != nullptr ? 1 : 0, 6});
  }

  void write_dq() {
    Shader shader = open_keys("linear_attention_dq");
    shader.open("for (var other = start; other <= time; other++) {{");
    shader.line("sum += {} * {};", square(shader, Square::dy_u, "chunk_row", "(other - start)"),
                shader.load(a_.k, {"batch", "other", "key_head", "feature"}));
    shader.close();
    shader.line("var through_state = 0.0;");
    open_columns(shader);
    shader.line("through_state += {} * {};", shader.load(dy_, {"batch", "time", "head", "column"}),
                shader.load(states_, state_place(shader, States::s, "chunk", "feature", "column")));
    shader.close();
    shader.line("sum += {} * through_state;", gate(shader, Gate::since, "time"));
    close_keys(std::move(shader), writer_.kernel().results.data());
  }

  // Several shaders each add a term: devices may not allow one shader to bind everything that dk depends on.
  void write_dk() {
    write_dk_of_queries();
    if (a_.beta != nullptr) write_dk_of_keys();
    write_dk_of_states();
  }

  void write_dk_of_queries() {
    Shader shader = open_keys("linear_attention_dk_queries");
    shader.open("for (var other = time; other < end; other++) {{");
    shader.line("sum += {} * {};", square(shader, Square::dy_u, "(other - start)", "chunk_row"),
                shader.load(a_.q, {"batch", "other", "key_head", "feature"}));
    shader.close();
    close_keys(std::move(shader), nullptr);
  }

  void write_dk_of_keys() {
    Shader shader = open_keys("linear_attention_dk_keys", true);
    shader.open("for (var other = start; other < end; other++) {{");
    shader.line("let row = max(time, other) - start; let column = min(time, other) - start;");
    shader.line("sum -= {} * {};", square(shader, Square::dr_u, "row", "column"),
                shader.load(a_.k, {"batch", "other", "key_head", "feature"}));
    shader.close();
    close_keys(std::move(shader), nullptr);
  }

  void write_dk_of_states() {
    Shader shader = open_keys("linear_attention_dk", true);
    shader.line("var written = 0.0; var read = 0.0;");
    open_columns(shader);
    shader.line("written += {} * {};", value(shader, Values::r, "time", "column"),
                shader.load(states_, state_place(shader, States::e, "(chunk + 1u)", "feature", "column")));
    if (a_.beta != nullptr)
      shader.line("read += {} * {};", value(shader, Values::du, "time", "column"),
                  shader.load(states_, state_place(shader, States::s, "chunk", "feature", "column")));
    shader.close();
    gates_->write_decay(shader, "until", "time", "(end - 1u)");
    shader.line("sum += {} * (until * written - {} * read);", gate(shader, Gate::factor, "time"),
                gate(shader, Gate::since, "time"));
    close_keys(std::move(shader), &writer_.kernel().results[1]);
  }

  void write_dv() {
    const Dim count = element_count(a_.v.shape);
    Shader shader = shader_of_elements(writer_, "linear_attention_dv", count);
    const auto index = shader.split_index("element", a_.v.shape);
    shader.line("let batch = {}; let time = {}; let head = {}; let column = {};", index[0], index[1], index[2],
                index[3]);
    shader.store(
        writer_.kernel().results[2], {"batch", "time", "head", "column"},
        fmt::format("{} * {}", gate(shader, Gate::factor, "time"), value(shader, Values::du, "time", "column")));
    add_shader_of_elements(writer_, std::move(shader), count);
  }

  // A workgroup for each chunk of a head, with a thread per token, computes the gradients of log_decay and beta.
  void write_dgates() {
    const Dim count = a_.batch * a_.heads * chunks_;
    Shader shader = writer_.shader("linear_attention_dgates", chunk_);
    const auto index = shader.split_index("group", {a_.batch, a_.heads, chunks_});
    shader.line("let batch = {}; let head = {}; let chunk = {};", index[0], index[1], index[2]);
    write_chunk(shader);
    shader.line("let time = min(start + lane, end - 1u);");
    shader.shared_array("dg", "f32", chunk_);
    RowReduction total(shader, Op::sum, DType::f32);
    const Dim state_size = a_.key_size * a_.value_size;
    shader.open("for (var place = lane; place < {}; place += {}u) {{", shader.size(state_size), chunk_);
    total.add(
        fmt::format("{} * {}", shader.load(states_, state_place(shader, States::e, "(chunk + 1u)", "0u", "place")),
                    shader.load(states_, state_place(shader, States::s, "(chunk + 1u)", "0u", "place"))),
        "place");
    shader.close();
    const std::string after_chunk = shader.let("after_chunk", total.finish(chunk_, "lane", chunk_));
    shader.line("var sum = 0.0; var dbeta = 0.0;");
    shader.line("let factor = {};", gate(shader, Gate::factor, "time"));
    shader.open("if ({}) {{", a_.tokens.is_real(shader, "batch", "time"));
    open_columns(shader);
    shader.line("let r = {}; let du = {};", value(shader, Values::r, "time", "column"),
                value(shader, Values::du, "time", "column"));
    shader.line("sum += {} * {} - factor * r * du;", value(shader, Values::y, "time", "column"),
                shader.load(dy_, {"batch", "time", "head", "column"}));
    if (a_.beta != nullptr)
      shader.line("dbeta += r * du; sum -= ({} - r) * factor * du;",
                  shader.load(a_.v, {"batch", "time", "head", "column"}));
    shader.close();
    shader.close();
    shader.line("dg[lane] = select(0.0, sum, start + lane < end);");
    shader.barrier();
    shader.open("if (start + lane < end) {{");
    shader.line("var dlog_decay = {};", after_chunk);
    shader.line("for (var later = lane; later < {}u; later++) {{ dlog_decay += dg[later]; }}", chunk_);
    shader.line("dlog_decay = select(0.0, dlog_decay, {});", a_.tokens.is_real(shader, "batch", "time"));
    shader.store(writer_.kernel().results[3], {"batch", "time", "head"}, "dlog_decay");
    if (a_.beta != nullptr) shader.store(writer_.kernel().results[4], {"batch", "time", "head"}, "dbeta");
    shader.close();
    writer_.add(std::move(shader), count);
  }

  void write_dstate() {
    const TensorAccess& dstate = writer_.kernel().results.back();
    const Dim count = element_count(dstate.shape);
    Shader shader = shader_of_elements(writer_, "linear_attention_dstate", count);
    const auto index = shader.split_index("element", dstate.shape);
    shader.line("let batch = {}; let head = {}; let feature = {}; let column = {};", index[0], index[1], index[2],
                index[3]);
    shader.store(dstate, {"batch", "head", "feature", "column"},
                 fmt::format("select(0.0, {}, {})",
                             shader.load(states_, state_place(shader, States::e, "0u", "feature", "column")),
                             gates_->has_state(shader)));
    add_shader_of_elements(writer_, std::move(shader), count);
  }

  KernelWriter& writer_;
  LinearAttention a_;
  const TensorAccess &dnext_, &dy_;
  int chunk_;
  Dim chunks_, value_count_, state_count_, square_count_;
  std::optional<LinearAttentionGates> gates_;
  int values_ = -1, states_ = -1, of_dy_ = -1, of_dr_ = -1, dk_ = -1;  // workspaces
};

}  // namespace

template <>
void write_whole_op<Op::linear_attention_grad>(KernelWriter& writer) {
  LinearAttentionGrad(writer).write();
}

}  // namespace jerboa::wgsl
