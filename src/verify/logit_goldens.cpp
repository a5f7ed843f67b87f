#include "verify/logit_goldens.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

#include <jerboa/base/error.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/models/family.h>

namespace jerboa {
namespace {

class LogitGoldens {
 public:
  LogitGoldens(const std::filesystem::path& folder, Device device)
      : golden_(SafeTensors::open(folder / "golden.safetensors")),
        config_(models::Config::open(folder)),
        family_(models::family_of(config_)),
        weights_(SafeTensors::open(folder)),
        device_(std::move(device)) {}

  std::vector<CaseReport> run() const {
    const HostTensor logits = logits_of(ids("input_ids"));
    const auto computed = logits.f32();
    const auto golden = to_f64(golden_.view("logits"));
    const auto wrong = difference(std::vector<double>(computed.begin(), computed.end()), golden, tolerance_for(golden));
    return {{"logits", !wrong, wrong.value_or("")}, greedy(ids("input_ids").shape().at(1))};
  }

 private:
  // A logit near zero is a sum that cancels, so every error is held against the size of a typical one.
  static Tolerance tolerance_for(const std::vector<double>& golden) {
    const double squares = std::inner_product(golden.begin(), golden.end(), golden.begin(), 0.0);
    return {.relative = 0, .absolute = 1e-4 * std::sqrt(squares / static_cast<double>(golden.size())), .norm = 1e-4};
  }

  HostTensor ids(const std::string& name) const {
    const TensorView& view = golden_.view(name);
    if (view.shape.size() != 2)
      throw FileError(fmt::format("{}: {} is not [batch, time]", golden_.path().string(), name));
    return {view.shape, to_i32(view)};
  }

  HostTensor logits_of(const HostTensor& ids) const {
    const InputSpecs specs{{"ids", to_shape(ids.shape()), DType::i32}};
    Module module =
        compile(forward_graph(specs, [&](const Inputs& in) { return family_.logits(config_, {.ids = in["ids"]}); }),
                {.device = device_});
    module.session().upload_params(models::read_params(weights_, module.ir(), family_));
    return module.run({{"ids", ids}}).get("output");
  }

  // Each token after the prompt must be the likeliest after those before it, which is what greedy decoding means.
  CaseReport greedy(std::int64_t prompt) const {
    const HostTensor tokens = ids("greedy");
    const HostTensor logits = logits_of(tokens);
    const std::int64_t time = tokens.shape()[1], vocabulary = logits.shape()[2];
    for (std::int64_t row = 0; row < tokens.shape()[0]; ++row)
      for (std::int64_t t = prompt; t < time; ++t) {
        const auto scores = logits.f32().subspan(static_cast<std::size_t>((row * time + t - 1) * vocabulary),
                                                 static_cast<std::size_t>(vocabulary));
        const auto likeliest = std::max_element(scores.begin(), scores.end()) - scores.begin();
        const auto wanted = tokens.i32()[static_cast<std::size_t>(row * time + t)];
        if (likeliest != wanted)
          return {"greedy", false, fmt::format("token {} is {} instead of {}", t, likeliest, wanted)};
      }
    return {"greedy", true, {}};
  }

  SafeTensors golden_;
  models::Config config_;
  const models::Family& family_;
  SafeTensors weights_;
  Device device_;
};

}  // namespace

std::vector<CaseReport> verify_logit_goldens(const std::filesystem::path& folder, const Device& device) {
  return LogitGoldens(folder, device).run();
}

}  // namespace jerboa
