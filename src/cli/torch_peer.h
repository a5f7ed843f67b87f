#pragma once

#include <string>
#include <vector>

namespace jerboa::cli {

/// A run in PyTorch.
struct TorchRun {
  std::string work;
  std::string form;  ///< "cpu", or on an NVIDIA GPU "eager", "compiled" (torch.compile) or "graph" (a CUDA graph)
  std::string
      precision;    ///< "f32", "tf32" (products in TF32), "bf16" (autocast, or products of bf16), "f16" (products)
  int threads = 0;  ///< 0: one per core
  double seconds = 1;
};

/// The duration in seconds of each run of a workload in PyTorch, in a separate process. Throws Error if Python or
/// PyTorch is missing or fails, even if it has measured some runs by then.
std::vector<double> torch_samples(const TorchRun& run);

}  // namespace jerboa::cli
