#include "runtime/form_contest.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace jerboa::detail {
namespace {

// Forms that are less than this much faster are not worth an entry: measurements vary by as much.
constexpr double worthwhile = 0.97;
constexpr std::size_t least_samples = 3, most_samples = 15;

// The median of what each of some products takes, in turns.
std::vector<double> medians_in_turns(const std::vector<CompiledProduct*>& products, double seconds) {
  for (CompiledProduct* product : products) product->run();  // the first run of a kernel takes longer
  std::vector<std::vector<double>> samples(products.size());
  const double end = steady_seconds() + seconds;
  for (std::size_t turn = 0; turn < least_samples || (steady_seconds() < end && turn < most_samples); ++turn)
    for (std::size_t i = 0; i < products.size(); ++i) samples[i].push_back(products[i]->run());
  std::vector<double> medians;
  for (std::vector<double>& of_product : samples) {
    const auto middle = of_product.begin() + static_cast<std::ptrdiff_t>(of_product.size() / 2);
    std::nth_element(of_product.begin(), middle, of_product.end());
    medians.push_back(*middle);
  }
  return medians;
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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

FormContest::FormContest(std::unique_ptr<CompiledProduct> untuned, Options options)
    : untuned_(std::move(untuned)), options_(std::move(options)), expected_(untuned_->result()) {}

void FormContest::measure(const wgsl::ProductForm& form, std::unique_ptr<CompiledProduct> product) {
  MeasuredForm measured{form, agrees(product->result())};
  if (measured.agrees) {
    if (options_.warm) options_.warm();
    const std::vector<double> medians = medians_in_turns({untuned_.get(), product.get()}, options_.seconds);
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
