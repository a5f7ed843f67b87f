#pragma once

#include <jerboa/models/family.h>

// One function per graph of a family, in the file of the family's name.
namespace jerboa::models {

NamedTensors apertus_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors arcee_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors bert_encoder(const Config& config, const GraphInputs& inputs);
NamedTensors bert_pooler(const Config& config, const GraphInputs& inputs);
NamedTensors bitnet_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors cohere_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors cohere2_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors deepseek_v3_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors distilbert_encoder(const Config& config, const GraphInputs& inputs);
NamedTensors distilbert_pooler(const Config& config, const GraphInputs& inputs);
NamedTensors ernie4_5_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors exaone4_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors falcon_h1_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors gemma_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors gemma2_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors gemma3_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors gemma4_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors glm_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors glm4_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors glm4_moe_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors gpt2_decoder(const Config& config, const GraphInputs& inputs);
/// Whether the file holds this matrix as [in, out].
bool gpt2_stores_in_out(const std::string& parameter);
bool gpt_oss_stores_in_out(const std::string& parameter);
NamedTensors gpt_neox_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors gpt_oss_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors gptj_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors granite_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors granitemoehybrid_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors hunyuan_v1_dense_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors lfm2_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors lfm2_moe_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors llama_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors mamba2_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors minimax_m2_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors ministral3_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors mistral_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors mixtral_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors modernbert_encoder(const Config& config, const GraphInputs& inputs);
NamedTensors modernbert_pooler(const Config& config, const GraphInputs& inputs);
NamedTensors mpnet_encoder(const Config& config, const GraphInputs& inputs);
NamedTensors mpnet_pooler(const Config& config, const GraphInputs& inputs);
int mpnet_first_position(const Config& config);
NamedTensors nanochat_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors nemotron_h_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors nomic_bert_encoder(const Config& config, const GraphInputs& inputs);
NamedTensors olmo_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors olmo2_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors olmo3_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors olmoe_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors phi_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors phi3_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors qwen2_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors qwen2_moe_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors qwen3_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors qwen3_5_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors qwen3_5_moe_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors qwen3_moe_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors qwen3_next_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors roberta_encoder(const Config& config, const GraphInputs& inputs);
NamedTensors roberta_pooler(const Config& config, const GraphInputs& inputs);
int roberta_first_position(const Config& config);
NamedTensors seed_oss_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors smollm3_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors stablelm_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors starcoder2_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors xlstm_decoder(const Config& config, const GraphInputs& inputs);

}  // namespace jerboa::models
