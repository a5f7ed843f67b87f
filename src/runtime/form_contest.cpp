#include "runtime/form_contest.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace jerboa::detail {
namespace {

// Forms that save less than this are not worth an entry: measurements vary by as much.
constexpr double worthwhile = 0.97;
constexpr std::size_t least_samples = 3, most_samples = 15;

// The median time of each of some kernels, measured alternately.
std::vector<double> medians_in_turns(const std::vector<CompiledKernel*>& kernels, double seconds) {
  for (CompiledKernel* kernel : kernels) kernel->run();  // the first run of a kernel takes longer
  std::vector<std::vector<double>> samples(kernels.size());
  const double end = steady_seconds() + seconds;
  for (std::size_t turn = 0; turn < least_samples || (steady_seconds() < end && turn < most_samples); ++turn)
    for (std::size_t i = 0; i < kernels.size(); ++i) samples[i].push_back(kernels[i]->run());
  std::vector<double> medians;
  for (std::vector<double>& of_kernel : samples) {
    const auto middle = of_kernel.begin() + static_cast<std::ptrdiff_t>(of_kernel.size() / 2);
    std::nth_element(of_kernel.begin(), middle, of_kernel.end());
    medians.push_back(*middle);
  }
  return medians;
}

}  // namespace

const MeasuredForm* best_of(const std::vector<MeasuredForm>& forms) {
  const MeasuredForm* best = nullptr;
  double least = worthwhile;
  for (const MeasuredForm& form : forms) {
    if (!form.agrees || form.seconds >= least * form.untuned_seconds) continue;
    least = form.seconds / form.untuned_seconds;
    best = &form;
  }
  return best;
}

FormContest::FormContest(std::unique_ptr<CompiledKernel> untuned, Options options)
    : untuned_(std::move(untuned)), options_(std::move(options)), expected_(untuned_->result()) {}

void FormContest::measure(const wgsl::KernelForm& form, std::unique_ptr<CompiledKernel> kernel) {
  MeasuredForm measured{form, agrees(kernel->result())};
  if (measured.agrees) {
    if (options_.warm) options_.warm();
    const std::vector<double> medians = medians_in_turns({untuned_.get(), kernel.get()}, options_.seconds);
    measured.untuned_seconds = medians[0];
    measured.seconds = medians[1];
  }
  measured_.push_back(measured);
}

double FormContest::untuned_seconds() {
  if (options_.warm) options_.warm();
  return medians_in_turns({untuned_.get()}, options_.seconds).front();
}

bool FormContest::agrees(const HostTensor& result) const {
  double largest = 1e-6;
  for (std::int64_t i = 0; i < expected_.size(); ++i) largest = std::max(largest, std::abs(expected_.number(i)));
  for (std::int64_t i = 0; i < expected_.size(); ++i)
    if (!(std::abs(result.number(i) - expected_.number(i)) <= options_.tolerance * largest)) return false;  // also NaN
  return true;
}

}  // namespace jerboa::detail
