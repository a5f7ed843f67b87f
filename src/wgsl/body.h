#pragma once

#include <string>
#include <vector>

#include <jerboa/lower/program.h>

#include "wgsl/shader.h"

namespace jerboa::wgsl {

/// Writes the instructions of a kernel's body for one element of its domain, on demand.
class BodyWriter {
 public:
  /// `indices`: text of the element's index along each axis of the domain.
  BodyWriter(Shader& shader, const KernelSpec& kernel, std::vector<std::string> indices);

  void set_indices(std::vector<std::string> indices) { indices_ = std::move(indices); }
  /// WGSL expression of an instruction's value; operands that have not been written yet are written first.
  const std::string& value(int instruction);
  /// Supplies a value: a product, a reduction.
  void set(int instruction, std::string text) { names_[static_cast<std::size_t>(instruction)] = std::move(text); }
  void store(const Store& store);

  /// The values known now, to restore at the end of a block.
  std::vector<std::string> known() const { return names_; }
  void forget_since(std::vector<std::string> known) { names_ = std::move(known); }

 private:
  std::string write_load(const Instruction& instruction);
  std::string compute(const Instruction& instruction);

  Shader& shader_;
  const KernelSpec& kernel_;
  std::vector<std::string> indices_;
  std::vector<std::string> names_;  // by instruction; empty: not written yet
};

/// WGSL condition that holds where a load reads memory rather than padding; only for a load with masks.
std::string inside_masks(Shader& shader, const Load& load, const std::vector<std::string>& indices);

/// WGSL expression of an element-wise op on values of type `operand`.
std::string apply(Shader& shader, const Instruction& instruction, DType operand, const std::string& a,
                  const std::string& b, const std::string& c);

/// WGSL expressions of a reduction's identity, and of the combination of two partial results.
std::string neutral(Op reduction, DType dtype);
std::string combine(Op reduction, DType dtype, const std::string& a, const std::string& b);

/// Whether an index map steps through a domain as through contiguous memory, from its beginning.
bool is_row_major(const Shape& domain, const IndexMap& map);

/// The same kernel with adjacent axes of its domain merged, if all loads and stores step through them as one axis and
/// nothing refers to them. The last row_axes axes are not merged with earlier ones.
KernelSpec merge_axes(const KernelSpec& kernel);

}  // namespace jerboa::wgsl
