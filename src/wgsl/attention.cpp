#include "wgsl/attention.h"

#include <algorithm>

#include "wgsl/attention_decode.h"
#include "wgsl/attention_matrices.h"
#include "wgsl/attention_parts.h"
#include "wgsl/attention_stream.h"
#include "wgsl/attention_tiles.h"
#include "wgsl/whole_kernels.h"

// Attention. The form depends only on the target and the sizes (choose_attention.cpp):
// - software drivers: each thread computes some queries that share a key head, straight from memory;
// - few queries that share a key head: each workgroup computes all of them, or eight, and keys stream past its threads,
//   which are assigned to features (attention_stream.cpp), or to keys and then to features (attention_decode.cpp);
// - operands of f16 on devices with subgroup matrices: each subgroup computes some queries against tiles of keys and
//   values (attention_matrices.h);
// - otherwise: each workgroup computes a tile of queries against tiles of keys and values in workgroup memory.
// With few queries, the keys are split into parts.
namespace jerboa::wgsl {
namespace {

// Each thread computes up to four queries, in the components of vectors.
void write_rows(KernelWriter& writer, const Attention& attention, const AttentionForm& form) {
  constexpr int threads = 32;
  const Lanes lanes(attention.rows().upper_bound());
  const Dim blocks = groups_of(attention.rows(), lanes.count());
  const Dim all_blocks = attention.batch * attention.key_heads * blocks;
  const AttentionParts parts(writer, attention, form.parts);
  Shader shader = writer.shader("attention_rows", threads);
  write_score_functions(shader, attention);
  const Dim count = all_blocks * Dim(parts.count());
  shader.line("let number = group * {}u + lane;", threads);
  shader.line("if (number >= {}) {{ return; }}", shader.size(count));
  const auto index = shader.split_index("number", {attention.batch, attention.key_heads, blocks, Dim(parts.count())});
  shader.line("let batch = {}; let key_head = {}; let part = {};", index[0], index[1], index[3]);
  // Rows past the end repeat the last one, and are not stored.
  for (int i = 0; i < lanes.count(); ++i) {
    shader.line("let row_{0} = {1} * {2}u + {0}u;", i, index[2], lanes.count());
    shader.line("let safe_{0} = min(row_{0}, {1} - 1u);", i, shader.size(attention.rows()));
    shader.line("let head_{0} = key_head * {1} + safe_{0} / {2};", i, shader.size(attention.group),
                shader.size(attention.time));
    shader.line("let time_{0} = safe_{0} % {1};", i, shader.size(attention.time));
    shader.line("let visible_{0} = visible_range(batch, time_{0});", i);
  }
  std::string least = "visible_0.x", most = "visible_0.y";
  for (int i = 1; i < lanes.count(); ++i) {
    least = fmt::format("min({}, visible_{}.x)", least, i);
    most = fmt::format("max({}, visible_{}.y)", most, i);
  }
  shader.line("let range = key_range(batch, {}, {});", least, most);
  parts.write_range(shader, "range.x", "range.y", "part");
  const auto head = [](int i) { return fmt::format("head_{}", i); };
  const auto time = [](int i) { return fmt::format("time_{}", i); };
  const auto q = [&](int i) { return shader.load(*attention.q, {"batch", head(i), time(i), "feature"}); };
  const auto of_key = [&](const TensorAccess& tensor) {
    return [&](int j) {
      auto indices = attention.key_indices(shader, fmt::format("key_{}", j), "feature");
      indices[0] = fmt::format("block_{}", j);
      return load_feature(shader, tensor, indices);
    };
  };
  shader.line("var sums = array<{}, {}>();", lanes.type(), attention.value_size.upper_bound());
  shader.line("var top = {};", lanes.each([&](int i) { return parts.first_top(shader, head(i), "part"); }));
  shader.line("var total = {}({});", lanes.type(), parts.first_total("part"));
  shader.open("for (var key = first; key < end; key += {}u) {{", others_at_a_time);
  for (int j = 0; j < others_at_a_time; ++j) {
    shader.line("let key_{0} = min(key + {0}u, end - 1u);", j);
    shader.line("let block_{} = {};", j, attention.key_indices(shader, fmt::format("key_{}", j), "")[0]);
  }
  write_products(shader, "product", lanes, attention.size, q, of_key(*attention.k));
  shader.line("var new_top = top;");
  for (int j = 0; j < others_at_a_time; ++j) {
    shader.line("let position_{0} = select(-1, key_position(batch, key_{0}), key + {0}u < end);", j);
    shader.line("let score_{} = {};", j, lanes.each([&](int i) {
      return fmt::format("score(visible_{0}, batch, head_{0}, time_{0}, key_{1}, position_{1}, {2}).x", i, j,
                         lanes.at(fmt::format("product_{}", j), i));
    }));
    shader.line("new_top = max(new_top, score_{});", j);
  }
  shader.line("let shrink = exp(top - new_top);");
  shader.line("top = new_top; total *= shrink;");
  for (int j = 0; j < others_at_a_time; ++j) {
    shader.line("let weight_{0} = select({1}(), exp(score_{0} - top), score_{0} > {1}({2}));", j, lanes.type(),
                unseen_score);
    shader.line("total += weight_{};", j);
  }
  shader.open("for (var feature = 0u; feature < {}; feature++) {{", shader.loop_end(shader.size(attention.value_size)));
  shader.line("sums[feature] *= shrink;");
  shader.close();
  write_sums(shader, "sums", "weight", attention.value_size, of_key(*attention.v));
  shader.close();
  for (int i = 0; i < lanes.count(); ++i) {
    shader.open("if (row_{} < {}) {{", i, shader.size(attention.rows()));
    shader.open("for (var feature = 0u; feature < {}; feature++) {{",
                shader.loop_end(shader.size(attention.value_size)));
    parts.store_sum(shader, "batch", head(i), time(i), "part", "feature", lanes.at("sums[feature]", i),
                    lanes.at("total", i));
    shader.close();
    parts.store_row(shader, "batch", head(i), time(i), "part", lanes.at("top", i), lanes.at("total", i));
    shader.close();
  }
  writer.add(shader, groups_of(count, threads), all_operations);
  parts.write_combine(writer);
}

// Each workgroup computes a tile of queries against tiles of keys and values in workgroup memory.
void write_tiles(KernelWriter& writer, const Attention& attention, const AttentionForm& form) {
  const Dim tiles = groups_of(attention.rows(), form.tile_rows);
  const Dim all_tiles = attention.batch * attention.key_heads * tiles;
  const AttentionParts parts(writer, attention, form.parts);
  Shader shader = writer.shader("attention", AttentionTiles::threads_for(form));
  write_score_functions(shader, attention);
  AttentionTiles tile(shader, attention, form);
  write_fetch(shader, attention, {attention.q, TileRows::Of::queries, "fetch_q"});
  write_fetch(shader, attention, {attention.k, TileRows::Of::keys, "fetch_k"});
  write_fetch(shader, attention, {attention.v, TileRows::Of::keys, "fetch_v"});
  shader.line("let part = group % {0}u; let tile = group / {0}u;", parts.count());
  tile.write_place(tiles, "tile");
  tile.write_key_range();
  parts.write_range(shader, "range.x", "range.y", "part");
  tile.write_queries("tile_row + thread_row * 4u");
  tile.declare_sums("sum", attention.value_size);
  for (int i = 0; i < 4; ++i) {
    shader.line("let first_top_{0} = {1};", i, parts.first_top(shader, fmt::format("head_{}", i), "part"));
    shader.line("var top_{0} = first_top_{0}; var total_{0} = 0.0;", i);
  }
  shader.open("for (var tile_key = first; tile_key < end; tile_key += {}u) {{", AttentionTiles::others);
  tile.write_product("score", "fetch_q", "fetch_k", "tile_key", attention.size);
  for (int j = 0; j < 4; ++j) {
    shader.line("let key_{0} = min(tile_key + thread_column * 4u + {0}u, end - 1u);", j);
    shader.line(
        "let position_{0} = select(-1, key_position(batch, key_{0}), tile_key + thread_column * 4u + {0}u < end);", j);
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j)
      shader.line(
          "score_{0}.{2} = score(visible_{0}, batch, head_{0}, time_{0}, key_{1}, position_{1}, score_{0}.{2}).x;", i,
          j, "xyzw"[j]);
    shader.line("var new_top_{0} = max(max(score_{0}.x, score_{0}.y), max(score_{0}.z, score_{0}.w));", i);
  }
  tile.write_row_reduction("new_top", false);
  for (int i = 0; i < 4; ++i) {
    shader.line("new_top_{0} = max(new_top_{0}, top_{0});", i);
    shader.line("let shrink_{0} = exp(top_{0} - new_top_{0});", i);
    shader.line("score_{0} = select(vec4f(), exp(score_{0} - new_top_{0}), score_{0} > vec4f({1}));", i, unseen_score);
    shader.line("total_{0} = total_{0} * shrink_{0} + (score_{0}.x + score_{0}.y) + (score_{0}.z + score_{0}.w);", i);
    shader.line("top_{0} = new_top_{0};", i);
  }
  tile.for_each_sum("sum", attention.value_size, [&](int i, const std::string&, const std::string& sum) {
    shader.line("{} *= shrink_{};", sum, i);
  });
  tile.write_weights("score");
  tile.write_sums("sum", "fetch_v", "tile_key", attention.value_size);
  shader.close();
  tile.join_sums("sum", attention.value_size);
  tile.write_row_reduction("total", true);
  for (int i = 0; i < 4; ++i)
    shader.line("total_{0} += {1} * exp(first_top_{0} - top_{0});", i, parts.first_total("part"));
  for (int i = 0; i < 4; ++i) {
    shader.open("if (thread_column == 0u && tile_row + thread_row * 4u + {}u < {}) {{", i,
                shader.size(attention.rows()));
    parts.store_row(shader, "batch", fmt::format("head_{}", i), fmt::format("time_{}", i), "part",
                    fmt::format("top_{}", i), fmt::format("total_{}", i));
    shader.close();
  }
  tile.for_each_sum("sum", attention.value_size, [&](int i, const std::string& feature, const std::string& sum) {
    shader.open("if (tile_row + thread_row * 4u + {}u < {}) {{", i, shader.size(attention.rows()));
    for (int k = 0; k < 4; ++k) {
      shader.open("if ({} + {}u < {}) {{", feature, k, shader.size(attention.value_size));
      parts.store_sum(shader, "batch", fmt::format("head_{}", i), fmt::format("time_{}", i), "part",
                      fmt::format("({} + {}u)", feature, k), fmt::format("{}.{}", sum, "xyzw"[k]),
                      fmt::format("total_{}", i));
      shader.close();
    }
    shader.close();
  });
  writer.add(shader, all_tiles * Dim(parts.count()), all_operations);
  parts.write_combine(writer);
}

}  // namespace

template <>
void write_whole_op<Op::attention>(KernelWriter& writer) {
  const Attention attention(writer.kernel(), 3, std::get<AttentionAttrs>(writer.kernel().attrs));
  if (attention.queries().upper_bound() == 0) return;
  const AttentionForm form = choose_attention(writer, attention);
  switch (form.kind) {
    case AttentionForm::Kind::matrices: return write_attention_matrices(writer, attention, form.matrices);
    case AttentionForm::Kind::rows: return write_rows(writer, attention, form);
    case AttentionForm::Kind::stream: return AttentionStream(writer, attention, form).write();
    case AttentionForm::Kind::decode: return AttentionDecode(writer, attention, form).write();
    case AttentionForm::Kind::tiles: return write_tiles(writer, attention, form);
  }
}

}  // namespace jerboa::wgsl
