#include "models/gguf_architecture.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

#include <jerboa/base/error.h>

#include "base/parse_json.h"

namespace jerboa::models {
namespace {

constexpr std::string_view silu_config = R"({"hidden_act": "silu"})";

// Names that Llama's descendants share; a row in an architecture's own table takes precedence.
constexpr std::array shared_names{
    GgufName{"token_embd", "model.embed_tokens"},
    GgufName{"output_norm", "model.norm"},
    GgufName{"output", "lm_head"},
    GgufName{"blk.N.attn_norm", "model.layers.N.input_layernorm"},
    GgufName{"blk.N.attn_q", "model.layers.N.self_attn.q_proj"},
    GgufName{"blk.N.attn_k", "model.layers.N.self_attn.k_proj"},
    GgufName{"blk.N.attn_v", "model.layers.N.self_attn.v_proj"},
    GgufName{"blk.N.attn_output", "model.layers.N.self_attn.o_proj"},
    GgufName{"blk.N.ffn_norm", "model.layers.N.post_attention_layernorm"},
    GgufName{"blk.N.ffn_gate", "model.layers.N.mlp.gate_proj"},
    GgufName{"blk.N.ffn_up", "model.layers.N.mlp.up_proj"},
    GgufName{"blk.N.ffn_down", "model.layers.N.mlp.down_proj"},
};
constexpr std::array shared_keys{
    GgufKey{"context_length", "max_position_embeddings"},
    GgufKey{"embedding_length", "hidden_size"},
    GgufKey{"block_count", "num_hidden_layers"},
    GgufKey{"feed_forward_length", "intermediate_size"},
    GgufKey{"attention.head_count", "num_attention_heads"},
    GgufKey{"attention.layer_norm_rms_epsilon", "rms_norm_eps", GgufKey::Kind::number},
};

constexpr std::array llama_names{
    GgufName{"blk.N.attn_q", "model.layers.N.self_attn.q_proj", GgufChange::query_rows},
    GgufName{"blk.N.attn_k", "model.layers.N.self_attn.k_proj", GgufChange::key_rows},
};

constexpr std::array qwen3_names{
    GgufName{"blk.N.attn_q_norm", "model.layers.N.self_attn.q_norm"},
    GgufName{"blk.N.attn_k_norm", "model.layers.N.self_attn.k_norm"},
};

constexpr std::array qwen3_moe_names{
    GgufName{"blk.N.attn_q_norm", "model.layers.N.self_attn.q_norm"},
    GgufName{"blk.N.attn_k_norm", "model.layers.N.self_attn.k_norm"},
    GgufName{"blk.N.ffn_gate_inp", "model.layers.N.mlp.gate"},
    GgufName{"blk.N.ffn_gate_exps", "model.layers.N.mlp.experts.E.gate_proj", GgufChange::experts},
    GgufName{"blk.N.ffn_up_exps", "model.layers.N.mlp.experts.E.up_proj", GgufChange::experts},
    GgufName{"blk.N.ffn_down_exps", "model.layers.N.mlp.experts.E.down_proj", GgufChange::experts},
};
constexpr std::array qwen3_moe_keys{
    GgufKey{"expert_count", "num_experts"},
    GgufKey{"expert_used_count", "num_experts_per_tok"},
    GgufKey{"expert_feed_forward_length", "moe_intermediate_size"},
};

constexpr std::array gemma_names{
    GgufName{"output_norm", "model.norm", GgufChange::plus_one},
    GgufName{"blk.N.attn_norm", "model.layers.N.input_layernorm", GgufChange::plus_one},
    GgufName{"blk.N.attn_q_norm", "model.layers.N.self_attn.q_norm", GgufChange::plus_one},
    GgufName{"blk.N.attn_k_norm", "model.layers.N.self_attn.k_norm", GgufChange::plus_one},
    GgufName{"blk.N.post_attention_norm", "model.layers.N.post_attention_layernorm", GgufChange::plus_one},
    GgufName{"blk.N.ffn_norm", "model.layers.N.pre_feedforward_layernorm", GgufChange::plus_one},
    GgufName{"blk.N.post_ffw_norm", "model.layers.N.post_feedforward_layernorm", GgufChange::plus_one},
};
constexpr std::array gemma_keys{
    GgufKey{"attention.sliding_window", "sliding_window"},
    GgufKey{"attn_logit_softcapping", "attn_logit_softcapping", GgufKey::Kind::number, false},
    GgufKey{"final_logit_softcapping", "final_logit_softcapping", GgufKey::Kind::number, false},
};

constexpr std::array phi3_names{
    GgufName{"blk.N.attn_qkv", "model.layers.N.self_attn.qkv_proj"},
    GgufName{"blk.N.ffn_up", "model.layers.N.mlp.gate_up_proj"},
};
constexpr std::array phi3_keys{GgufKey{"attention.sliding_window", "sliding_window", GgufKey::Kind::size, false}};

constexpr std::array gpt2_names{
    GgufName{"token_embd", "transformer.wte"},
    GgufName{"position_embd", "transformer.wpe"},
    GgufName{"output_norm", "transformer.ln_f"},
    GgufName{"output", "lm_head"},
    GgufName{"blk.N.attn_norm", "transformer.h.N.ln_1"},
    GgufName{"blk.N.attn_qkv", "transformer.h.N.attn.c_attn", GgufChange::transposed},
    GgufName{"blk.N.attn_output", "transformer.h.N.attn.c_proj", GgufChange::transposed},
    GgufName{"blk.N.ffn_norm", "transformer.h.N.ln_2"},
    GgufName{"blk.N.ffn_up", "transformer.h.N.mlp.c_fc", GgufChange::transposed},
    GgufName{"blk.N.ffn_down", "transformer.h.N.mlp.c_proj", GgufChange::transposed},
};
constexpr std::array gpt2_keys{
    GgufKey{"context_length", "n_positions"},
    GgufKey{"embedding_length", "n_embd"},
    GgufKey{"block_count", "n_layer"},
    GgufKey{"feed_forward_length", "n_inner"},
    GgufKey{"attention.head_count", "n_head"},
    GgufKey{"attention.layer_norm_epsilon", "layer_norm_epsilon", GgufKey::Kind::number},
};

using Form = GgufArchitecture::Form;

constexpr std::array architectures{
    GgufArchitecture{"llama", "llama", "LlamaForCausalLM", Form::llama, llama_names, {}, silu_config},
    GgufArchitecture{"qwen2", "qwen2", "Qwen2ForCausalLM", Form::llama, {}, {}, silu_config},
    GgufArchitecture{"qwen3", "qwen3", "Qwen3ForCausalLM", Form::llama, qwen3_names, {}, silu_config},
    GgufArchitecture{"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", Form::llama, qwen3_moe_names, qwen3_moe_keys,
                     R"({"hidden_act": "silu", "norm_topk_prob": true, "decoder_sparse_step": 1})"},
    GgufArchitecture{"gemma2", "gemma2", "Gemma2ForCausalLM", Form::gemma, gemma_names, gemma_keys,
                     R"({"hidden_activation": "gelu_pytorch_tanh"})"},
    GgufArchitecture{"gemma3", "gemma3_text", "Gemma3ForCausalLM", Form::gemma, gemma_names, gemma_keys,
                     R"({"hidden_activation": "gelu_pytorch_tanh", "rope_local_base_freq": 10000.0,
                         "sliding_window_pattern": 6})"},
    GgufArchitecture{"phi3", "phi3", "Phi3ForCausalLM", Form::llama, phi3_names, phi3_keys, silu_config},
    GgufArchitecture{"gpt2", "gpt2", "GPT2LMHeadModel", Form::gpt2, gpt2_names, gpt2_keys,
                     R"({"activation_function": "gelu_new"})"},
};

bool is_layer_number(std::string_view text) {
  return !text.empty() && text.size() < 10 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string with_number(std::string_view pattern, std::string_view letter, std::string_view number) {
  const std::size_t at = pattern.find(letter);
  if (at == std::string_view::npos) return std::string(pattern);
  return fmt::format("{}.{}{}", pattern.substr(0, at), number, pattern.substr(at + letter.size() - 1));
}

std::span<const GgufName> shared_names_of(const GgufArchitecture& architecture) {
  return architecture.form == Form::gpt2 ? std::span<const GgufName>() : shared_names;
}

}  // namespace

std::vector<GgufKey> GgufArchitecture::all_keys() const {
  std::vector<GgufKey> all(keys.begin(), keys.end());
  if (form != Form::gpt2) all.insert(all.begin(), shared_keys.begin(), shared_keys.end());
  return all;
}

const GgufArchitecture& gguf_architecture(const Gguf& file) {
  const std::string wanted = file.text("general.architecture");
  std::vector<std::string_view> known;
  for (const GgufArchitecture& architecture : architectures) {
    if (architecture.name == wanted) return architecture;
    known.push_back(architecture.name);
  }
  throw FileError(fmt::format("{}: the architecture {} is not supported in GGUF files; supported: {}",
                              file.path().string(), in_quotes(wanted), fmt::join(known, ", ")));
}

std::string GgufPlace::hugging_face(std::int64_t expert) const {
  return with_number(with_number(name->hugging_face, ".N.", layer), ".E.", std::to_string(expert)) + suffix;
}

std::optional<GgufPlace> find_place(const GgufArchitecture& architecture, std::string_view tensor) {
  GgufPlace place;
  for (const std::string_view suffix : {".weight", ".bias"})
    if (tensor.ends_with(suffix)) place.suffix = suffix;
  std::string module(tensor.substr(0, tensor.size() - place.suffix.size()));
  constexpr std::string_view prefix = "blk.";
  if (module.starts_with(prefix)) {
    const std::size_t end = module.find('.', prefix.size());
    if (end == std::string::npos) return std::nullopt;
    place.layer = module.substr(prefix.size(), end - prefix.size());
    if (!is_layer_number(place.layer)) return std::nullopt;
    module.replace(prefix.size(), end - prefix.size(), "N");
  }
  for (const auto& table : {architecture.names, shared_names_of(architecture)})
    for (const GgufName& name : table)
      if (name.gguf == module) {
        place.name = &name;
        return place;
      }
  return std::nullopt;
}

}  // namespace jerboa::models
