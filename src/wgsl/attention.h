#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "wgsl/attention_form.h"
#include "wgsl/kernel_writer.h"
#include "wgsl/packed_rows.h"

// Shared by the shaders of attention and of its gradient. Scores and sums are f32. Queries that share a key head are
// numbered together: row = head in its group * time + time.
namespace jerboa::wgsl {

/// The operands by name, whatever the op; null if absent.
struct Attention {
  const TensorAccess *q = nullptr, *k = nullptr, *v = nullptr;
  const TensorAccess *mask = nullptr, *sinks = nullptr, *lengths = nullptr, *positions = nullptr, *table = nullptr;
  AttentionAttrs attrs;  ///< a window that is as long as all keys is none
  Dim batch, heads, key_heads, group, time, keys, size, value_size;

  /// `options`: the index of the operand `mask`, which the other optional ones follow.
  Attention(const KernelSpec& kernel, std::size_t options, const AttentionAttrs& attributes);

  /// Queries that share a key head, and all queries.
  Dim rows() const { return group * time; }
  Dim queries() const { return batch * heads * time; }
  /// Whether a key's visibility follows from its number and the query's time alone.
  bool has_fixed_visibility() const { return positions == nullptr && !attrs.ring; }
  /// The indices [block, head, slot, feature] of k and v, or [batch, head, key, feature] without pages, as WGSL
  /// expressions. The first is a call, which is worth a variable where it is used more than once.
  std::vector<std::string> key_indices(Shader& shader, const std::string& key, const std::string& feature) const;
  /// Strides of the mask for batch, head, time and key; 0 where it broadcasts.
  std::vector<Dim> mask_strides() const { return broadcast_strides(*mask); }
  std::vector<Dim> broadcast_strides(const TensorAccess& tensor) const;
};

/// Less than any score: the score of a key that the query does not see.
inline const std::string unseen_score = "-0x1.fffffep+127f";
/// jerboa::unseen_lse.
inline const std::string unseen_lse = "-3.4e38f";

/// Writes the functions that decide which keys a query sees and turn products into scores:
///   visible_range(batch, time) -> vec2i           the positions that a query sees: [x, y)
///   key_position(batch, key) -> i32               negative if the slot is empty
///   score(visible, batch, head, time, key, position, product) -> vec2f
///                                                 a score and its derivative by the product; unseen_score if not seen.
///                                                 All indices must be in range
///   key_range(batch, least, most) -> vec2u        the keys that queries which see [least, most) may see
///   block_of(batch, key) -> u32                   for paged keys: a valid block, whatever the table holds
///   time_range(key, end) -> vec2u                 the times of the queries that may see keys [key, end)
void write_score_functions(Shader& shader, const Attention& attention);

/// One to four rows or keys that a thread holds in the components of a vector.
class Lanes {
 public:
  explicit Lanes(std::int64_t count) : count_(static_cast<int>(std::clamp<std::int64_t>(count, 1, 4))) {}
  int count() const { return count_; }
  std::string type() const { return count_ == 1 ? "f32" : fmt::format("vec{}f", count_); }
  /// The component of one of them.
  std::string at(const std::string& vector, int i) const {
    return count_ == 1 ? vector : fmt::format("{}.{}", vector, "xyzw"[i]);
  }
  /// A vector with f(i) in each component.
  template <class F>
  std::string each(F f) const {
    std::string text = type() + "(";
    for (int i = 0; i < count_; ++i) text += (i == 0 ? "" : ", ") + f(i);
    return text + ")";
  }

 private:
  int count_;
};

/// How many others a thread processes at a time; for each it holds a vector of products with its lanes.
constexpr int others_at_a_time = 4;

/// For a loop over `size` features: NAME_j, a vector over the lanes, = Σ mine(i) * other(j). Both return WGSL
/// expressions of the element at `feature`.
void write_products(Shader& shader, const std::string& name, const Lanes& lanes, const Dim& size,
                    const std::function<std::string(int)>& mine, const std::function<std::string(int)>& other);
/// SUMS[feature] += Σ WEIGHT_j * other(j), where sums is an array of vectors over the lanes.
void write_sums(Shader& shader, const std::string& sums, const std::string& weight, const Dim& size,
                const std::function<std::string(int)>& other);

}  // namespace jerboa::wgsl
