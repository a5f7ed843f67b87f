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
  products,   ///< matrix products
  attention,  ///< attention and its gradient
  rows,       ///< reductions of rows: norms, softmax, losses
  columns     ///< sums of columns, as for the gradients of biases
};

/// The measurements of one kernel.
struct TunedKernel {
  std::string shape, form;  ///< its sizes, and the fastest form
  int forms = 0;            ///< number of forms measured, besides the one chosen without measuring
  double seconds = 0, untuned_seconds = 0;
};

struct TuneOptions {
  /// The kinds of kernels to measure.
  std::set<TunedKind> kinds{TunedKind::products, TunedKind::attention, TunedKind::rows, TunedKind::columns};
  double seconds = 0.1;  ///< at most, per form
  /// Called before each form is measured, to raise a GPU's clock, which drops while the form is compiled.
  std::function<void()> warm = {};
  /// Called with the measurements of each kernel.
  std::function<void(const TunedKernel&)> report = {};
  /// Called with the form and the reason for each form that was skipped because it could not be run.
  std::function<void(const std::string& form, const std::string& reason)> skipped = {};
};

/// Times the forms in which the kernels of some graphs can be computed on a WebGPU device, and checks their results
/// against each other. Returns the content of a file that makes the compiler choose the fastest forms
/// (WebGpuOptions::tuned_forms). Throws UsageError for other devices.
std::string tune_kernels(const Device& device, const std::vector<Graph>& graphs, const TuneOptions& options = {});

}  // namespace jerboa
