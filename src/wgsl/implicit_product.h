#pragma once

#include <functional>
#include <string>

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// A batch of matrix products, rows × inner times inner × columns, whose operands are not matrices in memory: callbacks
/// compute their elements. Uses tiles in workgroup memory, or, where these do not pay off, one thread per result.
struct ImplicitProduct {
  /// WGSL expression of the element at `k`; may emit lines before it. `k` is in range.
  using Element = std::function<std::string(const std::string& k)>;
  struct Operand {
    /// Emits what depends only on the row (for the second operand: the column), which may be out of range.
    std::function<Element(Shader& shader, const std::string& at)> at;
    bool along_inner = false;  ///< memory is contiguous along the inner dimension
  };
  /// The position of a row of tiles, as WGSL expressions.
  struct Place {
    std::string first_row, row_end, inner_start, inner_end;
  };

  std::string name;
  Dim batch, rows, columns, inner;  ///< upper bounds where `find` computes the sizes
  Operand a, b;                     ///< may use `batch`
  std::function<void(Shader& shader, const std::string& batch, const std::string& row, const std::string& column,
                     const std::string& sum)>
      finish;
  /// For sizes known only on the device: emits `let batch` and returns the position of row of tiles `number`, of
  /// `tile_rows` rows each. There are `rows_of_tiles` of them.
  std::function<Place(Shader& shader, const std::string& number, int tile_rows)> find;
  std::function<Dim(int tile_rows)> rows_of_tiles;
};

void write_product(KernelWriter& writer, const ImplicitProduct& product);

}  // namespace jerboa::wgsl
