#pragma once

#include <string>
#include <vector>

namespace jerboa::cli {

/// Seconds of each run of a workload in PyTorch, in a process of its own. Throws Error where Python or PyTorch is
/// missing. `form`: "cpu", or on an NVIDIA GPU "eager", "compiled" (torch.compile) or "graph" (a recorded CUDA graph).
std::vector<double> torch_samples(const std::string& work, const std::string& form, int threads, double seconds);

}  // namespace jerboa::cli
