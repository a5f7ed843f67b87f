#include "wgsl/attention_tiles.h"

namespace jerboa::wgsl {
namespace {

bool is_multiple_of_four(const Dim& size) { return size.is_constant() && size.value() % 4 == 0; }

// WGSL expressions of the indices of (row, feature).
std::vector<std::string> row_indices(Shader& shader, const Attention& attention, const TileRows& rows) {
  if (rows.of == TileRows::Of::keys) return attention.key_indices(shader, "row", "feature");
  shader.line("let head = key_head * {} + row / {};", shader.size(attention.group), shader.size(attention.time));
  shader.line("let time = row % {};", shader.size(attention.time));
  return {"batch", "head", "time", "feature"};
}

// Declares `start`, the index of (row, feature) in memory.
void write_row_place(Shader& shader, const Attention& attention, const TileRows& rows) {
  const std::vector<std::string> index = row_indices(shader, attention, rows);
  shader.line("let start = {};", shader.place(rows.tensor->offset, rows.tensor->strides, index));
}

}  // namespace

bool can_load_four(const Shader& shader, const TensorAccess& tensor) {
  // With few bindings, operands may have to share one, which operands read in fours cannot.
  bool can = shader.target().max_bindings >= 8 && shader.can_be_wide(tensor.binding) &&
             is_multiple_of_four(tensor.shape[3]) && is_multiple_of_four(tensor.offset) && tensor.strides[3] == Dim(1);
  for (std::size_t i = 0; i < 3; ++i)
    can = can && (tensor.shape[i] == Dim(1) || is_multiple_of_four(tensor.strides[i]));
  return can;
}

void write_fetch(Shader& shader, const Attention& attention, const TileRows& rows) {
  shader.begin_function(
      fmt::format("fn {}(batch: u32, key_head: u32, wanted_row: u32, wanted: u32) -> vec4f", rows.name));
  const std::string size = shader.size(features_of(*rows.tensor));
  const bool packed = rows.of == TileRows::Of::keys && is_packed(*rows.tensor);
  const bool by_fours = packed || can_load_four(shader, *rows.tensor);
  std::string count = shader.size(rows.of == TileRows::Of::queries ? attention.rows() : attention.keys);
  if (rows.of == TileRows::Of::keys && attention.table != nullptr) {
    // The table's entries for later keys are undefined.
    shader.line("let count = u32(clamp(i32({}), 1, i32({})));", shader.load(*attention.lengths, {"batch"}), count);
    count = "count";
  }
  // Loads the nearest element in range and discards it: a branch costs software drivers more.
  shader.line("let row = min(wanted_row, {} - 1u);", count);
  shader.line("let feature = min(wanted, {} - {}u);", size, by_fours ? 4 : 1);
  if (packed) {
    std::vector<std::string> index = row_indices(shader, attention, rows);
    index[0] = shader.let("block", index[0]);
    shader.line("let result = {};", load_four_packed(shader, *rows.tensor, index));
  } else {
    write_row_place(shader, attention, rows);
  }
  if (by_fours) {
    if (!packed) shader.line("let result = {};", shader.load_four(rows.tensor->binding, "start"));
    shader.line("return select(vec4f(), result, wanted_row < {} && wanted < {});", count, size);
  } else {
    std::string values[4];
    for (int i = 0; i < 4; ++i)
      values[i] = shader.load(rows.tensor->binding, fmt::format("start + (min(wanted + {}u, {} - 1u) - feature) * {}",
                                                                i, size, shader.size(rows.tensor->strides[3])));
    shader.line("let result = vec4f({}, {}, {}, {});", values[0], values[1], values[2], values[3]);
    shader.line("let inside = vec4u(wanted) + vec4u(0u, 1u, 2u, 3u) < vec4u({});", size);
    shader.line("return select(vec4f(), result, inside & vec4<bool>(wanted_row < {}));", count);
  }
  shader.end_function();
}

void write_put(Shader& shader, const Attention& attention, const TileRows& rows) {
  shader.begin_function(
      fmt::format("fn {}(batch: u32, key_head: u32, row: u32, feature: u32, value: vec4f)", rows.name));
  const Dim& size = rows.tensor->shape[3];
  const Dim count = rows.of == TileRows::Of::queries ? attention.rows() : attention.keys;
  shader.line("if (row >= {} || feature >= {}) {{ return; }}", shader.size(count), shader.size(size));
  write_row_place(shader, attention, rows);
  if (can_load_four(shader, *rows.tensor)) {
    shader.store_four(rows.tensor->binding, "start", "value");
  } else {
    const std::string step = shader.size(rows.tensor->strides[3]);
    for (int i = 0; i < 4; ++i) {
      shader.open("if (feature + {}u < {}) {{", i, shader.size(size));
      shader.store(rows.tensor->binding, fmt::format("start + {}u * {}", i, step), fmt::format("value.{}", "xyzw"[i]));
      shader.close();
    }
  }
  shader.end_function();
}

bool AttentionTiles::suit(const Target& target, const Attention& attention) {
  // With few keys, the other forms are as fast.
  if (attention.keys.upper_bound() <= 8) return false;
  const std::int64_t widest = std::max(columns_of(attention.size), columns_of(attention.value_size)) * std::int64_t{64};
  return workgroup_bytes(rows_for(target), depth_for(target)) <= target.workgroup_bytes &&
         rows_for(target) / 4 * across <= target.max_invocations && widest <= 512;
}

// More features in workgroup memory at a time mean fewer barriers.
int AttentionTiles::depth_for(const Target& target) {
  // Two workgroups of this size fit on an NVIDIA multiprocessor.
  constexpr std::int64_t good_workgroup_bytes = 24576;
  return workgroup_bytes(rows_for(target), 32) <= std::min(target.workgroup_bytes, good_workgroup_bytes) ? 32 : 16;
}

template <class F>
void AttentionTiles::write_steps(int count, const std::string& steps, bool in_fours, F f) {
  int copies = in_fours && shader_.target().unroll >= 4 ? 4 : 1;
  while (count % copies != 0) copies /= 2;
  shader_.line("let steps = {};", shader_.loop_end(fmt::format("min({}u, {})", count, steps)));
  shader_.open("for (var k = 0u; k < steps; k += {}u) {{", copies);
  for (int i = 0; i < copies; ++i) {
    shader_.open("{{");
    shader_.line("let at = k + {}u;", i);
    f("at", copies > 1 ? "k / 4u" : "at / 4u");
    shader_.close();
  }
  shader_.close();
}

AttentionTiles::AttentionTiles(Shader& shader, const Attention& attention, const AttentionForm& form)
    : shader_(shader), attention_(attention), rows_(form.tile_rows), depth_(form.depth) {
  shader_.shared_array("stage", "vec4f", stage_floats() / 4);
  shader_.shared_array("weights", "vec4f", others * rows_ / 4);
}

void AttentionTiles::write_place(const Dim& tiles, const std::string& number) {
  const auto index = shader_.split_index(number, {attention_.batch, attention_.key_heads, tiles});
  shader_.line("let batch = {}; let key_head = {}; let tile_row = {} * {}u;", index[0], index[1], index[2], rows_);
  shader_.line("let thread_column = lane % {0}u; let thread_row = lane / {0}u;", across);
}

void AttentionTiles::write_key_range() {
  const std::string rows = shader_.size(attention_.rows()), time = shader_.size(attention_.time);
  shader_.line("let last_row = min(tile_row + {}u, {}) - 1u;", rows_, rows);
  if (attention_.positions == nullptr) {
    // Later queries see later keys. A tile with queries of several heads contains all times.
    shader_.line("let one_head = tile_row / {0} == last_row / {0};", time);
    shader_.line("let least = visible_range(batch, select(0u, tile_row % {}, one_head)).x;", time);
    shader_.line("let most = visible_range(batch, select({0} - 1u, last_row % {0}, one_head)).y;", time);
  } else {
    shader_.line("var least = 0x7fffffff; var most = 0;");
    shader_.open("for (var row = tile_row; row <= last_row; row++) {{");
    shader_.line("let seen = visible_range(batch, row % {});", time);
    shader_.line("least = min(least, seen.x); most = max(most, seen.y);");
    shader_.close();
  }
  shader_.line("let range = key_range(batch, least, most);");
}

void AttentionTiles::write_queries(const std::string& first) {
  for (int i = 0; i < 4; ++i) {
    shader_.line("let safe_{0} = min({1} + {0}u, {2} - 1u);", i, first, shader_.size(attention_.rows()));
    shader_.line("let head_{0} = key_head * {1} + safe_{0} / {2};", i, shader_.size(attention_.group),
                 shader_.size(attention_.time));
    shader_.line("let time_{0} = safe_{0} % {1};", i, shader_.size(attention_.time));
    shader_.line("let visible_{0} = select(vec2i(), visible_range(batch, time_{0}), {1} + {0}u < {2});", i, first,
                 shader_.size(attention_.rows()));
  }
}

void AttentionTiles::write_product(const std::string& name, const std::string& mine, const std::string& other,
                                   const std::string& first, const Dim& size) {
  const int others_at = depth_ * rows_ / 4, threads = shader_.threads();
  for (int i = 0; i < 4; ++i) shader_.line("var {}_{} = vec4f();", name, i);
  shader_.open("for (var start = 0u; start < {}; start += {}u) {{", shader_.loop_end(shader_.size(size)), depth_);
  // Four features of a row become one element in each of four rows of the stage.
  const auto load = [&](int count, int at, const std::string& function, const std::string& from) {
    shader_.open("for (var number = lane; number < {}u; number += {}u) {{", count * depth_ / 4, threads);
    shader_.line("let row = number / {0}u; let quarter = number % {0}u;", depth_ / 4);
    shader_.line("let value = {}(batch, key_head, {} + row, start + quarter * 4u);", function, from);
    shader_.line("let to = {}u + quarter * {}u + {};", at, count, in_stage("(row / 4u)", "quarter"));
    for (int k = 0; k < 4; ++k) shader_.line("stage[to + {}u][row % 4u] = value.{};", k * count / 4, "xyzw"[k]);
    shader_.close();
  };
  load(rows_, 0, mine, "tile_row");
  load(others, others_at, other, first);
  shader_.barrier();
  const auto multiply = [&](const char* k, const char* quarter) {
    shader_.line("let a = stage[{} * {}u + {}];", k, rows_ / 4, in_stage("thread_row", quarter));
    shader_.line("let b = stage[{}u + {} * {}u + {}];", others_at, k, others / 4, in_stage("thread_column", quarter));
    for (int i = 0; i < 4; ++i) shader_.line("{0}_{1} = fma(vec4f(a.{2}), b, {0}_{1});", name, i, "xyzw"[i]);
  };
  write_steps(depth_, fmt::format("{} - start", shader_.size(size)), is_multiple_of_four(size), multiply);
  shader_.barrier();
  shader_.close();
}

void AttentionTiles::write_weights(const std::string& name) {
  for (int j = 0; j < 4; ++j)
    shader_.line(
        "weights[(thread_column * 4u + {0}u) * {1}u + {4}] = vec4f({2}_0.{3}, {2}_1.{3}, {2}_2.{3}, {2}_3.{3});", j,
        rows_ / 4, name, "xyzw"[j], in_weights("thread_row", "thread_column"));
}

void AttentionTiles::declare_sums(const std::string& sums, const Dim& size) {
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < columns_of(size); ++j) shader_.line("var {}_{}_{} = vec4f();", sums, i, j);
}

