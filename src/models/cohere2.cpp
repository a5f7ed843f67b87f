#include "models/allowed_settings.h"
#include "models/cohere.h"
#include "models/family_graphs.h"
#include "models/windows.h"

// Command R7B and its successors: the two halves of a layer in parallel behind one layer norm without a bias, windows
// and rotary pairs of neighbours in most layers, and neither in the others.
namespace jerboa::models {

NamedTensors cohere2_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"hidden_act": "silu", "logit_scale": 0.0625, "sliding_window": 4096,
                                                "sliding_window_pattern": 4, "tie_word_embeddings": true})");
  allow_only(config, R"({"use_qk_norm": false, "use_parallel_block": true, "use_gated_activation": true,
      "position_embedding_type": "rope_gptj", "rotary_pct": 1, "order_of_interleaved_layers": "local_attn_first"})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  const int pattern = config.size("sliding_window_pattern");
  form.windows = layer_windows(config, sliding_layers(config, [&](int layer) { return (layer + 1) % pattern != 0; }));
  interleave_ropes(config, form);
  for (std::size_t layer = 0; layer < form.ropes.size(); ++layer)
    if (form.windows[layer] == 0) form.ropes[layer].reset();
  return decoder_stack(decoder, config, cohere_stack(decoder, config), form);
}

}  // namespace jerboa::models
