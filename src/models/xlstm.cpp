#include <cmath>
#include <fmt/format.h>

#include <jerboa/base/lowest_score.h>

#include "models/allowed_settings.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/recurrent.h"

// xLSTM: layers with a matrix memory, whose gates are exponentials and are therefore stored relative to the largest one
// so far.
namespace jerboa::models {
namespace {

struct XlstmForm {
  int width = 0, heads = 0, key_size = 0, value_size = 0, inner = 0;
  bool fused = false;  ///< products that read the same input are fused
  bool bias = false;
  double gate_cap = 0, eps = 0, norm_eps = 0;
};

// Files give sizes as multiples of the width.
int head_size(const Config& config, const std::string& key, int width, int heads) {
  const double size = config.positive(key) * width;
  if (size > Config::largest_size) config.fail(key, "is too large");
  if (static_cast<int>(size) == 0 || static_cast<int>(size) % heads != 0)
    config.fail(key, fmt::format("times hidden_size {} is not a multiple of {} heads", width, heads));
  return static_cast<int>(size) / heads;
}

XlstmForm xlstm_form(const Config& config) {
  XlstmForm form;
  form.width = config.size("hidden_size");
  form.heads = config.size("num_heads");
  form.key_size = head_size(config, "qk_dim_factor", form.width, form.heads);
  form.value_size = head_size(config, "v_dim_factor", form.width, form.heads);
  const int step = config.size("ffn_round_up_to_multiple_of");
  const double inner = config.positive("ffn_proj_factor") * form.width;
  if (inner > Config::largest_size) config.fail("ffn_proj_factor", "is too large");
  form.inner = static_cast<int>(std::floor((inner + step - 1) / step)) * step;
  const std::string mode = config.text("weight_mode");
  if (mode != "single" && mode != "fused") config.fail("weight_mode", "is neither single nor fused");
  form.fused = mode == "fused";
  form.bias = config.flag("use_bias");
  form.gate_cap = config.limit("gate_soft_cap");
  form.eps = norm_epsilon(config, "eps", 1e-6);
  form.norm_eps = norm_epsilon(config, "norm_eps", 1e-6);
  return form;
}

/// The projections of a layer's input, [batch, time, features].
struct XlstmProjections {
  Tensor q, k, v, out_gate, in_gate, forget_gate;
};

Tensor capped_gate(const Tensor& x, double cap) { return cap > 0 ? tanh(x / cap) * cap : x; }

XlstmProjections project(const Decoder& decoder, const XlstmForm& form, const std::string& name, const Tensor& x) {
  const int keys = form.heads * form.key_size, values = form.heads * form.value_size;
  XlstmProjections parts;
  if (form.fused) {
    const auto all =
        split(decoder.linear(name + ".qkv_opreact", x, 2 * keys + 2 * values, form.bias), {keys, keys, values, values});
    const auto gates = split<2>(decoder.linear_f32(name + ".ifgate_preact", x, 2 * form.heads, true));
    return {all[0], all[1], all[2], all[3], capped_gate(gates[0], form.gate_cap), capped_gate(gates[1], form.gate_cap)};
  }
  parts.q = decoder.linear(name + ".q", x, keys, form.bias);
  parts.k = decoder.linear(name + ".k", x, keys, form.bias);
  parts.v = decoder.linear(name + ".v", x, values, form.bias);
  parts.out_gate = decoder.linear(name + ".ogate_preact", x, values, form.bias);
  parts.in_gate = capped_gate(decoder.linear_f32(name + ".igate_preact", x, form.heads, true), form.gate_cap);
  parts.forget_gate = capped_gate(decoder.linear_f32(name + ".fgate_preact", x, form.heads, true), form.gate_cap);
  return parts;
}

/// The gates of each token, [batch, time, heads], relative to the largest one so far.
struct Gates {
  Tensor in;  ///< exponents
  Tensor log_decay;
  Tensor peak;  ///< logarithm of the largest one
};

Gates relative_gates(const Decoder& decoder, const XlstmForm& form, int layer, const XlstmProjections& parts) {
  const Tensor real = greater_equal(unsqueeze(decoder.positions(), {-1}), 0);
  const Tensor log_forget = where(real, -softplus(-parts.forget_gate), 0.0);
  const Tensor in = where(real, parts.in_gate, lowest_score);  // padding is never the largest
  const Dim batch = in.dim(0), time = in.dim(1);
  const Tensor start = decoder.caches().any() ? unsqueeze(decoder.caches().state(layer, "peak", {form.heads}), {1})
                                              : zeros({batch, 1, form.heads});
  const Tensor forgotten = cumsum(log_forget, 1);
  const Tensor largest = cummax(in - forgotten, 1).values;
  const Tensor peak = forgotten + maximum(largest, start);
  const Tensor shifted = slice(pad(peak, {0, 1, 0}, {0, 0, 0}), 1, 0, time);
  const Tensor is_first = reshape(equal(arange(time), 0), {1, time, 1});
  const Tensor before = where(is_first, start, shifted);
  if (decoder.caches().any())
    decoder.caches().set_state(layer, "peak", reshape(slice(peak, 1, time - Dim(1), time), {batch, form.heads}));
  Gates gates;
  gates.in = in - peak;
  gates.log_decay = log_forget + before - peak;
  gates.peak = peak;
  return gates;
}

// The memory has one more column, the sum of the keys, by which the results are normalised.
Tensor memory_cell(const Decoder& decoder, const XlstmForm& form, int layer, const XlstmProjections& parts) {
  const auto heads = [&](const Tensor& part) { return reshape(part, {part.dim(0), part.dim(1), form.heads, -1}); };
  const Gates gates = relative_gates(decoder, form, layer, parts);
  const Tensor values = heads(parts.v);
  const Tensor ones = full({values.dim(0), values.dim(1), form.heads, 1}, 1);
  MemoryAccess access;
  access.q = heads(parts.q) * (1 / std::sqrt(static_cast<double>(form.key_size)));
  const Tensor keys = heads(parts.k);
  access.k = keys * unsqueeze(exp(gates.in), {-1});
  access.v = concat({values, ones});
  access.log_decay = gates.log_decay;
  const auto read = split(read_memory(decoder, layer, access), {form.value_size, 1});
  const Tensor least = unsqueeze(exp(-gates.peak), {-1});
  return read[0] / (maximum(abs(read[1]), least) + form.eps);
}

Tensor xlstm_layer(const Decoder& decoder, const XlstmForm& form, int layer, const std::string& name, const Tensor& x) {
  const XlstmProjections parts = project(decoder, form, name, x);
  const Tensor found = memory_cell(decoder, form, layer, parts);
  const int values = form.heads * form.value_size;
  const Tensor normed = reshape(layer_norm(found, {}, {}, form.norm_eps), {x.dim(0), x.dim(1), values});
  Tensor scaled = normed * decoder.vector(name + ".multihead_norm.weight", {values}, 1);
  if (form.bias) scaled = scaled + decoder.vector(name + ".multihead_norm.bias", {values}, 0);
  return decoder.linear(name + ".out_proj", sigmoid(parts.out_gate) * scaled, form.width, form.bias);
}

Tensor xlstm_feed_forward(const Decoder& decoder, const XlstmForm& form, const std::string& name, const Tensor& x) {
  Tensor gate, up;
  if (form.fused) {
    const auto both = split<2>(decoder.linear(name + ".proj_up_gate_z", x, 2 * form.inner, form.bias));
    gate = both[0];
    up = both[1];
  } else {
    gate = decoder.linear(name + ".proj_up_gate", x, form.inner, form.bias);
    up = decoder.linear(name + ".proj_up", x, form.inner, form.bias);
  }
  return decoder.linear(name + ".proj_down", silu(gate) * up, form.width, form.bias);
}

void check_xlstm(const Config& config) {
  if (config.size("embedding_dim", config.size("hidden_size")) != config.size("hidden_size"))
    config.fail("embedding_dim", "is not hidden_size");
  if (config.size("num_blocks", config.size("num_hidden_layers")) != config.size("num_hidden_layers"))
    config.fail("num_blocks", "is not num_hidden_layers");
  allow_only(config, R"({"add_out_norm": true})");
}

}  // namespace

NamedTensors xlstm_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_heads": 8, "use_bias": false, "qk_dim_factor": 0.5,
      "v_dim_factor": 1.0, "ffn_proj_factor": 2.667, "ffn_round_up_to_multiple_of": 64, "gate_soft_cap": 15.0,
      "output_logit_soft_cap": 30.0, "weight_mode": "single"})");
  check_xlstm(config);
  const Decoder decoder(config, inputs);
  const XlstmForm form = xlstm_form(config);
  StackForm stack = stack_form(decoder, config);
  stack.tokens = "backbone.embeddings";
  stack.prefix = "backbone.blocks.";
  stack.final_norm = "backbone.out_norm";
  stack.before_attention = "norm_mlstm";
  stack.attention = "mlstm_layer";
  stack.before_mlp = "norm_ffn";
  stack.mlp = "ffn";
  stack.logit_cap = config.limit("output_logit_soft_cap");
  stack.norm = [&](const std::string& name, const Tensor& x) {
    const Tensor normed = decoder.rms_norm(name, x, form.norm_eps);
    const bool bias = form.bias && name != stack.final_norm;
    return bias ? normed + decoder.vector(name + ".bias", {form.width}, 0) : normed;
  };
  const Sublayer mixer = [&](int layer, const std::string& name, const Tensor& x) {
    return xlstm_layer(decoder, form, layer, name, x);
  };
  const Sublayer feed_forward = [&](int, const std::string& name, const Tensor& x) {
    return xlstm_feed_forward(decoder, form, name, x);
  };
  return decoder_stack(decoder, stack, mixer, feed_forward);
}

}  // namespace jerboa::models
