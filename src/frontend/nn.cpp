#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include <jerboa/frontend/model.h>
#include <jerboa/frontend/nn.h>

namespace jerboa::nn {
namespace {

void check_sizes(const std::string& owner, std::initializer_list<int> sizes, const CallSite& site) {
  for (const int size : sizes)
    if (size < 0) throw UsageError(fmt::format("{}: a size is negative ({})", owner, site.str()));
}

Init fan_in(double count) { return Init::uniform(1 / std::sqrt(std::max(count, 1.0))); }

Parameter make(const std::string& owner, const CallSite& site, Shape shape, Init init, bool decay, DType dtype) {
  if (!is_float(dtype))
    throw UsageError(fmt::format("{}: parameters are f32, f16 or bf16, not {} ({})", owner, name(dtype), site.str()));
  Parameter parameter;
  parameter.dtype = dtype;
  parameter.shape = std::move(shape);
  parameter.init = init;
  parameter.decay = decay;
  parameter.owner = owner;
  parameter.site = site;
  return parameter;
}

// The module of "blocks.0.qkv.weight" is blocks.0.qkv; a module that is the whole model has no name.
std::string module_of(const Parameter& weight) {
  const auto dot = weight.path.rfind('.');
  return dot == std::string::npos ? "" : weight.path.substr(0, dot);
}

// In its scope, errors name the module and the line that calls it.
class CallScope {
 public:
  CallScope(const Operand& x, const Parameter& weight) : site_(x.site()), module_(module_of(weight)) {}

 private:
  SiteScope site_;
  ModuleScope module_;
};

Tensor named_after(const Tensor& result, const Parameter& weight) {
  const std::string module = module_of(weight);
  return result.named(module.empty() ? weight.path + "_out" : module);
}

// A parameter cast to the type that the module computes in: that of its input.
Operand in_type_of(const Operand& x, const Parameter& parameter) {
  const Operand operand(parameter);
  if (x.is_number() || x.is_absent()) return operand;
  const DType dtype = x.tensor().dtype();
  return is_float(dtype) ? Operand(cast(operand, dtype)) : operand;
}
Operand in_type_of(const Operand& x, const std::optional<Parameter>& parameter) {
  return parameter ? in_type_of(x, *parameter) : Operand();
}

}  // namespace

Linear::Linear(int in, int out, LinearOptions options, const char* file, int line) {
  const CallSite site{file, line};
  const std::string owner = fmt::format("nn::Linear({}, {})", in, out);
  check_sizes(owner, {in, out}, site);
  weight = make(owner, site, {out, in}, options.init.value_or(fan_in(in)), true, options.dtype);
  if (options.bias) bias = make(owner, site, {out}, options.init ? Init::zeros() : fan_in(in), false, options.dtype);
}

Tensor Linear::operator()(Operand x) const {
  const CallScope scope(x, weight);
  const Tensor product = matmul(x, in_type_of(x, weight), {.transpose_b = true});
  return named_after(bias ? product + in_type_of(x, *bias) : product, weight);
}

Embedding::Embedding(int count, int width, Init init, const char* file, int line)
    : Embedding(count, width, EmbeddingOptions{.init = init}, file, line) {}

Embedding::Embedding(int count, int width, EmbeddingOptions options, const char* file, int line) {
  const CallSite site{file, line};
  const std::string owner = fmt::format("nn::Embedding({}, {})", count, width);
  check_sizes(owner, {count, width}, site);
  weight = make(owner, site, {count, width}, options.init, true, options.dtype);
}

Tensor Embedding::operator()(Operand ids) const {
  const CallScope scope(ids, weight);
  return named_after(embedding(weight, ids), weight);
}

Tensor Embedding::logits(Operand x) const {
  const CallScope scope(x, weight);
  return matmul(x, in_type_of(x, weight), {.transpose_b = true});
}

LayerNorm::LayerNorm(int width, double epsilon, const char* file, int line)
    : LayerNorm(width, NormOptions{.eps = epsilon}, file, line) {}

LayerNorm::LayerNorm(int width, NormOptions options, const char* file, int line) : eps(options.eps.value_or(1e-5)) {
  const CallSite site{file, line};
  const std::string owner = fmt::format("nn::LayerNorm({})", width);
  check_sizes(owner, {width}, site);
  weight = make(owner, site, {width}, Init::ones(), false, options.dtype);
  bias = make(owner, site, {width}, Init::zeros(), false, options.dtype);
}

Tensor LayerNorm::operator()(Operand x) const {
  const CallScope scope(x, weight);
  const Operand scale = in_type_of(x, weight), shift = in_type_of(x, bias);
  return named_after(layer_norm(x, scale, shift, eps), weight);
}

RMSNorm::RMSNorm(int width, double epsilon, const char* file, int line)
    : RMSNorm(width, NormOptions{.eps = epsilon}, file, line) {}

RMSNorm::RMSNorm(int width, NormOptions options, const char* file, int line) : eps(options.eps.value_or(1e-6)) {
  const CallSite site{file, line};
  const std::string owner = fmt::format("nn::RMSNorm({})", width);
  check_sizes(owner, {width}, site);
  weight = make(owner, site, {width}, Init::ones(), false, options.dtype);
}

Tensor RMSNorm::operator()(Operand x) const {
  const CallScope scope(x, weight);
  return named_after(rms_norm(x, in_type_of(x, weight), eps), weight);
}

Tensor Dropout::operator()(Operand x) const {
  const SiteScope scope(x.site());
  const Tensor input = x.tensor();
  if (!(rate >= 0 && rate < 1)) throw UsageError(fmt::format("nn::Dropout: a rate of {} is not in [0, 1)", rate));
  if (rate == 0 || !current_graph("nn::Dropout", x.site()).training) return input;
  const Tensor kept = random_uniform(input.shape()) >= rate;
  return where(kept, input / (1 - rate), 0);
}

Conv1d::Conv1d(int in, int out, int kernel, ConvOptions options, const char* file, int line)
    : attrs{options.stride, options.padding, options.dilation, options.groups} {
  const CallSite site{file, line};
  const std::string owner = fmt::format("nn::Conv1d({}, {}, {})", in, out, kernel);
  check_sizes(owner, {in, out, kernel, options.groups - 1}, site);
  const int channels = in / options.groups;
  weight = make(owner, site, {out, channels, kernel}, fan_in(channels * kernel), true, options.dtype);
  if (options.bias) bias = make(owner, site, {out}, fan_in(channels * kernel), false, options.dtype);
}

Tensor Conv1d::operator()(Operand x) const {
  const CallScope scope(x, weight);
  const Operand kernel = in_type_of(x, weight), shift = in_type_of(x, bias);
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
  weight = make(owner, site, {out, channels, kernel, kernel}, fan_in(channels * kernel * kernel), true, options.dtype);
  if (options.bias) bias = make(owner, site, {out}, fan_in(channels * kernel * kernel), false, options.dtype);
}

Tensor Conv2d::operator()(Operand x) const {
  const CallScope scope(x, weight);
  const Operand kernel = in_type_of(x, weight), shift = in_type_of(x, bias);
  return named_after(conv2d(x, kernel, shift, attrs), weight);
}

}  // namespace jerboa::nn

namespace jerboa {

void detail::throw_listed_twice(const std::string& path, const Parameter& parameter) {
  throw UsageError(fmt::format("JERBOA_FIELDS lists a field twice: {}{}{}", path,
                               parameter.owner.empty() ? "" : " of " + parameter.owner,
                               parameter.site.line > 0 ? " (" + parameter.site.str() + ")" : ""));
}

}  // namespace jerboa
