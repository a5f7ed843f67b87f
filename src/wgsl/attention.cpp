#include "wgsl/attention.h"

#include <algorithm>

#include "wgsl/attention_parts.h"
#include "wgsl/whole_kernels.h"

// Attention. The form is a function of target and sizes alone:
// - a driver on the CPU: each thread some queries that share a key head, straight from memory.
// Where there are few queries, their keys are cut into parts.
namespace jerboa::wgsl {
namespace {

std::int64_t pieces(std::int64_t total, std::int64_t size) { return (total + size - 1) / size; }

// Parts of the keys for each of `blocks` pieces of work, so that some `wanted` pieces result.
std::int64_t parts_of(std::int64_t blocks, std::int64_t wanted, std::int64_t keys, std::int64_t least_keys) {
  return std::clamp<std::int64_t>(pieces(wanted, std::max<std::int64_t>(blocks, 1)), 1,
                                  std::max<std::int64_t>(keys / least_keys, 1));
}

// Each thread up to four queries side by side.
void write_rows(KernelWriter& writer, const Attention& attention) {
  constexpr int threads = 32;
  const Lanes lanes(attention.rows().upper_bound());
  const Dim blocks = groups_of(attention.rows(), lanes.count());
  const Dim all_blocks = attention.batch * attention.key_heads * blocks;
  const AttentionParts parts(writer, attention,
                             parts_of(all_blocks.upper_bound(), threads, attention.keys.upper_bound(), 16));
  Shader shader = writer.shader("attention_rows", threads);
  write_score_functions(shader, attention);
  const Dim count = all_blocks * Dim(parts.count());
  shader.line("let number = group * {}u + lane;", threads);
  shader.line("if (number >= {}) {{ return; }}", shader.size(count));
  const auto index = shader.split_index("number", {attention.batch, attention.key_heads, blocks, Dim(parts.count())});
  shader.line("let batch = {}; let key_head = {}; let part = {};", index[0], index[1], index[3]);
  // Rows past the last are the last, and are not stored.
  for (int i = 0; i < lanes.count(); ++i) {
    shader.line("let row_{0} = {1} * {2}u + {0}u;", i, index[2], lanes.count());
    shader.line("let safe_{0} = min(row_{0}, {1} - 1u);", i, shader.size(attention.rows()));
    shader.line("let head_{0} = key_head * {1} + safe_{0} / {2};", i, shader.size(attention.group),
                shader.size(attention.time));
    shader.line("let time_{0} = safe_{0} % {1};", i, shader.size(attention.time));
    shader.line("let sight_{0} = sight(batch, time_{0});", i);
  }
  std::string least = "sight_0.x", most = "sight_0.y";
  for (int i = 1; i < lanes.count(); ++i) {
    least = fmt::format("min({}, sight_{}.x)", least, i);
    most = fmt::format("max({}, sight_{}.y)", most, i);
  }
  shader.line("let range = key_range(batch, {}, {});", least, most);
  parts.write_range(shader, "range.x", "range.y", "part");
  const auto head = [](int i) { return fmt::format("head_{}", i); };
  const auto time = [](int i) { return fmt::format("time_{}", i); };
  const auto q = [&](int i) { return shader.load(*attention.q, {"batch", head(i), time(i), "feature"}); };
  const auto of_key = [&](const TensorAccess& tensor) {
    return [&](int j) { return shader.load(tensor, {"batch", "key_head", fmt::format("key_{}", j), "feature"}); };
  };
  shader.line("var sums = array<{}, {}>();", lanes.type(), attention.value_size.upper_bound());
  shader.line("var top = {};", lanes.each([&](int i) { return parts.first_top(shader, head(i), "part"); }));
  shader.line("var total = {}({});", lanes.type(), parts.first_total("part"));
  shader.open("for (var key = first; key < end; key += {}u) {{", others_at_a_time);
  for (int j = 0; j < others_at_a_time; ++j) shader.line("let key_{0} = min(key + {0}u, end - 1u);", j);
  write_products(shader, "product", lanes, attention.size, q, of_key(*attention.k));
  shader.line("var new_top = top;");
  for (int j = 0; j < others_at_a_time; ++j) {
    shader.line("let position_{0} = select(-1, key_position(batch, key_{0}), key + {0}u < end);", j);
    shader.line("let score_{} = {};", j, lanes.each([&](int i) {
      return fmt::format("score(sight_{0}, batch, head_{0}, time_{0}, key_{1}, position_{1}, {2}).x", i, j,
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
  shader.open("for (var feature = 0u; feature < {}; feature++) {{", shader.size(attention.value_size));
  shader.line("sums[feature] *= shrink;");
  shader.close();
  write_sums(shader, "sums", "weight", attention.value_size, of_key(*attention.v));
  shader.close();
  for (int i = 0; i < lanes.count(); ++i) {
    shader.open("if (row_{} < {}) {{", i, shader.size(attention.rows()));
    shader.open("for (var feature = 0u; feature < {}; feature++) {{", shader.size(attention.value_size));
    parts.store_sum(shader, "batch", head(i), time(i), "part", "feature", lanes.at("sums[feature]", i),
                    lanes.at("total", i));
    shader.close();
    parts.store_row(shader, "batch", head(i), time(i), "part", lanes.at("top", i), lanes.at("total", i));
    shader.close();
  }
  writer.add(shader, groups_of(count, threads));
  parts.write_combine(writer);
}

}  // namespace

template <>
void write_whole_op<Op::attention>(KernelWriter& writer) {
  const Attention attention(writer.kernel(), 3, std::get<AttentionAttrs>(writer.kernel().attrs));
  if (attention.queries().upper_bound() == 0) return;
  write_rows(writer, attention);
}

}  // namespace jerboa::wgsl
