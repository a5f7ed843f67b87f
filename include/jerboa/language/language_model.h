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

#include <jerboa/language/generation.h>
#include <jerboa/language/options.h>
#include <jerboa/language/statistics.h>
#include <jerboa/language/stream.h>
#include <jerboa/models/pooling.h>
#include <jerboa/text/chat_template.h>
#include <jerboa/text/tokenizer.h>

namespace jerboa::language {
class Model;
class Runner;
}  // namespace jerboa::language

namespace jerboa {

/// A pretrained decoder with its tokenizer, which continues texts and answers messages.
///
///     auto model = LanguageModel::load("Qwen3-0.6B");
///     model.generate("Once upon a time", {.max_tokens = 100}, [](auto piece) { std::cout << piece << std::flush; });
///
/// The key/value cache is kept between calls, so that a prompt that shares a prefix with an earlier text reuses it: a
/// conversation that continues, a second question about the same document. Several threads may generate at once, which
/// is faster than one after another, because their texts are computed together. Only the conversation that chat() keeps
/// must be used by one thread at a time.
class LanguageModel {
 public:
  /// A Hugging Face folder: config.json, safetensors, a tokenizer and, optionally, generation_config.json and a chat
  /// template; or a .gguf file. Throws UsageError or FileError that names what is missing or not supported.
  static LanguageModel load(const std::filesystem::path& path, const LanguageModelOptions& options = {});
  LanguageModel(LanguageModel&&) noexcept;
  LanguageModel& operator=(LanguageModel&&) noexcept;
  ~LanguageModel();

  using OnText = jerboa::OnText;
  /// Continues a prompt.
  Generation generate(std::string_view prompt, const GenerateOptions& options = {}, const OnText& on_text = {});
  /// The assistant's next message, using the model's chat template. Throws UsageError if the folder has no template.
  Generation answer(const std::vector<ChatMessage>& messages, const GenerateOptions& options = {},
                    const OnText& on_text = {}, const ChatTemplateOptions& rendering = {});
  /// `messages` is a list of objects with "role", "content" and whatever else the template reads.
  Generation answer(const JsonValue& messages, const GenerateOptions& options = {}, const OnText& on_text = {},
                    const ChatTemplateOptions& rendering = {});
  /// The answer to the next message of a conversation, which is kept until reset(). A message that fails leaves the
  /// conversation as it was.
  Generation chat(std::string_view message, const GenerateOptions& options = {}, const OnText& on_text = {});
  /// The conversation so far; set it to begin with a system message, or to continue an earlier one.
  std::vector<ChatMessage>& conversation() { return conversation_; }
  /// Forgets the conversation.
  void reset() { conversation_.clear(); }
  /// Continues a sequence of tokens.
  Generation continue_tokens(std::span<const std::int32_t> prompt, const GenerateOptions& options = {},
                             const OnText& on_text = {});

  /// Begins a text and returns at once: submitted texts are computed together, while any of them is waited for or
  /// poll() is called.
  language::Stream submit(std::string_view prompt, const GenerateOptions& options = {});
  language::Stream submit(std::vector<std::int32_t> prompt, const GenerateOptions& options = {});
  /// The answer to messages, in the same way.
  language::Stream submit_answer(const JsonValue& messages, const GenerateOptions& options = {},
                                 const ChatTemplateOptions& rendering = {});
  /// Computes for about this many seconds, for programs that must not block; returns whether any text has not ended.
  bool poll(double seconds);

  /// From now on a smaller model of the same family makes the guesses for texts with GenerateOptions::drafts: it writes
  /// a few tokens, and this one confirms or corrects them in one step. Its context is this model's, unless the options
  /// specify one, as far as it supports that; longer texts continue without guesses. Throws UsageError if its tokens
  /// are not this model's, or while texts are being generated.
  void draft_with(const std::filesystem::path& path, LanguageModelOptions options = {});

  /// The tokens of a prompt. Throws UsageError for a text that is far longer than the context, before all of it is
  /// tokenised.
  std::vector<std::int32_t> encode_prompt(std::string_view text, EncodeOptions options = {}) const;
  /// The logits of the next token, one per vocabulary entry.
  std::vector<float> next_logits(std::span<const std::int32_t> tokens);
  /// The logits after each of the tokens, f32[tokens, vocabulary].
  HostTensor logits(std::span<const std::int32_t> tokens);
  /// A vector for a text: the last layer's output for its last token, or the mean of all (Pooling::last and ::mean; for
  /// other poolings, and for models that were trained to embed, see TextEncoder). Throws UsageError for other poolings.
  std::vector<float> embed(std::span<const std::int32_t> tokens, models::Pooling pooling = models::Pooling::last);
  std::vector<float> embed(std::string_view text, models::Pooling pooling = models::Pooling::last);
  /// The log-probability of each of `tokens` after `prompt` and those before it.
  std::vector<float> score(std::span<const std::int32_t> prompt, std::span<const std::int32_t> tokens);
  /// The perplexity of a text in windows of context() tokens that overlap by half: a token is predicted from at least
  /// half a window, except at the beginning. If the text begins with a special token, so does every window.
  Perplexity perplexity(std::span<const std::int32_t> tokens,
                        const std::function<void(std::int64_t scored)>& on_progress = {});

  const Tokenizer& tokenizer() const;
  bool has_chat_template() const;
  /// Tokens that end a text.
  const std::vector<int>& end_tokens() const;
  const SamplerOptions& recommended_sampling() const;
  /// The bytes of every token, for constraints; built on first use.
  std::shared_ptr<const Vocabulary> vocabulary();
  int context() const;
  std::int64_t parameters() const;
  language::Statistics statistics() const;
  const language::LoadSeconds& load_seconds() const;
  /// The components (language/model.h, language/runner.h): weights with their programs, and the loop that runs them for
  /// many texts.
  language::Model& model() { return *model_; }
  language::Runner& runner() { return *runner_; }
  Session& session();

 private:
  explicit LanguageModel(std::shared_ptr<language::Model> model);

  std::shared_ptr<language::Model> model_;
  std::unique_ptr<language::Runner> runner_;
  std::vector<ChatMessage> conversation_;
};

}  // namespace jerboa
