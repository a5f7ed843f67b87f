#include "models/family_graphs.h"
#include "models/gemma.h"
#include "models/windows.h"

// Gemma 2: every second layer has a window, beginning with the first.
namespace jerboa::models {

NamedTensors gemma2_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config =
      gemma_config(given).with_defaults(R"({"attn_logit_softcapping": 50, "final_logit_softcapping": 30})");
  const Decoder decoder(config, inputs);
  AttentionForm form = gemma_attention_form(config);
  form.windows = layer_windows(config, sliding_layers(config, [](int layer) { return layer % 2 == 0; }));
  return gemma_decoder(decoder, config, form);
}

}  // namespace jerboa::models
