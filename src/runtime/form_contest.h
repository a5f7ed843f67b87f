#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <jerboa/base/host_tensor.h>

#include "base/clock.h"
#include "wgsl/tuning/form_table.h"

namespace jerboa::detail {

/// A kernel that is compiled in one form.
class CompiledKernel {
 public:
  virtual ~CompiledKernel() = default;
  /// The kernel's complete result.
  virtual HostTensor result() = 0;
  /// Runs the kernel once and returns the time in seconds.
  virtual double run() = 0;
};

/// The measurements of a form. The two times were measured alternately: a GPU's clock changes from one form to the
/// next.
struct MeasuredForm {
  wgsl::KernelForm form;
  bool agrees = false;                      ///< with the results of the form chosen without measuring
  double seconds = 0, untuned_seconds = 0;  ///< of this form, and of the one chosen without measuring
};

/// The form that saves the most time, among those whose results agree; null if none is worth an entry in a file.
const MeasuredForm* best_of(const std::vector<MeasuredForm>& forms);

/// Compares forms with the one chosen without measuring, one at a time: no more than two are in memory.
class FormContest {
 public:
  struct Options {
    double tolerance = 0;             ///< between results that agree, relative to the largest value
    double seconds = 0;               ///< at most, per form
    std::function<void()> warm = {};  ///< called before each form is measured
  };
  FormContest(std::unique_ptr<CompiledKernel> untuned, Options options);

  void measure(const wgsl::KernelForm& form, std::unique_ptr<CompiledKernel> kernel);
  const std::vector<MeasuredForm>& measured() const { return measured_; }
  /// Measures the form chosen without measuring, alone.
  double untuned_seconds();

 private:
  bool agrees(const HostTensor& result) const;

  std::unique_ptr<CompiledKernel> untuned_;
  Options options_;
  HostTensor expected_;
  std::vector<MeasuredForm> measured_;
};

}  // namespace jerboa::detail
