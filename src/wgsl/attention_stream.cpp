#include "wgsl/attention_stream.h"

#include "wgsl/attention_tiles.h"

namespace jerboa::wgsl {
namespace {

constexpr std::int64_t wanted_workgroups = 256, least_keys = 32;

}  // namespace

bool AttentionStream::suits(const Target& target, const Attention& attention) {
  if (!attention.size.is_constant() || !(attention.size == attention.value_size)) return false;
  const std::int64_t size = attention.size.value();
  const bool power_of_two = size >= 4 && (size & (size - 1)) == 0;
  return power_of_two && size <= 128 && attention.rows().upper_bound() <= 16 && threads <= target.max_invocations;
}

AttentionStream::AttentionStream(KernelWriter& writer, const Attention& attention)
    : writer_(writer),
      attention_(attention),
      queries_(static_cast<int>(std::min<std::int64_t>(most_queries, attention.rows().upper_bound()))),
      lanes_(static_cast<int>(attention.size.value() / 4)),
      slots_(threads / lanes_),
      at_a_time_(queries_ > 4 ? 4 : 8),
      blocks_(groups_of(attention.rows(), queries_)),
      parts_(writer, attention,
             parts_of(attention.batch * attention.key_heads * blocks_, wanted_workgroups, attention.keys, least_keys)),
      shader_(writer.shader("attention_stream", threads)) {}

void AttentionStream::write() {
  write_score_functions(shader_, attention_);
  write_fetch(shader_, attention_, {attention_.q, TileRows::Of::queries, "fetch_q"});
  write_fetch(shader_, attention_, {attention_.k, TileRows::Of::keys, "fetch_k"});
  write_fetch(shader_, attention_, {attention_.v, TileRows::Of::keys, "fetch_v"});
  write_lane_sum();
  const auto index =
      shader_.split_index("group", {attention_.batch, attention_.key_heads, blocks_, Dim(parts_.count())});
  shader_.line("let batch = {}; let key_head = {}; let first_row = {} * {}u; let part = {};", index[0], index[1],
               index[2], queries_, index[3]);
  shader_.line("let slot = lane / {0}u; let feature = lane % {0}u * 4u;", lanes_);
  write_queries();
  shader_.open("for (var tile = first; tile < end; tile += {}u) {{", slots_ * at_a_time_);
  write_keys();
  for (int i = 0; i < queries_; ++i) write_query(i);
  shader_.close();
  write_results();
  writer_.add(shader_, attention_.batch * attention_.key_heads * blocks_ * Dim(parts_.count()));
  parts_.write_combine(writer_);
}

// A sum over the threads that share a key, known to all of them.
void AttentionStream::write_lane_sum() {
  if (lanes_ == 1) return;
  const bool by_subgroups = shader_.target().subgroup_size >= lanes_;
  if (by_subgroups)
    shader_.use_subgroups();
  else
    shader_.shared_array("lane_values", "f32", threads);
  shader_.begin_function("fn lane_sum(lane: u32, value: f32) -> f32");
  shader_.line("var sum = value;");
  if (by_subgroups) {
    for (int step = 1; step < lanes_; step *= 2) shader_.line("sum += subgroupShuffleXor(sum, {}u);", step);
  } else {
    for (int step = 1; step < lanes_; step *= 2) {
      shader_.line("lane_values[lane] = sum;");
      shader_.barrier();
      shader_.line("sum += lane_values[lane ^ {}u];", step);
      shader_.barrier();
    }
  }
  shader_.line("return sum;");
  shader_.end_function();
}

std::string AttentionStream::lane_sum(const std::string& value) const {
  return lanes_ == 1 ? value : fmt::format("lane_sum(lane, {})", value);
}

void AttentionStream::write_queries() {
  const std::string rows = shader_.size(attention_.rows()), time = shader_.size(attention_.time);
  shader_.line("var least = 0x7fffffff; var most = 0;");
  // Rows past the last see nothing.
  for (int i = 0; i < queries_; ++i) {
    shader_.line("let q_{0} = fetch_q(batch, key_head, first_row + {0}u, feature);", i);
    shader_.line("let row_{0} = min(first_row + {0}u, {1} - 1u);", i, rows);
    shader_.line("let head_{0} = key_head * {1} + row_{0} / {2};", i, shader_.size(attention_.group), time);
    shader_.line("let time_{0} = row_{0} % {1};", i, time);
    shader_.line("let sight_{0} = select(vec2i(), sight(batch, time_{0}), first_row + {0}u < {1});", i, rows);
    shader_.line("if (first_row + {0}u < {1}) {{ least = min(least, sight_{0}.x); most = max(most, sight_{0}.y); }}", i,
                 rows);
    shader_.line("var top_{0} = {1}; var total_{0} = 0.0; var sum_{0} = vec4f();", i, unseen_score);
  }
  shader_.line("let range = key_range(batch, least, most);");
  parts_.write_range(shader_, "range.x", "range.y", "part");
}

void AttentionStream::write_keys() {
  const std::string keys = shader_.size(attention_.keys);
  for (int u = 0; u < at_a_time_; ++u) {
    shader_.line("let wanted_{0} = tile + {1}u + slot; let key_{0} = min(wanted_{0}, {2} - 1u);", u, u * slots_, keys);
    shader_.line("let k_{0} = fetch_k(batch, key_head, key_{0}, feature);", u);
  }
  for (int u = 0; u < at_a_time_; ++u) shader_.line("let v_{0} = fetch_v(batch, key_head, key_{0}, feature);", u);
  for (int u = 0; u < at_a_time_; ++u)
    shader_.line("let position_{0} = select(-1, key_position(batch, key_{0}), wanted_{0} < end);", u);
}

// Scores become weights of the values.
void AttentionStream::write_query(int query) {
  for (int u = 0; u < at_a_time_; ++u)
    shader_.line("let product_{0}_{1} = {2};", query, u, lane_sum(fmt::format("dot(k_{}, q_{})", u, query)));
  shader_.line("var new_top_{0} = top_{0};", query);
  for (int u = 0; u < at_a_time_; ++u) {
    shader_.line(
        "let score_{0}_{1} = select({2}, score(sight_{0}, batch, head_{0}, time_{0}, key_{1}, position_{1}, "
        "product_{0}_{1}).x, wanted_{1} < end);",
        query, u, unseen_score);
    shader_.line("new_top_{0} = max(new_top_{0}, score_{0}_{1});", query, u);
  }
  shader_.line("let shrink_{0} = exp(top_{0} - new_top_{0});", query);
  shader_.line("top_{0} = new_top_{0}; total_{0} *= shrink_{0}; sum_{0} *= shrink_{0};", query);
  for (int u = 0; u < at_a_time_; ++u) {
    shader_.line("let weight_{0}_{1} = select(0.0, exp(score_{0}_{1} - top_{0}), score_{0}_{1} > {2});", query, u,
                 unseen_score);
    shader_.line("total_{0} += weight_{0}_{1}; sum_{0} += weight_{0}_{1} * v_{1};", query, u);
  }
}

// Puts together what the threads of all slots have, one query after the other.
void AttentionStream::write_results() {
  shader_.shared_array("slot_tops", "f32", std::int64_t{queries_} * slots_);
  shader_.shared_array("slot_totals", "f32", std::int64_t{queries_} * slots_);
  shader_.shared_array("slot_sums", "vec4f", threads);
  shader_.open("if (feature == 0u) {{");
  for (int i = 0; i < queries_; ++i)
    shader_.line("slot_tops[{0}u + slot] = top_{1}; slot_totals[{0}u + slot] = total_{1};", i * slots_, i);
  shader_.close();
  shader_.barrier();
  const std::string rows = shader_.size(attention_.rows());
  for (int i = 0; i < queries_; ++i) {
    const std::string head = fmt::format("head_{}", i), time = fmt::format("time_{}", i);
    shader_.open("{{");
    shader_.line("let first_top = {};", parts_.first_top(shader_, head, "part"));
    shader_.line("var top = first_top;");
    shader_.line("for (var i = {0}u; i < {1}u; i++) {{ top = max(top, slot_tops[i]); }}", i * slots_, (i + 1) * slots_);
    shader_.line("var total = {} * exp(first_top - top);", parts_.first_total("part"));
    shader_.line("for (var i = {0}u; i < {1}u; i++) {{ total += slot_totals[i] * exp(slot_tops[i] - top); }}",
                 i * slots_, (i + 1) * slots_);
    shader_.line("slot_sums[lane] = sum_{0} * exp(top_{0} - top);", i);
    shader_.barrier();
    shader_.open("if (slot == 0u && first_row + {}u < {}) {{", i, rows);
    shader_.line("var sum = slot_sums[lane];");
    shader_.line("for (var i = 1u; i < {}u; i++) {{ sum += slot_sums[lane + i * {}u]; }}", slots_, lanes_);
    for (int k = 0; k < 4; ++k)
      parts_.store_sum(shader_, "batch", head, time, "part", fmt::format("(feature + {}u)", k),
                       fmt::format("sum.{}", "xyzw"[k]), "total");
    shader_.open("if (feature == 0u) {{");
    parts_.store_row(shader_, "batch", head, time, "part", "top", "total");
    shader_.close();
    shader_.close();
    shader_.barrier();
    shader_.close();
  }
}

}  // namespace jerboa::wgsl
