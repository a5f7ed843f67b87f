#pragma once

#include <string>
#include <vector>

#include "wgsl/kernel_writer.h"
#include "wgsl/recurrent_tokens.h"

namespace jerboa::wgsl {

/// The operands of linear_attention and its gradient, and their sizes.
struct LinearAttention {
  const TensorAccess &q, &k, &v, &log_decay;
  const TensorAccess* beta;  ///< null if absent
  RecurrentTokens tokens;
  Dim batch, time, heads, groups, shared;  ///< `shared` heads have the same q and k
  Dim key_size, value_size;

  LinearAttention(const KernelSpec& kernel, bool with_slots);

  Dim columns() const { return batch * heads * value_size; }
  /// WGSL expression of four adjacent elements, a vec4f, and a statement that stores them; in one access if they are
  /// aligned.
  static std::string load_four(Shader& shader, const TensorAccess& tensor, const std::vector<std::string>& indices);
  static void store_four(Shader& shader, const TensorAccess& tensor, const std::vector<std::string>& indices,
                         const std::string& value);

  /// Splits `number` into `batch`, `head` and `column`, and declares the `key_head` of the head.
  void write_column(Shader& shader, const std::string& number) const;
};

/// The combined effect of the tokens' gates, computed once. For each token and head: its `decay`; its `factor`, which
/// is beta, or 1 without beta, or 0 for padding; and `since`, the fraction of the state before its chunk that is left
/// after it. The latter is a product of decays: the exponential of a difference of sums would lose as many digits as
/// the sums have before the point.
class LinearAttentionGates {
 public:
  enum class Of { decay, factor, since };

  /// Writes the shader that computes them.
  LinearAttentionGates(KernelWriter& writer, const LinearAttention& attention, std::int64_t chunk);
  /// WGSL expressions for `batch` and `head`: a token's value, and whether the sequence starts from its state.
  std::string load(Shader& shader, Of which, const std::string& time) const;
  std::string has_state(Shader& shader) const;
  /// Declares `name`: the fraction of what token s of a chunk wrote that is left at token t.
  void write_decay(Shader& shader, const std::string& name, const std::string& s, const std::string& t) const;

 private:
  std::string place(Shader& shader, Of which, const std::string& time) const;
  std::string flag_place(Shader& shader) const;

  Dim time_, heads_, count_;
  int workspace_;
};

/// A column of a state in a thread, one number per key feature: in an array, or in memory if that would be too long.
class StateColumn {
 public:
  StateColumn(KernelWriter& writer, const LinearAttention& attention);

  /// Declares it, as zeros. The index of the thread's column in the batch is `element`.
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

/// For few tokens, as in decoding: a workgroup holds some columns of a state in registers and processes the tokens one
/// by one.
bool suits_linear_attention_steps(const Target& target, const LinearAttention& attention);
/// Whether a workgroup can also hold whole rows of y, so that it can sum over them.
bool suits_rows_of_linear_attention_steps(const Target& target, const LinearAttention& attention);
void write_linear_attention_steps(KernelWriter& writer, const LinearAttention& attention);

/// For many tokens: chunk by chunk, with products of matrices.
bool suits_linear_attention_chunks(const Target& target, const LinearAttention& attention);
void write_linear_attention_chunks(KernelWriter& writer, const LinearAttention& attention);

}  // namespace jerboa::wgsl
