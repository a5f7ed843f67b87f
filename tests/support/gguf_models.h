#pragma once

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <jerboa/base/float16.h>
#include <jerboa/io/safetensors.h>

#include "support/gguf_files.h"
#include "support/temp_folder.h"

namespace jerboa::test {

/// A vocabulary of 256 tokens for GGUF: the bytes, of which three are taken by <unk>, <s> and </s>.
inline void add_byte_vocabulary(GgufWriter& writer) {
  std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> kinds{2, 3, 3};
  for (int i = 3; i < 256; ++i) {
    char text[7];
    std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(i));
    tokens.emplace_back(text);
    kinds.push_back(6);
  }
  writer.text("tokenizer.ggml.model", "llama");
  writer.texts("tokenizer.ggml.tokens", tokens);
  writer.list("tokenizer.ggml.scores", 6, std::vector<float>(256, 0.0F));
  writer.list("tokenizer.ggml.token_type", 5, kinds);
  writer.u32("tokenizer.ggml.bos_token_id", 1);
  writer.u32("tokenizer.ggml.eos_token_id", 2);
  writer.u32("tokenizer.ggml.unknown_token_id", 0);
  writer.flag("tokenizer.ggml.add_bos_token", false);
  writer.flag("tokenizer.ggml.add_space_prefix", false);
}

/// The golden model of a family as a GGUF file, written as llama.cpp's converter does. (llama.cpp computes the golden
/// logits from these files.)
class GoldenGguf {
 public:
  /// `blocks`: store the matrices in Q8_0 where their rows allow it.
  explicit GoldenGguf(const std::filesystem::path& folder, bool blocks = false)
      : config_(nlohmann::json::parse(read_text(folder / "config.json"))),
        weights_(SafeTensors::open(folder)),
        blocks_(blocks) {
    type_ = config_["model_type"].get<std::string>();
    architecture_ = type_ == "gemma3_text" ? "gemma3" : type_ == "qwen3_moe" ? "qwen3moe" : type_;
    writer_.text("general.architecture", architecture_);
    type_ == "gpt2" ? put_gpt2_sizes() : put_sizes();
    add_byte_vocabulary(writer_);
    for (const std::string& name : weights_.names())
      if (name.find(".experts.") == std::string::npos) put(gguf_name(name), name);
    if (type_ == "qwen3_moe") put_experts();
  }

  std::string file() const { return writer_.file(); }
  GgufWriter& writer() { return writer_; }

 private:
  void size(const std::string& key, const std::string& from) {
    writer_.u32(architecture_ + "." + key, config_[from].get<std::uint32_t>());
  }
  void number(const std::string& key, const std::string& from) {
    if (config_.contains(from) && !config_[from].is_null())
      writer_.f32(architecture_ + "." + key, config_[from].get<float>());
  }
  void put_gpt2_sizes() {
    size("context_length", "n_positions");
    size("embedding_length", "n_embd");
    size("block_count", "n_layer");
    size("attention.head_count", "n_head");
    writer_.u32("gpt2.feed_forward_length", 4 * config_["n_embd"].get<std::uint32_t>());
    number("attention.layer_norm_epsilon", "layer_norm_epsilon");
  }
  void put_sizes() {
    size("context_length", "max_position_embeddings");
    size("embedding_length", "hidden_size");
    size("block_count", "num_hidden_layers");
    size("feed_forward_length", "intermediate_size");
    size("attention.head_count", "num_attention_heads");
    size("attention.head_count_kv", "num_key_value_heads");
    number("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    if (config_.contains("head_dim")) {
      size("attention.key_length", "head_dim");
      size("attention.value_length", "head_dim");
    }
    const auto& ropes = config_["rope_parameters"];
    const auto& rope = ropes.contains("full_attention") ? ropes["full_attention"] : ropes;
    writer_.f32(architecture_ + ".rope.freq_base", rope["rope_theta"].get<float>());
    writer_.u32(architecture_ + ".rope.dimension_count", static_cast<std::uint32_t>(head_size()));
    if (type_.starts_with("gemma")) size("attention.sliding_window", "sliding_window");
    number("attn_logit_softcapping", "attn_logit_softcapping");
    number("final_logit_softcapping", "final_logit_softcapping");
    if (rope["rope_type"] == "llama3") put_rope_divisors(rope);
    if (type_ != "qwen3_moe") return;
    size("expert_count", "num_local_experts");
    size("expert_used_count", "num_experts_per_tok");
    size("expert_feed_forward_length", "moe_intermediate_size");
  }
  int head_size() const {
    return config_.contains("head_dim") ? config_["head_dim"].get<int>()
                                        : config_["hidden_size"].get<int>() / config_["num_attention_heads"].get<int>();
  }
  void put_rope_divisors(const nlohmann::json& rope) {
    const double factor = rope["factor"], low = rope["low_freq_factor"], high = rope["high_freq_factor"];
    const double original = rope["original_max_position_embeddings"];
    std::vector<float> divisors;
    for (int i = 0; i < head_size(); i += 2) {
      const double wavelength =
          2 * std::numbers::pi * std::pow(rope["rope_theta"].get<double>(), 1.0 * i / head_size());
      if (wavelength < original / high)
        divisors.push_back(1);
      else if (wavelength > original / low)
        divisors.push_back(static_cast<float>(factor));
      else
        divisors.push_back(static_cast<float>(1 / ((1 - (original / wavelength - low) / (high - low)) / factor +
                                                   (original / wavelength - low) / (high - low))));
    }
    writer_.tensor("rope_freqs.weight", {static_cast<std::int64_t>(divisors.size())}, GgmlType::F32,
                   bytes_of_values(divisors));
  }

