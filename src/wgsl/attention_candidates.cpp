#include <algorithm>
#include <fmt/format.h>

#include "wgsl/attention.h"
#include "wgsl/attention_tiles.h"
#include "wgsl/packed_rows.h"

namespace jerboa::wgsl {
namespace {

using Kind = AttentionForm::Kind;

bool is_power_of_two(std::int64_t number) { return number > 0 && (number & (number - 1)) == 0; }

class Candidates {
 public:
  Candidates(const Target& target, const AttentionShape& shape) : target_(target), shape_(shape) {}

  std::vector<AttentionForm> all() {
    if (target_.software || !has_sizes() || !holds_tiles()) return {};
    add_matrices();
    if (shape_.part != AttentionPart::forward) {
      add_gradient_tiles();
    } else if (rows() <= 16) {
      add_stream();
      add_decode();
    } else {
      add_tiles();
    }
    return std::move(forms_);
  }

 private:
  std::int64_t rows() const { return shape_.heads / shape_.key_heads * shape_.time; }
  // Sizes come from a file: each must fit 31 bits, and all queries together must be countable.
  bool has_sizes() const {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    return shape_.batch > 0 && shape_.heads > 0 && shape_.key_heads > 0 && shape_.time > 0 && shape_.keys > 0 &&
           shape_.size > 0 && shape_.value_size > 0 && shape_.heads % shape_.key_heads == 0 &&
           shape_.heads <= most / shape_.batch && shape_.time <= most / (shape_.batch * shape_.heads);
  }
  bool holds_tiles() const {
    return shape_.keys > 8 && std::max(shape_.size, shape_.value_size) <= 512 && holds_tiles(32, 16);
  }
  bool holds_tiles(int rows, int depth) const {
    return AttentionTiles::workgroup_bytes(rows, depth) <= target_.workgroup_bytes &&
           rows / 4 * AttentionTiles::across <= target_.max_invocations;
  }

  // The conditions of choose_matrix_forms, as far as a shape tells.
  void add_matrices() {
    const bool is_for_caches = shape_.part == AttentionPart::forward;
    if (target_.subgroup_matrices == SubgroupMatrices::none || shape_.dtype != DType::f16 ||
        shape_.key_dtype != DType::f16 || shape_.size != shape_.value_size || shape_.size % 16 != 0 ||
        shape_.size > 128 || shape_.time < 16 || (shape_.cached && !is_for_caches))
      return;
    const bool barriers = target_.subgroup_matrices == SubgroupMatrices::emulated;
    for (const int blocks : {1, 2})
      for (const int subgroups : {2, 4, 8})
        for (const int tile_rows : {16, 32, 64})
          for (const int lane_columns : {1, 2, 4})
            for (const bool ahead : {true, false}) {
              const AttentionMatrixForm form{blocks, subgroups, tile_rows, lane_columns, ahead, barriers};
              if (form.fits(shape_.size, target_) && shape_.page_size % tile_rows == 0)
                forms_.push_back({.kind = Kind::matrices, .matrices = form});
            }
  }

  // Adds the form with the keys whole, and split into parts while there are too few workgroups to fill the device.
  void add_in_parts(AttentionForm form, std::int64_t groups) {
    constexpr std::int64_t shortest = 16, residents_of_small_workgroups = 2;
    const std::int64_t residents =
        (target_.resident_workgroups > 0 ? target_.resident_workgroups : 128) * residents_of_small_workgroups;
    for (const std::int64_t parts : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
      if (parts > 1 && (groups * (parts - 1) >= residents || shape_.keys / parts < shortest)) break;
      form.parts = parts;
      forms_.push_back(form);
    }
  }
  std::int64_t groups_of(std::int64_t rows_of_each) const {
    return shape_.batch * shape_.key_heads * ((rows() + rows_of_each - 1) / rows_of_each);
  }

