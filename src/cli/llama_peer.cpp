#include "cli/llama_peer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fstream>
#include <thread>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/base/float16.h>
#include <jerboa/base/random.h>

#include "cli/timing.h"

namespace jerboa::cli {
namespace {

namespace fs = std::filesystem;

struct ModelShape {
  std::int64_t width, layers, heads, key_heads, hidden, vocabulary;

  explicit ModelShape(const models::Config& config)
      : width(config.size("hidden_size")),
        layers(config.count("num_hidden_layers")),
        heads(config.size("num_attention_heads")),
        key_heads(config.size("num_key_value_heads")),
        hidden(config.size("intermediate_size")),
        vocabulary(config.size("vocab_size")) {}
  std::int64_t head_size() const { return width / heads; }
};

// A GGUF type of matrices.
struct BlockType {
  std::string_view weights;
  std::uint32_t number;
  std::int64_t values, bytes;  // per block, which begins with an f16 scale if it has more than one value
};
constexpr auto block_types =
    std::to_array<BlockType>({{"f32", 0, 1, 4}, {"f16", 1, 1, 2}, {"int8", 8, 32, 34}, {"int4", 2, 32, 18}});

struct TensorEntry {
  std::string name;
  std::int64_t rows, columns;  // 0 rows: a vector in f32
};

std::vector<TensorEntry> tensors_of(const ModelShape& s) {
  std::vector<TensorEntry> tensors{{"token_embd.weight", s.vocabulary, s.width},
                                   {"output_norm.weight", 0, s.width},
                                   {"output.weight", s.vocabulary, s.width}};
  const std::int64_t keys = s.key_heads * s.head_size();
  for (std::int64_t i = 0; i < s.layers; ++i) {
    const auto add = [&](const char* name, std::int64_t rows, std::int64_t columns) {
      tensors.push_back({fmt::format("blk.{}.{}.weight", i, name), rows, columns});
    };
    add("attn_norm", 0, s.width);
    add("attn_q", s.width, s.width);
    add("attn_k", keys, s.width);
    add("attn_v", keys, s.width);
    add("attn_output", s.width, s.width);
    add("ffn_norm", 0, s.width);
    add("ffn_gate", s.hidden, s.width);
    add("ffn_up", s.hidden, s.width);
    add("ffn_down", s.width, s.hidden);
  }
  return tensors;
}

// Writes a GGUF file, version 3.
class GgufWriter {
 public:
  GgufWriter(const fs::path& path, const ModelShape& shape, const BlockType& type)
      : out_(path, std::ios::binary), type_(type) {
    const auto tensors = tensors_of(shape);
    write_metadata(shape, tensors.size());
    std::uint64_t offset = 0;
    for (const TensorEntry& tensor : tensors) {
      text(tensor.name);
      number<std::uint32_t>(tensor.rows > 0 ? 2 : 1);
      number<std::uint64_t>(tensor.columns);
      if (tensor.rows > 0) number<std::uint64_t>(tensor.rows);
      number<std::uint32_t>(tensor.rows > 0 ? type_.number : 0);
      number(offset);
      offset += aligned(bytes_of(tensor));
    }
    pad(static_cast<std::uint64_t>(out_.tellp()));
    for (const TensorEntry& tensor : tensors) {
      write_values(tensor);
      pad(bytes_of(tensor));
    }
    if (!out_.flush()) throw FileError(fmt::format("{}: cannot be written", path.string()));
  }

 private:
  enum Kind : std::uint32_t { u32 = 4, i32 = 5, f32 = 6, string = 8, array = 9 };

