#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <jerboa/base/error.h>
#include <jerboa/models/family.h>

#include "models/decoder.h"
#include "models/experts.h"

namespace jerboa::models {

std::span<const Family> families() {
  static constexpr auto table = std::to_array<Family>({
      {"gemma2", gemma2_logits},
      {"gemma3_text", gemma3_logits},
      {"gpt2", gpt2_logits, "transformer.", nullptr, "n_layer", "transformer.h."},
      {"llama", llama_logits},
      {"mistral", mistral_logits},
      {"phi3", phi3_logits},
      {"qwen2", qwen2_logits},
      {"qwen3", qwen3_logits},
      {"qwen3_moe", qwen3_moe_logits, {}, expert_parts},
      {"smollm3", smollm3_logits},
  });
  return table;
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
