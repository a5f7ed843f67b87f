#pragma once

#include <string>
#include <vector>

namespace jerboa::cli {

/// Seconds of each run of a workload in PyTorch, in a process of its own. Throws Error where Python or PyTorch is
/// missing.
std::vector<double> torch_samples(const std::string& work, int threads, double seconds);

}  // namespace jerboa::cli
