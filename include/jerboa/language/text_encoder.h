#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <jerboa/models/config.h>
#include <jerboa/runtime/session.h>
#include <jerboa/text/tokenizer.h>
#include <jerboa/transform/precision.h>

namespace jerboa {
namespace detail {
struct EmbeddingModules;
}

struct TextEncoderOptions {
  std::optional<Device> device = {};  ///< by default Device::best()
  int context = 0;  ///< the maximum length of a text in tokens; 0: as the folder says. Longer texts are truncated
  /// The type that matrices are stored in: f32, f16, bf16, or i8 and i4, quantised; by default the file's type.
  std::optional<DType> weights = {};
  /// mixed_f16 rounds the operands of products to f16: faster on a GPU that multiplies f16 matrices.
  Precision precision = Precision::full;
  /// Called before anything is allocated, with the bytes of all weights; it may throw.
  std::function<void(std::int64_t bytes)> before_allocation = {};
};

struct EmbedOptions {
  std::string prompt_name = {};            ///< a prompt in the model's folder; by default the folder's default
  std::optional<std::string> prompt = {};  ///< put before each text instead
  int dimensions = 0;                      ///< keep this many leading dimensions of an embedding; 0: all
  std::optional<bool> normalise = {};      ///< to a length of 1; by default as the folder says, otherwise yes
};

/// One vector per text.
struct Embeddings {
  std::int64_t count = 0, dimensions = 0;
  std::vector<float> values;  ///< [count, dimensions]

  std::span<const float> row(std::int64_t index) const;
};

/// How two embeddings are compared; larger means more similar.
enum class Similarity : std::uint8_t {
  cosine,
  dot,
  euclidean,  ///< minus the distance
  manhattan   ///< minus the sum of absolute differences
};
float similarity(std::span<const float> a, std::span<const float> b, Similarity kind = Similarity::cosine);

/// One of many texts, by its index.
struct Match {
  std::int64_t index = 0;
  float score = 0;
  bool operator==(const Match&) const = default;
};
/// The rows most similar to the query, best first; ties are in index order.
std::vector<Match> nearest(const Embeddings& rows, std::span<const float> query, std::int64_t count,
                           Similarity kind = Similarity::cosine);

/// A pretrained model that turns texts into vectors (embeddings), or into scores of classes.
///
///     auto encoder = TextEncoder::load("all-MiniLM-L6-v2");
///     Embeddings found = encoder.embed({"a small desert rodent", "a jerboa"});
///     float alike = similarity(found.row(0), found.row(1));
///
/// Texts are sorted by length and run in batches, so pass many at once. Not thread-safe.
class TextEncoder {
 public:
  /// A Hugging Face folder of an encoder (BERT and its relatives) or a decoder: config.json, safetensors and a
  /// tokenizer. The files of sentence-transformers, if there are any, say how the vectors of tokens are combined
  /// (modules.json and the folders it names), which prompts there are (config_sentence_transformers.json) and how long
  /// a text may be (sentence_bert_config.json). Without them, it is the mean of all tokens of an encoder, and the last
  /// token of a decoder. Throws UsageError or FileError that names what is missing or not supported.
  static TextEncoder load(const std::filesystem::path& path, const TextEncoderOptions& options = {});

  Embeddings embed(std::span<const std::string> texts, const EmbedOptions& options = {});
  Embeddings embed(std::initializer_list<std::string> texts, const EmbedOptions& options = {});

  /// Whether the model has a head for classification.
  bool classifies() const { return !classes_.empty(); }
  /// The names of its classes.
  const std::vector<std::string>& classes() const { return classes_; }
  /// The score of each class for each text, [texts, classes]: probabilities, unless the folder says otherwise. Throws
  /// UsageError if the model has no classes.
  Embeddings classify(std::span<const std::string> texts);
  /// The same for pairs of texts.
  Embeddings classify_pairs(std::span<const std::pair<std::string, std::string>> pairs);
  /// Documents by how well they answer a query, best first, as scored by a model with a single class.
  std::vector<Match> rerank(const std::string& query, std::span<const std::string> documents);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  int context() const { return context_; }
  /// The approximate number of tokens computed at once.
  std::int64_t batch_tokens() const { return batch_tokens_; }
  std::int64_t dimensions() const { return dimensions_; }
  /// How the model's embeddings are meant to be compared.
  Similarity similarity_kind() const;
  /// The prompts in the model's folder, by name.
  const std::map<std::string, std::string>& prompts() const;
  /// The names of the prompts for queries and for the documents that they search; empty if there are none.
  std::string query_prompt() const;
  std::string document_prompt() const;
  Session& session() { return session_; }

 private:
  TextEncoder(Session session, Tokenizer tokenizer, models::Config config)
      : session_(std::move(session)), tokenizer_(std::move(tokenizer)), config_(std::move(config)) {}
  std::string prompt_for(const EmbedOptions& options) const;
  /// The number of tokens that a prompt adds before a text.
  std::int64_t prompt_tokens(const std::string& prompt) const;
  /// One row of results per encoding; the first `skipped` tokens are left out of the pooling.
  Embeddings run(const std::vector<Encoding>& encodings, bool classify, std::int64_t skipped);
  /// The name of an entry for texts of up to this many tokens.
  std::string entry_for(std::int64_t time, bool classify);
  Embeddings scores(const std::vector<Encoding>& encodings);

  Session session_;
  Tokenizer tokenizer_;
  models::Config config_;
  std::shared_ptr<const detail::EmbeddingModules> modules_;
  DType weights_ = DType::f32;
  Precision precision_ = Precision::full;
  int context_ = 0;
  std::int64_t batch_tokens_ = 0, dimensions_ = 0;
  std::vector<std::string> classes_;
};

}  // namespace jerboa
