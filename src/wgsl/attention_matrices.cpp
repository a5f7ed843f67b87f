#include "wgsl/attention_matrices.h"

#include <algorithm>
#include <cmath>

namespace jerboa::wgsl {
namespace {

using Kind = MatrixWriter::Kind;
using Order = MatrixWriter::Order;

constexpr int matrix = MatrixWriter::size;

Dim in_fours(const Dim& elements) { return divide_exactly(elements, Dim(4)).value_or(Dim(0)); }

bool is_multiple_of_four(const Dim& elements) { return divide_exactly(elements, Dim(4)).has_value(); }

// Whether rows of this tensor can be read and written four at a time; rows of an 8-bit cache are only read.
bool has_rows_of_halves(const Shader& shader, const TensorAccess& tensor) {
  if (is_packed(tensor)) return tensor.strides[3] == Dim(1);
  bool can = tensor.dtype == DType::f16 && shader.can_be_wide(tensor.binding) && tensor.strides[3] == Dim(1) &&
             is_multiple_of_four(tensor.offset);
  for (std::size_t i = 0; i < 3; ++i)
    can = can && (tensor.shape[i] == Dim(1) || is_multiple_of_four(tensor.strides[i]));
  return can;
}

// Whether each query sees a contiguous run of keys from the first on, which sizes determine and which is not empty.
bool sees_run_of_keys(const Attention& attention) {
  const AttentionAttrs& attrs = attention.attrs;
  if (attention.mask != nullptr || attention.sinks != nullptr || attention.lengths != nullptr ||
      attention.positions != nullptr || attrs.window > 0 || attrs.soft_cap > 0 || attrs.ring || attrs.scale < 0)
    return false;
  // A symbolic number of keys equals that of queries, so that there is a key wherever there is a query.
  const bool is_empty = attention.keys.is_constant() && attention.keys.value() == 0;
  if (is_empty || (!attention.keys.is_constant() && !(attention.keys == attention.time))) return false;
  const Dim offset = attention.keys - attention.time;
  return !attrs.causal || (offset.is_constant() && offset.value() >= 0);
}

// Whether each query sees a contiguous run of a cache's keys from the first on, possibly empty, given by lengths and
// positions.
bool sees_run_of_cache(const Attention& attention) {
  const AttentionAttrs& attrs = attention.attrs;
  const bool is_empty = attention.keys.is_constant() && attention.keys.value() == 0;
  return attention.lengths != nullptr && (attention.positions != nullptr || !attrs.causal) && !is_empty &&
         attention.mask == nullptr && attention.sinks == nullptr && attrs.window == 0 && attrs.soft_cap == 0 &&
         !attrs.ring && attrs.scale >= 0;
}

// The fastest forms on an H200, by head size.
AttentionMatrixForms forms_for(std::int64_t size) {
  if (size <= 64) return {{2, 4, 32, 4}, {2, 4, 32, 4}, {2, 4, 32, 4, false}};
  return {{2, 4, 16, 2}, {1, 8, 32, 4}, {1, 8, 32, 4}};
}

// Shrinks a form until the target can run it; returns false if no form is small enough.
bool fit(AttentionMatrixForm& form, std::int64_t size, const Target& target) {
  if (form.workgroup_bytes(size) > target.workgroup_bytes) form.tile_rows = matrix;
  if (form.workgroup_bytes(size) > target.workgroup_bytes) form.blocks = 1;
  while (!form.fits(size, target) && form.subgroups > 1) form.subgroups /= 2;
  return form.fits(size, target);
}

}  // namespace

std::int64_t AttentionMatrixForm::workgroup_bytes(std::int64_t size) const {
  const std::int64_t tiles = std::int64_t{2} * tile_rows * (size + 8) * 2;
  return tiles + std::int64_t{subgroups} * matrix * (columns() + 8) * (4 + 2);
}

bool AttentionMatrixForm::fits(std::int64_t size, const Target& target) const {
  return workgroup_bytes(size) <= target.workgroup_bytes && threads() <= target.max_invocations &&
         tile_rows * size / 4 % threads() == 0;
}

std::optional<AttentionMatrixForms> choose_matrix_forms(const KernelWriter& writer, const Attention& attention,
                                                        const std::vector<const TensorAccess*>& others,
                                                        bool with_gradient) {
  const Target& target = writer.target();
  // Never finished: it only tells which memory can be read in fours.
  const Shader shader = writer.shader("attention", MatrixWriter::subgroup_size);
  if (target.subgroup_matrices == SubgroupMatrices::none ||
      !(sees_run_of_keys(attention) || (!with_gradient && sees_run_of_cache(attention))))
    return std::nullopt;
  if (!attention.size.is_constant() || !(attention.size == attention.value_size)) return std::nullopt;
  const std::int64_t size = attention.size.value();
  if (size == 0 || size % matrix != 0 || size > 128 || attention.time.upper_bound() < matrix) return std::nullopt;
  std::vector<const TensorAccess*> tensors{attention.q, attention.k, attention.v};
  tensors.insert(tensors.end(), others.begin(), others.end());
  if (!std::all_of(tensors.begin(), tensors.end(),
                   [&](const TensorAccess* tensor) { return has_rows_of_halves(shader, *tensor); }))
    return std::nullopt;
  AttentionMatrixForms forms = forms_for(size);
  for (AttentionMatrixForm* form : {&forms.forward, &forms.dq, &forms.dkv}) {
    if (!fit(*form, size, target)) return std::nullopt;
    form->barriers = target.subgroup_matrices == SubgroupMatrices::emulated;
  }
  // A tile of keys must lie in one block.
  if (attention.table != nullptr &&
      !(attention.k->shape[2].is_constant() && attention.k->shape[2].value() % forms.forward.tile_rows == 0))
    return std::nullopt;
  return forms;
}

AttentionMatrices::AttentionMatrices(KernelWriter& writer, const Attention& attention, const std::string& name,
                                     const AttentionMatrixForm& form)
    : attention_(attention),
      form_(form),
      scale_(attention.attrs.scale != 0 ? attention.attrs.scale : 1 / std::sqrt(static_cast<double>(size()))),
      shader_(writer.shader(name, form.threads())),
      matrices_(shader_) {
  if (!writer.memories_overlap()) {
    shader_.keep_loads_in_place();
    for (const TensorAccess* packed : {attention.k, attention.v})  // integers too, in 8-bit caches
      if (is_packed(*packed)) shader_.keep_loads_in_place(packed->binding);
  }
  shader_.shared_array("tiles", "f16", std::int64_t{2} * tile_elements());
  shader_.shared_array("scores", "f32", std::int64_t{form.subgroups} * matrix * pitch());
  shader_.shared_array("weights", "f16", std::int64_t{form.subgroups} * matrix * pitch());
  // A thread's part of 16 rows of scores: some adjacent columns of some rows.
  shader_.line("let lane_column = subgroup_lane % {0}u * {1}u; let lane_row = subgroup_lane / {0}u * {2}u;",
               lanes_across(), form.lane_columns, lane_rows());
  shader_.line("let scores_start = subgroup * {0}u; let lane_start = scores_start + lane_row * {1}u + lane_column;",
               matrix * pitch(), pitch());
  for (int i = 0; i < fetches(); ++i) {
    const int at_once = form_.threads() / fours();
    if (i > 0 && form_.threads() % fours() == 0)
      shader_.line("let fetch_row_{0} = fetch_row_0 + {1}u; let fetch_four_{0} = fetch_four_0;", i, at_once * i);
    else
      shader_.line("let fetch_row_{0} = (lane + {1}u) / {2}u; let fetch_four_{0} = (lane + {1}u) % {2}u;", i,
                   form_.threads() * i, fours());
  }
}

void AttentionMatrices::exchange() {
  if (form_.barriers) shader_.barrier();
}

AttentionMatrices::Operand AttentionMatrices::operand(const std::string& name, const TensorAccess& tensor,
                                                      const std::string& batch, const std::string& head) {
  shader_.line("let {}_start = ({}){};", name,
               shader_.place(tensor.offset, {tensor.strides[0], tensor.strides[1]}, {batch, head}),
               is_packed(tensor) ? "" : " / 4u");
  return {&tensor, name + "_start", tensor.shape[2]};
}

void AttentionMatrices::put_four(const std::string& array, const std::string& place, const std::string& words) {
  shader_.line(
      "{{ let four = bitcast<vec4<f16>>({2}); let to = {1}; {0}[to] = four.x; {0}[to + 1u] = four.y; {0}[to + 2u] = "
      "four.z; {0}[to + 3u] = four.w; }}",
      array, place, words);
}

void AttentionMatrices::declare_columns(const std::string& name, const Operand& operand, const std::string& first) {
  // Loads 16 rows at a time, with as many features as the array of weights, which is still unused, has columns. All
  // loads are issued before the first result is needed.
  struct Part {
    int block, feature, features;
    int fours() const { return features / 4; }
    int fetches() const { return matrix * fours() / MatrixWriter::subgroup_size; }
  };
  std::vector<Part> parts;
  for (int block = 0; block < form_.blocks; ++block)
    for (int feature = 0; feature < size(); feature += form_.columns())
      parts.push_back({block, feature, std::min(form_.columns(), size() - feature)});
  const auto number = [](int fetch) {
    return fmt::format("(subgroup_lane + {}u)", fetch * MatrixWriter::subgroup_size);
  };
  for (std::size_t p = 0; p < parts.size(); ++p)
    for (int i = 0; i < parts[p].fetches(); ++i) {
      // Columns past the end repeat the last one, and are not stored.
      const std::string row = fmt::format("min({} + {}u + {} / {}u, {} - 1u)", first, parts[p].block * matrix,
                                          number(i), parts[p].fours(), shader_.size(operand.rows));
      const std::string at = fmt::format("{} + {} * {} + {}u + {} % {}u", operand.start, row,
                                         shader_.size(in_fours(operand.tensor->strides[2])), parts[p].feature / 4,
                                         number(i), parts[p].fours());
      shader_.line("let {}_part_{}_{} = {};", name, p, i, shader_.load_words(operand.tensor->binding, at));
    }
  for (std::size_t p = 0; p < parts.size(); ++p) {
    for (int i = 0; i < parts[p].fetches(); ++i)
      put_four("weights",
               fmt::format("scores_start + {0} / {1}u * {2}u + {0} % {1}u * 4u", number(i), parts[p].fours(), pitch()),
               fmt::format("{}_part_{}_{}", name, p, i));
    exchange();
    for (int feature = 0; feature < parts[p].features; feature += matrix)
      matrices_.load(Kind::right, Order::columns,
                     fmt::format("{}_{}_{}", name, (parts[p].feature + feature) / matrix, parts[p].block),
                     {"weights", fmt::format("scores_start + {}u", feature), pitch()});
    exchange();
  }
}

void AttentionMatrices::declare_results(const std::string& sums) {
  for (int j = 0; j < form_.blocks; ++j)
    for (int k = 0; k < features(); ++k) matrices_.declare_sums(fmt::format("{}_{}_{}", sums, j, k));
}

void AttentionMatrices::clear_results(const std::string& sums) {
  for (int j = 0; j < form_.blocks; ++j)
    for (int k = 0; k < features(); ++k) matrices_.clear_sums(fmt::format("{}_{}_{}", sums, j, k));
}

void AttentionMatrices::fetch(const std::string& name, const Operand& operand, const std::string& row) {
  const bool fills_tiles =
      operand.last.empty() && operand.rows.is_constant() && operand.rows.value() % form_.tile_rows == 0;
  const std::string last = operand.last.empty() ? shader_.size(operand.rows) + " - 1u" : operand.last;
  const bool packed = is_packed(*operand.tensor);
  const Dim& elements = operand.tensor->strides[2];
  const std::string stride = shader_.size(packed ? elements : in_fours(elements));
  for (int i = 0; i < fetches(); ++i) {
    std::string tile_row = fmt::format("{} + fetch_row_{}", row, i);
    // Rows past the end repeat the last one; their weights are 0.
    tile_row = fills_tiles ? fmt::format("({})", tile_row) : fmt::format("min({}, {})", tile_row, last);
    const std::string start = fmt::format("{} + {} * {}", operand.start, tile_row, stride);
    shader_.line("{}_{} = {};", name, i,
                 packed ? packed_words_at(*operand.tensor, start, i)
                        : shader_.load_words(operand.tensor->binding, fmt::format("{} + fetch_four_{}", start, i)));
  }
}

// Four features of an 8-bit row, as f16.
std::string AttentionMatrices::packed_words_at(const TensorAccess& tensor, const std::string& start, int fetch) {
  const std::string word = shader_.load(tensor.binding, fmt::format("{} + fetch_four_{}", start, fetch));
  const std::string scales =
      shader_.load(tensor.binding, fmt::format("{} + {}u + fetch_four_{} / {}u", start, size() / features_per_word,
                                               fetch, features_per_scale_word / features_per_word));
  return fmt::format("bitcast<vec2u>(vec4<f16>({}({}, {}, fetch_four_{} * 4u)))", shader_.use("unpack_four"), word,
                     scales, fetch);
}

void AttentionMatrices::put(const std::string& name, int tile) {
  for (int i = 0; i < fetches(); ++i)
    put_four("tiles",
             fmt::format("{}u + fetch_row_{} * {}u + fetch_four_{} * 4u", tile * tile_elements(), i, tile_pitch(), i),
             fmt::format("{}_{}", name, i));
}

void AttentionMatrices::write_stream(const Stream& stream, const std::function<void()>& work) {
  for (int i = 0; i < fetches(); ++i) shader_.line("var first_{0} = vec2u(); var second_{0} = vec2u();", i);
  const auto fetch_tile = [&](const std::string& tile) {
    shader_.open("{{");
    const auto operands = stream.operands(tile);
    const std::string row = shader_.let("row", stream.row(tile));
    fetch("first", operands.first, row);
    fetch("second", operands.second, row);
    shader_.close();
  };
  if (form_.fetches_ahead) fetch_tile("0u");
  shader_.open("for (var tile = 0u; tile < {}; tile++) {{", shader_.loop_end(stream.tiles));
  if (!form_.fetches_ahead) fetch_tile("tile");
  put("first", 0);
  put("second", 1);
  shader_.barrier();
  // Unconditional: the last tile is fetched again and not used.
  if (form_.fetches_ahead) fetch_tile(shader_.let("next", fmt::format("min(tile + 1u, {} - 1u)", stream.tiles)));
  work();
  shader_.barrier();
  shader_.close();
}

void AttentionMatrices::write_products(const std::string& name, int tile, const std::string& columns, int piece) {
  for (int j = 0; j < form_.blocks; ++j) matrices_.declare_sums(fmt::format("{}_{}", name, j));
  for (int k = 0; k < features(); ++k) {
    shader_.open("{{");
    matrices_.load(Kind::left, Order::rows, "rows",
                   {"tiles", fmt::format("{}u", tile * tile_elements() + piece * matrix * tile_pitch() + k * matrix),
                    tile_pitch()});
    for (int j = 0; j < form_.blocks; ++j)
      matrices_.multiply("rows", fmt::format("{}_{}_{}", columns, k, j), fmt::format("{}_{}", name, j));
    shader_.close();
  }
}

void AttentionMatrices::write_exchange(const std::string& name, const std::string& taken) {
  for (int j = 0; j < form_.blocks; ++j)
    matrices_.store(fmt::format("{}_{}", name, j), {"scores", fmt::format("scores_start + {}u", j * matrix), pitch()});
  exchange();
  for_each_value(
      [&](int r, int i) { shader_.line("var {}_{}_{} = scores[lane_start + {}u];", taken, r, i, r * pitch() + i); });
}

void AttentionMatrices::write_weights(const std::string& taken) {
  for_each_value(
      [&](int r, int i) { shader_.line("weights[lane_start + {}u] = f16({}_{}_{});", r * pitch() + i, taken, r, i); });
  exchange();
}

void AttentionMatrices::write_gather(const std::string& sums, int tile, int piece) {
  shader_.open("{{");
  for (int j = 0; j < form_.blocks; ++j)
    matrices_.load(Kind::left, Order::columns, fmt::format("weights_{}", j),
                   {"weights", fmt::format("scores_start + {}u", j * matrix), pitch()});
  for (int k = 0; k < features(); ++k) {
    shader_.open("{{");
    matrices_.load(Kind::right, Order::rows, "rows",
                   {"tiles", fmt::format("{}u", tile * tile_elements() + piece * matrix * tile_pitch() + k * matrix),
                    tile_pitch()});
    for (int j = 0; j < form_.blocks; ++j)
      matrices_.multiply(fmt::format("weights_{}", j), "rows", fmt::format("{}_{}_{}", sums, j, k));
    shader_.close();
  }
  shader_.close();
}

void AttentionMatrices::write_column_reduction(const std::string& name, bool is_sum) {
  if (lanes_down() == 1) return;
  exchange();
  for (int i = 0; i < form_.lane_columns; ++i)
    shader_.line("scores[scores_start + subgroup_lane / {}u * {}u + lane_column + {}u] = {}_{};", lanes_across(),
                 pitch(), i, name, i);
  exchange();
  for (int i = 0; i < form_.lane_columns; ++i) {
    const auto value = [&](int down) {
      return fmt::format("scores[scores_start + lane_column + {}u]", down * pitch() + i);
    };
    std::string all = value(0);
    for (int down = 1; down < lanes_down(); ++down)
      all = is_sum ? fmt::format("{} + {}", all, value(down)) : fmt::format("max({}, {})", all, value(down));
    shader_.line("{}_{} = {};", name, i, all);
  }
  exchange();
}

// Uses the padding of the scores: a column's value follows the row that has the column's number in its block.
void AttentionMatrices::keep_for_columns(const std::string& name) {
  for (int i = 0; i < form_.lane_columns; ++i)
    shader_.line(
        "scores[scores_start + (lane_column + {0}u) % {1}u * {2}u + {3}u + (lane_column + {0}u) / {1}u] = {4}_{0};", i,
        matrix, pitch(), form_.columns(), name);
}

void AttentionMatrices::write_results(const std::string& sums, const TensorAccess& to, const std::string& batch,
                                      const std::string& head, const std::string& first, const Dim& count,
                                      const std::optional<std::string>& factor) {
  for (int j = 0; j < form_.blocks; ++j)
    for (int k = 0; k < features(); ++k) {
      matrices_.store(fmt::format("{}_{}_{}", sums, j, k), {"scores", "scores_start", pitch()});
      exchange();
      // Four threads share a row, and store 32 bytes of it together.
      for (int half = 0; half < 2; ++half) {
        shader_.open("{{");
        shader_.line("let row = subgroup_lane / 4u + {}u; let place = scores_start + row * {}u;", half * matrix / 2,
                     pitch());
        shader_.line("let column = {} + {}u + row; let feature = {}u + subgroup_lane % 4u * 4u;", first, j * matrix,
                     k * matrix);
        shader_.line("let at = place + subgroup_lane % 4u * 4u;");
        shader_.line("let four = vec4f(scores[at], scores[at + 1u], scores[at + 2u], scores[at + 3u]) * {};",
                     factor ? *factor : fmt::format("scores[place + {}u]", form_.columns() + j));
        shader_.open("if (column < {}) {{", shader_.size(count));
        shader_.store_four(to.binding, shader_.place(to.offset, to.strides, {batch, head, "column", "feature"}),
                           "four");
        shader_.close();
        shader_.close();
      }
      exchange();
    }
}

MatrixQueries::MatrixQueries(Shader& shader, const Attention& attention, const AttentionMatrixForm& form)
    : attention_(attention),
      tile_rows_(form.tile_rows),
      keys_(shader.size(attention.keys)),
      workgroups_(attention.batch * attention.heads * groups_of(attention.time, form.workgroup_columns())) {
  if (attention.attrs.causal) key_offset_ = shader.size(attention.keys - attention.time);
  write_places(shader, form);
  if (see_by_data(attention))
    write_seen_by_data(shader, form);
  else
    write_seen_by_sizes(shader, form);
}

void MatrixQueries::write_places(Shader& shader, const AttentionMatrixForm& form) {
  const std::string heads = shader.size(attention_.batch * attention_.heads);
  // Heads are adjacent in the order of workgroups, and the last queries, which see the most keys, come first.
  shader.line("let head_number = group % {};", heads);
  const auto index = shader.split_index("head_number", {attention_.batch, attention_.heads});
  shader.line("let batch = {}; let head = {}; let key_head = head / {};", index[0], index[1],
              shader.size(attention_.group));
  shader.line("let first_query = ({} - 1u - group / {}) * {}u;",
              shader.size(groups_of(attention_.time, form.workgroup_columns())), heads, form.workgroup_columns());
  shader.line("let subgroup_query = first_query + subgroup * {}u;", form.columns());
}

void MatrixQueries::write_seen_by_sizes(Shader& shader, const AttentionMatrixForm& form) const {
  // With barriers, all subgroups must take the same branches.
  const std::string from = form.barriers ? "first_query" : "subgroup_query";
  const int width = form.barriers ? form.workgroup_columns() : form.columns();
  shader.line("let seen_by_all = {};", seen_by(from));
  shader.line("let seen_by_any = {};", seen_by(fmt::format("{} + {}u", from, width - 1)));
  shader.line("let key_tiles = ({} + {}u) / {}u;",
              seen_by(fmt::format("first_query + {}u", form.workgroup_columns() - 1)), form.tile_rows - 1,
              form.tile_rows);
}

// Each thread evaluates one query. The array of scores, which is still unused, holds the results; numbers of keys are
// exact in f32.
void MatrixQueries::write_seen_by_data(Shader& shader, const AttentionMatrixForm& form) {
  write_score_functions(shader, attention_);
  shader.begin_function("fn seen_keys(batch: u32, query: u32) -> u32");
  // Queries past the end repeat the last one, and are not stored.
  shader.line("let visible = visible_range(batch, min(query, {} - 1u));", shader.size(attention_.time));
  shader.line("return u32(clamp(visible.y, 0, i32({})));", keys_);
  shader.end_function();
  shader.line("if (subgroup_lane < {0}u) {{ scores[scores_start + subgroup_lane] = f32({1}); }}", form.columns(),
              seen_by("subgroup_query + subgroup_lane"));
  shader.barrier();
  shader.line("var fewest = f32({}); var most = 0.0;", keys_);
  shader.open("for (var i = 0u; i < {}u; i++) {{", form.columns());
  shader.line("let seen = scores[scores_start + i]; fewest = min(fewest, seen); most = max(most, seen);");
  shader.close();
  shader.barrier();
  shader.line("if (subgroup_lane == 0u) {{ scores[subgroup * 2u] = fewest; scores[subgroup * 2u + 1u] = most; }}");
  shader.barrier();
  shader.line("var fewest_of_all = f32({}); var most_of_all = 0.0;", keys_);
  shader.open("for (var i = 0u; i < {}u; i++) {{", form.subgroups);
  shader.line(
      "fewest_of_all = min(fewest_of_all, scores[i * 2u]); most_of_all = max(most_of_all, scores[i * 2u + 1u]);");
  shader.close();
  shader.barrier();
  shader.line("if (lane == 0u) {{ scores[0] = fewest_of_all; scores[1] = most_of_all; }}");
  shader.line("let workgroup_fewest = workgroupUniformLoad(&scores[0]);");
  shader.line("let workgroup_most = workgroupUniformLoad(&scores[1]);");
  shader.line("let seen_by_all = u32({});", form.barriers ? "workgroup_fewest" : "fewest");
  shader.line("let seen_by_any = u32({});", form.barriers ? "workgroup_most" : "most");
  shader.line("let key_tiles = (u32(workgroup_most) + {}u) / {}u;", form.tile_rows - 1, form.tile_rows);
  shader.line("let last_key = max(u32(clamp(i32({}), 1, i32({}))), 1u) - 1u;",
              shader.load(*attention_.lengths, {"batch"}), keys_);
}

std::string MatrixQueries::seen_by(const std::string& query) const {
  if (see_by_data(attention_)) return fmt::format("seen_keys(batch, {})", query);
  return key_offset_ ? fmt::format("min({} + {} + 1u, {})", query, *key_offset_, keys_) : keys_;
}

AttentionMatrices::Stream MatrixQueries::keys_and_values(AttentionMatrices& matrices) const {
  if (attention_.table != nullptr) return paged_keys_and_values(matrices);
  auto k = matrices.operand("k", *attention_.k, "batch", "key_head");
  auto v = matrices.operand("v", *attention_.v, "batch", "key_head");
  if (see_by_data(attention_)) k.last = v.last = "last_key";
  return {"key_tiles", [=](const std::string&) { return std::pair(k, v); },
          [rows = tile_rows_](const std::string& tile) { return fmt::format("{} * {}u", tile, rows); }};
}

// A tile lies in one block, which the table gives; rows are relative to the block.
AttentionMatrices::Stream MatrixQueries::paged_keys_and_values(AttentionMatrices& matrices) const {
  const std::string block = matrices.shader().size(attention_.k->shape[2]);
  const auto row = [=, rows = tile_rows_](const std::string& tile) {
    return fmt::format("({} * {}u) % {}", tile, rows, block);
  };
  const auto operands = [=, this, &matrices](const std::string& tile) {
    const std::string first = fmt::format("{} * {}u", tile, tile_rows_);
    matrices.shader().line("let block = block_of(batch, {});", first);
    auto k = matrices.operand("k", *attention_.k, "block", "key_head");
    auto v = matrices.operand("v", *attention_.v, "block", "key_head");
    k.last = v.last = fmt::format("({} + last_key - {})", row(tile), first);
    return std::pair(k, v);
  };
  return {"key_tiles", operands, row};
}

}  // namespace jerboa::wgsl
