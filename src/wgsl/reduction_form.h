#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/lower/program.h>

namespace jerboa::wgsl {

/// Reductions of rows, each by some threads: norms, softmax, losses (loop.cpp). At the symbols' upper bounds.
struct RowShape {
  std::int64_t rows = 0, columns = 0;
  auto operator<=>(const RowShape&) const = default;
  std::string str() const;  ///< "1024 rows of 256"
};
struct RowForm {
  int lanes = 1;  ///< threads that share a row, a power of two
  bool operator==(const RowForm&) const = default;
};
/// None if no rows are reduced.
std::optional<RowShape> row_shape_of(const KernelSpec& kernel);
std::vector<RowForm> row_candidates(const Target& target, const RowShape& shape);

/// Reductions of columns (reduce.cpp), whose elements are adjacent in memory to those of the next column.
struct ColumnShape {
  std::int64_t columns = 0, rows = 0;
  int width = 1;  ///< columns that a thread processes at once: 1 or 4
  auto operator<=>(const ColumnShape&) const = default;
  std::string str() const;  ///< "256 columns of 1024, 4 at once"
};
struct ColumnForm {
  int kept_lanes = 1;       ///< threads along columns, a power of two; the others of a workgroup are along rows
  std::int64_t chunks = 1;  ///< of rows; a second shader combines their results
  bool operator==(const ColumnForm&) const = default;
};
class KernelWriter;
/// None if the kernel, which must be a reduction, does not reduce columns.
std::optional<ColumnShape> column_shape_of(KernelWriter& writer);
std::vector<ColumnForm> column_candidates(const Target& target, const ColumnShape& shape);

}  // namespace jerboa::wgsl
