#pragma once

#include <string>

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// Which tokens of a batch are not padding, and which row of the state belongs to each sequence: the operands state,
/// positions and slots of an op with a state. Absent ones are null.
struct RecurrentTokens {
  const TensorAccess *state, *positions, *slots;
  Dim time;

  /// `x` has the axes batch and time first. The state is the first operand; the slots follow the positions.
  RecurrentTokens(const KernelSpec& kernel, const TensorAccess& x, std::size_t positions_operand, bool with_slots);

  /// Declares `row`, the state's row of `batch`, and `has_row`, whether there is one.
  void write_row(Shader& shader, const std::string& batch) const;
  /// Declares `has_state`: whether the sequence of that row starts from its contents.
  void write_has_state(Shader& shader, const std::string& batch) const;
  /// WGSL condition: whether a token is not padding.
  std::string is_real(Shader& shader, const std::string& batch, const std::string& token) const;
  /// Writes the shader that copies the rows that no sequence has, if the next state is in other memory.
  void write_other_rows(KernelWriter& writer) const;
};

}  // namespace jerboa::wgsl