  template <class T>
  void number(T value) {
    out_.write(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number<std::uint64_t>(value.size());
    out_.write(value.data(), static_cast<std::streamsize>(value.size()));
  }
  void key(std::string_view name, Kind kind) {
    text(name);
    number<std::uint32_t>(kind);
  }
  void integer(std::string_view name, std::int64_t value) {
    key(name, u32);
    number(static_cast<std::uint32_t>(value));
  }
  void real(std::string_view name, float value) {
    key(name, f32);
    number(value);
  }
  void words(std::string_view name, std::string_view value) {
    key(name, string);
    text(value);
  }
  void list(std::string_view name, Kind kind, std::int64_t count) {
    key(name, array);
    number<std::uint32_t>(kind);
    number<std::uint64_t>(count);
  }

  void write_metadata(const ModelShape& s, std::size_t tensors) {
    out_.write("GGUF", 4);
    number<std::uint32_t>(3);
    number<std::uint64_t>(tensors);
    number<std::uint64_t>(18);  // number of entries that follow
    words("general.architecture", "llama");
    integer("llama.context_length", 4096);
    integer("llama.embedding_length", s.width);
    integer("llama.block_count", s.layers);
    integer("llama.feed_forward_length", s.hidden);
    integer("llama.attention.head_count", s.heads);
    integer("llama.attention.head_count_kv", s.key_heads);
    real("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    integer("llama.rope.dimension_count", s.head_size());
    real("llama.rope.freq_base", 10000);
    integer("llama.vocab_size", s.vocabulary);
    words("tokenizer.ggml.model", "llama");
    constexpr std::int64_t bytes = 259;  // the first ordinary token, after three special tokens and 256 bytes
    list("tokenizer.ggml.tokens", string, s.vocabulary);
    for (std::int64_t i = 0; i < s.vocabulary; ++i)
      text(i == 0      ? "<unk>"
           : i == 1    ? "<s>"
           : i == 2    ? "</s>"
           : i < bytes ? fmt::format("<0x{:02X}>", i - 3)
                       : fmt::format("t{}", i));
    list("tokenizer.ggml.scores", f32, s.vocabulary);
    for (std::int64_t i = 0; i < s.vocabulary; ++i) number(static_cast<float>(-i));
    list("tokenizer.ggml.token_type", i32, s.vocabulary);
    for (std::int64_t i = 0; i < s.vocabulary; ++i)
      number<std::int32_t>(i == 0 ? 2 : i < 3 ? 3 : i < bytes ? 6 : 1);  // unknown, control, byte, normal
    integer("tokenizer.ggml.bos_token_id", 1);
    integer("tokenizer.ggml.eos_token_id", 2);
    integer("tokenizer.ggml.unknown_token_id", 0);
  }

  static std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 31) / 32 * 32; }
  void pad(std::uint64_t bytes) {
    const std::array<char, 32> zeros{};
    out_.write(zeros.data(), static_cast<std::streamsize>(aligned(bytes) - bytes));
  }
  std::uint64_t bytes_of(const TensorEntry& tensor) const {
    return static_cast<std::uint64_t>(tensor.rows > 0 ? tensor.rows * tensor.columns / type_.values * type_.bytes
                                                      : tensor.columns * 4);
  }

  void write_values(const TensorEntry& tensor) {
    std::string bytes(tensor.rows > 0 ? static_cast<std::size_t>(tensor.columns / type_.values * type_.bytes)
                                      : static_cast<std::size_t>(tensor.columns * 4),
                      '\0');
    if (tensor.rows == 0) {  // a norm
      const std::vector<float> ones(static_cast<std::size_t>(tensor.columns), 1.0F);
      std::memcpy(bytes.data(), ones.data(), bytes.size());
      out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      return;
    }
    for (std::int64_t row = 0; row < tensor.rows; ++row) {
      fill_row(bytes);
      out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
  }

  void fill_row(std::string& bytes) {
    if (type_.values == 1) {
      for (std::size_t at = 0; at < bytes.size(); at += static_cast<std::size_t>(type_.bytes)) {
        const auto value = static_cast<float>((random_.uniform() - 0.5) * 0.07);
        const std::uint16_t half = f32_to_f16(value);
        std::memcpy(bytes.data() + at, type_.bytes == 2 ? static_cast<const void*>(&half) : &value,
                    static_cast<std::size_t>(type_.bytes));
      }
      return;
    }
    for (std::size_t at = 0; at < bytes.size(); at += 2) {
      const auto word = static_cast<std::uint16_t>(random_.next());
      std::memcpy(bytes.data() + at, &word, 2);
    }
    const std::uint16_t scale = f32_to_f16(type_.number == 8 ? 0.0003F : 0.005F);
    for (std::size_t at = 0; at < bytes.size(); at += static_cast<std::size_t>(type_.bytes))
      std::memcpy(bytes.data() + at, &scale, 2);
  }

  std::ofstream out_;
  const BlockType& type_;
  SplitMix random_{1};
};

// llama.cpp passes parameters by value in structs that grow from version to version. Only the first fields of the
// context's parameters are set here; they have kept their offsets.
struct Parameters {
  std::array<std::uint32_t, 256> fields;
};
struct Batch {
  std::int32_t count;
  std::int32_t* tokens;
  float* embeddings;
  std::int32_t* positions;
  std::int32_t* sequence_counts;
  std::int32_t** sequences;
  std::int8_t* wanted;
};

fs::path find_library(const fs::path& folder, const std::string& start) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(start + ".") && name.find(".so") != std::string::npos) return entry.path();
  }
  throw UsageError(
      fmt::format("{}: has no {}; install npm's node-llama-cpp, and name the folder of its libraries with --llama-cpp",
                  folder.string(), start));
}

void* open_library(const fs::path& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw UsageError(fmt::format("{}: {}", path.string(), dlerror()));
  return library;
}

}  // namespace

fs::path default_llama_libraries() { return "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"; }

struct LlamaPeer::Library {
  explicit Library(const fs::path& folder) {
    open_library(find_library(folder, "libggml-base"));
    void* ggml = open_library(find_library(folder, "libggml"));
    void* llama = open_library(find_library(folder, "libllama"));
    const auto find = [](void* library, const char* name, auto& function) {
      void* symbol = dlsym(library, name);
      if (symbol == nullptr) throw UsageError(fmt::format("llama.cpp's library has no function {}", name));
      std::memcpy(&function, &symbol, sizeof symbol);
    };
    find(ggml, "ggml_backend_load_all_from_path", load_backends);
    find(llama, "llama_backend_init", init);
    find(llama, "llama_log_set", log_set);
    find(llama, "llama_model_default_params", model_parameters);
    find(llama, "llama_context_default_params", context_parameters);
    find(llama, "llama_model_load_from_file", load_model);
    find(llama, "llama_init_from_model", make_context);
    find(llama, "llama_set_n_threads", set_threads);
    find(llama, "llama_batch_get_one", make_batch);
    find(llama, "llama_decode", decode);
    find(llama, "llama_synchronize", synchronize);
    find(llama, "llama_get_memory", memory_of);
    find(llama, "llama_memory_clear", clear_memory);
    find(llama, "llama_get_logits_ith", logits);
    find(llama, "llama_free", free_context);
    find(llama, "llama_model_free", free_model);
    log_set([](int, const char*, void*) {}, nullptr);
    load_backends(folder.c_str());
    init();
  }

