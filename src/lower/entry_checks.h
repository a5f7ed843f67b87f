#pragma once

#include <jerboa/lower/program_file.h>

// The checks of an entry's runs on a host, besides those of indices among its inputs (lower/input_indices.h).
namespace jerboa::detail {

/// Whether a tensor is an input that is an optimizer's learning rate, and what is required of it.
Rate rate_of(const Graph& graph, TensorId tensor);

/// Proves that the rates among the inputs of an entry are single numbers, and that its checks have their outputs.
void verify_rates_and_checks(const ProgramEntry& entry);

}  // namespace jerboa::detail
