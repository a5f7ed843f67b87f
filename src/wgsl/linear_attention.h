#pragma once

#include <string>
#include <vector>

#include "wgsl/kernel_writer.h"
#include "wgsl/recurrent_tokens.h"

namespace jerboa::wgsl {

/// A log decay below this one forgets everything in f32, and sums of it stay exact enough.
constexpr const char* least_log_decay = "-200.0";

/// The operands of linear_attention and its gradient, and their sizes.
struct LinearAttention {
  const TensorAccess &q, &k, &v, &log_decay;
  const TensorAccess* beta;  ///< null where there is none
  RecurrentTokens tokens;
  Dim batch, time, heads, groups, shared;  ///< `shared` heads have the same q and k
  Dim key_size, value_size;

  LinearAttention(const KernelSpec& kernel, bool with_slots);

  Dim columns() const { return batch * heads * value_size; }
  /// Splits `number` into `batch`, `head` and `column`, and declares the `key_head` of the head.
  void write_column(Shader& shader, const std::string& number) const;
};

/// One column of a state in a thread, a number per key feature: in an array, or in memory where that would be too long.
class StateColumn {
 public:
  StateColumn(KernelWriter& writer, const LinearAttention& attention);

  /// Declares it, as zeros. The thread's column of the batch's is `element`.
  void declare(Shader& shader) const;
  /// WGSL expression of the number of a feature, and a statement that changes it.
  std::string at(Shader& shader, const std::string& feature) const;
  void set(Shader& shader, const std::string& feature, const std::string& value) const;
  /// Opens a loop over `feature`; Shader::close ends it.
  void open_loop(Shader& shader) const;

 private:
  Dim key_size_, columns_;
  int workspace_ = -1;
};

}  // namespace jerboa::wgsl
