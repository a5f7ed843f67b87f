#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "wgsl/attention_grad.h"
#include "wgsl/subgroup_matrix.h"

// Attention and its gradient on subgroup matrices, for operands of f16, and for 8-bit caches, which become f16 on the
// way to workgroup memory. All shaders have the same structure. A subgroup processes some columns (queries; keys in the
// gradients of k and v), whose operands stay in its registers as matrices. Rows (keys; queries) stream through
// workgroup memory. For every 16 rows, the products of rows and columns go through workgroup memory, where each thread
// turns some of them into weights and stores these as f16; read column by column, the weights are the left operand of
// the second product, with the same rows. The full matrix of queries and keys never exists.
namespace jerboa::wgsl {

struct AttentionMatrixForms {
  AttentionMatrixForm forward, dq, dkv;
};

/// The forms for a target and sizes, on which alone they depend; none if another kind of form must be used. `others`:
/// results, and operands besides q, k and v. Attention over caches, whose lengths and positions are data, has no form
/// for its gradient.
std::optional<AttentionMatrixForms> choose_matrix_forms(const KernelWriter& writer, const Attention& attention,
                                                        const std::vector<const TensorAccess*>& others,
                                                        bool with_gradient);

void write_attention_matrices(KernelWriter& writer, const Attention& attention, const AttentionMatrixForm& form);
void write_attention_grad_matrices(KernelWriter& writer, const AttentionGrad& attention, const AttentionMatrixForm& dq,
                                   const AttentionMatrixForm& dkv);

/// What the shaders have in common.
class AttentionMatrices {
 public:
  AttentionMatrices(KernelWriter& writer, const Attention& attention, const std::string& name,
                    const AttentionMatrixForm& form);

  Shader& shader() { return shader_; }
  int pieces() const { return form_.tile_rows / MatrixWriter::size; }  ///< of 16 rows, per tile
  int lane_rows() const { return MatrixWriter::size / lanes_down(); }
  /// The factor that turns products into scores to base 2, and the scale itself, as literals.
  std::string log2_scale() const { return literal(scale_ * 1.4426950408889634, DType::f32); }
  std::string scale() const { return literal(scale_, DType::f32); }

  /// One of the operands, for the head that `start` refers to.
  struct Operand {
    const TensorAccess* tensor;
    std::string start;  ///< WGSL expression of the index of its first row, in fours
    Dim rows;
    std::string last = {};  ///< WGSL expression of the last row that is read; empty: the last of all
  };
  /// `let NAME_start`, for the batch and head given as WGSL expressions.
  Operand operand(const std::string& name, const TensorAccess& tensor, const std::string& batch,
                  const std::string& head);

  /// Declares NAME_k_j: the operands of the columns from `first`, for each 16 features k and each block j.
  void declare_columns(const std::string& name, const Operand& operand, const std::string& first);
  /// Declares SUMS_j_k: results for each block of columns j and each 16 features k.
  void declare_results(const std::string& sums);
  void clear_results(const std::string& sums);

  /// The loop over tiles: fetches `first` and `second` into workgroup memory. `row` maps the WGSL expression of a
  /// tile's number, which is below `tiles`, to that of its first row; `work` writes what is computed with it.
  struct Stream {
    std::string tiles;
    std::function<std::pair<Operand, Operand>(const std::string& tile)> operands;  ///< may emit lines
    std::function<std::string(const std::string& tile)> row;
  };
  void write_stream(const Stream& stream, const std::function<void()>& work);

