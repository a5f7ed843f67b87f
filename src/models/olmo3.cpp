#include "models/family_graphs.h"
#include "models/olmo.h"
#include "models/rope_config.h"
#include "models/windows.h"

// OLMo 3: OLMo 2 with a window in three of four layers; their rotary embedding is not scaled.
namespace jerboa::models {
namespace {

RopeAttrs olmo3_rope(const Config& config, bool slides, int head_size) {
  if (const auto ropes = config.section("rope_parameters"))
    if (const auto section = ropes->section(slides ? "sliding_attention" : "full_attention"))
      return rope_attrs(config, *section, head_size);
  const RopeAttrs all = rope_attrs(config, head_size);
  return slides ? RopeAttrs{.base = all.base, .dims = all.dims} : all;
}

}  // namespace

NamedTensors olmo3_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = olmo_config(given.with_defaults(R"({"rope_theta": 500000, "sliding_window": 4096})"));
  const Decoder decoder(config, inputs);
  AttentionForm form = olmo_attention_form(decoder, config);
  const auto sliding = sliding_layers(config, [](int layer) { return (layer + 1) % 4 != 0; });
  form.windows = layer_windows(config, sliding);
  for (std::size_t layer = 0; layer < sliding.size(); ++layer)
    form.ropes[layer] = olmo3_rope(config, sliding[layer], form.head_size);
  return decoder_stack(decoder, config, post_norm_stack(decoder, config), form);
}

}  // namespace jerboa::models