  void (*load_backends)(const char*) = nullptr;
  void (*init)() = nullptr;
  void (*log_set)(void (*)(int, const char*, void*), void*) = nullptr;
  Parameters (*model_parameters)() = nullptr;
  Parameters (*context_parameters)() = nullptr;
  void* (*load_model)(const char*, Parameters) = nullptr;
  void* (*make_context)(void*, Parameters) = nullptr;
  void (*set_threads)(void*, int, int) = nullptr;
  Batch (*make_batch)(std::int32_t*, std::int32_t) = nullptr;
  int (*decode)(void*, Batch) = nullptr;
  void (*synchronize)(void*) = nullptr;
  void* (*memory_of)(void*) = nullptr;
  void (*clear_memory)(void*, bool) = nullptr;
  float* (*logits)(void*, int) = nullptr;
  void (*free_context)(void*) = nullptr;
  void (*free_model)(void*) = nullptr;
};

struct LlamaPeer::Loaded {
  Library library;
  std::int64_t vocabulary;
  std::vector<std::int32_t> prompt;
  std::int32_t token = 0;
  void* model = nullptr;
  void* context = nullptr;

  Loaded(const ModelShape& shape, const LlamaPeerOptions& options)
      : library(options.libraries), vocabulary(shape.vocabulary) {
    const auto type = std::find_if(block_types.begin(), block_types.end(),
                                   [&](const BlockType& known) { return known.weights == options.weights; });
    if (type == block_types.end())
      throw UsageError(
          fmt::format("llama.cpp is measured with weights of f32, f16, int8 or int4, not {}", options.weights));
    std::string file = (fs::temp_directory_path() / "jerboa-bench-XXXXXX").string();
    const int descriptor = mkstemp(file.data());
    if (descriptor < 0) throw FileError(fmt::format("{}: cannot be created", file));
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> handle(fdopen(descriptor, "r"), &std::fclose);
    const GgufWriter written(file, shape, *type);
    model = library.load_model(file.c_str(), library.model_parameters());
    fs::remove(file);
    if (model == nullptr) throw Error("llama.cpp cannot load the model that was written for it");
    Parameters parameters = library.context_parameters();
    const auto capacity = static_cast<std::uint32_t>((options.prompt + options.tokens + 64 + 255) / 256 * 256);
    parameters.fields[0] = capacity;
    parameters.fields[1] = parameters.fields[2] = static_cast<std::uint32_t>(std::max(options.prompt, 1));
    context = library.make_context(model, parameters);
    if (context == nullptr) throw Error("llama.cpp cannot make a context");
    const int threads =
        options.threads > 0 ? options.threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    library.set_threads(context, threads, threads);
    for (int i = 0; i < options.prompt; ++i)
      prompt.push_back(
          static_cast<std::int32_t>(split_mix(static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(vocabulary)));
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
  ~Loaded() {
    if (context != nullptr) library.free_context(context);
    if (model != nullptr) library.free_model(model);
  }

  void feed(std::int32_t* tokens, std::int32_t count) {
    if (library.decode(context, library.make_batch(tokens, count)) != 0) throw Error("llama.cpp cannot decode");
    library.synchronize(context);
    const float* logits = library.logits(context, -1);
    token = static_cast<std::int32_t>(std::max_element(logits, logits + vocabulary) - logits);
  }
};

LlamaPeer::LlamaPeer(const models::Config& config, const LlamaPeerOptions& options) {
  const ModelShape shape(config);
  if (config.text("model_type") != "llama" ||
      config.size("head_dim", static_cast<int>(shape.head_size())) != shape.head_size())
    throw UsageError("--against llama.cpp compares Llamas only, whose heads divide hidden_size");
  loaded_ = std::make_unique<Loaded>(shape, options);
}
LlamaPeer::~LlamaPeer() = default;

double LlamaPeer::feed_prompt() {
  loaded_->library.clear_memory(loaded_->library.memory_of(loaded_->context), true);
  const double start = now();
  loaded_->feed(loaded_->prompt.data(), static_cast<std::int32_t>(loaded_->prompt.size()));
  return now() - start;
}

double LlamaPeer::decode(int tokens) {
  const double start = now();
  for (int i = 0; i < tokens; ++i) {
    std::int32_t next = loaded_->token;
    loaded_->feed(&next, 1);
  }
  return (now() - start) / tokens;
}

}  // namespace jerboa::cli
