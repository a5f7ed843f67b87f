#include <algorithm>

#include <jerboa/base/error.h>
#include <jerboa/language/language_model.h>
#include <jerboa/language/model.h>
#include <jerboa/language/runner.h>

#include "language/model_files.h"
#include "steps/model_sizes.h"
#include "steps/text_options.h"

namespace jerboa {
namespace {

// Waits for the whole result; throws if generation failed.
Generation whole(language::Stream stream, const OnText& on_text) {
  Generation result = stream.wait(on_text);
  if (result.reason == StopReason::failed) throw Error(result.error);
  return result;
}

}  // namespace

std::string_view name(StopReason reason) {
  switch (reason) {
    case StopReason::end: return "end";
    case StopReason::length: return "length";
    case StopReason::stop: return "stop";
    case StopReason::context: return "context";
    case StopReason::deadline: return "deadline";
    case StopReason::cancelled: return "cancelled";
    case StopReason::failed: return "failed";
  }
  return {};
}

LanguageModel::LanguageModel(std::shared_ptr<language::Model> model)
    : model_(std::move(model)), runner_(std::make_unique<language::Runner>(model_)) {}

LanguageModel::LanguageModel(LanguageModel&&) noexcept = default;
LanguageModel& LanguageModel::operator=(LanguageModel&&) noexcept = default;
LanguageModel::~LanguageModel() = default;

const Tokenizer& LanguageModel::tokenizer() const { return model_->tokenizer(); }
bool LanguageModel::has_chat_template() const { return model_->chat_template().has_value(); }
const std::vector<int>& LanguageModel::end_tokens() const { return model_->end_tokens(); }
const SamplerOptions& LanguageModel::recommended_sampling() const { return model_->recommended_sampling(); }
std::shared_ptr<const Vocabulary> LanguageModel::vocabulary() { return model_->vocabulary(); }
int LanguageModel::context() const { return model_->context(); }
std::int64_t LanguageModel::parameters() const { return model_->parameters(); }
language::Statistics LanguageModel::statistics() const { return runner_->statistics(); }
const language::LoadSeconds& LanguageModel::load_seconds() const { return model_->load_seconds(); }
Session& LanguageModel::session() { return model_->session(); }
bool LanguageModel::poll(double seconds) { return runner_->poll(seconds); }

LanguageModel LanguageModel::load(const std::filesystem::path& path, const LanguageModelOptions& options) {
  return LanguageModel(language::Model::load(path, options));
}

void LanguageModel::draft_with(const std::filesystem::path& path, LanguageModelOptions options) {
  // Every guess starts with the same prompt, whose whole blocks are still in the cache.
  if (options.block == 0) options.block = 8;
  detail::ModelFiles files = detail::open_model(path);
  if (options.context == 0) options.context = std::min(language::longest_context(files.config), context());
  runner_->draft_with(language::Model::load(std::move(files), options));
}

language::Stream LanguageModel::submit(std::vector<std::int32_t> prompt, const GenerateOptions& options) {
  return runner_->submit(std::move(prompt), options);
}

std::vector<std::int32_t> LanguageModel::encode_prompt(std::string_view text, EncodeOptions options) const {
  return language::encode_prompt(tokenizer(), text, context(), options);
}

language::Stream LanguageModel::submit(std::string_view prompt, const GenerateOptions& options) {
  std::vector<std::int32_t> tokens = encode_prompt(prompt);
  if (tokens.empty())
    throw UsageError("the prompt is empty, and the tokenizer has no beginning-of-text token; provide some text");
  return submit(std::move(tokens), options);
}

language::Stream LanguageModel::submit_answer(const JsonValue& messages, const GenerateOptions& options,
                                              const ChatTemplateOptions& rendering) {
  if (!has_chat_template())
    throw UsageError(
        "the model's folder has no chat template, so it does not support chat; use generate to continue a text, or add "
        "a chat_template.jinja");
  // The template writes the special tokens itself.
  return submit(encode_prompt(model_->chat_template()->render(messages, rendering), {.add_special = false}), options);
}

Generation LanguageModel::continue_tokens(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                                          const OnText& on_text) {
  return whole(submit(std::vector<std::int32_t>(prompt.begin(), prompt.end()), options), on_text);
}

Generation LanguageModel::generate(std::string_view prompt, const GenerateOptions& options, const OnText& on_text) {
  return whole(submit(prompt, options), on_text);
}

Generation LanguageModel::answer(const std::vector<ChatMessage>& messages, const GenerateOptions& options,
                                 const OnText& on_text, const ChatTemplateOptions& rendering) {
  return answer(to_json(messages), options, on_text, rendering);
}

Generation LanguageModel::answer(const JsonValue& messages, const GenerateOptions& options, const OnText& on_text,
                                 const ChatTemplateOptions& rendering) {
  return whole(submit_answer(messages, options, rendering), on_text);
}

Generation LanguageModel::chat(std::string_view message, const GenerateOptions& options, const OnText& on_text) {
  std::vector<ChatMessage> longer = conversation_;
  longer.push_back({"user", std::string(message)});
  Generation result = answer(longer, options, on_text);
  longer.push_back({"assistant", result.text});
  conversation_ = std::move(longer);
  return result;
}

std::vector<float> LanguageModel::next_logits(std::span<const std::int32_t> tokens) {
  if (tokens.empty()) throw UsageError("at least one token is needed to predict the next");
  std::vector<float> found;
  GenerateOptions options{.max_tokens = 1};
  options.sampler = [&] {
    auto sampler = std::make_unique<Sampler>(SamplerOptions{.temperature = 0});
    sampler->add_processor(
        [&](std::span<float> logits, std::span<const int>) { found.assign(logits.begin(), logits.end()); });
    return sampler;
  };
  continue_tokens(tokens, options);
  return found;
}

}  // namespace jerboa
