#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/frontend/compile.h>
#include <jerboa/generate/sampler.h>
#include <jerboa/models/config.h>
#include <jerboa/runtime/session.h>
#include <jerboa/text/chat_template.h>
#include <jerboa/text/tokenizer.h>

namespace jerboa {

struct LanguageModelOptions {
  std::optional<Device> device = {};  ///< by default Device::best()
  int context = 0;  ///< the maximum length of a sequence in tokens; 0: the model's limit, but at most 4096
  int chunk = 0;    ///< prompt tokens processed at once; 0: as many as suit the device
  /// The type that matrices are stored in: f32, f16, bf16, or i8 and i4, quantised; by default the file's type.
  std::optional<DType> weights = {};
  /// Of prompts. By default mixed_f16 for weights in f16 on a GPU that multiplies f16 matrices, otherwise full: tokens
  /// after the prompt are bound by memory, so they are always computed in full precision.
  std::optional<Precision> precision = {};
};

enum class StopReason : std::uint8_t {
  end,     ///< the model produced an end token, or the grammar is complete
  length,  ///< max_tokens
  stop,    ///< a stop string
  context  ///< the context is full
};
std::string_view name(StopReason reason);

struct GenerateOptions {
  int max_tokens = 256;
  std::optional<SamplerOptions> sampling = {};  ///< by default as the model's folder recommends
  std::vector<std::string> stop = {};           ///< the text ends before the first of these
  /// Restricts the text to this grammar (compile_json_schema, compile_regex); it ends when it is complete.
  std::shared_ptr<const Grammar> grammar = {};
};

struct Generation {
  std::string text;
  std::vector<std::int32_t> tokens;  ///< of the text, without the end token
  StopReason reason = StopReason::end;
  std::int64_t prompt_tokens = 0;  ///< of which `reused` were still in the cache
  std::int64_t reused = 0;
  double prompt_seconds = 0, token_seconds = 0;  ///< until the first token; for all tokens after it
};

/// How well a model predicts a text.
struct Perplexity {
  double value = 0;         ///< exp of the mean negative log-probability of its tokens
  std::int64_t tokens = 0;  ///< that were predicted: all but the first
  double seconds = 0;
};

/// A pretrained decoder with its tokenizer, which continues texts and answers messages.
///
///     auto model = LanguageModel::load("Qwen3-0.6B");
///     model.generate("Once upon a time", {.max_tokens = 100}, [](auto piece) { std::cout << piece << std::flush; });
///
/// The key/value cache is kept between calls, so that a prompt that shares a prefix with the previous text reuses it: a
/// conversation that continues, a second question about the same document. Not thread-safe.
class LanguageModel {
 public:
  /// A Hugging Face folder: config.json, safetensors, a tokenizer and, optionally, generation_config.json and a chat
  /// template; or a .gguf file. Throws UsageError or FileError that names what is missing or not supported.
  static LanguageModel load(const std::filesystem::path& path, const LanguageModelOptions& options = {});

  /// Receives text as soon as it is final, whole characters at a time.
  using OnText = std::function<void(std::string_view piece)>;
  /// Continues a prompt.
  Generation generate(std::string_view prompt, const GenerateOptions& options = {}, const OnText& on_text = {});
  /// The assistant's next message, using the model's chat template. Throws UsageError if the folder has no template.
  Generation answer(const std::vector<ChatMessage>& messages, const GenerateOptions& options = {},
                    const OnText& on_text = {}, const ChatTemplateOptions& rendering = {});
  /// `messages` is a list of objects with "role", "content" and whatever else the template reads.
  Generation answer(const JsonValue& messages, const GenerateOptions& options = {}, const OnText& on_text = {},
                    const ChatTemplateOptions& rendering = {});
  /// The answer to a single message.
  Generation chat(std::string_view message, const GenerateOptions& options = {}, const OnText& on_text = {});
  /// Continues a sequence of tokens.
  Generation continue_tokens(std::span<const std::int32_t> prompt, const GenerateOptions& options = {},
                             const OnText& on_text = {});
  /// The logits of the next token, one per vocabulary entry.
  std::vector<float> next_logits(std::span<const std::int32_t> tokens);
  /// The perplexity of a text in windows of context() tokens that overlap by half: a token is predicted from at least
  /// half a window, except at the beginning. If the text begins with a special token, so does every window.
  Perplexity perplexity(std::span<const std::int32_t> tokens,
                        const std::function<void(std::int64_t scored)>& on_progress = {});

  const Tokenizer& tokenizer() const { return tokenizer_; }
  bool has_chat_template() const { return template_.has_value(); }
  /// Tokens that end a text.
  const std::vector<int>& end_tokens() const { return end_tokens_; }
  const SamplerOptions& recommended_sampling() const { return sampling_; }
  /// The bytes of every token, for constraints; built on first use.
  std::shared_ptr<const Vocabulary> vocabulary();
  int context() const { return context_; }
  std::int64_t parameters() const;
  Session& session() { return session_; }

 private:
  LanguageModel(Session session, Tokenizer tokenizer, models::Config config)
      : session_(std::move(session)), tokenizer_(std::move(tokenizer)), config_(std::move(config)) {}
  void check_tokens(std::span<const std::int32_t> tokens) const;
  void run(std::span<const std::int32_t> tokens, std::vector<float>& logits);
  void score(std::span<const std::int32_t> tokens, std::span<const std::int32_t> next,
             std::vector<float>& log_probabilities);

  Session session_;
  Tokenizer tokenizer_;
  models::Config config_;
  DType weights_ = DType::f32;
  std::optional<ChatTemplate> template_;
  std::vector<int> end_tokens_;
  SamplerOptions sampling_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::int64_t vocabulary_size_ = 0;  // the number of logits; may exceed the tokenizer's vocabulary
  int context_ = 0, chunk_ = 0;
  std::vector<std::int32_t> cached_;  // the tokens whose keys and values are in the cache
};

}  // namespace jerboa
