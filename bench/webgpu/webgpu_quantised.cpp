// Which form of a product of one row with int8 or int4 weights is fastest on a GPU: times each for some sizes, with
// weights too large for any cache, and checks some results.
//   webgpu_quantised [ADAPTER [COLUMNSxINNER[_i8]]...]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <regex>

#include <jerboa/backend/webgpu.h>
#include <jerboa/jerboa.h>
#include <jerboa/lower/lower.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "emit_with.h"
#include "wgsl/product/form.h"
#include "wgsl/product/quantised.h"

namespace jerboa {
namespace {

using wgsl::QuantisedForm;

struct Size {
  std::int64_t columns, inner;
  DType dtype = DType::i4;

  double bytes() const {
    const double groups = static_cast<double>(columns * inner) / quantised_group;
    return groups * (bits(dtype) * quantised_group / 8.0 + (dtype == DType::i4 ? 4 : 2));
  }
  int copies() const { return static_cast<int>(std::clamp(300e6 / bytes(), 2.0, 24.0)); }
  std::string text() const { return fmt::format("{}x{} {}", columns, inner, name(dtype)); }
};

Size parse(const std::string& text) {
  static const std::regex form("([0-9]+)x([0-9]+)(_i8)?");
  std::smatch found;
  if (!std::regex_match(text, found, form))
    throw UsageError(text + " is not a size such as 14336x4096 or 4096x4096_i8");
  return {std::stoll(found[1]), std::stoll(found[2]), found[3].matched ? DType::i8 : DType::i4};
}

std::string numbered(const char* name, int i) { return fmt::format("{}{}", name, i); }

Graph products(const Size& size) {
  return trace([&] {
    const Tensor x = param_input("x", {1, size.inner});
    const Shape groups{size.columns, size.inner / quantised_group};
    for (int i = 0; i < size.copies(); ++i) {
      const auto param = [&](const char* name, const Shape& shape, DType dtype) {
        return param_input(numbered(name, i), shape, {.trainable = false, .dtype = dtype});
      };
      const Tensor weight = param("w", {size.columns, size.inner}, size.dtype), scales = param("s", groups, DType::f16);
      output(numbered("y", i), size.dtype == DType::i4
                                   ? matmul_quantised(x, weight, scales, param("m", groups, DType::f16))
                                   : matmul_quantised(x, weight, scales));
    }
  });
}

class Contest {
 public:
  Contest(Backend& backend, const Size& size) : backend_(backend), size_(size), x_(DType::f32, {1, size.inner}) {
    SplitMix random(1);
    for (std::int64_t i = 0; i < x_.size(); ++i) x_.set_number(i, random.uniform() - 0.5);
    for (std::byte& byte : weight_.bytes()) byte = static_cast<std::byte>(random.below(255) + 1);
    for (HostTensor* part : {&scales_, &mins_})
      for (std::int64_t i = 0; i < part->size(); ++i) part->set_number(i, 0.01 * (random.uniform() + 0.1));
    put("x", x_);
    for (int i = 0; i < size.copies(); ++i) {
      put(numbered("w", i), weight_);
      put(numbered("s", i), scales_);
      if (size.dtype == DType::i4) put(numbered("m", i), mins_);
    }
  }

  // With no form, the default one is used.
  void add(const std::string& label, const std::optional<QuantisedForm>& form) {
    const Target& target = webgpu_target(backend_);
    Program program = lower(products(size_), target);
    if (form)
      emit_with(program, target,
                [&](wgsl::KernelWriter& writer) { wgsl::write_quantised(writer, wgsl::MatmulProblem(writer), *form); });
    else
      emit_wgsl(program, target);
    entrants_.push_back({label, backend_.load(program, [&](const std::string& name) { return storage_.at(name); })});
  }

  void run() {
    fmt::print("{}, {:.1f} MB, {} copies\n", size_.text(), size_.bytes() * 1e-6, size_.copies());
    warm(*entrants_[0].executable, 1000);  // the clock drops while the host compiles
    for (const Entrant& entrant : entrants_) {
      warm(*entrant.executable, 100);
      std::vector<double> samples;
      for (int i = 0; i < 7; ++i) samples.push_back(seconds(*entrant.executable));
      std::sort(samples.begin(), samples.end());
      const double median = samples[samples.size() / 2];
      const double together = seconds_among_others(*entrant.executable);
      fmt::print("  {:<44} {:>7.2f} us; in a row {:>7.2f} us, {:>5.2f} TB/s, {:>5.2f} T weights/s; error {:.1e}\n",
                 entrant.label, median * 1e6, together * 1e6, size_.bytes() / together * 1e-12,
                 static_cast<double>(size_.columns * size_.inner) / together * 1e-12, error(*entrant.executable));
      std::fflush(stdout);
    }
  }