void AttentionTiles::write_sums(const std::string& sums, const std::string& other, const std::string& first,
                                const Dim& size) {
  const int columns = columns_of(size), shares = shares_of(size), width = columns * across / shares;  // in vectors
  int taken = others;
  while (taken * width * 4 > stage_floats()) taken /= 2;
  const int steps = taken / shares;  // per thread
  const std::string column = shares == 1 ? "thread_column" : fmt::format("thread_column % {}u", width);
  const std::string skipped = shares == 1 ? "0u" : fmt::format("thread_column / {}u * {}u", width, steps);
  shader_.open("for (var start = 0u; start < {}; start += {}u) {{", shader_.loop_end(fmt::format("{}u", others)),
               taken);
  shader_.open("for (var number = lane; number < {}u; number += {}u) {{", taken * width, shader_.threads());
  shader_.line("let row = number / {0}u; let column = number % {0}u;", width);
  shader_.line("stage[number] = {}(batch, key_head, {} + start + row, column * 4u);", other, first);
  shader_.close();
  shader_.barrier();
  shader_.line("let skipped = {};", skipped);
  write_steps(steps, fmt::format("{}u - start", others), true, [&](const char* k, const char* quarter) {
    shader_.line("let a = weights[(start + skipped + {}) * {}u + {}];", k, rows_ / 4,
                 in_weights("thread_row", fmt::format("((start + skipped) / 4u + {})", quarter)));
    for (int j = 0; j < columns; ++j) {
      shader_.line("let b_{0} = stage[(skipped + {3}) * {1}u + {4} + {2}u];", j, width, j * across, k, column);
      for (int i = 0; i < 4; ++i)
        shader_.line("{0}_{1}_{2} = fma(vec4f(a.{3}), b_{2}, {0}_{1}_{2});", sums, i, j, "xyzw"[i]);
    }
  });
  shader_.barrier();
  shader_.close();
}

