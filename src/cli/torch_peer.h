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

struct TorchSamples {
  std::vector<double> seconds;  ///< of each run
  double clock = 1;             ///< a GPU's speed afterwards, as a fraction of the best that the process has seen
};

/// Measures a workload in PyTorch, in a separate process, once it no longer gets faster. Throws Error if Python or
/// PyTorch is missing or fails, even if it has measured some runs by then.
TorchSamples torch_samples(const TorchRun& run);

}  // namespace jerboa::cli