  /// The steps for piece `piece` of the tile. `tile`: 0 or 1, the first or second operand.
  /// Declares NAME_j: products of the rows with the columns' operands COLUMNS_k_j.
  void write_products(const std::string& name, int tile, const std::string& columns, int piece);
  /// Passes them to the threads: declares TAKEN_r_i for the thread's rows and columns.
  void write_exchange(const std::string& name, const std::string& taken);
  /// Stores TAKEN_r_i as weights, and adds weightsᵀ · rows to SUMS.
  void write_weights(const std::string& taken);
  void write_gather(const std::string& sums, int tile, int piece);
  /// A barrier, if the form has them, between accesses of different threads of a subgroup.
  void exchange();
  /// Calls `f` for each of the thread's values.
  template <class F>
  void for_each_value(F f) const {
    for (int r = 0; r < lane_rows(); ++r)
      for (int i = 0; i < form_.lane_columns; ++i) f(r, i);
  }
  /// Reduces NAME_0 …, values of the thread's columns, over the threads that share the columns.
  void write_column_reduction(const std::string& name, bool is_sum);
  /// Keeps a value for each column, from the threads that have it, for write_results.
  void keep_for_columns(const std::string& name);
  /// Stores the results times `factor`, or times the value kept for the column, for columns from `first`.
  void write_results(const std::string& sums, const TensorAccess& to, const std::string& batch, const std::string& head,
                     const std::string& first, const Dim& count, const std::optional<std::string>& factor);
  /// An element of workgroup memory that nothing else uses.
  std::string flag() const { return fmt::format("scores[{}u]", pitch() - 1); }

 private:
  int size() const { return static_cast<int>(attention_.size.value()); }
  int pitch() const { return form_.columns() + 8; }
  int tile_pitch() const { return size() + 8; }
  int tile_elements() const { return form_.tile_rows * tile_pitch(); }
  int lanes_across() const { return form_.columns() / form_.lane_columns; }
  int lanes_down() const { return MatrixWriter::subgroup_size / lanes_across(); }
  int features() const { return size() / MatrixWriter::size; }
  int fours() const { return size() / 4; }
  int fetches() const { return form_.tile_rows * fours() / form_.threads(); }
  void fetch(const std::string& name, const Operand& operand, const std::string& row);
  std::string packed_words_at(const TensorAccess& tensor, const std::string& start, int fetch);
  void put(const std::string& name, int tile);
  void put_four(const std::string& array, const std::string& place, const std::string& words);

  const Attention& attention_;
  AttentionMatrixForm form_;
  double scale_;
  Shader shader_;
  MatrixWriter matrices_;
};

/// For shaders whose columns are queries: the queries of a workgroup, and the keys that they see.
class MatrixQueries {
 public:
  /// Declares batch, head and key_head; first_query, the workgroup's first; subgroup_query, the subgroup's first;
  /// key_tiles, the number of tiles of keys that the workgroup needs; seen_by_all and seen_by_any: keys below these
  /// numbers are seen by all, or by some, of the queries that must branch alike. To be written after the
  /// AttentionMatrices constructor.
  MatrixQueries(Shader& shader, const Attention& attention, const AttentionMatrixForm& form);

  Dim workgroups() const { return workgroups_; }
  /// WGSL expression of the number of keys that a query sees.
  std::string seen_by(const std::string& query) const;
  /// WGSL condition that holds where all queries see all keys of the tile.
  std::string whole_tile() const { return fmt::format("tile * {0}u + {0}u <= seen_by_all", tile_rows_); }
  AttentionMatrices::Stream keys_and_values(AttentionMatrices& matrices) const;
  /// Whether the keys that a query sees depend on data: it may then see none.
  static bool see_by_data(const Attention& attention) {
    return attention.lengths != nullptr || attention.positions != nullptr;
  }

 private:
  void write_places(Shader& shader, const AttentionMatrixForm& form);
  void write_seen_by_sizes(Shader& shader, const AttentionMatrixForm& form) const;
  void write_seen_by_data(Shader& shader, const AttentionMatrixForm& form);
  AttentionMatrices::Stream paged_keys_and_values(AttentionMatrices& matrices) const;

  const Attention& attention_;
  int tile_rows_;
  std::string keys_;
  std::optional<std::string> key_offset_;  // keys minus queries; none if all keys are seen
  Dim workgroups_;
};

}  // namespace jerboa::wgsl
