#include <algorithm>

#include "wgsl/linear_attention.h"

// Linear attention in chunks of tokens. With D[t, s] the product of the decays after token s up to t, d[t] that of the
// chunk up to t, e[t] that from after t to the end of the chunk, S the state before the chunk, and f the factor with
// which a token writes:
//   u = f (v - d k S - (D ∘ k kᵀ) u)   below the diagonal; without the delta rule u = f v
//   y = d q S + (D ∘ q kᵀ) u           up to the diagonal
//   next S = d[last] S + (e k)ᵀ u
// One shader computes, for all chunks in parallel, the squares D ∘ q kᵀ and, for the delta rule, the inverse of I + f
// (D ∘ k kᵀ), times f, so that u is a product too. Another iterates over the chunks: a workgroup holds some columns of
// a head's state in workgroup memory, and a thread four adjacent columns, first of a token, then of some rows of the
// state.
namespace jerboa::wgsl {
namespace {

constexpr std::int64_t chunk = 32;
constexpr int square_threads = 128;

// The columns of a workgroup of the second shader, in vectors of four; 0 if the state does not fit.
std::int64_t vectors_for(const Target& target, const LinearAttention& a) {
  const std::int64_t all = a.value_size.value() / 4;
  for (std::int64_t vectors = 4; vectors > 0; vectors /= 2)
    if (all % vectors == 0 && (a.key_size.value() + 2 * chunk) * vectors * 16 <= target.workgroup_bytes &&
        chunk * vectors <= target.max_invocations)
      return vectors;
  return 0;
}

class Chunks {
 public:
  Chunks(KernelWriter& writer, const LinearAttention& a)
      : writer_(writer),
        a_(a),
        chunks_(groups_of(a.time, chunk)),
        square_count_(a.batch * a.heads * chunks_ * Dim(chunk * chunk)),
        gates_(writer, a, chunk),
        squares_(writer.workspace(DType::f32, square_count_ * Dim(a.beta != nullptr ? 2 : 1))) {}

  void write() {
    write_squares();
    write_columns();
  }

 private:
  using Gate = LinearAttentionGates::Of;
  enum class Square { scores, solution };

  std::string gate(Shader& shader, Gate which, const std::string& time) const {
    return gates_.load(shader, which, time);
  }
  std::string square_place(Shader& shader, Square which, const std::string& row, const std::string& column) const {
    return fmt::format("{}u * {} + (((batch * {} + head) * {} + chunk) * {}u + {}) * {}u + {}", static_cast<int>(which),
                       shader.size(square_count_), shader.size(a_.heads), shader.size(chunks_), chunk, row, chunk,
                       column);
  }
  std::string load_squares(Shader& shader, Square which, const std::string& row, const std::string& column) const {
    return shader.load_four(squares_, square_place(shader, which, row, column));
  }
  // Tokens past the end repeat the last one, with a factor of 0 and the same decays.
  static void write_chunk(Shader& shader, const Dim& time) {
    shader.line("let start = chunk * {0}u; let last = min(start + {0}u, {1}) - 1u;", chunk, shader.size(time));
  }

  void write_squares() {
    Shader shader = writer_.shader("linear_attention_squares", square_threads);
    const auto index = shader.split_index("group", {a_.batch, a_.heads, chunks_});
    shader.line("let batch = {}; let head = {}; let chunk = {};", index[0], index[1], index[2]);
    shader.line("let key_head = head / {};", shader.size(a_.shared));
    write_chunk(shader, a_.time);
    if (a_.beta != nullptr) {
      shader.shared_array("overlaps", "f32", chunk * chunk);
      shader.shared_array("columns", "f32", chunk * chunk);
    }
    shader.shared_array("decays", "f32", chunk);
    shader.line("if (lane < {}u) {{ decays[lane] = {}; }}", chunk,
                gate(shader, Gate::decay, "min(start + lane, last)"));
    shader.barrier();
    shader.open("for (var place = lane; place < {}u; place += {}u) {{", chunk * chunk, square_threads);
    shader.line("let row = place / {0}u; let column = place % {0}u;", chunk);
    shader.line("let t = min(start + row, last); let s = min(start + column, last);");
    shader.line("var score = 0.0; var overlap = 0.0;");
    shader.open("if (column <= row) {{");
    shader.open("for (var feature = 0u; feature < {}; feature += 4u) {{", shader.loop_end(shader.size(a_.key_size)));
    shader.line("let other = {};", LinearAttention::load_four(shader, a_.k, {"batch", "s", "key_head", "feature"}));
    shader.line("score += dot({}, other);",
                LinearAttention::load_four(shader, a_.q, {"batch", "t", "key_head", "feature"}));
    if (a_.beta != nullptr)
      shader.line("overlap += dot({}, other);",
                  LinearAttention::load_four(shader, a_.k, {"batch", "t", "key_head", "feature"}));
    shader.close();
    shader.line("var decay = 1.0;");
    shader.line("for (var other = s + 1u; other <= t; other++) {{ decay *= decays[other - start]; }}");
    shader.line("score *= decay;");
    if (a_.beta != nullptr)
      shader.line("overlap = select(0.0, overlap * decay * {}, column < row && start + row <= last);",
                  gate(shader, Gate::factor, "t"));
    shader.close();
    shader.store(squares_, square_place(shader, Square::scores, "row", "column"), "score");
    if (a_.beta != nullptr) shader.line("overlaps[place] = overlap;");
    shader.close();
    if (a_.beta != nullptr) write_inverse(shader);
    writer_.add(std::move(shader), a_.batch * a_.heads * chunks_);
  }

