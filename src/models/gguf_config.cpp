#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <span>

#include <jerboa/base/error.h>

#include "base/parse_json.h"
#include "models/gguf_parts.h"

namespace jerboa::models {
namespace {

using Json = nlohmann::ordered_json;
using Form = GgufArchitecture::Form;

[[noreturn]] void fail(const Gguf& file, const std::string& what) {
  throw FileError(fmt::format("{}: {}", file.path().string(), what));
}

double finite(const Gguf& file, const std::string& key) {
  const double value = file.number(key);
  if (!std::isfinite(value)) fail(file, fmt::format("\"{}\" is not a finite number", key));
  return value;
}

constexpr double low_turns = 1, high_turns = 4;  // constants of Llama 3's scaling, the same in all of its models

// Whether these frequency divisors are those of Llama 3's scaling with this factor and original context.
bool follows_llama3(std::span<const float> divisors, double base, double factor, double original) {
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double turns = original / (2 * std::numbers::pi) *
                         std::pow(base, -static_cast<double>(i) / static_cast<double>(divisors.size()));
    const double smooth = std::clamp((turns - low_turns) / (high_turns - low_turns), 0.0, 1.0);
    const double wanted = 1 / ((1 - smooth) / factor + smooth);
    if (!(std::abs(divisors[i] - wanted) <= 1e-4 * wanted)) return false;
  }
  return true;
}

// Llama 3.1 and later: GGUF holds the divisors of the frequencies rather than the parameters that they are computed
// from. The factor is that of the slowest rotation, and the original context is the one that reproduces all divisors.
Json llama3_scaling(const Gguf& file, const std::string& tensor, double base, std::int64_t head_size) {
  if (std::ssize(file.tensor(tensor).shape) != 1 || file.tensor(tensor).shape[0] != head_size / 2 || head_size < 2)
    fail(file, fmt::format("tensor \"{}\" does not have {} values, half the size of a head", tensor, head_size / 2));
  std::vector<float> divisors(static_cast<std::size_t>(head_size / 2));
  file.read_f32(tensor, divisors);
  std::vector<std::int64_t> candidates{8192};
  for (std::int64_t size = 16; size <= 1 << 20; size *= 2) candidates.push_back(size);
  for (const std::int64_t original : candidates)
    if (follows_llama3(divisors, base, divisors.back(), static_cast<double>(original)))
      return {{"rope_type", "llama3"},
              {"factor", divisors.back()},
              {"low_freq_factor", low_turns},
              {"high_freq_factor", high_turns},
              {"original_max_position_embeddings", original}};
  fail(file, fmt::format("tensor \"{}\" does not follow from Llama 3's scaling of rotary positions", tensor));
}

Json scaling_of(const Gguf& file, const GgufArchitecture& architecture, double base, std::int64_t head_size) {
  for (const char* tensor : {"rope_factors_long.weight", "rope_factors_short.weight"})
    if (file.contains(tensor))
      fail(file, fmt::format("the tensor \"{}\" means LongRoPE, which is not supported", tensor));
  if (file.contains("rope_freqs.weight")) return llama3_scaling(file, "rope_freqs.weight", base, head_size);
  const auto key = [&](std::string_view name) { return key_of(architecture, name); };
  if (file.has(key("rope.scale_linear")) && finite(file, key("rope.scale_linear")) != 1)
    return {{"rope_type", "linear"}, {"factor", finite(file, key("rope.scale_linear"))}};
  const std::string type = file.has(key("rope.scaling.type")) ? file.text(key("rope.scaling.type")) : "none";
  if (type == "none") return nullptr;
  if (type != "linear" && type != "yarn")
    fail(file,
         fmt::format("{} (\"{}\") is not supported, only linear and yarn", in_quotes(type), key("rope.scaling.type")));
  Json scaling{{"rope_type", type}, {"factor", finite(file, key("rope.scaling.factor"))}};
  if (file.has(key("rope.scaling.original_context_length")))
    scaling["original_max_position_embeddings"] = gguf_size(file, key("rope.scaling.original_context_length"));
  return scaling;
}

void put_rope(const Gguf& file, const GgufArchitecture& architecture, const GgufHeads& heads, Json& config) {
  const std::string base = key_of(architecture, "rope.freq_base"),
                    turned = key_of(architecture, "rope.dimension_count");
  config["rope_theta"] = file.has(base) ? finite(file, base) : 10000.0;
  config["rope_scaling"] = scaling_of(file, architecture, config["rope_theta"].get<double>(), heads.size);
  if (file.has(turned) && gguf_size(file, turned) != heads.size)
    config["partial_rotary_factor"] = static_cast<double>(gguf_size(file, turned)) / static_cast<double>(heads.size);
}

// GGUF leaves out the scale of the attention scores: it is 1 / sqrt(head size), except in the largest model of either
// family.
void put_gemma(const GgufHeads& heads, Json& config) {
  const auto layers = config["num_hidden_layers"].get<std::int64_t>();
  const bool largest = layers == (config["model_type"] == "gemma2" ? 46 : 62);
  config["query_pre_attn_scalar"] = largest ? config["hidden_size"].get<std::int64_t>() / heads.queries : heads.size;
}

}  // namespace

