#pragma once

#include <cstdint>
#include <vector>

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// How a matrix product is computed: plain data, so that measurements can override choose_form.
struct MatmulForm {
  enum class Kind : std::uint8_t {
    dots,     ///< one result at a time, its inner elements split among some threads: for few rows or columns
    vectors,  ///< the same for few rows and weights [columns, inner], read 16 bytes at a time by teams of threads
    blocks,   ///< one block of results per thread, directly from memory: for software drivers
    tiles,    ///< one tile of results per workgroup, from tiles of the operands in workgroup memory
    matrices  ///< the same, multiplied by subgroups as matrices: for operands of f16
  };
  Kind kind = Kind::tiles;
  int rows = 64, columns = 64, inner = 16;  ///< results per workgroup, and the inner depth of its operand tiles
  /// Results per thread, multiples of 4; for matrices: per subgroup, multiples of 16.
  int part_rows = 4, part_columns = 4;
  /// For tiles: padding after each row of the first operand's tile, which spreads its columns over the banks of
  /// workgroup memory.
  int padding = 4;
  /// For tiles: double buffering, with the inner steps unrolled.
  bool two_buffers = false;
  /// For tiles with one buffer: the inner steps are unrolled too.
  bool unrolled = false;
  /// For tiles of f32: teams of threads, each of which multiplies its part of the inner elements of every tile: a power
  /// of two, at most 8. More threads hide latency if there are too few workgroups to do so.
  int teams = 1;
  /// Tiles that are prefetched during the multiplication: 0, 1 or, for tiles of f32, 2. Operands are then bound
  /// read_write: compilers move loads of memory that nothing writes down to where they are used, which undoes the
  /// prefetching.
  int ahead = 0;
  /// For vectors: threads per team, which computes part_columns columns of all rows.
  int lanes = 32;
  /// For vectors as a phase of a dispatch: blocks of columns that a workgroup computes one after another, with the
  /// first operand in registers; 0: it is reloaded for each.
  int blocks = 0;
  std::int64_t chunks = 1;  ///< parts of the inner dimension; a second shader sums their results

  bool operator==(const MatmulForm&) const = default;
  int across() const { return columns / part_columns; }
  int threads() const {
    if (kind == Kind::vectors) return across() * lanes;
    return across() * (rows / part_rows) * (kind == Kind::matrices ? 32 : teams);
  }
  int pitch() const { return rows + padding; }
  /// For tiles: inner elements per iteration of the loop over them.
  int round_inner() const { return inner * (two_buffers || ahead > 1 ? 2 : 1); }
  /// An upper bound; `element_bytes`: of a tile's elements, which are f16 for matrices.
  std::int64_t workgroup_bytes(int element_bytes = 4) const;
};

/// The workgroup memory of a form for vectors, with `row_totals` sums over each row.
std::int64_t bytes_of_vectors(const Target& target, const MatmulForm& form, std::int64_t rows, int products,
                              int row_totals);

/// The forms with tiles of f32, and those on subgroup matrices, that are worth considering, without chunks.
std::vector<MatmulForm> tile_forms();
std::vector<MatmulForm> matrix_forms();

struct MatmulProblem;

/// The form for a product; depends only on the target, sizes and layout.
MatmulForm choose_form(const Target& target, const MatmulProblem& problem);

/// Writes a matmul kernel in a given form. write_matmul uses the one from choose_form.
void write_matmul_as(KernelWriter& writer, const MatmulForm& form);

}  // namespace jerboa::wgsl
