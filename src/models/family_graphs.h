#pragma once

#include <jerboa/models/family.h>

// One function per graph of a family, in the file of the family's name.
namespace jerboa::models {

NamedTensors deepseek_v3_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors gemma2_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors gemma3_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors glm4_moe_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors gpt2_decoder(const Config& config, const GraphInputs& inputs);
/// Whether the file holds this matrix as [in, out].
bool gpt2_stores_in_out(const std::string& parameter);
NamedTensors llama_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors minimax_m2_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors mistral_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors mixtral_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors olmoe_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors phi3_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors qwen2_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors qwen2_moe_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors qwen3_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors qwen3_moe_decoder(const Config& config, const GraphInputs& inputs);
NamedTensors smollm3_decoder(const Config& config, const GraphInputs& inputs);

}  // namespace jerboa::models
