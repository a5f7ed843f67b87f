#pragma once

#include <cstdint>
#include <string>

#include "wgsl/shader.h"

namespace jerboa::wgsl {

/// Writes operations on 16×16 matrices that the threads of a subgroup hold together: operands of f16, sums of f32.
/// Targets that only emulate them use functions that run on any device: each of 32 threads then keeps the data for half
/// a row of sums, so that only loads and stores exchange data.
///
///   MatrixWriter matrices(shader);
///   matrices.declare_sums("sums");
///   matrices.load(MatrixWriter::Kind::left, MatrixWriter::Order::rows, "a", {"tile", "start", 40});
///   matrices.load(MatrixWriter::Kind::right, MatrixWriter::Order::columns, "b", {"tile", "other", 40});
///   matrices.multiply("a", "b", "sums");
///   matrices.store("sums", {"results", "0u", 16});
///
/// All threads of a subgroup must run each operation. Values that other threads stored in the arrays are visible only
/// after a barrier.
class MatrixWriter {
 public:
  static constexpr int size = 16;           ///< rows and columns of a matrix
  static constexpr int subgroup_size = 32;  ///< threads
  enum class Kind : std::uint8_t { left, right };
  enum class Order : std::uint8_t { rows, columns };  ///< which elements are contiguous in memory

  /// The location of a matrix in an array in workgroup memory: of f16 for operands, of f32 for sums.
  struct Place {
    std::string array, start;
    int pitch;  ///< elements from one row, or column, to the next
  };

  /// Declares `subgroup` and `subgroup_lane` in main; must be constructed before anything else is written to it.
  explicit MatrixWriter(Shader& shader);

  bool is_emulated() const { return emulated_; }
  /// `var NAME`, a matrix of zeros.
  void declare_sums(const std::string& name);
  void clear_sums(const std::string& name);
  /// Declares an operand.
  void load(Kind kind, Order order, const std::string& name, const Place& place);
  /// sums += left · right
  void multiply(const std::string& left, const std::string& right, const std::string& sums);
  /// Stores sums row by row.
  void store(const std::string& sums, const Place& place);

 private:
  std::string load_function(Kind kind, Order order, const std::string& array);
  std::string store_function(const std::string& array);

  Shader& shader_;
  bool emulated_;
};

}  // namespace jerboa::wgsl
