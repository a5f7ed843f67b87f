#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include <jerboa/ir/graph.h>
#include <jerboa/runtime/device.h>

namespace jerboa {

/// The kinds of kernels whose forms can be measured.
enum class TunedKind {
  products,   ///< of matrices
  attention,  ///< and its gradient
  rows,       ///< that are reduced: norms, softmax, losses
  columns     ///< that are summed up, as for the gradients of biases
};

/// What was measured of one kernel.
struct TunedKernel {
  std::string shape, form;  ///< its sizes, and the fastest form
  int forms = 0;            ///< that were measured, besides the one chosen without measuring
  double seconds = 0, untuned_seconds = 0;
};

struct TuneOptions {
  /// Whose kernels are measured.
  std::set<TunedKind> kinds{TunedKind::products, TunedKind::attention, TunedKind::rows, TunedKind::columns};
  double seconds = 0.1;  ///< at most, for each form
  /// Called before each form is measured, to bring a GPU's clock up, which drops while the form is compiled.
  std::function<void()> warm = {};
  /// Called with what was measured of each kernel.
  std::function<void(const TunedKernel&)> report = {};
  /// Called with the form and the reason for each form that was left out because it could not be run.
  std::function<void(const std::string& form, const std::string& reason)> skipped = {};
};

/// Times the forms in which the kernels of some graphs can be computed on a WebGPU device, and checks their results
/// against each other. Returns the content of a file that makes the compiler choose the fastest ones
/// (WebGpuOptions::tuned_forms). Throws UsageError for other devices.
std::string tune_kernels(const Device& device, const std::vector<Graph>& graphs, const TuneOptions& options = {});

}  // namespace jerboa
