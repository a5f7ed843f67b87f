#include "models/recurrent.h"

#include <fmt/format.h>
#include <functional>

#include <jerboa/base/error.h>

#include "base/parse_json.h"

namespace jerboa::models {

Tensor causal_convolution(const Decoder& decoder, int layer, const std::string& name, const Tensor& x, int taps,
                          bool bias) {
  const Dim channels = x.dim(-1);
  const Tensor weight = reshape(decoder.weight(name + ".weight", {channels, 1, taps}), {channels, taps});
  const auto before = decoder.caches().recurrent(layer, "conv", {taps - 1, channels});
  const Recurrent result = causal_conv1d(x, weight, before);
  decoder.caches().set_recurrent(before, result);
  return bias ? result.y + decoder.vector(name + ".bias", {channels}, 0) : result.y;
}

Tensor read_memory(const Decoder& decoder, int layer, const MemoryAccess& access) {
  const Shape shape{access.v.dim(2), access.k.dim(3), access.v.dim(3)};
  const auto before = decoder.caches().recurrent(layer, "memory", shape);
  const Operand beta = access.beta ? Operand(access.beta) : Operand();
  const Recurrent result = linear_attention(access.q, access.k, access.v, access.log_decay, beta, before);
  decoder.caches().set_recurrent(before, result);
  return result.y;
}

std::vector<bool> attending_layers(const Config& config, const std::function<bool(int layer)>& rule,
                                   const std::string& key) {
  const int layers = config.count("num_hidden_layers");
  std::vector<bool> attending;
  if (!config.has(key)) {
    for (int layer = 0; layer < layers; ++layer) attending.push_back(rule(layer));
    return attending;
  }
  for (const std::string& type : config.texts(key)) {
    const bool attends = type == "full_attention" || type == "attention";
    if (!attends && type != "linear_attention" && type != "mamba" && type != "conv")
      throw FileError(fmt::format("{}: unknown entry {} in {}", config.origin(), in_quotes(type), key));
    attending.push_back(attends);
  }
  if (attending.size() != static_cast<std::size_t>(layers))
    throw FileError(fmt::format("{}: {} {} for {} layers", config.origin(), attending.size(), key, layers));
  return attending;
}

}  // namespace jerboa::models
