#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <jerboa/base/error.h>
#include <jerboa/models/family.h>

#include "models/decoder.h"
#include "models/experts.h"
#include "models/family_graphs.h"

namespace jerboa::models {

std::span<const Family> families() {
  static constexpr auto table = std::to_array<Family>({
      {"gemma2", {.decoder = gemma2_decoder}},
      {"gemma3_text", {.decoder = gemma3_decoder}},
      {"gpt2", {.decoder = gpt2_decoder}, "transformer.", nullptr, "n_layer", "transformer.h.", gpt2_stores_in_out},
      {"llama", {.decoder = llama_decoder}},
      {"mistral", {.decoder = mistral_decoder}},
      {"phi3", {.decoder = phi3_decoder}},
      {"qwen2", {.decoder = qwen2_decoder}},
      {"qwen3", {.decoder = qwen3_decoder}},
      {"qwen3_moe", {.decoder = qwen3_moe_decoder}, {}, expert_parts},
      {"smollm3", {.decoder = smollm3_decoder}},
  });
  return table;
}

Tensor GraphInputs::find(std::string_view name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? Tensor() : found->second;
}

Tensor Family::logits(const Config& config, const GraphInputs& inputs) const {
  if (!graphs.decoder) throw UsageError(fmt::format("{}: {} models do not write text", config.origin(), model_type));
  return graphs.decoder(config, inputs).at("logits");
}

const Family& family_of(const Config& config) {
  const std::string type = config.text("model_type");
  std::vector<std::string_view> known;
  for (const Family& family : families()) {
    if (family.model_type == type) return family;
    known.push_back(family.model_type);
  }
  throw UsageError(
      fmt::format("{}: no model family is named {}; available: {}", config.origin(), type, fmt::join(known, ", ")));
}

}  // namespace jerboa::models