  // Each thread computes a column of the inverse, from its first row down.
  void write_inverse(Shader& shader) {
    shader.barrier();
    shader.open("if (lane < {}u) {{", chunk);
    shader.line("let factor = select(0.0, {}, start + lane <= last);",
                gate(shader, Gate::factor, "min(start + lane, last)"));
    shader.open("for (var row = 0u; row < {}; row++) {{", shader.loop_end(fmt::format("{}u", chunk)));
    shader.line("var value = select(0.0, 1.0, row == lane);");
    shader.open("for (var other = lane; other < row; other++) {{");
    shader.line("value -= overlaps[row * {0}u + other] * columns[other * {0}u + lane];", chunk);
    shader.close();
    shader.line("columns[row * {}u + lane] = value;", chunk);
    shader.store(squares_, square_place(shader, Square::solution, "row", "lane"), "value * factor");
    shader.close();
    shader.close();
  }

  void write_columns() {
    vectors_ = vectors_for(writer_.target(), a_);
    const std::int64_t threads = chunk * vectors_, slices = a_.value_size.value() / (4 * vectors_);
    Shader shader = writer_.shader("linear_attention_chunks", static_cast<int>(threads));
    const auto index = shader.split_index("group", {a_.batch, a_.heads, Dim(slices)});
    shader.line("let batch = {}; let head = {}; let key_head = head / {};", index[0], index[1], shader.size(a_.shared));
    shader.line("let thread_row = lane / {0}u; let column_lane = lane % {0}u;", vectors_);
    shader.line("let column = ({} * {}u + column_lane) * 4u;", index[2], vectors_);
    shader.shared_array("state", "vec4f", a_.key_size.value() * vectors_);
    shader.shared_array("written", "vec4f", chunk * vectors_);
    shader.shared_array("kept", "vec4f", chunk * vectors_);  // what is left of it at the end of the chunk
    a_.tokens.write_row(shader, "batch");
    write_state(shader);
    shader.barrier();
    shader.open("for (var chunk = 0u; chunk < {}; chunk++) {{", shader.size(chunks_));
    write_chunk(shader, a_.time);
    shader.line("let token_time = min(start + thread_row, last); let is_token = start + thread_row <= last;");
    shader.line("let since = {};", gate(shader, Gate::since, "token_time"));
    gates_.write_decay(shader, "until", "token_time", "last");
    write_products_with_state(shader);
    write_solution(shader);
    write_results(shader);
    write_next_state(shader);
    shader.barrier();
    shader.close();
    store_state(shader);
    writer_.add(std::move(shader), a_.batch * a_.heads * Dim(slices), all_operations);
  }

  void open_rows(Shader& shader) const {
    shader.open("for (var feature = thread_row; feature < {}u; feature += {}u) {{", a_.key_size.value(), chunk);
  }
  std::string state(const std::string& feature) const {
    return fmt::format("state[{} * {}u + column_lane]", feature, vectors_);
  }

  void write_state(Shader& shader) const {
    open_rows(shader);
    shader.line("{} = vec4f();", state("feature"));
    if (a_.tokens.state != nullptr)
      shader.line("if (has_row && {}) {{ {} = {}; }}", gates_.has_state(shader), state("feature"),
                  LinearAttention::load_four(shader, *a_.tokens.state, {"row", "head", "feature", "column"}));
    shader.close();
  }

