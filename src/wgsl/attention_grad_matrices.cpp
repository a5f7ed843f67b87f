#include "wgsl/attention_matrices.h"

// The gradient of attention on subgroup matrices, with p = exp2(score - lse) to the base of 2 computed again:
//   dq: columns are queries, rows are keys and values;
//   dk and dv: columns are keys and values, rows are the queries of all heads that share them, and their gradients.
namespace jerboa::wgsl {
namespace {

constexpr int matrix = MatrixWriter::size;
const std::string log2_e = "1.4426950408889634";

// The log-sum-exp and Σ dout · out of each query. Some threads share a query, each with four of its features at a time,
// and have several queries, so that enough is fetched at once.
void write_row_terms(KernelWriter& writer, const AttentionGrad& attention) {
  constexpr int threads = 128;
  constexpr std::int64_t of_thread = 4;  // queries
  const auto fours = static_cast<int>(attention.size.value() / 4);
  const int sharing = threads % fours == 0 ? fours : 4, at_once = threads / sharing;
  Shader shader = writer.shader("attention_row_terms_wide", threads);
  shader.shared_array("parts", "f32", threads * of_thread);
  const std::string queries = shader.size(attention.queries());
  shader.line("let own = group * {}u + lane;", at_once * of_thread);
  shader.line("let stores = lane < {}u && own < {};", at_once * of_thread, queries);
  // Queries past the last are the last, and are not stored.
  const auto index_of = [&](const std::string& query) {
    return shader.split_index(shader.let("query", fmt::format("min({}, {} - 1u)", query, queries)),
                              {attention.batch, attention.heads, attention.time});
  };
  shader.line("let lse = {};", shader.load(*attention.lse, index_of("own")));
  for (std::int64_t i = 0; i < of_thread; ++i) {
    const auto index =
        index_of(fmt::format("group * {}u + {}u + lane / {}u", at_once * of_thread, at_once * i, sharing));
    const auto load = [&](const TensorAccess& tensor, int four) {
      const std::string feature = fmt::format("({}u + lane % {}u) * 4u", four, sharing);
      return shader.load_four(tensor.binding,
                              shader.place(tensor.offset, tensor.strides, {index[0], index[1], index[2], feature}));
    };
    std::string sum;
    for (int four = 0; four < fours; four += sharing)
      sum +=
          fmt::format("{}dot({}, {})", four == 0 ? "" : " + ", load(*attention.out, four), load(*attention.dout, four));
    shader.line("let sum_{} = {};", i, sum);
  }
  for (std::int64_t i = 0; i < of_thread; ++i) shader.line("parts[{}u + lane] = sum_{};", i * threads, i);
  shader.barrier();
  shader.open("if (stores) {{");
  shader.line("var sum = 0.0;");
  // From another part on for each thread, so that they meet different banks of workgroup memory.
  shader.open("for (var i = 0u; i < {}u; i++) {{", sharing);
  shader.line("sum += parts[lane * {0}u + (lane + i) % {0}u];", sharing);
  shader.close();
  shader.store(attention.row_terms, "own * 2u", "lse");
  shader.store(attention.row_terms, "own * 2u + 1u", "sum");
  shader.close();
  writer.add(std::move(shader), groups_of(attention.queries(), at_once * of_thread));
}

void write_query_gradients(KernelWriter& writer, const AttentionGrad& attention, const AttentionMatrixForm& form) {
  AttentionMatrices own(writer, attention, "attention_dq_matrices", form);
  Shader& shader = own.shader();
  const MatrixQueries queries(shader, attention, form);
  const auto q = own.operand("q", *attention.q, "batch", "head");
  const auto dout = own.operand("dout", *attention.dout, "batch", "head");
  const auto k = own.operand("k", *attention.k, "batch", "key_head");
  const auto v = own.operand("v", *attention.v, "batch", "key_head");
  own.write_own("query", q, "own_query");
  own.write_own("gradient", dout, "own_query");
  own.declare_results("sum");
  for (int i = 0; i < form.lane_columns; ++i) {
    shader.line("let time_{0} = min(own_query + lane_column + {0}u, {1} - 1u);", i, shader.size(attention.time));
    const std::string time = fmt::format("time_{}", i);
    shader.line("let lse_{} = {} * {};", i, attention.lse_of(shader, "batch", "head", time), log2_e);
    shader.line("let mean_{} = {};", i, attention.mean_of(shader, "batch", "head", time));
    shader.line("let seen_{} = {};", i, queries.seen_by(fmt::format("own_query + lane_column + {}u", i)));
  }
  const auto write_piece = [&](int piece, bool is_masked) {
    own.write_products("e", 0, "query", piece);
    own.write_products("d", 1, "gradient", piece);
    own.write_exchange("e", "x");
    own.exchange();
    own.write_exchange("d", "y");
    own.for_each_value([&](int r, int i) {
      const std::string weight = fmt::format("exp2(fma(x_{}_{}, {}, -lse_{}))", r, i, own.log2_scale(), i);
      shader.line("x_{0}_{1} = {2} * (y_{0}_{1} - mean_{1});", r, i,
                  is_masked ? fmt::format("select(0.0, {}, key + lane_row + {}u < seen_{})", weight, r, i) : weight);
    });
    own.write_weights("x");
    own.write_gather("sum", 0, piece);
  };
  own.write_stream(queries.keys_and_values(k, v), [&] {
    shader.open("if ({}) {{", queries.whole_tile());
    for (int piece = 0; piece < own.pieces(); ++piece) {
      shader.open("{{");
      write_piece(piece, false);
      shader.close();
    }
    shader.otherwise();
    for (int piece = 0; piece < own.pieces(); ++piece) {
      shader.open("{{");
      shader.line("let key = tile * {}u + {}u;", form.tile_rows, piece * matrix);
      shader.open("if (key < seen_by_any) {{");
      write_piece(piece, true);
      shader.close();
      shader.close();
    }
    shader.close();
  });
  own.write_results("sum", *attention.dq, "batch", "head", "own_query", attention.time, own.scale());
  writer.add(std::move(shader), queries.workgroups());
}

// Declares lse_r and mean_r of the thread's rows, which are queries from `query` on.
void write_terms_of_rows(AttentionMatrices& own, const AttentionGrad& attention, bool are_inside) {
  Shader& shader = own.shader();
  if (are_inside && own.lane_rows() % 2 == 0 && shader.can_be_wide(attention.row_terms)) {
    // Those of two queries at once.
    shader.line("let pair = {} / 2u;", attention.query(shader, "batch", "head", "query + lane_row"));
    for (int r = 0; r < own.lane_rows(); r += 2) {
      shader.line("let terms_{} = {};", r, shader.load_words(attention.row_terms, fmt::format("pair + {}u", r / 2)));
      shader.line("let lse_{0} = terms_{0}.x * {1}; let mean_{0} = terms_{0}.y;", r, log2_e);
      shader.line("let lse_{2} = terms_{0}.z * {1}; let mean_{2} = terms_{0}.w;", r, log2_e, r + 1);
    }
    return;
  }
  for (int r = 0; r < own.lane_rows(); ++r) {
    shader.line("let time_{0} = min(query + lane_row + {0}u, {1} - 1u);", r, shader.size(attention.time));
    const std::string time = fmt::format("time_{}", r);
    shader.line("let lse_{} = {} * {};", r, attention.lse_of(shader, "batch", "head", time), log2_e);
    shader.line("let mean_{} = {};", r, attention.mean_of(shader, "batch", "head", time));
  }
}

void write_key_gradients(KernelWriter& writer, const AttentionGrad& attention, const AttentionMatrixForm& form) {
  AttentionMatrices own(writer, attention, "attention_dkv_matrices", form);
  Shader& shader = own.shader();
  const Dim heads = attention.batch * attention.key_heads;
  const Dim tiles = groups_of(attention.keys, form.workgroup_columns());
  const std::string time = shader.size(attention.time);
  const bool fills_tiles = attention.time.is_constant() && attention.time.value() % form.tile_rows == 0;
  const bool causal = attention.attrs.causal;
  const std::string behind = causal ? shader.size(attention.keys - attention.time) : std::string();
  // Heads side by side, and those of the first keys first, which are seen the most.
  shader.line("let head_number = group % {};", shader.size(heads));
  const auto index = shader.split_index("head_number", {attention.batch, attention.key_heads});
  shader.line("let batch = {}; let key_head = {};", index[0], index[1]);
  shader.line("let first_key = group / {} * {}u;", shader.size(heads), form.workgroup_columns());
  shader.line("let own_key = first_key + subgroup * {}u;", form.columns());
  // A head's queries that see any of the keys: from the first tile of them on.
  shader.line("let first_tile = {};",
              causal ? fmt::format("(max(first_key, {0}) - {0}) / {1}u", behind, form.tile_rows) : std::string("0u"));
  shader.line("let head_tiles = ({} + {}u) / {}u - first_tile;", time, form.tile_rows - 1, form.tile_rows);
  shader.line("let query_tiles = head_tiles * {};", shader.size(attention.group));
  const auto k = own.operand("k", *attention.k, "batch", "key_head");
  const auto v = own.operand("v", *attention.v, "batch", "key_head");
  own.write_own("key", k, "own_key");
  own.write_own("value", v, "own_key");
  own.declare_results("dk");
  own.declare_results("dv");
  const bool one_head = attention.group == Dim(1);
  const auto head = [&](const std::string& tile) {
    return one_head ? std::string("key_head")
                    : fmt::format("(key_head * {} + {} / head_tiles)", shader.size(attention.group), tile);
  };
  const auto row = [&](const std::string& tile) {
    return one_head ? fmt::format("(first_tile + {}) * {}u", tile, form.tile_rows)
                    : fmt::format("(first_tile + {} % head_tiles) * {}u", tile, form.tile_rows);
  };
  const AttentionMatrices::Stream stream{"query_tiles",
                                         [&](const std::string& tile) {
                                           const std::string head_of_tile = shader.let("head", head(tile));
                                           auto q = own.operand("q", *attention.q, "batch", head_of_tile);
                                           return std::pair(
                                               q, own.operand("dout", *attention.dout, "batch", head_of_tile));
                                         },
                                         row};
  // With barriers all subgroups must go the same way.
  const std::string from = form.barriers ? "first_key" : "own_key";
  const int wide = form.barriers ? form.workgroup_columns() : form.columns();
  const auto write_piece = [&](int piece) {
    shader.line("let query = tile_query + {}u;", piece * matrix);
    shader.open("if ({}) {{",
                causal ? fmt::format("query + {}u + {} >= {}", matrix - 1, behind, from) : std::string("true"));
    write_terms_of_rows(own, attention, fills_tiles);
    own.write_products("e", 0, "key", piece);
    own.write_exchange("e", "x");
    own.write_products("d", 1, "value", piece);
    own.for_each_value(
        [&](int r, int i) { shader.line("x_{0}_{1} = exp2(fma(x_{0}_{1}, {2}, -lse_{0}));", r, i, own.log2_scale()); });
    const std::string past_end = fmt::format("query + {}u > {}", matrix, time);
    shader.open("if ({}) {{",
                causal ? fmt::format("{} || query + {} < {} + {}u", past_end, behind, from, wide - 1) : past_end);
    own.for_each_value([&](int r, int i) {
      const std::string inside = fmt::format("query + lane_row + {}u < {}", r, time);
      shader.line(
          "x_{0}_{1} = select(0.0, x_{0}_{1}, {2});", r, i,
          causal ? fmt::format("{} && query + lane_row + {}u + {} >= own_key + lane_column + {}u", inside, r, behind, i)
                 : inside);
    });
    shader.close();
    own.write_weights("x");
    own.write_gather("dv", 1, piece);
    own.write_exchange("d", "y");
    own.for_each_value([&](int r, int i) { shader.line("x_{0}_{1} *= y_{0}_{1} - mean_{0};", r, i); });
    own.write_weights("x");
    own.write_gather("dk", 0, piece);
    shader.close();
  };
  own.write_stream(stream, [&] {
    shader.line("let tile_query = {}; let head = {};", row("tile"), head("tile"));
    for (int piece = 0; piece < own.pieces(); ++piece) {
      shader.open("{{");
      write_piece(piece);
      shader.close();
    }
  });
  own.write_results("dk", *attention.dk, "batch", "key_head", "own_key", attention.keys, own.scale());
  own.write_results("dv", *attention.dv, "batch", "key_head", "own_key", attention.keys, "1.0");
  writer.add(std::move(shader), heads * tiles);
}

}  // namespace

void write_attention_grad_matrices(KernelWriter& writer, const AttentionGrad& attention,
                                   const AttentionMatrixForms& forms) {
  write_row_terms(writer, attention);
  write_query_gradients(writer, attention, forms.dq);
  write_key_gradients(writer, attention, forms.dkv);
}

}  // namespace jerboa::wgsl
