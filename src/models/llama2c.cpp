#include <array>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/models/llama2c.h>

#include "models/rotary_rows.h"
#include "models/temporary_folder.h"

namespace jerboa::models {
namespace {

// The sizes at the beginning of a file.
struct Header {
  std::int32_t width, inner, layers, heads, kv_heads, vocabulary, context;

  bool tied() const { return vocabulary > 0; }  // a negative number means a separate table for the logits
  std::int64_t words() const { return vocabulary > 0 ? vocabulary : -std::int64_t{vocabulary}; }
  std::int64_t head_size() const { return width / heads; }
  std::int64_t kv_width() const { return kv_heads * head_size(); }
};

void check_sizes(const Header& header, const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    throw FileError(fmt::format("{}: not a llama2.c model: {}", name, why));
  };
  const std::pair<const char*, std::int32_t> sizes[] = {{"dim", header.width},           {"hidden_dim", header.inner},
                                                        {"n_layers", header.layers},     {"n_heads", header.heads},
                                                        {"n_kv_heads", header.kv_heads}, {"seq_len", header.context}};
  for (const auto& [what, size] : sizes)
    if (size < 1) refuse(fmt::format("its header says that {} is {}", what, size));
  if (header.vocabulary == 0) refuse("its header says that vocab_size is 0");
  if (header.width % header.heads != 0 || header.head_size() % 2 != 0)
    refuse(fmt::format("{} features cannot be split into {} heads of an even size", header.width, header.heads));
  if (header.heads % header.kv_heads != 0)
    refuse(fmt::format("{} query heads cannot share {} key heads", header.heads, header.kv_heads));
}

/// Sums the number of floats in tensors, with overflow detection.
class FloatCount {
 public:
  void add(std::initializer_list<std::int64_t> sizes) {
    std::int64_t product = 1;
    for (const std::int64_t size : sizes) overflow_ |= __builtin_mul_overflow(product, size, &product);
    overflow_ |= __builtin_add_overflow(total_, product, &total_);
  }
  bool is(std::uint64_t floats) const { return !overflow_ && static_cast<std::uint64_t>(total_) == floats; }
  std::string text() const { return overflow_ ? "more than 2^63" : fmt::format("{}", total_); }

 private:
  std::int64_t total_ = 0;
  bool overflow_ = false;
};

// Checked before anything is allocated, because the sizes are untrusted.
void check_length(const Header& header, std::size_t bytes, const std::string& name) {
  const std::int64_t width = header.width, inner = header.inner, layers = header.layers, kv = header.kv_width();
  FloatCount floats;
  floats.add({header.words(), width});
  for (const std::int64_t rows : {width, width, kv, kv, inner, inner, inner}) floats.add({layers, rows, width});
  floats.add({layers, 2, width});
  floats.add({width});
  floats.add({header.context, header.head_size()});
  if (!header.tied()) floats.add({header.words(), width});
  if (floats.is(bytes / sizeof(float)) && bytes % sizeof(float) == 0) return;
  throw FileError(fmt::format(
      "{}: not a model of llama2.c's first version: its header (dim {}, hidden_dim {}, n_layers {}, n_heads {}, "
      "n_kv_heads {}, vocab_size {}, seq_len {}) asks for {} floats, but {} bytes follow it",
      name, header.width, header.inner, header.layers, header.heads, header.kv_heads, header.vocabulary, header.context,
      floats.text(), bytes));
}

/// Reads one tensor after another from the file, whose length matches the header.
class Importer {
 public:
  Importer(std::span<const std::byte> rest, const Header& header, Llama2cModel& model)
      : rest_(rest), header_(header), model_(model) {}

