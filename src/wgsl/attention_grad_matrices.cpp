#include "wgsl/attention_matrices.h"

// The gradient of attention on subgroup matrices, with p = exp2(score - lse), to base 2, recomputed:
//   dq: columns are queries, rows are keys and values;
//   dk and dv: columns are keys and values, rows are the queries of all heads that share them, and their gradients.
namespace jerboa::wgsl {
namespace {

constexpr int matrix = MatrixWriter::size;
const std::string log2_e = "1.4426950408889634";

// Computes the log-sum-exp and Σ dout · out of each query. Several threads share a query, each with four features at a
// time, and process several queries, to keep enough loads in flight.
void write_row_terms(KernelWriter& writer, const AttentionGrad& attention) {
  constexpr int threads = 128;
  constexpr std::int64_t of_thread = 4;  // queries
  const auto fours = static_cast<int>(attention.size.value() / 4);
  const int sharing = threads % fours == 0 ? fours : 4, at_once = threads / sharing;
  Shader shader = writer.shader("attention_row_terms_wide", threads);
  shader.shared_array("parts", "f32", threads * of_thread);
  const std::string queries = shader.size(attention.queries());
  shader.line("let thread_query = group * {}u + lane;", at_once * of_thread);
  shader.line("let stores = lane < {}u && thread_query < {};", at_once * of_thread, queries);
  // Queries past the end repeat the last one, and are not stored.
  const auto index_of = [&](const std::string& query) {
    return shader.split_index(shader.let("query", fmt::format("min({}, {} - 1u)", query, queries)),
                              {attention.batch, attention.heads, attention.time});
  };
  shader.line("let lse = {};", shader.load(*attention.lse, index_of("thread_query")));
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
  // Each thread starts at a different part, to avoid bank conflicts in workgroup memory.
  shader.open("for (var i = 0u; i < {}u; i++) {{", sharing);
  shader.line("sum += parts[lane * {0}u + (lane + i) % {0}u];", sharing);
  shader.close();
  shader.store(attention.row_terms, "thread_query * 2u", "lse");
  shader.store(attention.row_terms, "thread_query * 2u + 1u", "sum");
  shader.close();
  writer.add(std::move(shader), groups_of(attention.queries(), at_once * of_thread));
}

class QueryGradients {
 public:
  QueryGradients(KernelWriter& writer, const AttentionGrad& attention, const AttentionMatrixForm& form)
      : writer_(writer),
        attention_(attention),
        form_(form),
        matrices_(writer, attention, "attention_dq_matrices", form),
        shader_(matrices_.shader()),
        queries_(shader_, attention, form) {}

  void write() {
    const auto q = matrices_.operand("q", *attention_.q, "batch", "head");
    const auto dout = matrices_.operand("dout", *attention_.dout, "batch", "head");
    const AttentionMatrices::Stream keys = queries_.keys_and_values(matrices_);
    matrices_.declare_columns("query", q, "subgroup_query");
    matrices_.declare_columns("gradient", dout, "subgroup_query");
    matrices_.declare_results("sum");
    for (int i = 0; i < form_.lane_columns; ++i) {
      shader_.line("let time_{0} = min(subgroup_query + lane_column + {0}u, {1} - 1u);", i,
                   shader_.size(attention_.time));
      const std::string time = fmt::format("time_{}", i);
      shader_.line("let lse_{} = {} * {};", i, attention_.lse_of(shader_, "batch", "head", time), log2_e);
      shader_.line("let mean_{} = {};", i, attention_.mean_of(shader_, "batch", "head", time));
      shader_.line("let seen_{} = {};", i, queries_.seen_by(fmt::format("subgroup_query + lane_column + {}u", i)));
    }
    matrices_.write_stream(keys, [&] { write_tile(); });
    matrices_.write_results("sum", *attention_.dq, "batch", "head", "subgroup_query", attention_.time,
                            matrices_.scale());
    writer_.add(std::move(shader_), queries_.workgroups(), operations_of_queries);
  }

 private:
  void write_tile() {
    shader_.open("if ({}) {{", queries_.whole_tile());
    for (int piece = 0; piece < matrices_.pieces(); ++piece) {
      shader_.open("{{");
      write_piece(piece, false);
      shader_.close();
    }
    shader_.otherwise();
    for (int piece = 0; piece < matrices_.pieces(); ++piece) {
      shader_.open("{{");
      shader_.line("let key = tile * {}u + {}u;", form_.tile_rows, piece * matrix);
      shader_.open("if (key < seen_by_any) {{");
      write_piece(piece, true);
      shader_.close();
      shader_.close();
    }
    shader_.close();
  }

