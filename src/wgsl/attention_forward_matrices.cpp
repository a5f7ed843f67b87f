#include <jerboa/base/lowest_score.h>

#include "wgsl/attention_matrices.h"

// The forward pass: columns are queries, rows are keys and values. Weights are exp2(score - reference). A query's
// reference is its largest score in the first tile, and stays fixed, because rescaling the results costs more than
// everything else around the products. If a later score exceeds it so far that weights would not fit f16, the workgroup
// repeats the pass with the largest score, which is known by then.
namespace jerboa::wgsl {
namespace {

// The exponent of the largest allowed weight, 2^15; f16 ends below 2^16.
constexpr const char* largest_excess = "15.0";

class ForwardMatrices {
 public:
  ForwardMatrices(KernelWriter& writer, const Attention& attention, const AttentionMatrixForm& form)
      : writer_(writer),
        attention_(attention),
        form_(form),
        matrices_(writer, attention, "attention_matrices", form),
        shader_(matrices_.shader()),
        queries_(shader_, attention, form) {}

  void write() {
    const auto q = matrices_.operand("q", *attention_.q, "batch", "head");
    const AttentionMatrices::Stream keys = queries_.keys_and_values(matrices_);
    matrices_.declare_columns("query", q, "subgroup_query");
    matrices_.declare_results("sum");
    for_each_column([&](int i) {
      shader_.line("let seen_{} = {};", i, queries_.seen_by(fmt::format("subgroup_query + lane_column + {}u", i)));
      // Larger than the score of hidden keys, so that their weights are 0 even if a query sees no others.
      shader_.line("var reference_{0} = -1e20; var top_{0} = -1e20; var total_{0} = 0.0;", i);
    });
    shader_.line("if (lane == 0u) {{ {} = 0.0; }}", matrices_.flag());
    shader_.open("for (var attempt = 0u; attempt < {}; attempt++) {{", shader_.loop_end("2u"));
    matrices_.clear_results("sum");
    for_each_column([&](int i) { shader_.line("total_{} = 0.0;", i); });
    matrices_.write_stream(keys, [&] { write_tile(); });
    write_break();
    take_top_as_reference();
    shader_.close();
    write_results();
    writer_.add(std::move(shader_), queries_.workgroups(), all_operations);
  }

 private:
  template <class F>
  void for_each_column(F f) {
    for (int i = 0; i < form_.lane_columns; ++i) f(i);
  }

  void write_tile() {
    shader_.open("if ({}) {{", queries_.whole_tile());
    write_whole_tile();
    shader_.otherwise();
    for (int piece = 0; piece < matrices_.pieces(); ++piece) {
      shader_.open("{{");
      write_masked_piece(piece);
      shader_.close();
    }
    shader_.close();
  }

  // Without branches: first the scores of all pieces, then their weights.
  void write_whole_tile() {
    const auto name = [](const char* prefix, int piece) { return fmt::format("{}{}", prefix, "abcd"[piece]); };
    matrices_.write_products(name("products_", 0), 0, "query", 0);
    std::vector<std::string> scores;
    for (int piece = 0; piece < matrices_.pieces(); ++piece) {
      if (piece > 0) matrices_.exchange();
      scores.push_back(name("score_", piece));
      matrices_.write_exchange(name("products_", piece), scores.back());
      if (piece + 1 < matrices_.pieces()) matrices_.write_products(name("products_", piece + 1), 0, "query", piece + 1);
    }
    write_top(scores, true);
    for (int piece = 0; piece < matrices_.pieces(); ++piece) {
      if (piece > 0) matrices_.exchange();
      write_sums(scores[static_cast<std::size_t>(piece)], piece);
    }
  }

