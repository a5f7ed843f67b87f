#pragma once

#include <string>
#include <vector>

namespace jerboa::cli {

/// The duration in seconds of each run of a workload in PyTorch, in a separate process. Throws Error if Python or
/// PyTorch is missing. `form`: "cpu", or on an NVIDIA GPU "eager", "compiled" (torch.compile) or "graph" (a recorded
/// CUDA graph).
std::vector<double> torch_samples(const std::string& work, const std::string& form, int threads, double seconds);

}  // namespace jerboa::cli
