#pragma once

#include <functional>
#include <string>

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// A batch of matrix products, rows × inner times inner × columns, whose operands are not matrices in memory: functions
/// find their elements. Written in tiles in workgroup memory, or where these would not pay with a thread for each
/// result.
struct ImplicitProduct {
  /// Text of the element at `k`; may write lines before. `k` is in range.
  using Element = std::function<std::string(const std::string& k)>;
  struct Operand {
    /// Writes what depends on the row alone (of the second operand: on the column), which may be out of range.
    std::function<Element(Shader& shader, const std::string& at)> at;
    bool along_inner = false;  ///< memory runs along the inner elements
  };
  /// Where a row of tiles stands, as texts.
  struct Place {
    std::string first_row, row_end, inner_start, inner_end;
  };

  std::string name;
  Dim batch, rows, columns, inner;  ///< bounds, where `find` finds the sizes
  Operand a, b;                     ///< may use `batch`
  std::function<void(Shader& shader, const std::string& batch, const std::string& row, const std::string& column,
                     const std::string& sum)>
      finish;
  /// Where sizes are known on the device only: writes `let batch` and gives the place of row of tiles `number`, of
  /// `tile_rows` rows each. There are `rows_of_tiles` of them.
  std::function<Place(Shader& shader, const std::string& number, int tile_rows)> find;
  std::function<Dim(int tile_rows)> rows_of_tiles;
};

void write_product(KernelWriter& writer, const ImplicitProduct& product);

}  // namespace jerboa::wgsl