  void write_piece(int piece, bool is_masked) {
    matrices_.write_products("products", 0, "query", piece);
    matrices_.write_products("dweights", 1, "gradient", piece);
    matrices_.write_exchange("products", "score");
    matrices_.exchange();
    matrices_.write_exchange("dweights", "dweight");
    matrices_.for_each_value([&](int r, int i) {
      const std::string weight = fmt::format("exp2(fma(score_{}_{}, {}, -lse_{}))", r, i, matrices_.log2_scale(), i);
      shader_.line("score_{0}_{1} = {2} * (dweight_{0}_{1} - mean_{1});", r, i,
                   is_masked ? fmt::format("select(0.0, {}, key + lane_row + {}u < seen_{})", weight, r, i) : weight);
    });
    matrices_.write_weights("score");
    matrices_.write_gather("sum", 0, piece);
  }

  KernelWriter& writer_;
  const AttentionGrad& attention_;
  AttentionMatrixForm form_;
  AttentionMatrices matrices_;
  Shader& shader_;
  MatrixQueries queries_;
};

class KeyGradients {
 public:
  KeyGradients(KernelWriter& writer, const AttentionGrad& attention, const AttentionMatrixForm& form)
      : writer_(writer),
        attention_(attention),
        form_(form),
        matrices_(writer, attention, "attention_dkv_matrices", form),
        shader_(matrices_.shader()),
        time_(shader_.size(attention.time)),
        first_(form.barriers ? "first_key" : "subgroup_key"),
        width_(form.barriers ? form.workgroup_columns() : form.columns()) {
    if (attention.attrs.causal) key_offset_ = shader_.size(attention.keys - attention.time);
  }

  void write() {
    const Dim heads = attention_.batch * attention_.key_heads;
    write_place(heads);
    const auto k = matrices_.operand("k", *attention_.k, "batch", "key_head");
    const auto v = matrices_.operand("v", *attention_.v, "batch", "key_head");
    matrices_.declare_columns("key", k, "subgroup_key");
    matrices_.declare_columns("value", v, "subgroup_key");
    matrices_.declare_results("dk");
    matrices_.declare_results("dv");
    matrices_.write_stream(queries(), [&] {
      shader_.line("let tile_query = {}; let head = {};", row_of("tile"), head_of("tile"));
      for (int piece = 0; piece < matrices_.pieces(); ++piece) {
        shader_.open("{{");
        write_piece(piece);
        shader_.close();
      }
    });
    const auto write_results = [&](const char* sums, const TensorAccess& to, const std::string& factor) {
      matrices_.write_results(sums, to, "batch", "key_head", "subgroup_key", attention_.keys, factor);
    };
    write_results("dk", *attention_.dk, matrices_.scale());
    write_results("dv", *attention_.dv, "1.0");
    writer_.add_beside(std::move(shader_), heads * groups_of(attention_.keys, form_.workgroup_columns()),
                       operations_of_keys);
  }

 private:
  void write_place(const Dim& heads) {
    // Heads are adjacent in the order of workgroups, and the first keys, which most queries see, come first.
    shader_.line("let head_number = group % {};", shader_.size(heads));
    const auto index = shader_.split_index("head_number", {attention_.batch, attention_.key_heads});
    shader_.line("let batch = {}; let key_head = {};", index[0], index[1]);
    shader_.line("let first_key = group / {} * {}u;", shader_.size(heads), form_.workgroup_columns());
    shader_.line("let subgroup_key = first_key + subgroup * {}u;", form_.columns());
    // Only queries that see some of the keys count: tiles start with the first that contains such a query.
    shader_.line("let first_tile = {};",
                 key_offset_ ? fmt::format("(max(first_key, {0}) - {0}) / {1}u", *key_offset_, form_.tile_rows) : "0u");
    shader_.line("let head_tiles = ({} + {}u) / {}u - first_tile;", time_, form_.tile_rows - 1, form_.tile_rows);
    shader_.line("let query_tiles = head_tiles * {};", shader_.size(attention_.group));
  }

  // The head of a tile's queries, and the first of them, by the tile's number.
  std::string head_of(const std::string& tile) {
    if (attention_.group == Dim(1)) return "key_head";
    return fmt::format("(key_head * {} + {} / head_tiles)", shader_.size(attention_.group), tile);
  }
  std::string row_of(const std::string& tile) const {
    const std::string in_head = attention_.group == Dim(1) ? tile : tile + " % head_tiles";
    return fmt::format("(first_tile + {}) * {}u", in_head, form_.tile_rows);
  }

