#pragma once

#include <string>
#include <vector>

#include <jerboa/runtime/session.h>

namespace jerboa::detail {

/// An input of a graph that is a learning rate.
struct InputRate {
  std::string input;
  bool may_be_negative = false;
};
/// Those of optimizers. A custom one may want a negative rate; the library's ops take none.
std::vector<InputRate> find_rates(const Graph& graph);

/// Throws UsageError that names the entry and the input unless each rate is finite and as large as it must be.
void check_rates(const std::string& entry, const std::vector<InputRate>& rates, const TensorMap& inputs);

}  // namespace jerboa::detail
