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

#include <jerboa/generate/sampler.h>
#include <jerboa/models/config.h>
#include <jerboa/runtime/session.h>
#include <jerboa/text/chat_template.h>
#include <jerboa/text/tokenizer.h>

namespace jerboa {

struct LanguageModelOptions {
  std::optional<Device> device = {};  ///< by default Device::best()
  int context = 0;  ///< the most tokens a sequence can have; 0: the model's own limit, but at most 4096
  int chunk = 128;  ///< tokens of a prompt that are computed at once
  /// In what type the matrices are kept: f32, f16, bf16, or i8 and i4, quantised; by default as the file has them.
  std::optional<DType> weights = {};
};

enum class StopReason : std::uint8_t {
  end,     ///< the model said that it is done, or the grammar that the text is whole
  length,  ///< max_tokens
  stop,    ///< a stop string
  context  ///< the sequence is as long as the model can see
};
std::string_view name(StopReason reason);

struct GenerateOptions {
  int max_tokens = 256;
  std::optional<SamplerOptions> sampling = {};  ///< by default what the model's folder recommends
  std::vector<std::string> stop = {};           ///< the text ends before the first of these
  /// The text is held to this grammar (compile_json_schema, compile_regex), and ends when it is complete.
  std::shared_ptr<const Grammar> grammar = {};
};

struct Generation {
  std::string text;
  std::vector<std::int32_t> tokens;  ///< those of the text, without one that ended it
  StopReason reason = StopReason::end;
  std::int64_t prompt_tokens = 0;  ///< of which `reused` were still in the cache
  std::int64_t reused = 0;
  double prompt_seconds = 0, token_seconds = 0;  ///< until the first token; for all that followed
};

/// A pretrained decoder with its tokenizer, which continues texts and answers messages.
///
///     auto model = LanguageModel::load("Qwen3-0.6B");
///     model.generate("Once upon a time", {.max_tokens = 100}, [](auto piece) { std::cout << piece << std::flush; });
///
/// What one call computes stays in its key/value cache, so that the next need not compute again what begins alike: a
/// conversation that goes on, a document that is asked about twice. One thread at a time.
class LanguageModel {
 public:
  /// A Hugging Face folder: config.json, safetensors, a tokenizer, and where there are some generation_config.json and
  /// a chat template. Throws UsageError or FileError that names what is missing or not supported.
  static LanguageModel load(const std::filesystem::path& folder, const LanguageModelOptions& options = {});

  /// Gets text as soon as it is certain, whole characters at a time.
  using OnText = std::function<void(std::string_view piece)>;
  /// What follows the prompt.
  Generation generate(std::string_view prompt, const GenerateOptions& options = {}, const OnText& on_text = {});
  /// The assistant's next message, by the model's chat template. Throws UsageError where the folder has no template.
  Generation answer(const std::vector<ChatMessage>& messages, const GenerateOptions& options = {},
                    const OnText& on_text = {}, const ChatTemplateOptions& rendering = {});
  /// `messages` is a list of objects with "role", "content" and whatever else the template reads.
  Generation answer(const JsonValue& messages, const GenerateOptions& options = {}, const OnText& on_text = {},
                    const ChatTemplateOptions& rendering = {});
  /// The answer to a single message.
  Generation chat(std::string_view message, const GenerateOptions& options = {}, const OnText& on_text = {});
  /// What follows these tokens.
  Generation continue_tokens(std::span<const std::int32_t> prompt, const GenerateOptions& options = {},
                             const OnText& on_text = {});
  /// The logits of the token after these, one for each of the vocabulary.
  std::vector<float> next_logits(std::span<const std::int32_t> tokens);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  bool has_chat_template() const { return template_.has_value(); }
  /// Tokens that end a text.
  const std::vector<int>& end_tokens() const { return end_tokens_; }
  const SamplerOptions& recommended_sampling() const { return sampling_; }
  /// The bytes of every token, for constraints; made when it is first asked for.
  std::shared_ptr<const Vocabulary> vocabulary();
  int context() const { return context_; }
  std::int64_t parameters() const;
  Session& session() { return session_; }

 private:
  LanguageModel(Session session, Tokenizer tokenizer)
      : session_(std::move(session)), tokenizer_(std::move(tokenizer)) {}
  void run(std::span<const std::int32_t> tokens, std::vector<float>& logits);

  Session session_;
  Tokenizer tokenizer_;
  std::optional<ChatTemplate> template_;
  std::vector<int> end_tokens_;
  SamplerOptions sampling_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::int64_t vocabulary_size_ = 0;  // logits of a token: there may be more than the tokenizer has tokens
  int context_ = 0, chunk_ = 0;
  std::vector<std::int32_t> cached_;  // the tokens whose keys and values are in the cache
};

}  // namespace jerboa
