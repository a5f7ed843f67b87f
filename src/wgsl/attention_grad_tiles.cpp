#include "wgsl/attention_grad.h"
#include "wgsl/attention_tiles.h"

namespace jerboa::wgsl {
namespace {

// The functions that both shaders call: scores, and loads of the four operands.
void write_functions(Shader& shader, const AttentionGrad& attention) {
  write_score_functions(shader, attention);
  write_fetch(shader, attention, {attention.q, TileRows::Of::queries, "fetch_q"});
  write_fetch(shader, attention, {attention.dout, TileRows::Of::queries, "fetch_dout"});
  write_fetch(shader, attention, {attention.k, TileRows::Of::keys, "fetch_k"});
  write_fetch(shader, attention, {attention.v, TileRows::Of::keys, "fetch_v"});
  if (attention.row_terms < 0) write_fetch(shader, attention, {attention.out, TileRows::Of::queries, "fetch_out"});
}

// Declares `sum`, a partial Σ dout · out over every `step`-th group of four features of a row, from `first` on.
void write_part_of_mean(Shader& shader, const AttentionGrad& attention, const std::string& sum, const std::string& row,
                        const std::string& first, int step) {
  shader.line("var {} = 0.0;", sum);
  shader.open("for (var feature = ({}) * 4u; feature < {}; feature += {}u) {{", first,
              shader.size(attention.value_size), 4 * step);
  shader.line("{} += dot(fetch_out(batch, key_head, {}, feature), fetch_dout(batch, key_head, {}, feature));", sum, row,
              row);
  shader.close();
}

// Each workgroup computes the gradient of a tile of queries against tiles of keys and values.
void write_query_tiles(KernelWriter& writer, const AttentionGrad& attention, const AttentionForm& form) {
  Shader shader = writer.shader("attention_dq", AttentionTiles::threads_for(form));
  AttentionTiles tile(shader, attention, form);
  write_functions(shader, attention);
  write_put(shader, attention, {attention.dq, TileRows::Of::queries, "put_dq"});
  const Dim tiles = groups_of(attention.rows(), tile.rows());
  tile.write_place(tiles, "group");
  tile.write_key_range();
  tile.write_queries("tile_row + thread_row * 4u");
  for (int i = 0; i < 4; ++i) {
    const std::string head = fmt::format("head_{}", i), time = fmt::format("time_{}", i);
    if (attention.row_terms < 0) {
      shader.line("let lse_{} = {};", i, shader.load(*attention.lse, {"batch", head, time}));
      write_part_of_mean(shader, attention, fmt::format("mean_{}", i),
                         fmt::format("(tile_row + thread_row * 4u + {}u)", i), "thread_column", AttentionTiles::across);
      continue;
    }
    shader.line("let lse_{} = {};", i, attention.lse_of(shader, "batch", head, time));
    shader.line("let mean_{} = {};", i, attention.mean_of(shader, "batch", head, time));
  }
  if (attention.row_terms < 0) tile.write_row_reduction("mean", true);
  tile.declare_sums("dq", attention.size);
  shader.open("for (var tile_key = range.x; tile_key < range.y; tile_key += {}u) {{", AttentionTiles::others);
  tile.write_product("product", "fetch_q", "fetch_k", "tile_key", attention.size);
  tile.write_product("dweight", "fetch_dout", "fetch_v", "tile_key", attention.value_size);
  for (int j = 0; j < 4; ++j) {
    shader.line("let wanted_{0} = tile_key + thread_column * 4u + {0}u;", j);
    shader.line("let key_{0} = min(wanted_{0}, range.y - 1u);", j);
    shader.line("let position_{0} = select(-1, key_position(batch, key_{0}), wanted_{0} < range.y);", j);
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      shader.open("{{");
      shader.line("let scored = score(visible_{0}, batch, head_{0}, time_{0}, key_{1}, position_{1}, product_{0}.{2});",
                  i, j, "xyzw"[j]);
      shader.line("let weight = select(0.0, exp(scored.x - lse_{}), scored.x > {});", i, unseen_score);
      shader.line("product_{0}.{1} = weight * (dweight_{0}.{1} - mean_{0}) * scored.y;", i, "xyzw"[j]);
      shader.close();
    }
  tile.write_weights("product");
  tile.write_sums("dq", "fetch_k", "tile_key", attention.size);
  shader.close();
  tile.join_sums("dq", attention.size);
  tile.for_each_sum("dq", attention.size, [&](int i, const std::string& feature, const std::string& sum) {
    shader.line("put_dq(batch, key_head, tile_row + thread_row * 4u + {}u, {}, {});", i, feature, sum);
  });
  writer.add(shader, attention.batch * attention.key_heads * tiles, operations_of_queries);
}

// Each workgroup computes the gradients of a tile of keys and values against tiles of all queries that share them.
void write_key_tiles(KernelWriter& writer, const AttentionGrad& attention, const AttentionForm& form) {
  Shader shader = writer.shader("attention_dkv", AttentionTiles::threads_for(form));
  AttentionTiles tile(shader, attention, form);
  write_functions(shader, attention);
  write_put(shader, attention, {attention.dk, TileRows::Of::keys, "put_dk"});
  write_put(shader, attention, {attention.dv, TileRows::Of::keys, "put_dv"});
  const Dim tiles = groups_of(attention.keys, tile.rows());
  tile.write_place(tiles, "group");
  for (int i = 0; i < 4; ++i) {
    shader.line("let wanted_{0} = tile_row + thread_row * 4u + {0}u;", i);
    shader.line("let key_{0} = min(wanted_{0}, {1} - 1u);", i, shader.size(attention.keys));
    shader.line("let position_{0} = select(-1, key_position(batch, key_{0}), wanted_{0} < {1});", i,
                shader.size(attention.keys));
  }
  tile.declare_sums("dk", attention.size);
  tile.declare_sums("dv", attention.value_size);
  shader.line("let range = time_range(tile_row, min(tile_row + {}u, {}));", tile.rows(), shader.size(attention.keys));
  // If only some times see the tile, heads are processed one by one; otherwise their queries are contiguous rows.
  const bool by_head = attention.has_fixed_visibility() && attention.attrs.causal;
  if (by_head) {
    shader.open("for (var member = 0u; member < {}; member++) {{", shader.size(attention.group));
    shader.line("let first_row = member * {0} + range.x; let end_row = member * {0} + range.y;",
                shader.size(attention.time));
  } else {
    shader.line("let first_row = 0u; let end_row = {};", shader.size(attention.rows()));
  }
  shader.open("for (var tile_query = first_row; tile_query < end_row; tile_query += {}u) {{", AttentionTiles::others);
  const int sharers = shader.threads() / AttentionTiles::others;  // threads per query's mean: 2 or 4
  if (attention.row_terms < 0) {
    // Until the weights are stored there, their matrix holds the partial sums of dout · out.
    shader.line("let sharer = lane % {0}u; let shared_query = lane / {0}u;", sharers);
    write_part_of_mean(shader, attention, "part_of_mean", "(tile_query + shared_query)", "sharer", sharers);
    shader.line("weights[shared_query][sharer] = part_of_mean;");
  }
  tile.write_product("product", "fetch_k", "fetch_q", "tile_query", attention.size);
  if (attention.row_terms < 0)
    for (int j = 0; j < 4; ++j) {
      shader.line("let parts_{0} = weights[thread_column * 4u + {0}u];", j);
      shader.line("let mean_{0} = {1};", j,
                  sharers == 4 ? fmt::format("(parts_{0}.x + parts_{0}.y) + (parts_{0}.z + parts_{0}.w)", j)
                               : fmt::format("parts_{0}.x + parts_{0}.y", j));
    }
  tile.write_product("dweight", "fetch_v", "fetch_dout", "tile_query", attention.value_size);
  tile.write_queries("tile_query + thread_column * 4u");
  for (int i = 0; i < 4; ++i) shader.line("var weight_{} = vec4f();", i);
  for (int j = 0; j < 4; ++j) {
    const std::string head = fmt::format("head_{}", j), time = fmt::format("time_{}", j);
    shader.open("{{");
    // Rows past the last of this head belong to the next one, which processes them itself.
    shader.line("let visible = select(vec2i(), visible_{0}, tile_query + thread_column * 4u + {0}u < end_row);", j);
    if (attention.row_terms < 0)
      shader.line("let lse = {}; let mean = mean_{};", shader.load(*attention.lse, {"batch", head, time}), j);
    else
      shader.line("let lse = {}; let mean = {};", attention.lse_of(shader, "batch", head, time),
                  attention.mean_of(shader, "batch", head, time));
    for (int i = 0; i < 4; ++i) {
      shader.line("let scored_{0} = score(visible, batch, head_{1}, time_{1}, key_{0}, position_{0}, product_{0}.{2});",
                  i, j, "xyzw"[j]);
      shader.line("weight_{0}.{1} = select(0.0, exp(scored_{0}.x - lse), scored_{0}.x > {2});", i, "xyzw"[j],
                  unseen_score);
      shader.line("product_{0}.{1} = weight_{0}.{1} * (dweight_{0}.{1} - mean) * scored_{0}.y;", i, "xyzw"[j]);
    }
    shader.close();
  }
  tile.write_weights("weight");
  tile.write_sums("dv", "fetch_dout", "tile_query", attention.value_size);
  tile.write_weights("product");
  tile.write_sums("dk", "fetch_q", "tile_query", attention.size);
  shader.close();
  if (by_head) shader.close();
  tile.join_sums("dk", attention.size);
  tile.join_sums("dv", attention.value_size);
  tile.for_each_sum("dk", attention.size, [&](int i, const std::string& feature, const std::string& sum) {
    shader.line("put_dk(batch, key_head, wanted_{}, {}, {});", i, feature, sum);
  });
  tile.for_each_sum("dv", attention.value_size, [&](int i, const std::string& feature, const std::string& sum) {
    shader.line("put_dv(batch, key_head, wanted_{}, {}, {});", i, feature, sum);
  });
  writer.add_beside(shader, attention.batch * attention.key_heads * tiles, operations_of_keys);
}

}  // namespace

void write_attention_grad_tiles(KernelWriter& writer, const AttentionGrad& attention, const AttentionGradForms& forms) {
  if (attention.queries().upper_bound() > 0) write_query_tiles(writer, attention, forms.dq);
  if (attention.keys.upper_bound() > 0) write_key_tiles(writer, attention, forms.dkv);
}

}  // namespace jerboa::wgsl