void AttentionTiles::join_sums(const std::string& sums, const Dim& size) {
  if (shares_of(size) == 1) return;
  constexpr int width = across / 2;
  for (const bool gives : {true, false}) {
    shader_.open("if (thread_column {} {}u) {{", gives ? ">=" : "<", width);
    for (int i = 0; i < 4; ++i) {
      const std::string place =
          fmt::format("stage[(thread_row * 4u + {}u) * {}u + thread_column % {}u]", i, width, width);
      const std::string sum = fmt::format("{}_{}_0", sums, i);
      shader_.line("{} {} {};", gives ? place : sum, gives ? "=" : "+=", gives ? sum : place);
    }
    shader_.close();
    shader_.barrier();
  }
}

void AttentionTiles::write_row_reduction(const std::string& name, bool is_sum) {
  // The matrix of weights is reused as [row, across].
  shader_.barrier();
  for (int i = 0; i < 4; ++i)
    shader_.line("weights[(thread_row * 4u + {0}u) * {1}u + thread_column / 4u][thread_column % 4u] = {2}_{0};", i,
                 across / 4, name);
  shader_.barrier();
  for (int i = 0; i < 4; ++i) {
    shader_.open("{{");
    shader_.line("let row = (thread_row * 4u + {}u) * {}u;", i, across / 4);
    shader_.line("var all = weights[row];");
    for (int k = 1; k < across / 4; ++k)
      shader_.line("all = {};", is_sum ? fmt::format("all + weights[row + {}u]", k)
                                       : fmt::format("max(all, weights[row + {}u])", k));
    shader_.line("{}_{} = {};", name, i,
                 is_sum ? "(all.x + all.y) + (all.z + all.w)" : "max(max(all.x, all.y), max(all.z, all.w))");
    shader_.close();
  }
  shader_.barrier();
}

}  // namespace jerboa::wgsl
