#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <jerboa/base/error.h>
#include <jerboa/models/family.h>

#include "base/parse_json.h"
#include "models/classification.h"
#include "models/decoder.h"
#include "models/experts.h"
#include "models/family_graphs.h"

namespace jerboa::models {

std::span<const Family> families() {
  static constexpr auto table = std::to_array<Family>({
      {"apertus", {.decoder = apertus_decoder}},
      {"arcee", {.decoder = arcee_decoder}},
      {.model_type = "bert",
       .graphs = {.encoder = bert_encoder, .pooler = bert_pooler},
       .optional_prefix = "bert.",
       .layer_prefix = "bert.encoder.layer."},
      {.model_type = "bitnet", .graphs = {.decoder = bitnet_decoder}, .ternary = true, .quant_method = "bitnet"},
      {"cohere", {.decoder = cohere_decoder}},
      {"cohere2", {.decoder = cohere2_decoder}},
      {"deepseek_v3", {.decoder = deepseek_v3_decoder}, {}, expert_parts},
      {.model_type = "distilbert",
       .graphs = {.encoder = distilbert_encoder, .pooler = distilbert_pooler},
       .optional_prefix = "distilbert.",
       .layer_count = "n_layers",
       .layer_prefix = "distilbert.transformer.layer."},
      {"ernie4_5", {.decoder = ernie4_5_decoder}},
      {"exaone4", {.decoder = exaone4_decoder}},
      {"falcon_h1", {.decoder = falcon_h1_decoder}},
      {"gemma", {.decoder = gemma_decoder}},
      {"gemma2", {.decoder = gemma2_decoder}},
      {"gemma3_text", {.decoder = gemma3_decoder}},
      {"gemma4_text", {.decoder = gemma4_decoder}, {}, expert_parts},
      {"glm", {.decoder = glm_decoder}},
      {"glm4", {.decoder = glm4_decoder}},
      {"glm4_moe", {.decoder = glm4_moe_decoder}, {}, expert_parts},
      {"gpt2", {.decoder = gpt2_decoder}, "transformer.", nullptr, "n_layer", "transformer.h.", gpt2_stores_in_out},
      {"gpt_neox", {.decoder = gpt_neox_decoder}, {}, nullptr, "num_hidden_layers", "gpt_neox.layers."},
      {.model_type = "gpt_oss",
       .graphs = {.decoder = gpt_oss_decoder},
       .stored_in_out = gpt_oss_stores_in_out,
       .quant_method = "mxfp4"},
      {"gptj", {.decoder = gptj_decoder}, {}, nullptr, "n_layer", "transformer.h."},
      {"granite", {.decoder = granite_decoder}},
      {"granitemoehybrid", {.decoder = granitemoehybrid_decoder}},
      {"hunyuan_v1_dense", {.decoder = hunyuan_v1_dense_decoder}},
      {"lfm2", {.decoder = lfm2_decoder}},
      {"lfm2_moe", {.decoder = lfm2_moe_decoder}, {}, mixtral_expert_parts},
      {"llama", {.decoder = llama_decoder}},
      {"mamba2", {.decoder = mamba2_decoder}, {}, nullptr, "num_hidden_layers", "backbone.layers."},
      {"minimax_m2", {.decoder = minimax_m2_decoder}, {}, mixtral_expert_parts},
      {"ministral3", {.decoder = ministral3_decoder}},
      {"mistral", {.decoder = mistral_decoder}},
      {"mixtral", {.decoder = mixtral_decoder}, {}, mixtral_expert_parts},
      {"modernbert", {.encoder = modernbert_encoder, .pooler = modernbert_pooler}, "model."},
      {.model_type = "mpnet",
       .graphs = {.encoder = mpnet_encoder, .pooler = mpnet_pooler},
       .optional_prefix = "mpnet.",
       .layer_prefix = "mpnet.encoder.layer.",
       .first_position = mpnet_first_position},
      {"nanochat", {.decoder = nanochat_decoder}},
      {"nemotron_h", {.decoder = nemotron_h_decoder}, {}, expert_parts, "num_hidden_layers", "backbone.layers."},
      {.model_type = "nomic_bert",
       .graphs = {.encoder = nomic_bert_encoder},
       .optional_prefix = "nomic_bert.",
       .layer_prefix = "nomic_bert.encoder.layers."},
      {"olmo", {.decoder = olmo_decoder}},
      {"olmo2", {.decoder = olmo2_decoder}},
      {"olmo3", {.decoder = olmo3_decoder}},
      {"olmoe", {.decoder = olmoe_decoder}, {}, expert_parts},
      {"phi", {.decoder = phi_decoder}},
      {"phi3", {.decoder = phi3_decoder}},
      {"qwen2", {.decoder = qwen2_decoder}},
      {"qwen2_moe", {.decoder = qwen2_moe_decoder}, {}, expert_parts},
      {"qwen3", {.decoder = qwen3_decoder}},
      {"qwen3_5_moe_text", {.decoder = qwen3_5_moe_decoder}, {}, expert_parts},
      {"qwen3_5_text", {.decoder = qwen3_5_decoder}},
      {"qwen3_moe", {.decoder = qwen3_moe_decoder}, {}, expert_parts},
      {"qwen3_next", {.decoder = qwen3_next_decoder}, {}, expert_parts},
      {.model_type = "roberta",
       .graphs = {.encoder = roberta_encoder, .pooler = roberta_pooler},
       .optional_prefix = "roberta.",
       .layer_prefix = "roberta.encoder.layer.",
       .first_position = roberta_first_position},
      {"seed_oss", {.decoder = seed_oss_decoder}},
      {"smollm3", {.decoder = smollm3_decoder}},
      {"stablelm", {.decoder = stablelm_decoder}},
      {"starcoder2", {.decoder = starcoder2_decoder}},
      {.model_type = "xlm-roberta",
       .graphs = {.encoder = roberta_encoder, .pooler = roberta_pooler},
       .optional_prefix = "roberta.",
       .layer_prefix = "roberta.encoder.layer.",
       .first_position = roberta_first_position},
      {"xlstm", {.decoder = xlstm_decoder}, {}, nullptr, "num_hidden_layers", "backbone.blocks."},
  });
  return table;
}

Tensor GraphInputs::find(std::string_view name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? Tensor() : found->second;
}

namespace {

// Leaves out the logits, and with them the head.
NamedTensors encode_by_decoder(GraphBuilder decoder, const Config& config, const GraphInputs& inputs) {
  // In a decoder, tokens do not see later ones, so padding at the end needs no mask.
  const GraphInputs text{.tensors = {{"ids", inputs.find("ids")}}, .last = 1, .weights = inputs.weights};
  const Tensor hidden = decoder(config, text).at("hidden");
  NamedTensors results{{"hidden", hidden}};
  if (classifies(config))
    results.emplace("logits", last_token_logits(config, inputs.weights, hidden, inputs.find("lengths")));
  return results;
}

}  // namespace

Tensor Family::logits(const Config& config, const GraphInputs& inputs) const {
  if (!graphs.decoder) throw UsageError(fmt::format("{}: {} models do not write text", config.origin(), model_type));
  return graphs.decoder(config, inputs).at("logits");
}

NamedTensors Family::encode(const Config& config, const GraphInputs& inputs) const {
  if (!graphs.encoder && !graphs.decoder)
    throw UsageError(fmt::format("{}: {} models do not read text", config.origin(), model_type));
  if (!graphs.encoder) return encode_by_decoder(graphs.decoder, config, inputs);
  NamedTensors results = graphs.encoder(config, inputs);
  if (!classifies(config)) return results;
  if (!graphs.pooler) config.fail("architectures", fmt::format("is not supported for {} models", model_type));
  GraphInputs after = inputs;
  after.tensors["hidden"] = results.at("hidden");
  results.merge(graphs.pooler(config, after));
  return results;
}

namespace {

// Refuses checkpoints that other libraries have quantised: read as plain tensors they would be nonsense.
void check_quantisation(const Config& config, const Family& family) {
  const auto settings = config.section("quantization_config");
  if (!settings) return;
  const std::string method = settings->text("quant_method", "");
  if (!family.quant_method.empty()) {
    if (method != family.quant_method) settings->fail("quant_method", fmt::format("is not {}", family.quant_method));
    return;
  }
  const bool is_off =
      method == "bitsandbytes" && !settings->flag("load_in_4bit", false) && !settings->flag("load_in_8bit", false);
  if (is_off) return;
  settings->fail("quant_method", fmt::format("is not supported for {} models: use a checkpoint in f32, f16 or bf16",
                                             family.model_type));
}

}  // namespace

const Family& family_of(const Config& config) {
  const std::string type = config.text("model_type");
  std::vector<std::string_view> known;
  for (const Family& family : families()) {
    if (family.model_type == type) {
      check_quantisation(config, family);
      return family;
    }
    known.push_back(family.model_type);
  }
  throw UsageError(fmt::format("{}: no model family is named {}; available: {}", config.origin(), in_quotes(type),
                               fmt::join(known, ", ")));
}

}  // namespace jerboa::models
