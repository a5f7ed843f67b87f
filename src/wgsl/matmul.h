#pragma once

#include <cstdint>

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// How a tiled product is cut: a workgroup's results, how deep its tiles are, and the results of a thread. Rows and
/// columns of a thread are multiples of 4.
struct MatmulTile {
  int rows = 64, columns = 64, inner = 16;
  int thread_rows = 4, thread_columns = 4;
  int across() const { return columns / thread_columns; }
  int threads() const { return across() * (rows / thread_rows); }
  /// A row of the first operand's tile is padded, which spreads its columns over the memory's banks.
  int pitch() const { return rows + 4; }
  std::int64_t workgroup_bytes(int element_bytes = 4) const {
    return std::int64_t{element_bytes} * inner * (pitch() + columns);
  }
};

/// A matmul kernel with a given tile, its inner dimension cut into so many chunks; for measuring. write_matmul chooses.
void write_tiled_matmul(KernelWriter& writer, const MatmulTile& tile, std::int64_t chunks);

}  // namespace jerboa::wgsl
