#pragma once

#include <string>
#include <vector>

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// Rows whose elements are products of a factor per element and one per row, which depends on sums over the row: RMS
/// norms. The product of such a row with a column of weights is that of the element factors, times the row's factor,
/// and the sums can be accumulated along with the product: no thread waits for them.
class ScaledRows {
 public:
  /// Whether a loop produces such rows, contiguous and in f32: `rows` of `length` elements.
  static bool is_scaled_rows(const KernelSpec& loop, const Dim& rows, const Dim& length);

  ScaledRows(Shader& shader, const KernelSpec& loop);

  /// Declares the running totals of a row.
  void begin(int row);
  /// WGSL expression of the element factors of four elements, by the index of the four, which are added to the totals.
  /// `index`: WGSL expression of the row's index, if it differs from its number.
  std::string read_four(int row, const std::string& number, const std::string& index = "");
  /// The names of a row's totals, of which every thread has a part.
  std::vector<std::string> totals(int row) const;
  /// WGSL expression of a row's factor, from its totals over all threads.
  std::string factor(const std::string& row, const std::vector<std::string>& totals);

 private:
  std::vector<std::string> indices(const std::string& row);

  Shader& shader_;
  KernelSpec kernel_;                     // with one axis for all rows, if possible, and one for the elements
  std::vector<int> of_element_, of_row_;  // instructions whose values are the factors
  std::vector<int> sums_;                 // instructions that are reductions
};

}  // namespace jerboa::wgsl
