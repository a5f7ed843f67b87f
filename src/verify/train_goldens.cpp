#include "verify/train_goldens.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>

#include <jerboa/base/error.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

namespace jerboa {
namespace {

constexpr double learning_rate = 1e-3;

// The relative rounding error of a typical gradient. In mixed precision each product rounds its operands and its result
// to f16, by up to 2^-11, and a gradient depends on some sixteen of them in a model of two layers.
double rounding_of(Precision precision) {
  return precision == Precision::full ? std::numeric_limits<float>::epsilon() : std::ldexp(16, -11);
}

double root_mean_square(const std::vector<double>& values) {
  const double squares = std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
  return values.empty() ? 0 : std::sqrt(squares / static_cast<double>(values.size()));
}

std::vector<double> f32_numbers(const HostTensor& tensor) {
  const auto values = tensor.f32();
  return {values.begin(), values.end()};
}

class TrainGoldens {
 public:
  TrainGoldens(const std::filesystem::path& folder, Device device, const Tolerance& tolerance, Precision precision)
      : golden_(SafeTensors::open(folder / "train.safetensors")),
        config_(models::Config::open(folder)),
        family_(models::family_of(config_)),
        weights_(SafeTensors::open(folder)),
        device_(std::move(device)),
        tolerance_(tolerance),
        precision_(precision) {
    models::check_layers(weights_, config_, family_);
    const auto& shape = golden_.view("ids").shape;
    if (shape.size() != 3 || shape[0] < 1 || shape[2] < 2)
      throw FileError(
          fmt::format("{}: ids is {}, not [steps, batch, time + 1]", golden_.path().string(), to_string(Sizes(shape))));
    if (golden_.view("losses").shape != std::vector<std::int64_t>{shape[0]})
      throw FileError(fmt::format("{}: losses is {}, not one loss for each of the {} steps", golden_.path().string(),
                                  to_string(Sizes(golden_.view("losses").shape)), shape[0]));
    steps_ = shape[0];
    batch_ = shape[1];
    time_ = shape[2] - 1;
    find_noise();
  }

  std::vector<CaseReport> run() {
    Module module = compile_step();
    module.session().upload_params(models::read_params(weights_, module.ir(), family_));
    std::vector<double> losses;
    for (std::int64_t step = 0; step < steps_; ++step) {
      losses.push_back(module.step(batch(step)).loss());
      if (step == 0) check_all("grad", module.session().download_param_grads(), &TrainGoldens::gradient_error);
    }
    const auto wanted = to_f64(golden_.view("losses"));
    check("losses", difference(losses, wanted, tolerance_for(wanted)));
    check_all(fmt::format("after{}", steps_), module.session().download_params(), &TrainGoldens::param_error);
    return std::move(reports_);
  }

 private:
  using Error = std::optional<std::string>;

  Module compile_step() const {
    const InputSpecs specs{{"ids", {batch_, time_}, DType::i32}, {"targets", {batch_, time_}, DType::i32}};
    const auto loss = [&](const Inputs& in) {
      return mean(cross_entropy(family_.logits(config_, {.tensors = {{"ids", in["ids"]}}}), in["targets"]));
    };
    const AdamW optimizer{.lr = learning_rate,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .weight_decay = 0.1,
                          .decay = [](const std::string&) { return true; }};
    const auto graph = training_graph(specs, loss, optimizer, {}, {.precision = precision_});
    models::check_params(weights_, graph, family_);  // before allocating what config.json asks for
    return compile(graph, {.device = device_});
  }

  // Inputs and targets of a step: all tokens but the last, and all but the first.
  TensorMap batch(std::int64_t step) const {
    const auto all = to_i32(golden_.view("ids"));
    HostTensor ids(DType::i32, {batch_, time_}), targets = ids;
    for (std::int64_t row = 0; row < batch_; ++row) {
      const auto from = all.begin() + (step * batch_ + row) * (time_ + 1);
      std::copy_n(from, time_, ids.as<std::int32_t>().begin() + row * time_);
      std::copy_n(from + 1, time_, targets.as<std::int32_t>().begin() + row * time_);
    }
    return {{"ids", std::move(ids)}, {"targets", std::move(targets)}};
  }

  // In mixed precision errors are relative to a tensor's typical value: where large terms cancel, their errors remain.
  Tolerance tolerance_for(const std::vector<double>& golden) const {
    if (precision_ == Precision::full) return tolerance_;
    const double rounding = rounding_of(precision_);
    return {rounding, 2 * rounding * root_mean_square(golden), rounding};
  }

