#pragma once

#include <cstdint>

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// How a matrix product is computed: plain data, so that measurements can replace what choose_form gives.
struct MatmulForm {
  enum class Kind : std::uint8_t {
    dots,     ///< each result by itself, its inner elements shared by some threads: for few rows or columns
    blocks,   ///< each thread a block of results, straight from memory: for drivers on the CPU
    tiles,    ///< each workgroup a tile of results, from tiles of the operands in workgroup memory
    matrices  ///< the same, multiplied by subgroups as matrices: for operands of f16
  };
  Kind kind = Kind::tiles;
  int rows = 64, columns = 64, inner = 16;  ///< results of a workgroup, and how deep its tiles of the operands are
  /// Results of a thread, multiples of 4; of matrices: of a subgroup, multiples of 16.
  int part_rows = 4, part_columns = 4;
  /// Of tiles: behind each row of the first operand's tile, which spreads its columns over the banks of workgroup
  /// memory.
  int padding = 4;
  /// Of tiles: the next tiles are put beside those that are multiplied, and the steps into the depth are written out.
  bool two_buffers = false;
  /// Of matrices: the next tiles are fetched while these are multiplied. Operands are bound read_write for it.
  bool fetches_ahead = false;
  std::int64_t chunks = 1;  ///< parts of the inner dimension; a second shader adds up what they give

  bool operator==(const MatmulForm&) const = default;
  int across() const { return columns / part_columns; }
  int threads() const { return across() * (rows / part_rows) * (kind == Kind::matrices ? 32 : 1); }
  int pitch() const { return rows + padding; }
  /// At most; `element_bytes`: of a tile's elements, which are f16 in matrices.
  std::int64_t workgroup_bytes(int element_bytes = 4) const;
};

struct MatmulProblem;

/// The form for a product: a function of target, sizes and layout alone.
MatmulForm choose_form(const Target& target, const MatmulProblem& problem);

/// A matmul kernel in a given form. write_matmul takes the one that choose_form gives.
void write_matmul_as(KernelWriter& writer, const MatmulForm& form);

}  // namespace jerboa::wgsl