 private:
  struct Entrant {
    std::string label;
    std::unique_ptr<Executable> executable;
  };

  void put(const std::string& name, const HostTensor& values) {
    storage_[name] = backend_.allocate(values.dtype(), values.shape(), name);
    storage_.at(name)->upload(values);
  }

  std::unique_ptr<RunResults> start(Executable& executable) const { return executable.run({inputs_, symbols_, {}}); }

  void warm(Executable& executable, int milliseconds) const {
    if (webgpu_target(backend_).software) return;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    while (std::chrono::steady_clock::now() < end) {
      for (int i = 0; i < 20; ++i) start(executable);
      start(executable)->read("y0");
    }
  }

  double seconds(Executable& executable) const {
    executable.set_profiling(true);
    start(executable)->read("y0");
    double total = 0;
    for (const KernelTime& time : executable.profile()) total += time.seconds;
    executable.set_profiling(false);
    return total / size_.copies();
  }

  // Without profiling, in many consecutive runs: the time of a product among others.
  double seconds_among_others(Executable& executable) const {
    constexpr int runs = 30;
    start(executable)->read("y0");
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 1; i < runs; ++i) start(executable);
    start(executable)->read("y0");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / runs / size_.copies();
  }

  // The largest of some results' errors, relative to the largest result.
  double error(Executable& executable) const {
    const HostTensor y = start(executable)->read("y0");
    double largest = 0, worst = 0;
    for (std::int64_t column = 0; column < size_.columns; column += std::max<std::int64_t>(size_.columns / 37, 1)) {
      double sum = 0;
      for (std::int64_t k = 0; k < size_.inner; ++k) {
        const std::int64_t at = column * size_.inner + k;
        const double min = size_.dtype == DType::i4 ? mins_.number(at / quantised_group) : 0;
        sum += x_.number(k) * (weight_.number(at) * scales_.number(at / quantised_group) + min);
      }
      largest = std::max(largest, std::abs(sum));
      worst = std::max(worst, std::abs(sum - y.number(column)));
    }
    return worst / largest;
  }

  Backend& backend_;
  Size size_;
  HostTensor x_, weight_{size_.dtype, {size_.columns, size_.inner}};
  HostTensor scales_{DType::f16, {size_.columns, size_.inner / quantised_group}}, mins_ = scales_;
  std::map<std::string, std::shared_ptr<DeviceTensor>> storage_;
  TensorMap inputs_;
  SymbolValues symbols_;
  std::vector<Entrant> entrants_;
};

// Teams of different sizes, and different numbers of results.
std::vector<QuantisedForm> forms_for(const Size& size, const Target& target) {
  std::vector<QuantisedForm> forms;
  const int groups = static_cast<int>(size.inner / quantised_group);
  for (const int most : {128, 256, 512}) {
    if (most > target.max_invocations) continue;
    QuantisedForm form;
    form.halves = size.dtype == DType::i4 && target.f16;
    form.steps = (groups + most - 1) / most;
    if (form.steps > 4) continue;
    form.team = ((groups + form.steps - 1) / form.steps + 31) / 32 * 32;
    for (const int threads : {128, 256}) {
      form.teams = std::max(1, threads / form.team);
      for (const int results : {4, 8, 16, 32}) {
        form.results = results;
        if (std::find(forms.begin(), forms.end(), form) == forms.end()) forms.push_back(form);
      }
    }
  }
  return forms;
}

int run(int argc, char** argv) {
  const Device device = Device::webgpu({.adapter = argc > 1 ? argv[1] : ""});
  Backend& backend = device.backend();
  const Target& target = webgpu_target(backend);
  fmt::print("{}, subgroups of {}, f16 {}\n", device.name(), target.subgroup_size, target.f16);
  std::vector<Size> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(parse(argv[i]));
  if (sizes.empty())
    sizes = {{4096, 4096}, {1024, 4096}, {14336, 4096}, {4096, 14336}, {128256, 4096}, {14336, 4096, DType::i8}};
  for (const Size& size : sizes) {
    Contest contest(backend, size);
    contest.add("by default", {});
    for (const QuantisedForm& form : forms_for(size, target))
      contest.add(fmt::format("{} x {} threads, {} steps, {} results{}", form.teams, form.team, form.steps,
                              form.results, form.halves ? ", f16" : ""),
                  form);
    contest.run();
  }
  return 0;
}

}  // namespace
}  // namespace jerboa

int main(int argc, char** argv) {
  try {
    return jerboa::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "webgpu_quantised: %s\n", error.what());
    return 1;
  }
}
