#pragma once

#include <string>
#include <vector>

#include "wgsl/kernel_writer.h"
#include "wgsl/product/form.h"

namespace jerboa::wgsl {

/// A matmul kernel as rows × inner times inner × columns, per batch entry.
struct MatmulProblem {
  std::vector<Dim> batch;
  Dim rows, columns, inner;
  const TensorAccess* a = nullptr;
  const TensorAccess* b = nullptr;
  std::vector<Dim> a_batch, b_batch;  ///< strides
  Dim a_row, a_inner, b_inner, b_column;
  const TensorAccess* scales = nullptr;  ///< of b, one per 32 elements in memory order
  const TensorAccess* mins = nullptr;    ///< likewise; null if absent
  /// For groups of rows with one matrix each, contiguous in b: the first row of each group, and the end of the last.
  const TensorAccess* offsets = nullptr;
  bool merged = false;             ///< the batch is part of the rows
  bool halves = false;             ///< both operands are f16 in memory, and tiles can hold them as f16
  bool multiplies_in_f16 = false;  ///< multiplies in f16, in vectors of four; a few products are accumulated in f16
  int row_totals = 0;              ///< sums over each row of the first operand, computed along with the products
  int products = 1;                ///< computed at once: 2 with a companion (FoldedKernels)
  bool suits_vectors = false;      ///< few rows, and both operands can be read 16 bytes at a time along the inner axis
  /// Values that the target can multiply as subgroup matrices: f16, or a quantised weight, which becomes f16 in the
  /// tile, as the other operand does.
  bool suits_matrices = false;
  bool a_in_fours = false, b_in_fours = false;  ///< whether four elements can be read at once
  /// For matrices: the first operand's values may be outside the range of f16, and rows get a power of two each
  /// (RowScales).
  bool scales_rows = false;

  explicit MatmulProblem(const KernelWriter& writer);
  /// The problem of a matmul_grouped_quantised kernel.
  static MatmulProblem of_groups(const KernelSpec& kernel);

 private:
  MatmulProblem() = default;
};

/// Products of more rows than this are computed in tiles.
inline constexpr std::int64_t most_vector_rows = 4;

/// Quantised weights of a product this large are multiplied in f16 if the target multiplies f16 at all: the rounding is
/// small compared with that of quantisation. Smaller products gain nothing.
inline constexpr std::int64_t many_weights = 1 << 15;

/// Whether threads can exchange values in subgroups of a known size, a power of two of at least four.
inline bool has_subgroups(const Target& target) {
  const int size = target.subgroup_size;
  return size >= 4 && (size & (size - 1)) == 0;
}

/// Whether a size is a compile-time constant and a multiple of the given number.
inline bool is_multiple(const Dim& size, std::int64_t of) { return size.is_constant() && size.value() % of == 0; }

/// Whether an operand's matrices begin at offsets where four elements can be read at once; `batch`: its strides.
bool begins_in_fours(const Shader& shader, const TensorAccess& tensor, const std::vector<Dim>& batch);

/// Emits an operand's prologue as functions of one element and of four, prepare_NAME and prepare_four_NAME.
void write_prologue(Shader& shader, const TensorAccess& operand, const char* name);
void write_prologues(Shader& shader, const MatmulProblem& problem);
/// WGSL expression of an operand's element, and of four adjacent ones, with prologue and scale; `name`: a or b.
std::string read_operand(Shader& shader, const MatmulProblem& problem, const TensorAccess& operand, const char* name,
                         const std::string& place);
std::string read_four_of_operand(Shader& shader, const TensorAccess& operand, const char* name,
                                 const std::string& place);

/// From the workgroup index, declares `tile_row` and `tile_column`, the workgroup's first result, `chunk`, its part of
/// the inner dimension, and `batch`. Returns the number of workgroups.
Dim write_tile_place(Shader& shader, const MatmulProblem& problem, const MatmulForm& form);
/// Declares `a_start` and `b_start`: where the matrices of `batch` begin.
void write_batch_offsets(Shader& shader, const MatmulProblem& problem);
/// WGSL expression of an element's index in the matrix that begins at `start`.
std::string place_in_matrix(Shader& shader, const char* start, const std::string& first, const Dim& first_stride,
                            const std::string& second, const Dim& second_stride);

}  // namespace jerboa::wgsl