  void write_masked_piece(int piece) {
    shader_.line("let key = tile * {}u + {}u;", form_.tile_rows, piece * MatrixWriter::size);
    shader_.open("if (key < seen_by_any) {{");
    matrices_.write_products("products", 0, "query", piece);
    matrices_.write_exchange("products", "score");
    matrices_.for_each_value([&](int r, int i) {
      shader_.line("score_{0}_{1} = select({2}, score_{0}_{1}, key + lane_row + {0}u < seen_{1});", r, i, lowest_score);
    });
    write_top({"score"}, piece == 0);
    write_sums("score", piece);
    shader_.close();
  }

  // Updates the largest score, which is not scaled yet, and makes it the reference in the first tile.
  void write_top(const std::vector<std::string>& scores, bool has_first_piece) {
    for_each_column([&](int i) {
      std::string top;
      for (const std::string& score : scores)
        for (int r = 0; r < matrices_.lane_rows(); ++r) {
          const std::string value = fmt::format("{}_{}_{}", score, r, i);
          top = top.empty() ? value : fmt::format("max({}, {})", top, value);
        }
      shader_.line("top_{0} = max(top_{0}, {1} * {2});", i, top, matrices_.log2_scale());
    });
    if (!has_first_piece) return;
    shader_.open("if (tile == 0u && attempt == 0u) {{");
    take_top_as_reference();
    shader_.close();
  }

  void take_top_as_reference() {
    for_each_column([&](int i) { shader_.line("reference_{0} = top_{0};", i); });
    matrices_.write_column_reduction("reference", false);
  }

  // Turns scores into weights, adds these up and multiplies them by the values.
  void write_sums(const std::string& score, int piece) {
    matrices_.for_each_value([&](int r, int i) {
      shader_.line("{0}_{1}_{2} = exp2(fma({0}_{1}_{2}, {3}, -reference_{2})); total_{2} += {0}_{1}_{2};", score, r, i,
                   matrices_.log2_scale());
    });
    matrices_.write_weights(score);
    matrices_.write_gather("sum", 1, piece);
  }

  // Leaves the loop of attempts if no weight was too large.
  void write_break() {
    std::string exceeds;
    for_each_column([&](int i) {
      exceeds += fmt::format("{0}top_{1} > reference_{1} + {2}", i == 0 ? "" : " || ", i, largest_excess);
    });
    shader_.line("if ({}) {{ {} = 1.0; }}", exceeds, matrices_.flag());
    shader_.line("if (workgroupUniformLoad(&{}) < 0.5) {{ break; }}", matrices_.flag());
  }

  void write_results() {
    const TensorAccess &out = writer_.kernel().results[0], &lse = writer_.kernel().results[1];
    matrices_.write_column_reduction("total", true);
    const bool may_see_nothing = MatrixQueries::see_by_data(attention_);
    const auto unless_unseen = [&](int i, const std::string& unseen, const std::string& value) {
      return may_see_nothing ? fmt::format("select({}, {}, seen_{} > 0u)", unseen, value, i) : value;
    };
    for_each_column([&](int i) {
      shader_.open("if (lane_row == 0u && subgroup_query + lane_column + {}u < {}) {{", i,
                   shader_.size(attention_.time));
      const std::string value = fmt::format("(reference_{0} + log2(total_{0})) * 0.6931471805599453", i);
      shader_.store(lse, {"batch", "head", fmt::format("(subgroup_query + lane_column + {}u)", i)},
                    unless_unseen(i, unseen_lse, value));
      shader_.close();
      shader_.line("total_{} = {};", i, unless_unseen(i, "0.0", fmt::format("1.0 / total_{}", i)));
    });
    matrices_.keep_for_columns("total");
    matrices_.write_results("sum", out, "batch", "head", "subgroup_query", attention_.time, std::nullopt);
  }

  KernelWriter& writer_;
  const Attention& attention_;
  AttentionMatrixForm form_;
  AttentionMatrices matrices_;
  Shader& shader_;
  MatrixQueries queries_;
};

}  // namespace

void write_attention_matrices(KernelWriter& writer, const Attention& attention, const AttentionMatrixForm& form) {
  ForwardMatrices(writer, attention, form).write();
}

}  // namespace jerboa::wgsl
