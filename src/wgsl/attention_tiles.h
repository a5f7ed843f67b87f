#pragma once

#include <cstdint>
#include <string>

#include "wgsl/attention.h"

namespace jerboa::wgsl {

/// A tensor [batch, head, time, feature] as rows: either queries that share a key head, or keys.
struct TileRows {
  enum class Of { queries, keys };
  const TensorAccess* tensor = nullptr;
  Of of = Of::queries;
  std::string name;  ///< of the function that reads or writes it
};

/// Whether four features of a tensor [batch, head, time, feature] can be read, or written, at once.
bool can_load_four(const Shader& shader, const TensorAccess& tensor);

/// Writes the function NAME(batch, key_head, row, feature) -> vec4f: four features of a row, 0 past its end and past
/// the last row.
void write_fetch(Shader& shader, const Attention& attention, const TileRows& rows);
/// Writes the function NAME(batch, key_head, row, feature, value: vec4f), which ignores what is past the end.
void write_put(Shader& shader, const Attention& attention, const TileRows& rows);

/// The steps of attention and its gradient on tiles: a workgroup holds `rows` rows, past which it streams tiles of
/// `others`. Thread (across, down) computes the results of rows 4 * down … + 3 and others 4 * across … + 3; a matrix of
/// weights [other, row] is in workgroup memory between the products.
class AttentionTiles {
 public:
  static constexpr int across = 16, others = 4 * across;

  /// Whether tiles are worthwhile for these sizes, and fit the target.
  static bool suit(const Target& target, const Attention& attention);
  /// The tiles that are chosen without measuring.
  static int rows_for(const Target& target) {
    return target.workgroup_bytes >= workgroup_bytes(64, 16) && target.max_invocations >= 256 ? 64 : 32;
  }
  static int depth_for(const Target& target);
  static int threads_for(const AttentionForm& form) { return form.tile_rows / 4 * across; }
  static std::int64_t workgroup_bytes(int rows, int depth) {
    return std::int64_t{4} * (depth * (rows + others) + others * rows);
  }

  AttentionTiles(Shader& shader, const Attention& attention, const AttentionForm& form);

  int rows() const { return rows_; }
  /// Declares the position of a workgroup, for `tiles` tiles of rows per batch entry and key head: batch, key_head,
  /// tile_row, thread_column, thread_row. Must be called before all others but the functions above.
  void write_place(const Dim& tiles, const std::string& number);

  /// Declares `range`, the keys that the workgroup's rows, which are queries, may see. It is uniform.
  void write_key_range();
  /// Declares, for each of the thread's four queries from `first` on: head_i, time_i (in range even if the row is not)
  /// and visible_i, which is empty past the last row.
  void write_queries(const std::string& first);

  /// Declares and computes NAME_0 … NAME_3, vectors over four others for each of the thread's rows: products of rows
  /// from tile_row and others from `first`, over `size` features.
  void write_product(const std::string& name, const std::string& mine, const std::string& other,
                     const std::string& first, const Dim& size);
  /// Stores NAME_0 … NAME_3 in the matrix of weights. A barrier must have passed since it was last read.
  void write_weights(const std::string& name);
  /// Declares SUMS_i_j for row i and vector j of features.
  void declare_sums(const std::string& sums, const Dim& size);
  /// Adds the weights times the features of the others from `first`. Ends with a barrier.
  void write_sums(const std::string& sums, const std::string& other, const std::string& first, const Dim& size);
  /// After the last write_sums: passes the partial sums of other threads to those that store them.
  void join_sums(const std::string& sums, const Dim& size);
  /// Calls f(row i, first of four features, vector) for all sums of the thread; the last two are WGSL expressions.
  template <class F>
  void for_each_sum(const std::string& sums, const Dim& size, F f) {
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < columns_of(size); ++j)
        f(i, fmt::format("(thread_column + {}u) * 4u", j * across), fmt::format("{}_{}_{}", sums, i, j));
  }
  /// Reduces NAME_0 … NAME_3, one f32 for each of the thread's rows, over the threads that share the rows. Begins and
  /// ends with a barrier.
  void write_row_reduction(const std::string& name, bool is_sum);

 private:
  static int columns_of(const Dim& size) { return static_cast<int>((size.upper_bound() + 63) / 64); }
  // With so few features that half of the threads would be idle, two threads split each sum over the others.
  static int shares_of(const Dim& size) { return size.upper_bound() <= std::int64_t{2} * across ? 2 : 1; }
  int stage_floats() const { return depth_ * (rows_ + others); }
  // Vectors are permuted within their line so that a subgroup's stores fall into different banks of workgroup memory.
  // Both return the WGSL expression of a vector's index in the line of a feature, or of an other; `quarter`: that
  // line's index / 4.
  std::string in_stage(const std::string& vector, const std::string& quarter) const {
    return fmt::format("({} ^ ({} * {}u))", vector, quarter, 32 / depth_);
  }
  std::string in_weights(const std::string& vector, const std::string& quarter) const {
    return fmt::format("({} ^ ({} % {}u))", vector, quarter, rows_ / 4);
  }
  // Writes a loop over `count` steps, unrolled four times, or as often as divides `count`: compilers would unroll a
  // loop of constant length completely, which takes some of them long. `f` gets WGSL expressions of a step's number and
  // of a quarter of it.
  template <class F>
  void write_steps(int count, const std::string& steps, bool in_fours, F f);

  Shader& shader_;
  const Attention& attention_;
  int rows_, depth_;
};

}  // namespace jerboa::wgsl