  void run() {
    const std::int64_t width = header_.width, inner = header_.inner, kv = header_.kv_width();
    take("model.embed_tokens", {header_.words(), width});
    take_layers("input_layernorm", {width});
    take_layers("self_attn.q_proj", {width, width}, header_.heads);
    take_layers("self_attn.k_proj", {kv, width}, header_.kv_heads);
    take_layers("self_attn.v_proj", {kv, width});
    take_layers("self_attn.o_proj", {width, width});
    take_layers("post_attention_layernorm", {width});
    take_layers("mlp.gate_proj", {inner, width});
    take_layers("mlp.down_proj", {width, inner});
    take_layers("mlp.up_proj", {inner, width});
    take("model.norm", {width});
    take_floats(header_.context * header_.head_size());  // sines and cosines, which are recomputed
    if (!header_.tied()) take("lm_head", {header_.words(), width});
  }

 private:
  std::span<const std::byte> take_floats(std::int64_t count) {
    const auto bytes = rest_.first(static_cast<std::size_t>(count) * sizeof(float));
    rest_ = rest_.subspan(bytes.size());
    return bytes;
  }
  void take(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    model_.tensors.push_back({name + ".weight", StoredType::F32, shape, take_floats(count)});
  }
  // Reads one tensor per layer; `rotary_heads` is the number of heads whose rows must be permuted for rope, 0 if none.
  void take_layers(const std::string& name, const std::vector<std::int64_t>& shape, std::int64_t rotary_heads = 0) {
    for (std::int32_t layer = 0; layer < header_.layers; ++layer) {
      take(fmt::format("model.layers.{}.{}", layer, name), shape);
      if (rotary_heads == 0) continue;
      TensorView& tensor = model_.tensors.back();
      std::vector<float>& rows = model_.permuted.emplace_back(tensor.bytes.size() / sizeof(float));
      halves_of_pairs(tensor.bytes, std::as_writable_bytes(std::span(rows)), rotary_heads, header_.head_size());
      tensor.bytes = std::as_bytes(std::span(rows));
    }
  }

  std::span<const std::byte> rest_;
  const Header& header_;
  Llama2cModel& model_;
};

nlohmann::ordered_json config_of(const Header& header) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", header.width},
          {"intermediate_size", header.inner},
          {"num_hidden_layers", header.layers},
          {"num_attention_heads", header.heads},
          {"num_key_value_heads", header.kv_heads},
          {"vocab_size", header.words()},
          {"max_position_embeddings", header.context},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", header.tied()},
          {"bos_token_id", 1},
          {"eos_token_id", 2}};
}

}  // namespace

Llama2cModel parse_llama2c(std::span<const std::byte> file, const std::string& name) {
  Header header{};
  if (file.size() < sizeof(header))
    throw FileError(fmt::format("{}: {} bytes are too few for a llama2.c model, which begins with {} bytes of sizes",
                                name, file.size(), sizeof(header)));
  std::memcpy(&header, file.data(), sizeof(header));
  const auto weights = file.subspan(sizeof(header));
  check_sizes(header, name);
  check_length(header, weights.size(), name);
  Llama2cModel model;
  Importer(weights, header, model).run();
  model.config = config_of(header).dump(2) + "\n";
  // Its models end a text with token 1, which also begins the next one; its own program samples with these settings by
  // default.
  const nlohmann::ordered_json generation{
      {"eos_token_id", {1, 2}}, {"do_sample", true}, {"temperature", 1.0}, {"top_k", 0}, {"top_p", 0.9}};
  model.generation_config = generation.dump(2) + "\n";
  return model;
}

void import_llama2c(const std::filesystem::path& file, const std::filesystem::path& folder,
                    const std::filesystem::path& tokenizer) {
  const FileContent content(file);
  const Llama2cModel model = parse_llama2c(content.bytes(), file.string());
  TemporaryFolder made(folder);
  write_safetensors(made.path() / "model.safetensors", model.tensors);
  write_file_atomically(made.path() / "generation_config.json", model.generation_config);
  write_file_atomically(made.path() / "config.json", model.config);
  if (!tokenizer.empty()) write_file_atomically(made.path() / "tokenizer.bin", FileContent(tokenizer).text());
  made.take_name();
}

}  // namespace jerboa::models
