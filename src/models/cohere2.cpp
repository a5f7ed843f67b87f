#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/windows.h"

// Command R7B and its successors: the two halves of a layer in parallel behind one layer norm without a bias, windows
// and rotary pairs of neighbours in most layers, and neither in the others.
namespace jerboa::models {

NamedTensors cohere2_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"hidden_act": "silu", "logit_scale": 0.0625, "sliding_window": 4096,
                                                "sliding_window_pattern": 4, "tie_word_embeddings": true})");
  if (config.flag("use_qk_norm", false)) config.fail("use_qk_norm", "is not supported in this family");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  const int pattern = config.size("sliding_window_pattern");
  form.windows = layer_windows(config, sliding_layers(config, [&](int layer) { return (layer + 1) % pattern != 0; }));
  interleave_ropes(config, form);
  for (std::size_t layer = 0; layer < form.ropes.size(); ++layer)
    if (form.windows[layer] == 0) form.ropes[layer].reset();
  StackForm stack = stack_form(decoder, config);
  stack.norm = centred_norm(decoder, config, "layer_norm_eps", false);
  stack.parallel = true;
  stack.before_mlp = "";
  stack.logit_scale = config.number("logit_scale");
  return decoder_stack(decoder, config, stack, form);
}

}  // namespace jerboa::models