  // Declares `read` = k S, for the delta rule, and `y` = q S.
  void write_products_with_state(Shader& shader) const {
    const auto row_of = [&](const TensorAccess& tensor) {
      return LinearAttention::load_four(shader, tensor, {"batch", "token_time", "key_head", "feature"});
    };
    shader.line("var read = vec4f(); var y = vec4f();");
    shader.open("for (var feature = 0u; feature < {}; feature += 4u) {{", shader.loop_end(shader.size(a_.key_size)));
    shader.line("let query = {};", row_of(a_.q));
    if (a_.beta != nullptr) shader.line("let key = {};", row_of(a_.k));
    for (int i = 0; i < 4; ++i) {
      shader.line("let state_{} = {};", i, state(fmt::format("(feature + {}u)", i)));
      shader.line("y += query.{} * state_{};", "xyzw"[i], i);
      if (a_.beta != nullptr) shader.line("read += key.{} * state_{};", "xyzw"[i], i);
    }
    shader.close();
    shader.line("y *= since;");
  }

  // Adds, over the tokens of the chunk up to the thread's, the elements of a row of a square times their `written`.
  void write_square_product(Shader& shader, const std::string& name, Square square) const {
    shader.open("for (var other = 0u; other <= thread_row; other += 4u) {{");
    shader.line("let factors = {};", load_squares(shader, square, "thread_row", "other"));
    for (int i = 0; i < 4; ++i)
      shader.line("{} += factors.{} * written[(other + {}u) * {}u + column_lane];", name, "xyzw"[i], i, vectors_);
    shader.close();
  }

  // Declares `u`, and stores `written` and `kept`, which derive from it.
  void write_solution(Shader& shader) const {
    shader.line("let value = {};", LinearAttention::load_four(shader, a_.v, {"batch", "token_time", "head", "column"}));
    if (a_.beta != nullptr) {
      shader.line("written[lane] = value - since * read;");
      shader.barrier();
      shader.line("var u = vec4f();");
      write_square_product(shader, "u", Square::solution);
      shader.barrier();
    } else {
      shader.line("let u = select(0.0, {}, is_token) * value;", gate(shader, Gate::factor, "token_time"));
    }
    shader.line("written[lane] = u; kept[lane] = until * u;");
    shader.barrier();
  }

  void write_results(Shader& shader) const {
    write_square_product(shader, "y", Square::scores);
    shader.open("if (is_token) {{");
    if (a_.tokens.positions != nullptr)
      shader.line("if (!{}) {{ y = vec4f(); }}", a_.tokens.is_real(shader, "batch", "token_time"));
    LinearAttention::store_four(shader, writer_.kernel().results[1], {"batch", "token_time", "head", "column"}, "y");
    shader.close();
  }

  void write_next_state(Shader& shader) const {
    shader.line("let decay = {};", gate(shader, Gate::since, "last"));
    open_rows(shader);
    shader.line("var next = decay * {};", state("feature"));
    shader.open("for (var token = 0u; token <= last - start; token++) {{");
    shader.line("next += {} * kept[token * {}u + column_lane];",
                shader.load(a_.k, {"batch", "(start + token)", "key_head", "feature"}), vectors_);
    shader.close();
    shader.line("{} = next;", state("feature"));
    shader.close();
  }

  void store_state(Shader& shader) const {
    open_rows(shader);
    shader.open("if (has_row) {{");
    LinearAttention::store_four(shader, writer_.kernel().results[0], {"row", "head", "feature", "column"},
                                state("feature"));
    shader.close();
    shader.close();
  }

  KernelWriter& writer_;
  const LinearAttention& a_;
  Dim chunks_, square_count_;
  LinearAttentionGates gates_;
  int squares_;
  std::int64_t vectors_ = 0;
};

}  // namespace

bool suits_linear_attention_chunks(const Target& target, const LinearAttention& a) {
  if (target.software || !a.key_size.is_constant() || !a.value_size.is_constant() || a.time == Dim(0)) return false;
  const std::int64_t keys = a.key_size.value(), values = a.value_size.value();
  if (keys == 0 || values == 0 || keys % 4 != 0 || values % 4 != 0 || target.max_invocations < square_threads)
    return false;
  const Dim squares = a.batch * a.heads * groups_of(a.time, chunk) * Dim(2 * chunk * chunk);
  return vectors_for(target, a) > 0 && squares.upper_bound() * 4 <= target.max_binding_bytes;
}

void write_linear_attention_chunks(KernelWriter& writer, const LinearAttention& a) { Chunks(writer, a).write(); }

}  // namespace jerboa::wgsl
