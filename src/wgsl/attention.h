#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "wgsl/attention_form.h"
#include "wgsl/kernel_writer.h"
#include "wgsl/packed_rows.h"

// What the shaders of attention and of its gradient share. Scores and sums are f32. Queries that share a key head are
// numbered together: row = head in its group * time + time.
namespace jerboa::wgsl {

/// The operands by name, whatever the op. Null: absent.
struct Attention {
  const TensorAccess *q = nullptr, *k = nullptr, *v = nullptr;
  const TensorAccess *mask = nullptr, *sinks = nullptr, *lengths = nullptr, *positions = nullptr, *table = nullptr;
  AttentionAttrs attrs;  ///< a window that is as long as all keys is none
  Dim batch, heads, key_heads, group, time, keys, size, value_size;

  /// `options`: the number of the operand `mask`, behind which the others stand.
  Attention(const KernelSpec& kernel, std::size_t options, const AttentionAttrs& attributes);

  /// Queries that share a key head, and all queries.
  Dim rows() const { return group * time; }
  Dim queries() const { return batch * heads * time; }
  /// Whether a key's visibility follows from its number and the query's time alone.
  bool has_fixed_visibility() const { return positions == nullptr && !attrs.ring; }
  /// Texts of the indices [block, head, slot, feature] of k and v, or [batch, head, key, feature] where they are not
  /// paged. The first is a call, which is worth a name where it is used more than once.
  std::vector<std::string> key_indices(Shader& shader, const std::string& key, const std::string& feature) const;
  /// Strides of the mask for batch, head, time and key; 0 where it broadcasts.
  std::vector<Dim> mask_strides() const { return broadcast_strides(*mask); }
  std::vector<Dim> broadcast_strides(const TensorAccess& tensor) const;
};

/// Below all scores: that of a key that is not seen.
inline const std::string unseen_score = "-0x1.fffffep+127f";
/// jerboa::unseen_lse.
inline const std::string unseen_lse = "-3.4e38f";

/// Writes the functions that tell which keys a query sees, and that turn products into scores:
///   visible_range(batch, time) -> vec2i                   the positions that a query sees: [x, y)
///   key_position(batch, key) -> i32               negative where the slot holds none
///   score(visible, batch, head, time, key, position, product) -> vec2f
///                                                 a score and its slope by the product; unseen_score where not seen.
///                                                 All indices must be in range
///   key_range(batch, least, most) -> vec2u        the keys that queries which see [least, most) may see
///   block_of(batch, key) -> u32                   of paged keys: a block's number, whatever the table holds
///   time_range(key, end) -> vec2u                 the times of the queries that may see keys [key, end)
void write_score_functions(Shader& shader, const Attention& attention);

/// Some rows or keys that one thread holds side by side in a vector: 1 to 4.
class Lanes {
 public:
  explicit Lanes(std::int64_t count) : count_(static_cast<int>(std::clamp<std::int64_t>(count, 1, 4))) {}
  int count() const { return count_; }
  std::string type() const { return count_ == 1 ? "f32" : fmt::format("vec{}f", count_); }
  /// One of them.
  std::string at(const std::string& vector, int i) const {
    return count_ == 1 ? vector : fmt::format("{}.{}", vector, "xyzw"[i]);
  }
  /// A vector of what `f` gives for each.
  template <class F>
  std::string each(F f) const {
    std::string text = type() + "(";
    for (int i = 0; i < count_; ++i) text += (i == 0 ? "" : ", ") + f(i);
    return text + ")";
  }

 private:
  int count_;
};

/// How many others a thread takes at a time, against each of which it holds a product with its lanes.
constexpr int others_at_a_time = 4;

/// For a loop over `size` features: NAME_j, a vector over the lanes, = Σ mine(i) * other(j). Both give texts that read
/// the element at `feature`.
void write_products(Shader& shader, const std::string& name, const Lanes& lanes, const Dim& size,
                    const std::function<std::string(int)>& mine, const std::function<std::string(int)>& other);
/// SUMS[feature] += Σ WEIGHT_j * other(j), where sums is an array of vectors over the lanes.
void write_sums(Shader& shader, const std::string& sums, const std::string& weight, const Dim& size,
                const std::function<std::string(int)>& other);

}  // namespace jerboa::wgsl
