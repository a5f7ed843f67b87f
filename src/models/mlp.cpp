#include "models/mlp.h"

namespace jerboa::models {

Tensor gated_mlp(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x,
                 const std::string& key) {
  const int inner = config.size("intermediate_size");
  const bool bias = config.flag("mlp_bias", false);
  const Tensor gate = activation(config, key, decoder.linear(name + ".gate_proj", x, inner, bias));
  const Tensor up = decoder.linear(name + ".up_proj", x, inner, bias);
  return decoder.linear(name + ".down_proj", gate * up, config.size("hidden_size"), bias);
}

Tensor gated_mlp_of(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x, int inner,
                    const std::string& key) {
  const Tensor gate = activation(config, key, decoder.linear(name + ".gate_proj", x, inner, false));
  const Tensor up = decoder.linear(name + ".up_proj", x, inner, false);
  return decoder.linear(name + ".down_proj", gate * up, static_cast<int>(x.dim(-1).value()), false);
}

Tensor fused_gated_mlp(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x) {
  const auto [gate, up] =
      split<2>(decoder.linear(name + ".gate_up_proj", x, 2 * config.size("intermediate_size"), false));
  return decoder.linear(name + ".down_proj", activation(config, "hidden_act", gate) * up, config.size("hidden_size"),
                        false);
}

Tensor plain_mlp(const Decoder& decoder, const Config& config, const PlainMlp& form, const std::string& name,
                 const Tensor& x) {
  const int inner = form.inner > 0 ? form.inner : config.size("intermediate_size");
  const int width = static_cast<int>(x.dim(-1).value());
  const Tensor up = decoder.linear(name + "." + form.up, x, inner, form.bias);
  return decoder.linear(name + "." + form.down, activation(config, form.activation, up), width, form.bias);
}

}  // namespace jerboa::models
