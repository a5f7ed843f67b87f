#pragma once

#include <optional>
#include <vector>

#include "wgsl/product/problem.h"

namespace jerboa::wgsl {

/// How a few rows are multiplied by an int8 or int4 weight: plain data, so that measurements can override
/// choose_quantised. A team of threads shares some results. Each thread keeps its part of the row in registers and uses
/// it for all of them, so that memory traffic is almost only weights.
struct QuantisedForm {
  int team = 128;       ///< threads that share results
  int teams = 1;        ///< per workgroup
  int steps = 1;        ///< groups of 32 weights of each result per thread
  int results = 16;     ///< per team: a multiple of results_at_once
  bool halves = false;  ///< multiply pairs of f16, sum four of them in f16, and add up the sums in f32

  static constexpr int results_at_once = 4;  ///< the weights of these are loaded before the first is used

  bool operator==(const QuantisedForm&) const = default;
  int threads() const { return team * teams; }
  int all_results() const { return results * teams; }
};

/// The form for a product, which depends only on the target, sizes and layout; none if another kind of form must be
/// used.
std::optional<QuantisedForm> choose_quantised(const KernelWriter& writer, const MatmulProblem& problem);

/// The forms that are worth measuring for such products with weights of this type.
std::vector<QuantisedForm> quantised_candidates(const Target& target, DType weights, std::int64_t inner, int products);

void write_quantised(KernelWriter& writer, const MatmulProblem& problem, const QuantisedForm& form);

/// The same for a matmul_grouped_quantised kernel of a few rows; returns whether there is a form for it.
bool write_quantised_groups(KernelWriter& writer);

}  // namespace jerboa::wgsl