  // Some gradients are mathematically zero but rounding noise in the file: a bias of GPT-2's keys shifts all scores of
  // a query equally, which does not change the softmax. No engine can match noise. Noise is any nonzero value below f32
  // precision of the model's typical gradient; the smallest real gradients are larger. An exact zero, like that of a
  // token that did not occur, is not noise.
  void find_noise() {
    std::vector<double> all;
    for (const std::string& name : golden_.names()) {
      if (!name.starts_with("grad/")) continue;
      const auto values = to_f64(golden_.view(name));
      all.insert(all.end(), values.begin(), values.end());
    }
    noise_ = rounding_of(precision_) * root_mean_square(all);
  }

  bool is_noise(double gradient) const { return gradient != 0 && std::abs(gradient) < noise_; }

  void check(const std::string& name, const Error& error) { reports_.push_back({name, !error, error.value_or("")}); }

  // Compares each computed tensor with its golden, and each golden with its computed tensor.
  void check_all(const std::string& kind, const TensorMap& computed,
                 Error (TrainGoldens::*error)(const std::string&, std::vector<double>) const) {
    for (const auto& [name, tensor] : computed) {
      const std::string full = fmt::format("{}/{}", kind, name);
      if (!golden_.contains(full))
        check(full, "the file has no golden for this parameter");
      else if (golden_.view(full).shape != tensor.shape())
        check(full,
              fmt::format("{} instead of {}", to_string(tensor.shape()), to_string(Sizes(golden_.view(full).shape))));
      else
        check(full, (this->*error)(name, f32_numbers(tensor)));
    }
    for (const std::string& full : golden_.names())
      if (full.starts_with(kind + "/") && !computed.contains(full.substr(kind.size() + 1)))
        check(full, "the model has no such parameter");
  }

  std::vector<double> golden_of(const std::string& kind, const std::string& name) const {
    return to_f64(golden_.view(fmt::format("{}/{}", kind, name)));
  }

  Error gradient_error(const std::string& name, std::vector<double> computed) const {
    const auto golden = golden_of("grad", name);
    const double small = precision_ == Precision::full ? tolerance_.absolute : noise_;
    for (std::size_t i = 0; i < golden.size(); ++i)
      if (is_noise(golden[i]) && std::abs(computed[i]) < small) computed[i] = golden[i];
    return difference(computed, golden, tolerance_for(golden));
  }

  // Adam divides a gradient by its magnitude, so the relative rounding error of a small gradient becomes that of the
  // whole step: a gradient of 1e-8 among others of 1e-2 is the remainder of a cancelling sum, accurate to a digit or
  // two in f32. On engines that round, each value may therefore be off by the fraction of its steps that is rounding,
  // which is negligible for a typical gradient. The f64 reference does not round and gets no such tolerance.
  Error param_error(const std::string& name, std::vector<double> computed) const {
    const auto golden = golden_of(fmt::format("after{}", steps_), name);
    auto gradient = golden_.contains("grad/" + name) ? golden_of("grad", name) : std::vector<double>();
    gradient.resize(golden.size(), 0);
    const double unit = device_.name() == "reference64" ? 0 : rounding_of(precision_);
    const double rounding = 2 * unit * root_mean_square(gradient);
    for (std::size_t i = 0; i < golden.size(); ++i) {
      // A token that did not occur in the first step may have a small gradient in a later one, which the file lacks.
      const bool later = gradient[i] == 0 && precision_ != Precision::full;
      if (gradient[i] == 0 && !later) continue;
      const double share = later || is_noise(gradient[i]) ? 1 : std::min(1.0, unit + rounding / std::abs(gradient[i]));
      const double reach = 2 * learning_rate * static_cast<double>(steps_) * share;  // both may be off, either way
      if (std::abs(computed[i] - golden[i]) <= reach) computed[i] = golden[i];
    }
    return difference(computed, golden, tolerance_);
  }

  SafeTensors golden_;
  models::Config config_;
  const models::Family& family_;
  SafeTensors weights_;
  Device device_;
  Tolerance tolerance_;
  Precision precision_;
  std::int64_t steps_ = 0, batch_ = 0, time_ = 0;
  double noise_ = 0;
  std::vector<CaseReport> reports_;
};

}  // namespace

std::vector<CaseReport> verify_train_goldens(const std::filesystem::path& folder, const Device& device,
                                             const Tolerance& tolerance, Precision precision) {
  return TrainGoldens(folder, device, tolerance, precision).run();
}

}  // namespace jerboa