  AttentionMatrices::Stream queries() {
    return {"query_tiles",
            [this](const std::string& tile) {
              const std::string head = shader_.let("head", head_of(tile));
              const auto q = matrices_.operand("q", *attention_.q, "batch", head);
              return std::pair(q, matrices_.operand("dout", *attention_.dout, "batch", head));
            },
            [this](const std::string& tile) { return row_of(tile); }};
  }

  void write_piece(int piece) {
    shader_.line("let query = tile_query + {}u;", piece * matrix);
    shader_.open("if ({}) {{",
                 key_offset_ ? fmt::format("query + {}u + {} >= {}", matrix - 1, *key_offset_, first_) : "true");
    write_terms();
    matrices_.write_products("products", 0, "key", piece);
    matrices_.write_exchange("products", "weight");
    matrices_.write_products("dweights", 1, "value", piece);
    matrices_.for_each_value([&](int r, int i) {
      shader_.line("weight_{0}_{1} = exp2(fma(weight_{0}_{1}, {2}, -lse_{0}));", r, i, matrices_.log2_scale());
    });
    write_mask();
    matrices_.write_weights("weight");
    matrices_.write_gather("dv", 1, piece);
    matrices_.write_exchange("dweights", "dweight");
    matrices_.for_each_value(
        [&](int r, int i) { shader_.line("weight_{0}_{1} *= dweight_{0}_{1} - mean_{0};", r, i); });
    matrices_.write_weights("weight");
    matrices_.write_gather("dk", 0, piece);
    shader_.close();
  }

  // Declares lse_r and mean_r for the thread's rows, which are queries from `query` on.
  void write_terms() {
    const bool are_inside = attention_.time.is_constant() && attention_.time.value() % form_.tile_rows == 0;
    if (are_inside && matrices_.lane_rows() % 2 == 0 && shader_.can_be_wide(attention_.row_terms)) {
      // One load reads the terms of two queries.
      shader_.line("let pair = {} / 2u;", attention_.query(shader_, "batch", "head", "query + lane_row"));
      for (int r = 0; r < matrices_.lane_rows(); r += 2) {
        const std::string pair = fmt::format("pair + {}u", r / 2);
        shader_.line("let terms_{} = {};", r, shader_.load_words(attention_.row_terms, pair));
        shader_.line("let lse_{0} = terms_{0}.x * {1}; let mean_{0} = terms_{0}.y;", r, log2_e);
        shader_.line("let lse_{2} = terms_{0}.z * {1}; let mean_{2} = terms_{0}.w;", r, log2_e, r + 1);
      }
      return;
    }
    for (int r = 0; r < matrices_.lane_rows(); ++r) {
      shader_.line("let time_{0} = min(query + lane_row + {0}u, {1} - 1u);", r, time_);
      const std::string time = fmt::format("time_{}", r);
      shader_.line("let lse_{} = {} * {};", r, attention_.lse_of(shader_, "batch", "head", time), log2_e);
      shader_.line("let mean_{} = {};", r, attention_.mean_of(shader_, "batch", "head", time));
    }
  }

  // Zeroes the weights of queries past the end, and of those that do not see the key.
  void write_mask() {
    const std::string past_end = fmt::format("query + {}u > {}", matrix, time_);
    shader_.open("if ({}) {{",
                 key_offset_ ? fmt::format("{} || query + {} < {} + {}u", past_end, *key_offset_, first_, width_ - 1)
                             : past_end);
    matrices_.for_each_value([&](int r, int i) {
      std::string seen = fmt::format("query + lane_row + {}u < {}", r, time_);
      if (key_offset_)
        seen += fmt::format(" && query + lane_row + {}u + {} >= subgroup_key + lane_column + {}u", r, *key_offset_, i);
      shader_.line("weight_{0}_{1} = select(0.0, weight_{0}_{1}, {2});", r, i, seen);
    });
    shader_.close();
  }

  KernelWriter& writer_;
  const AttentionGrad& attention_;
  AttentionMatrixForm form_;
  AttentionMatrices matrices_;
  Shader& shader_;
  std::string time_;
  std::optional<std::string> key_offset_;  // keys minus queries; none if all keys are seen
  // The first key of the subgroups that must branch alike, and how many keys they have: with barriers, the whole
  // workgroup's.
  std::string first_;
  int width_;
};

}  // namespace

void write_attention_grad_matrices(KernelWriter& writer, const AttentionGrad& attention, const AttentionMatrixForm& dq,
                                   const AttentionMatrixForm& dkv) {
  write_row_terms(writer, attention);
  QueryGradients(writer, attention, dq).write();
  KeyGradients(writer, attention, dkv).write();
}

}  // namespace jerboa::wgsl
