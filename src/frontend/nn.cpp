#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include <jerboa/frontend/nn.h>

namespace jerboa::nn {
namespace {

void check_sizes(const std::string& owner, std::initializer_list<int> sizes, const CallSite& site) {
  for (const int size : sizes)
    if (size < 0) throw UsageError(fmt::format("{}: a size is negative ({})", owner, site.str()));
}

Init fan_in(double count) { return Init::uniform(1 / std::sqrt(std::max(count, 1.0))); }

Parameter make(const std::string& owner, const CallSite& site, Shape shape, Init init, bool decay) {
  Parameter parameter;
  parameter.shape = std::move(shape);
  parameter.init = init;
  parameter.decay = decay;
  parameter.owner = owner;
  parameter.site = site;
  return parameter;
}

// "blocks.0.qkv.weight" names its module's result blocks.0.qkv.
Tensor named_after(const Tensor& result, const Parameter& weight) {
  const auto dot = weight.path.rfind('.');
  return result.named(dot == std::string::npos ? weight.path + "_out" : weight.path.substr(0, dot));
}

Operand maybe(const std::optional<Parameter>& parameter) { return parameter ? Operand(*parameter) : Operand(); }

}  // namespace

Linear::Linear(int in, int out, LinearOptions options, const char* file, int line) {
  const CallSite site{file, line};
  const std::string owner = fmt::format("nn::Linear({}, {})", in, out);
  check_sizes(owner, {in, out}, site);
  weight = make(owner, site, {out, in}, options.init.value_or(fan_in(in)), true);
  if (options.bias) bias = make(owner, site, {out}, options.init ? Init::zeros() : fan_in(in), false);
}

Tensor Linear::operator()(Operand x) const {
  const SiteScope scope(x.site());
  const Tensor product = matmul(x, weight, {.transpose_b = true});
  return named_after(bias ? product + *bias : product, weight);
}

Embedding::Embedding(int count, int width, Init init, const char* file, int line) {
  const CallSite site{file, line};
  const std::string owner = fmt::format("nn::Embedding({}, {})", count, width);
  check_sizes(owner, {count, width}, site);
  weight = make(owner, site, {count, width}, init, true);
}

Tensor Embedding::operator()(Operand ids) const {
  const SiteScope scope(ids.site());
  return named_after(embedding(weight, ids), weight);
}

Tensor Embedding::logits(Operand x) const {
  const SiteScope scope(x.site());
  return matmul(x, weight, {.transpose_b = true});
}

LayerNorm::LayerNorm(int width, double epsilon, const char* file, int line) : eps(epsilon) {
  const CallSite site{file, line};
  const std::string owner = fmt::format("nn::LayerNorm({})", width);
  check_sizes(owner, {width}, site);
  weight = make(owner, site, {width}, Init::ones(), false);
  bias = make(owner, site, {width}, Init::zeros(), false);
}

Tensor LayerNorm::operator()(Operand x) const {
  const SiteScope scope(x.site());
  // A parameter enters the graph as it becomes an operand.
  const Operand scale(weight), shift(bias);
  return named_after(layer_norm(x, scale, shift, eps), weight);
}

RMSNorm::RMSNorm(int width, double epsilon, const char* file, int line) : eps(epsilon) {
  const CallSite site{file, line};
  const std::string owner = fmt::format("nn::RMSNorm({})", width);
  check_sizes(owner, {width}, site);
  weight = make(owner, site, {width}, Init::ones(), false);
}

Tensor RMSNorm::operator()(Operand x) const {
  const SiteScope scope(x.site());
  return named_after(rms_norm(x, weight, eps), weight);
}

Tensor Dropout::operator()(Operand x) const {
  const SiteScope scope(x.site());
  const Tensor own = x.tensor();
  if (!(rate >= 0 && rate < 1)) throw UsageError(fmt::format("nn::Dropout: a rate of {} is not in [0, 1)", rate));
  if (rate == 0 || !current_graph("nn::Dropout", x.site()).training) return own;
  const Tensor kept = random_uniform(own.shape()) >= rate;
  return where(kept, own / (1 - rate), 0);
}

Conv1d::Conv1d(int in, int out, int kernel, ConvOptions options, const char* file, int line)
    : attrs{options.stride, options.padding, options.dilation, options.groups} {
  const CallSite site{file, line};
  const std::string owner = fmt::format("nn::Conv1d({}, {}, {})", in, out, kernel);
  check_sizes(owner, {in, out, kernel, options.groups - 1}, site);
  const int channels = in / options.groups;
  weight = make(owner, site, {out, channels, kernel}, fan_in(channels * kernel), true);
  if (options.bias) bias = make(owner, site, {out}, fan_in(channels * kernel), false);
}

Tensor Conv1d::operator()(Operand x) const {
  const SiteScope scope(x.site());
  const Operand kernel(weight), shift = maybe(bias);
  return named_after(conv1d(x, kernel, shift, attrs), weight);
}

Conv2d::Conv2d(int in, int out, int kernel, ConvOptions options, const char* file, int line)
    : attrs{{options.stride, options.stride},
            {options.padding, options.padding},
            {options.dilation, options.dilation},
            options.groups} {
  const CallSite site{file, line};
  const std::string owner = fmt::format("nn::Conv2d({}, {}, {})", in, out, kernel);
  check_sizes(owner, {in, out, kernel, options.groups - 1}, site);
  const int channels = in / options.groups;
  weight = make(owner, site, {out, channels, kernel, kernel}, fan_in(channels * kernel * kernel), true);
  if (options.bias) bias = make(owner, site, {out}, fan_in(channels * kernel * kernel), false);
}

Tensor Conv2d::operator()(Operand x) const {
  const SiteScope scope(x.site());
  const Operand kernel(weight), shift = maybe(bias);
  return named_after(conv2d(x, kernel, shift, attrs), weight);
}

}  // namespace jerboa::nn