  void add_stream() {
    constexpr int threads = 128, most_queries = 8;
    const std::int64_t size = shape_.size;
    if (size != shape_.value_size || !is_power_of_two(size) || size < 4 || size > 256 ||
        threads > target_.max_invocations)
      return;
    const std::int64_t lanes = size / 4 / (size > 128 ? 2 : 1);
    for (int queries = 1; queries <= most_queries && queries < 2 * rows() && queries <= lanes; queries *= 2)
      for (const int keys : {4, 8})
        add_in_parts({.kind = Kind::stream, .queries = queries, .keys_at_a_time = keys}, groups_of(queries));
  }

  void add_decode() {
    const int most_queries = shape_.size > 128 ? 4 : 8;
    constexpr std::int64_t threads = 128, pass = 128;
    for (int queries = 1; queries <= most_queries && queries < 2 * rows(); queries *= 2) {
      const std::int64_t bytes =
          (queries * ((shape_.size + 3) / 4) + threads) * 16 + queries * (pass + threads + 3) * 4;
      if ((shape_.value_size + 3) / 4 <= threads && threads <= target_.max_invocations &&
          bytes <= target_.workgroup_bytes)
        add_in_parts({.kind = Kind::decode, .queries = queries}, groups_of(queries));
    }
  }

  template <class Add>
  void for_each_tile(const Add& add) {
    for (const int rows : {32, 64})
      for (const int depth : {16, 32})
        if (holds_tiles(rows, depth)) add(AttentionForm{.kind = Kind::tiles, .tile_rows = rows, .depth = depth});
  }
  void add_tiles() {
    for_each_tile([&](const AttentionForm& form) { add_in_parts(form, groups_of(form.tile_rows)); });
  }
  void add_gradient_tiles() {
    for_each_tile([&](const AttentionForm& form) { forms_.push_back(form); });
  }

  const Target& target_;
  const AttentionShape& shape_;
  std::vector<AttentionForm> forms_;
};

}  // namespace

std::optional<AttentionShape> shape_of(const Attention& attention, AttentionPart part) {
  const AttentionAttrs& attrs = attention.attrs;
  if (attention.mask != nullptr || attention.sinks != nullptr || attrs.window > 0 || attrs.soft_cap > 0 || attrs.ring ||
      is_packed(*attention.k) || (attention.lengths == nullptr) != (attention.positions == nullptr) ||
      (attention.table != nullptr && attention.lengths == nullptr))
    return std::nullopt;
  return AttentionShape{.part = part,
                        .dtype = attention.q->dtype,
                        .key_dtype = attention.k->dtype,
                        .batch = attention.batch.upper_bound(),
                        .heads = attention.heads.upper_bound(),
                        .key_heads = attention.key_heads.upper_bound(),
                        .time = attention.time.upper_bound(),
                        .keys = attention.keys.upper_bound(),
                        .size = attention.size.upper_bound(),
                        .value_size = attention.value_size.upper_bound(),
                        .causal = attrs.causal,
                        .cached = attention.lengths != nullptr,
                        .page_size = attention.table != nullptr ? attention.k->shape[2].upper_bound() : 0};
}

std::string AttentionShape::str() const {
  const char* names[] = {"attention", "gradient of attention for queries", "gradient of attention for keys"};
  std::string text = fmt::format("{}: {}x{} heads", names[static_cast<int>(part)], batch, heads);
  if (key_heads != heads) text += fmt::format(" on {}", key_heads);
  text += fmt::format(" of {}", size);
  if (value_size != size) text += fmt::format(" and {}", value_size);
  text += fmt::format(", {} queries on {} keys, {}", time, keys, name(dtype));
  if (key_dtype != dtype) text += fmt::format(" on {}", name(key_dtype));
  if (causal) text += ", causal";
  if (page_size > 0)
    text += fmt::format(", pages of {}", page_size);
  else if (cached)
    text += ", cached";
  return text;
}

std::vector<AttentionForm> attention_candidates(const Target& target, const AttentionShape& shape) {
  return Candidates(target, shape).all();
}

}  // namespace jerboa::wgsl
