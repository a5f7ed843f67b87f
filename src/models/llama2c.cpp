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

namespace jerboa::models {
namespace {

// The sizes that a file begins with.
struct Header {
  std::int32_t width, inner, layers, heads, kv_heads, vocabulary, context;

  bool tied() const { return vocabulary > 0; }  // a table of its own for the logits is told by a negative number
  std::int64_t words() const { return vocabulary > 0 ? vocabulary : -std::int64_t{vocabulary}; }
  std::int64_t head_size() const { return width / heads; }
  std::int64_t kv_width() const { return kv_heads * head_size(); }
};

constexpr std::int32_t most = 1 << 20;  // of any size: what is larger is no such file

bool makes_sense(const Header& header) {
  for (const std::int32_t size :
       {header.width, header.inner, header.layers, header.heads, header.kv_heads, header.context})
    if (size < 1 || size > most) return false;
  return header.vocabulary != 0 && header.words() <= most * std::int64_t{16} && header.width % header.heads == 0 &&
         header.head_size() % 2 == 0 && header.heads % header.kv_heads == 0;
}

// Takes one tensor after another off the file.
class Reader {
 public:
  Reader(const FileContent& file, std::string name) : rest_(file.bytes()), name_(std::move(name)) {}

  template <class T>
  T take() {
    T value;
    std::memcpy(&value, take_bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::vector<float> floats(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::memcpy(values.data(), take_bytes(values.size() * sizeof(float)).data(), values.size() * sizeof(float));
    return values;
  }
  std::size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> take_bytes(std::size_t count) {
    if (count > rest_.size()) throw FileError(fmt::format("{}: ends before all its weights", name_));
    const auto bytes = rest_.first(count);
    rest_ = rest_.subspan(count);
    return bytes;
  }

  std::span<const std::byte> rest_;
  std::string name_;
};

// llama2.c turns neighbouring elements of a head together, Hugging Face one of the first half with one of the second.
std::vector<float> halves_of_pairs(const std::vector<float>& rows, std::int64_t heads, std::int64_t head_size,
                                   std::int64_t width) {
  std::vector<float> result(rows.size());
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t i = 0; i < head_size; ++i) {
      const std::int64_t from = head * head_size + i, to = head * head_size + i / 2 + (i % 2) * head_size / 2;
      std::copy_n(rows.begin() + from * width, width, result.begin() + to * width);
    }
  return result;
}

struct Weight {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

class Importer {
 public:
  Importer(Reader& reader, const Header& header) : reader_(reader), header_(header) {}

  std::vector<Weight> run() {
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
    reader_.floats(header_.context * header_.head_size());  // sines and cosines, which are computed here
    if (!header_.tied()) take("lm_head", {header_.words(), width});
    return std::move(weights_);
  }

 private:
  void take(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    weights_.push_back({name + ".weight", shape, reader_.floats(count)});
  }
  // One after another for each layer; `turned` heads of rows that are turned by position.
  void take_layers(const std::string& name, const std::vector<std::int64_t>& shape, std::int64_t turned = 0) {
    for (std::int32_t layer = 0; layer < header_.layers; ++layer) {
      take(fmt::format("model.layers.{}.{}", layer, name), shape);
      if (turned > 0)
        weights_.back().values = halves_of_pairs(weights_.back().values, turned, header_.head_size(), header_.width);
    }
  }

  Reader& reader_;
  const Header& header_;
  std::vector<Weight> weights_;
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

void import_llama2c(const std::filesystem::path& file, const std::filesystem::path& folder) {
  const FileContent mapped(file);
  Reader reader(mapped, file.string());
  const auto header = reader.take<Header>();
  if (!makes_sense(header)) throw FileError(fmt::format("{}: is no model of llama2.c", file.string()));
  const std::vector<Weight> weights = Importer(reader, header).run();
  if (reader.left() != 0)
    throw FileError(fmt::format("{}: has {} bytes after its weights, so it is no model of llama2.c's first version",
                                file.string(), reader.left()));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw FileError(fmt::format("{}: {}", folder.string(), error.message()));
  std::vector<TensorView> views;
  for (const Weight& weight : weights)
    views.push_back(view_of(weight.name, weight.shape, std::span<const float>(weight.values)));
  write_safetensors(folder / "model.safetensors", views);
  // Its models begin the next text with token 1 where one is done, and its program draws so by default.
  const nlohmann::ordered_json generation{
      {"eos_token_id", {1, 2}}, {"do_sample", true}, {"temperature", 1.0}, {"top_k", 0}, {"top_p", 0.9}};
  write_file_atomically(folder / "generation_config.json", generation.dump(2) + "\n");
  write_file_atomically(folder / "config.json", config_of(header).dump(2) + "\n");
}

}  // namespace jerboa::models
