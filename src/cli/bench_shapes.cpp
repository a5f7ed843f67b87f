#include "cli/bench_shapes.h"

#include <algorithm>
#include <array>

namespace jerboa::cli {
namespace {

struct ModelShape {
  const char* name;
  const char* config;
};

constexpr auto shapes = std::to_array<ModelShape>({
    {"llama8x512", R"({"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8,
        "num_key_value_heads": 4, "intermediate_size": 1536, "vocab_size": 32000, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "max_position_embeddings": 4096})"},
    {"qwen3-0.6b", R"({"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1000000, "max_position_embeddings": 40960,
        "tie_word_embeddings": true, "attention_bias": false})"},
    {"llama-1b", R"({"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256,
        "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500000, "max_position_embeddings": 131072,
        "tie_word_embeddings": true})"},
    {"tinyllama-1.1b", R"({"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 22,
        "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 5632, "vocab_size": 32000,
        "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000, "max_position_embeddings": 2048})"},
    // Recurrent models, each with a Llama of as many parameters and the same vocabulary.
    {"qwen3.5-0.8b", R"({"model_type": "qwen3_5_text", "hidden_size": 1024, "num_hidden_layers": 24,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 3584,
        "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 248320, "hidden_act": "silu",
        "rms_norm_eps": 1e-6, "max_position_embeddings": 262144, "tie_word_embeddings": true, "attention_bias": false,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25},
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention",
            "linear_attention", "linear_attention", "linear_attention", "full_attention",
            "linear_attention", "linear_attention", "linear_attention", "full_attention",
            "linear_attention", "linear_attention", "linear_attention", "full_attention",
            "linear_attention", "linear_attention", "linear_attention", "full_attention",
            "linear_attention", "linear_attention", "linear_attention", "full_attention"]})"},
    {"llama-0.8b", R"({"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 5696, "vocab_size": 248320,
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 500000, "max_position_embeddings": 131072,
        "tie_word_embeddings": true})"},
    {"mamba2-130m", R"({"model_type": "mamba2", "hidden_size": 768, "num_hidden_layers": 24, "state_size": 128,
        "num_heads": 24, "head_dim": 64, "n_groups": 1, "conv_kernel": 4, "expand": 2, "chunk_size": 256,
        "vocab_size": 50288, "hidden_act": "silu", "layer_norm_epsilon": 1e-5, "use_bias": false,
        "use_conv_bias": true, "tie_word_embeddings": true, "time_step_limit": [0.0, {"__float__": "Infinity"}]})"},
    {"llama-130m", R"({"model_type": "llama", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "num_key_value_heads": 12, "intermediate_size": 2240, "vocab_size": 50288, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "rope_theta": 10000, "max_position_embeddings": 8192, "tie_word_embeddings": true})"},
    {"llama-8b", R"({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "rope_theta": 500000, "max_position_embeddings": 8192})"},
});

}  // namespace

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const ModelShape& shape : shapes) names.emplace_back(shape.name);
  return names;
}

models::Config shape_config(const std::string& name) {
  const auto* shape =
      std::find_if(shapes.begin(), shapes.end(), [&](const ModelShape& known) { return known.name == name; });
  return models::Config::parse(shape->config, name);
}

}  // namespace jerboa::cli