std::string key_of(const GgufArchitecture& architecture, std::string_view key) {
  return fmt::format("{}.{}", architecture.name, key);
}

std::int64_t gguf_size(const Gguf& file, const std::string& key) {
  const std::int64_t value = file.integer(key);
  if (value < 1 || value > std::numeric_limits<std::int32_t>::max())
    fail(file, fmt::format("\"{}\" is {}, which is out of range", key, value));
  return value;
}

GgufHeads::GgufHeads(const Gguf& file, const GgufArchitecture& architecture) {
  const auto key = [&](std::string_view name) { return key_of(architecture, name); };
  queries = gguf_size(file, key("attention.head_count"));
  keys = file.has(key("attention.head_count_kv")) ? gguf_size(file, key("attention.head_count_kv")) : queries;
  size = file.has(key("attention.key_length")) ? gguf_size(file, key("attention.key_length"))
                                               : gguf_size(file, key("embedding_length")) / queries;
  if (size < 1) fail(file, fmt::format("{} heads are more than \"{}\"", queries, key("embedding_length")));
}

std::string gguf_config(const Gguf& file, const GgufArchitecture& architecture) {
  Json config{{"architectures", {architecture.class_name}}, {"model_type", architecture.model_type}};
  for (const GgufKey& row : architecture.all_keys()) {
    const std::string key = key_of(architecture, row.gguf);
    if (!row.required && !file.has(key))
      config[row.hugging_face] = nullptr;
    else if (row.kind == GgufKey::Kind::size)
      config[row.hugging_face] = gguf_size(file, key);
    else
      config[row.hugging_face] = finite(file, key);
  }
  config.update(Json::parse(architecture.constants));
  if (architecture.form != Form::gpt2) {
    const GgufHeads heads(file, architecture);
    config["num_key_value_heads"] = heads.keys;
    config["head_dim"] = heads.size;
    put_rope(file, architecture, heads, config);
    if (architecture.form == Form::gemma) put_gemma(heads, config);
    if (file.contains("blk.0.attn_q.bias")) config["attention_bias"] = true;
    if (file.contains("blk.0.ffn_gate.bias")) config["mlp_bias"] = true;
  }
  if (!file.contains("token_embd.weight") || file.tensor("token_embd.weight").shape.size() != 2)
    fail(file, "there is no tensor \"token_embd.weight\" with two axes, so this is not a language model");
  config["vocab_size"] = file.tensor("token_embd.weight").shape[0];
  config["tie_word_embeddings"] = !file.contains("output.weight");
  constexpr std::array marks{std::pair{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                             std::pair{"tokenizer.ggml.eos_token_id", "eos_token_id"},
                             std::pair{"tokenizer.ggml.padding_token_id", "pad_token_id"}};
  for (const auto& [key, name] : marks)
    if (file.has(key)) config[name] = file.integer(key);
  return config.dump(2) + "\n";
}

}  // namespace jerboa::models