  std::string gguf_name(std::string name) const {
    const bool gemma = type_.starts_with("gemma");
    const std::vector<std::pair<std::string, std::string>> changes{
        {"model.embed_tokens", "token_embd"},
        {"model.norm", "output_norm"},
        {"lm_head", "output"},
        {"model.layers", "blk"},
        {"input_layernorm", "attn_norm"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"self_attn.qkv_proj", "attn_qkv"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"post_attention_layernorm", gemma ? "post_attention_norm" : "ffn_norm"},
        {"pre_feedforward_layernorm", "ffn_norm"},
        {"post_feedforward_layernorm", "post_ffw_norm"},
        {"mlp.gate_up_proj", "ffn_up"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
        {"mlp.gate.", "ffn_gate_inp."},
        {"transformer.wte", "token_embd"},
        {"transformer.wpe", "position_embd"},
        {"transformer.ln_f", "output_norm"},
        {"transformer.h.", "blk."},
        {"ln_1", "attn_norm"},
        {"ln_2", "ffn_norm"},
        {"attn.c_attn", "attn_qkv"},
        {"attn.c_proj", "attn_output"},
        {"mlp.c_fc", "ffn_up"},
        {"mlp.c_proj", "ffn_down"},
    };
    for (const auto& [from, to] : changes)
      if (const std::size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
    return name;
  }

  // Elements 2i and 2i + 1 of a head are elements i and size / 2 + i in Hugging Face's order.
  void pair_rows(std::vector<float>& values, std::int64_t rows) const {
    const std::size_t width = values.size() / static_cast<std::size_t>(rows),
                      half = static_cast<std::size_t>(head_size()) / 2;
    const std::vector<float> before = values;
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
      const std::size_t head = row / (2 * half), within = row % (2 * half);
      const std::size_t from = head * 2 * half + within / 2 + (within % 2) * half;
      std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(from * width), width,
                  values.begin() + static_cast<std::ptrdiff_t>(row * width));
    }
  }

  void put(const std::string& name, const std::string& from) {
    std::vector<float> values = to_f32(weights_.view(from));
    std::vector<std::int64_t> shape = weights_.entry(from).shape;
    if (type_ == "llama" && (name.find("attn_q.") != std::string::npos || name.find("attn_k.") != std::string::npos))
      pair_rows(values, shape[0]);
    if (type_.starts_with("gemma") && name.ends_with("norm.weight"))
      for (float& value : values) value += 1;
    if (type_ == "gpt2" && name.starts_with("blk.") && shape.size() == 2) {
      std::vector<float> turned(values.size());
      for (std::int64_t i = 0; i < shape[0]; ++i)
        for (std::int64_t j = 0; j < shape[1]; ++j)
          turned[static_cast<std::size_t>(j * shape[0] + i)] = values[static_cast<std::size_t>(i * shape[1] + j)];
      values = turned;
      std::swap(shape[0], shape[1]);
    }
    put_values(name, shape, values, weights_.entry(from).type);
  }

  void put_values(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<float>& values,
                  StoredType type) {
    std::string bytes;
    if (shape.size() == 1 || (type == StoredType::F32 && !blocks_))
      return writer_.tensor(name, shape, GgmlType::F32, bytes_of_values(values));
    if (blocks_ && shape.back() % 32 == 0) return writer_.tensor(name, shape, GgmlType::Q8_0, q8_0(values));
    const bool half = type == StoredType::F16;
    for (const float value : values) bytes += bytes_of(half ? f32_to_f16(value) : f32_to_bf16(value));
    writer_.tensor(name, shape, half ? GgmlType::F16 : GgmlType::BF16, bytes);
  }

  static std::string q8_0(const std::vector<float>& values) {
    std::string bytes;
    for (std::size_t at = 0; at < values.size(); at += 32) {
      float most = 0;
      for (std::size_t i = 0; i < 32; ++i) most = std::max(most, std::abs(values[at + i]));
      bytes += bytes_of(f32_to_f16(most / 127));
      const float scale = f16_to_f32(f32_to_f16(most / 127));
      for (std::size_t i = 0; i < 32; ++i)
        bytes += static_cast<char>(scale == 0 ? 0 : std::lround(std::clamp(values[at + i] / scale, -127.0F, 127.0F)));
    }
    return bytes;
  }

  void put_experts() {
    const auto count = config_["num_local_experts"].get<std::int64_t>();
    for (int layer = 0; layer < config_["num_hidden_layers"].get<int>(); ++layer)
      for (const char* part : {"gate", "up", "down"}) {
        std::vector<float> all;
        std::vector<std::int64_t> shape;
        for (std::int64_t expert = 0; expert < count; ++expert) {
          const std::string name = "model.layers." + std::to_string(layer) + ".mlp.experts." + std::to_string(expert) +
                                   "." + part + "_proj.weight";
          const std::vector<float> values = to_f32(weights_.view(name));
          all.insert(all.end(), values.begin(), values.end());
          shape = weights_.entry(name).shape;
        }
        shape.insert(shape.begin(), count);
        put_values("blk." + std::to_string(layer) + ".ffn_" + part + "_exps.weight", shape, all, StoredType::BF16);
      }
  }

  nlohmann::json config_;
  SafeTensors weights_;
  bool blocks_;
  std::string type_, architecture_;
  GgufWriter writer_;
};

}  // namespace jerboa::test
