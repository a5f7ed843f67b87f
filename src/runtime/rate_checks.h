#pragma once

#include <set>
#include <string>

#include <jerboa/runtime/session.h>

namespace jerboa::detail {

/// The inputs of a graph that ops take as their learning rate.
std::set<std::string> find_rates(const Graph& graph);

/// Throws UsageError that names the entry and the input unless each is 0 or more and finite.
void check_rates(const std::string& entry, const std::set<std::string>& rates, const TensorMap& inputs);

}  // namespace jerboa::detail
