#include "wgsl/attention_decode.h"

#include "wgsl/attention_tiles.h"

namespace jerboa::wgsl {
namespace {

std::int64_t vectors_of(const Dim& size) { return (size.upper_bound() + 3) / 4; }

}  // namespace

AttentionForm AttentionDecode::form_for(const Attention& attention) {
  AttentionForm form{.kind = AttentionForm::Kind::decode};
  // A large head leaves room for fewer queries.
  const std::int64_t most = attention.size.upper_bound() > 128 ? 4 : 8;
  while (form.queries < most && form.queries < attention.rows().upper_bound()) form.queries *= 2;
  const Dim blocks = groups_of(attention.rows(), form.queries);
  form.parts = parts_of(attention.batch * attention.key_heads * blocks, 256, attention.keys, pass);
  return form;
}

bool AttentionDecode::suits(const Target& target, const Attention& attention) {
  const std::int64_t queries = form_for(attention).queries;
  const std::int64_t bytes = (queries * vectors_of(attention.size) + threads) * 16 + queries * (pass + threads + 3) * 4;
  return attention.rows().upper_bound() <= 16 && vectors_of(attention.value_size) <= threads &&
         threads <= target.max_invocations && bytes <= target.workgroup_bytes;
}

AttentionDecode::AttentionDecode(KernelWriter& writer, const Attention& attention, const AttentionForm& form)
    : writer_(writer),
      attention_(attention),
      queries_(form.queries),
      row_lanes_(threads / queries_),
      blocks_(groups_of(attention.rows(), queries_)),
      parts_(writer, attention, form.parts),
      shader_(writer.shader("attention_decode", threads)) {}

void AttentionDecode::write() {
  write_score_functions(shader_, attention_);
  write_fetch(shader_, attention_, {attention_.q, TileRows::Of::queries, "fetch_q"});
  write_fetch(shader_, attention_, {attention_.k, TileRows::Of::keys, "fetch_k"});
  write_fetch(shader_, attention_, {attention_.v, TileRows::Of::keys, "fetch_v"});
  const auto index =
      shader_.split_index("group", {attention_.batch, attention_.key_heads, blocks_, Dim(parts_.count())});
  shader_.line("let batch = {}; let key_head = {}; let first_row = {} * {}u; let part = {};", index[0], index[1],
               index[2], queries_, index[3]);
  write_queries();
  shader_.open("for (var tile_key = first; tile_key < end; tile_key += {}u) {{", pass);
  shader_.line("let count = min(end - tile_key, {}u);", pass);
  write_scores();
  write_weights();
  write_sums();
  shader_.close();
  write_results();
  writer_.add(shader_, attention_.batch * attention_.key_heads * blocks_ * Dim(parts_.count()), all_operations);
  parts_.write_combine(writer_);
}

void AttentionDecode::write_queries() {
  const std::int64_t vectors = vectors_of(attention_.size);
  const std::string rows = shader_.size(attention_.rows()), time = shader_.size(attention_.time);
  shader_.shared_array("queries", "vec4f", queries_ * vectors);
  shader_.open("for (var number = lane; number < {}u; number += {}u) {{", queries_ * vectors, threads);
  shader_.line("queries[number] = fetch_q(batch, key_head, first_row + number / {0}u, number % {0}u * 4u);", vectors);
  shader_.close();
  shader_.line("var least = 0x7fffffff; var most = 0;");
  shader_.open("for (var row = first_row; row < min(first_row + {}u, {}); row++) {{", queries_, rows);
  shader_.line("let seen = visible_range(batch, row % {});", time);
  shader_.line("least = min(least, seen.x); most = max(most, seen.y);");
  shader_.close();
  shader_.line("let range = key_range(batch, least, most);");
  parts_.write_range(shader_, "range.x", "range.y", "part");
  // Three assignments of threads: to keys and features, to the scores of a query, and to the features of values.
  shader_.line("let key_lane = lane % {0}u; let key_slot = lane / {0}u;", lanes_per_key);
  shader_.line("let row_lane = lane % {0}u; let local_row = lane / {0}u;", row_lanes_);
  shader_.line("let safe_row = min(first_row + local_row, {} - 1u);", rows);
  shader_.line("let head = key_head * {} + safe_row / {};", shader_.size(attention_.group), time);
  shader_.line("let time = safe_row % {};", time);
  shader_.line("let visible = select(vec2i(), visible_range(batch, time), first_row + local_row < {});", rows);
  const std::int64_t value_vectors = vectors_of(attention_.value_size);
  shader_.line("let column = lane % {0}u; let slice = lane / {0}u;", value_vectors);
  shader_.line("let first_top = {};", parts_.first_top(shader_, "head", "part"));
  shader_.line("var top = first_top; var total = 0.0;");
  for (int i = 0; i < queries_; ++i) shader_.line("var sum_{} = vec4f();", i);
  shader_.shared_array("scores", "f32", std::int64_t{queries_} * pass);
  shader_.shared_array("lane_values", "f32", std::int64_t{queries_} * threads);
  shader_.shared_array("shrinks", "f32", queries_);
  shader_.barrier();
}

// Computes `scores`, the products of all queries with the keys of this pass.
void AttentionDecode::write_scores() {
  const std::int64_t vectors = vectors_of(attention_.size);
  shader_.open("for (var start = 0u; start < count; start += {}u) {{", keys_at_a_time);
  for (int i = 0; i < queries_; ++i) shader_.line("var product_{} = 0.0;", i);
  shader_.open("if (start + key_slot < count) {{");
  shader_.open("for (var vector = key_lane; vector < {}u; vector += {}u) {{", vectors, lanes_per_key);
  shader_.line("let k = fetch_k(batch, key_head, tile_key + start + key_slot, vector * 4u);");
  for (int i = 0; i < queries_; ++i) shader_.line("product_{0} += dot(k, queries[{1}u + vector]);", i, i * vectors);
  shader_.close();
  shader_.close();
  for (int i = 0; i < queries_; ++i) shader_.line("lane_values[{}u + lane] = product_{};", i * threads, i);
  shader_.barrier();
  shader_.open("for (var number = lane; number < {}u; number += {}u) {{", queries_ * keys_at_a_time, threads);
  shader_.line("let at = number * {}u;", lanes_per_key);
  shader_.line("scores[number / {0}u * {1}u + start + number % {0}u] =", keys_at_a_time, pass);
  shader_.line("    (lane_values[at] + lane_values[at + 1u]) + (lane_values[at + 2u] + lane_values[at + 3u]);");
  shader_.close();
  shader_.barrier();
  shader_.close();
}

// Turns scores into weights; each thread takes some keys of one query.
void AttentionDecode::write_weights() {
  shader_.line("var new_top = top;");
  shader_.open("for (var slot = row_lane; slot < count; slot += {}u) {{", row_lanes_);
  shader_.line("let key = tile_key + slot; let at = local_row * {}u + slot;", pass);
  shader_.line("let key_score = score(visible, batch, head, time, key, key_position(batch, key), scores[at]).x;");
  shader_.line("scores[at] = key_score; new_top = max(new_top, key_score);");
  shader_.close();
  write_row_tree("new_top", false);
  shader_.line("let shrink = exp(top - new_top);");
  shader_.line("top = new_top; total *= shrink;");
  shader_.open("for (var slot = row_lane; slot < count; slot += {}u) {{", row_lanes_);
  shader_.line("let at = local_row * {}u + slot; let key_score = scores[at];", pass);
  shader_.line("let weight = select(0.0, exp(key_score - top), key_score > {});", unseen_score);
  shader_.line("scores[at] = weight; total += weight;");
  shader_.close();
  shader_.line("if (row_lane == 0u) {{ shrinks[local_row] = shrink; }}");
  shader_.barrier();
}

void AttentionDecode::write_sums() {
  const std::int64_t slices = threads / vectors_of(attention_.value_size);
  for (int i = 0; i < queries_; ++i) shader_.line("sum_{0} *= shrinks[{0}u];", i);
  shader_.open("if (slice < {}u) {{", slices);
  shader_.open("for (var slot = slice; slot < count; slot += {}u) {{", slices);
  shader_.line("let v = fetch_v(batch, key_head, tile_key + slot, column * 4u);");
  for (int i = 0; i < queries_; ++i) shader_.line("sum_{0} += scores[{1}u + slot] * v;", i, i * pass);
  shader_.close();
  shader_.close();
  shader_.barrier();
}

void AttentionDecode::write_results() {
  const std::int64_t vectors = vectors_of(attention_.value_size), slices = threads / vectors;
  const std::string rows = shader_.size(attention_.rows());
  write_row_tree("total", true);
  shader_.line("total += {} * exp(first_top - top);", parts_.first_total("part"));
  shader_.open("if (row_lane == 0u && first_row + local_row < {}) {{", rows);
  parts_.store_row(shader_, "batch", "head", "time", "part", "top", "total");
  shader_.close();
  shader_.line("if (row_lane == 0u) {{ shrinks[local_row] = total; }}");
  shader_.shared_array("slice_sums", "vec4f", threads);
  for (int i = 0; i < queries_; ++i) {
    shader_.line("slice_sums[lane] = sum_{};", i);
    shader_.barrier();
    shader_.open("if (slice == 0u && first_row + {}u < {}) {{", i, rows);
    shader_.line("var sum = slice_sums[lane];");
    shader_.line("for (var other = 1u; other < {}; other++) {{ sum += slice_sums[lane + other * {}u]; }}",
                 shader_.loop_end(fmt::format("{}u", slices)), vectors);
    shader_.line("let row = first_row + {}u;", i);
    shader_.line("let row_head = key_head * {} + row / {};", shader_.size(attention_.group),
                 shader_.size(attention_.time));
    shader_.line("let row_time = row % {};", shader_.size(attention_.time));
    for (int k = 0; k < 4; ++k) {
      shader_.open("if (column * 4u + {}u < {}) {{", k, shader_.size(attention_.value_size));
      parts_.store_sum(shader_, "batch", "row_head", "row_time", "part", fmt::format("(column * 4u + {}u)", k),
                       fmt::format("sum.{}", "xyzw"[k]), fmt::format("shrinks[{}u]", i));
      shader_.close();
    }
    shader_.close();
    shader_.barrier();
  }
}

// Reduces NAME over all threads of a query.
void AttentionDecode::write_row_tree(const std::string& name, bool is_sum) {
  shader_.line("lane_values[lane] = {};", name);
  for (int step = row_lanes_ / 2; step > 0; step /= 2) {
    shader_.barrier();
    const std::string mine = "lane_values[lane]", other = fmt::format("lane_values[lane + {}u]", step);
    shader_.line("if (row_lane < {}u) {{ {} = {}; }}", step, mine,
                 is_sum ? fmt::format("{} + {}", mine, other) : fmt::format("max({}, {})", mine, other));
  }
  shader_.barrier();
  shader_.line("{} = lane_values[lane - row_lane];", name);
  shader_.barrier();
}

}  // namespace jerboa::wgsl
