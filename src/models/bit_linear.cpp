#include "models/bit_linear.h"

#include <algorithm>

namespace jerboa::models {
namespace {

// Scales are reciprocals of values no smaller than this.
constexpr double smallest = 1e-5;

Tensor with_gradient_of(const Tensor& x, const Tensor& rounded) { return x + stop_gradient(rounded - x); }

}  // namespace

Tensor round_activations(const Tensor& x) {
  const Tensor scale = 127.0 / maximum(max(abs(x), {-1}, true), smallest);
  return with_gradient_of(x, clamp(round(x * scale), -128, 127) / scale);
}

Tensor round_weights(const Tensor& weights) {
  const Tensor scale = 1.0 / maximum(mean(abs(weights)), smallest);
  return with_gradient_of(weights, clamp(round(weights * scale), -1, 1) / scale);
}

BitLinear::BitLinear(const Decoder& decoder, const Config& config) : decoder_(decoder), mode_(mode_of(config)) {
  if (mode_ == Mode::plain) return;
  const Config settings = *config.section("quantization_config");
  if (settings.has("modules_to_not_convert")) kept_ = settings.texts("modules_to_not_convert");
  if (settings.flag("use_rms_norm", false)) input_norm_eps_ = norm_epsilon(settings, "rms_norm_eps", 1e-6);
}

BitLinear::Mode BitLinear::mode_of(const Config& config) {
  const auto settings = config.section("quantization_config");
  if (!settings) return Mode::plain;
  const std::string type = settings->text("linear_class", "bitlinear");
  const std::string mode = settings->text("quantization_mode", "offline");
  if (mode != "offline" && mode != "online") settings->fail("quantization_mode", "is not offline or online");
  if (type == "autobitlinear") return mode == "online" ? Mode::online : Mode::multiplied;
  if (type != "bitlinear") settings->fail("linear_class", "is not bitlinear or autobitlinear");
  if (mode == "online") settings->fail("quantization_mode", "needs the linear_class autobitlinear");
  return Mode::divided;
}

bool BitLinear::converts(const std::string& name) const {
  return mode_ != Mode::plain && std::none_of(kept_.begin(), kept_.end(), [&](const std::string& part) {
           return name.find(part) != std::string::npos;
         });
}

Tensor BitLinear::product(const std::string& name, const Tensor& x, int out) const {
  if (mode_ != Mode::online) return decoder_.linear(name, x, out, false);
  const ModuleScope scope(name);
  return matmul(x, round_weights(decoder_.unquantised(name, {out, x.dim(-1)})), {.transpose_b = true}).named(name);
}

Tensor BitLinear::operator()(const std::string& name, const Tensor& x, int out, bool bias) const {
  if (!converts(name)) return decoder_.linear(name, x, out, bias);
  const Tensor normed = input_norm_eps_ > 0 ? decoder_.rms_norm(name + ".rms_norm", x, input_norm_eps_) : x;
  Tensor result = product(name, round_activations(normed), out);
  const auto with_bias = [&](const Tensor& y) { return bias ? y + decoder_.vector(name + ".bias", {out}, 0) : y; };
  switch (mode_) {
    case Mode::multiplied:  // which the bias is too
      return with_bias(result) * stop_gradient(decoder_.vector(name + ".weight_scale", {1}, 1));
    case Mode::divided: return with_bias(result / stop_gradient(decoder_.vector(name + ".weight_scale", {1}, 1)));
    default: return with_bias(result);
  }
}

}  // namespace jerboa::models
