#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "base/parse_json.h"
#include "models/allowed_settings.h"
#include "models/deepseek_experts.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/mamba2_mixer.h"

// Nemotron-H: each layer is a Mamba-2 memory, attention without positions, an MLP or a mixture of experts.
namespace jerboa::models {
namespace {

enum class Block : std::uint8_t { memory, attention, mlp, experts };

Block block_named(const Config& config, const std::string& type) {
  if (type == "linear_attention" || type == "mamba" || type == "M") return Block::memory;
  if (type == "full_attention" || type == "attention" || type == "*") return Block::attention;
  if (type == "mlp" || type == "-") return Block::mlp;
  if (type == "moe" || type == "E") return Block::experts;
  throw FileError(fmt::format("{}: unknown type of layer {}", config.origin(), in_quotes(type)));
}

// Older files have one letter per layer.
std::vector<Block> blocks_of(const Config& config) {
  std::vector<Block> blocks;
  for (const char* key : {"layers_block_type", "layer_types"}) {
    if (!config.has(key)) continue;
    for (const std::string& type : config.texts(key)) blocks.push_back(block_named(config, type));
    return blocks;
  }
  for (const char letter : config.text("hybrid_override_pattern")) blocks.push_back(block_named(config, {letter}));
  return blocks;
}

Mamba2Form nemotron_mamba(const Config& config) {
  Mamba2Form form;
  form.width = config.size("hidden_size");
  form.heads = config.size("mamba_num_heads");
  form.head_size = config.size("mamba_head_dim");
  form.groups = form.norm_groups = config.size("n_groups");
  form.state = config.size("ssm_state_size");
  form.taps = config.size("conv_kernel");
  form.in_bias = form.out_bias = config.flag("use_bias");
  form.conv_bias = config.flag("use_conv_bias");
  form.activation = "mamba_hidden_act";
  form.eps = norm_epsilon(config, "layer_norm_epsilon", 1e-5);
  check_mamba2(config, "mamba_num_heads", form);
  // transformers clamps steps to time_step_limit only in its special kernels, and otherwise to time_step_min.
  for (const char* key : {"time_step_limit", "mamba_dt_limit"})
    if (config.has(key) && config.numbers(key) != std::vector{0.0, std::numeric_limits<double>::infinity()})
      config.fail(key, "is not supported; only a limit from 0 to infinity is");
  form.shortest_step = config.number("time_step_min");
  return form;
}

// Experts without a gate; in some models they read a projection of the tokens.
Tensor nemotron_mixture(const Decoder& decoder, const Config& config, const ExpertsForm& form, const std::string& name,
                        const Tensor& x) {
  const bool bias = config.flag("mlp_bias");
  const Tensor tokens = reshape(x, {-1, x.dim(-1)});
  const TopK routes = route(decoder, form, name, tokens);
  Tensor rows = tokens;
  if (config.has("moe_latent_size"))
    rows = decoder.linear(name + ".fc1_latent_proj", rows, config.size("moe_latent_size"), bias);
  rows = apply_experts(decoder, form, name + ".experts", rows, routes);
  if (config.has("moe_latent_size"))
    rows = decoder.linear(name + ".fc2_latent_proj", rows, static_cast<int>(x.dim(-1).value()), bias);
  const PlainMlp shared{
      .bias = bias, .inner = config.size("moe_shared_expert_intermediate_size"), .activation = "mlp_hidden_act"};
  const Tensor routed = reshape(rows, x.shape());
  return routed + plain_mlp(decoder, config, shared, name + ".shared_experts", x);
}

ExpertsForm nemotron_experts(const Config& config) {
  ExpertsForm form = deepseek_experts(config.with_defaults(R"({"hidden_act": "relu2"})"));
  form.up = "up_proj";
  form.gated = false;
  form.hidden = [config](const Tensor& projected) { return activation(config, "mlp_hidden_act", projected); };
  return form;
}

Config with_nemotron_defaults(const Config& given) {
  const Config renamed = given.with_defaults(
      fmt::format(R"({{"n_groups": {}, "conv_kernel": {}, "use_conv_bias": {}, "time_step_min": {}}})",
                  given.integer("mamba_n_groups", 8), given.integer("mamba_d_conv", 4),
                  given.flag("mamba_conv_bias", true), given.number("mamba_dt_min", 0.001)));
  const Config config = renamed.with_defaults(R"({"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 21504,
      "mlp_hidden_act": "relu2", "mlp_bias": false, "use_bias": false, "ssm_state_size": 128, "mamba_num_heads": 128,
      "mamba_head_dim": 64, "mamba_hidden_act": "silu", "n_routed_experts": 8, "num_experts_per_tok": 2,
      "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688, "layer_norm_epsilon": 1e-5})");
  const auto layers = blocks_of(config).size();
  if (layers == 0 || layers > Config::largest_count)
    throw FileError(fmt::format("{}: {} layers are not from 1 to {}", config.origin(), layers, Config::largest_count));
  if (config.has("sliding_window")) config.fail("sliding_window", "is not supported for this model");
  allow_only(config, R"({"attention_bias": false, "mamba_proj_bias": false, "n_shared_experts": 1})");
  return config.with_defaults(fmt::format(R"({{"num_hidden_layers": {}}})", layers));
}

}  // namespace

NamedTensors nemotron_h_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = with_nemotron_defaults(given);
  const auto blocks = blocks_of(config);
  if (config.size("num_hidden_layers") != static_cast<int>(blocks.size()))
    config.fail("num_hidden_layers", fmt::format("is not the number of types of layers, {}", blocks.size()));
  const Decoder decoder(config, inputs);
  const Mamba2Form mamba = nemotron_mamba(config);
  const AttentionForm attention = attention_sizes(config);
  const PlainMlp mlp{.bias = config.flag("mlp_bias"), .activation = "mlp_hidden_act"};
  StackForm stack = stack_form(decoder, config);
  stack.norm = [&](const std::string& name, const Tensor& x) { return decoder.rms_norm(name, x, mamba.eps); };
  stack.tokens = "backbone.embeddings";
  stack.prefix = "backbone.layers.";
  stack.final_norm = "backbone.norm_f";
  stack.before_attention = "norm";
  stack.attention = "mixer";
  const Sublayer block = [&](int layer, const std::string& name, const Tensor& x) {
    switch (blocks[static_cast<std::size_t>(layer)]) {
      case Block::memory: return mamba2_mixer(decoder, config, mamba, layer, name, x);
      case Block::attention: return self_attention(decoder, attention, layer, name, x);
      case Block::mlp: return plain_mlp(decoder, config, mlp, name, x);
      case Block::experts: break;
    }
    return nemotron_mixture(decoder, config, nemotron_experts(config), name, x);
  };
  return decoder_stack(decoder, stack, block, Sublayer());
}

}  // namespace jerboa::models
