#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "models/family_graphs.h"
#include "models/gemma.h"
#include "models/rope_config.h"
#include "models/windows.h"

// Gemma 3's text models: most layers have a window, and a smaller rotary base than the few global layers. The queries
// and keys of each head are normalised.
namespace jerboa::models {
namespace {

double local_base(const Config& config) {
  const double base = config.number("rope_local_base_freq");
  if (!(base > 1)) config.fail("rope_local_base_freq", "is not above 1");
  return base;
}

// Older files scale the rotary embedding of global layers only.
RopeAttrs rope_of(const Config& config, bool slides, int head_size) {
  const auto ropes = config.section("rope_parameters");
  if (!ropes) return slides ? RopeAttrs{.base = local_base(config)} : rope_attrs(config, head_size);
  const std::string type = slides ? "sliding_attention" : "full_attention";
  const auto section = ropes->section(type);
  if (!section || !section->has("rope_theta"))
    throw FileError(fmt::format("{}: {} has no rope_theta", ropes->origin(), type));
  return rope_attrs(config, *section, head_size);
}

}  // namespace

NamedTensors gemma3_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = gemma_config(given).with_defaults(
      R"({"rope_theta": 1000000, "rope_local_base_freq": 10000, "sliding_window_pattern": 6})");
  const Decoder decoder(config, inputs);
  AttentionForm form = gemma_attention_form(config);
  form.head_norm = gemma_norm(decoder, config);
  const int pattern = config.size("sliding_window_pattern");
  const auto sliding = sliding_layers(config, [&](int layer) { return (layer + 1) % pattern != 0; });
  form.windows = layer_windows(config, sliding);
  for (std::size_t layer = 0; layer < sliding.size(); ++layer)
    form.ropes[layer] = rope_of(config, sliding[layer], form.head_size);
  return gemma_decoder(decoder, config, form);
}

}  // namespace jerboa::models
