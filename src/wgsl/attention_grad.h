#pragma once

#include "wgsl/attention.h"

namespace jerboa::wgsl {

/// Of its five products those for queries have one, those for keys and values two, and both compute the other two.
inline constexpr OperationShare operations_of_queries{2, 5}, operations_of_keys{3, 5};

/// attention_grad's operands and results by name.
struct AttentionGrad : Attention {
  const TensorAccess *out = nullptr, *lse = nullptr, *dout = nullptr;
  const TensorAccess *dq = nullptr, *dk = nullptr, *dv = nullptr;
  const TensorAccess *dsinks = nullptr, *dmask = nullptr;  ///< null: not wanted
  int row_terms = -1;  ///< workspace [query, 2]: the log-sum-exp, and Σ dout · out; -1: readers compute them

  explicit AttentionGrad(const KernelWriter& writer);

  /// WGSL expression of a query's number.
  std::string query(Shader& shader, const std::string& b, const std::string& h, const std::string& t) const {
    return fmt::format("(({} * {} + {}) * {} + {})", b, shader.size(heads), h, shader.size(time), t);
  }
  /// WGSL expressions of a query's terms.
  std::string lse_of(Shader& shader, const std::string& b, const std::string& h, const std::string& t) const {
    return shader.load(row_terms, query(shader, b, h, t) + " * 2u");
  }
  std::string mean_of(Shader& shader, const std::string& b, const std::string& h, const std::string& t) const {
    return shader.load(row_terms, query(shader, b, h, t) + " * 2u + 1u");
  }
};

/// Computes the gradients for q, and for k and v, from tiles in workgroup memory.
void write_attention_grad_tiles(KernelWriter& writer, const AttentionGrad& attention, const AttentionGradForms& forms);

}  // namespace jerboa::wgsl
