#include "server/task.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/language/model.h>
#include <jerboa/models/family.h>

namespace jerboa::server {
namespace {

std::string template_of(LanguageModel& model) {
  return model.has_chat_template() ? model.model().chat_template()->source() : std::string();
}

std::size_t longest_token_of(const Tokenizer& tokenizer) {
  std::size_t longest = 1;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (const auto token = tokenizer.id_to_token(id)) longest = std::max(longest, token->size());
  return longest;
}

// Folders of sentence-transformers may keep config.json further down.
bool is_encoder(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return false;
  if (!std::filesystem::exists(path / "config.json")) return std::filesystem::exists(path / "modules.json");
  const models::FamilyGraphs& graphs = models::family_of(models::Config::open(path)).graphs;
  return graphs.encoder != nullptr && graphs.decoder == nullptr;
}

}  // namespace

LoadedModel::LoadedModel(ServedModel served, LanguageModelOptions options)
    : served_(std::move(served)), options_(std::move(options)) {
  if (is_encoder(served_.path)) {
    encoder();
    return;
  }
  language_ = LanguageModel::load(served_.path, options_);
  chat_format_ = chat_format_of(template_of(*language_));
  longest_token_ = longest_token_of(language_->tokenizer());
}

LanguageModel& LoadedModel::language() {
  if (!language_)
    throw ApiError(400, fmt::format("{} is an encoder, which does not generate text; use /v1/embeddings", name()),
                   "model");
  return *language_;
}

const LanguageModel& LoadedModel::language() const { return const_cast<LoadedModel*>(this)->language(); }

TextEncoder& LoadedModel::encoder() {
  if (!encoder_)
    encoder_ = TextEncoder::load(served_.path,
                                 {.device = options_.device, .context = options_.context, .weights = options_.weights});
  return *encoder_;
}

void LoadedModel::check_length(std::size_t tokens) const {
  if (tokens > static_cast<std::size_t>(context()))
    throw ApiError(400,
                   fmt::format("the prompt has {} tokens, but the context of {} holds {}; shorten it, or start the "
                               "server with a larger --context",
                               tokens, name(), context()),
                   "", "context_length_exceeded");
}

std::vector<std::int32_t> LoadedModel::encode(const std::string& text, bool add_special) const {
  check_length(text.size() / longest_token_);
  std::vector<std::int32_t> tokens = language().tokenizer().encode(text, {.add_special = add_special}).ids;
  if (tokens.empty()) throw ApiError(400, "the prompt is empty");
  check_length(tokens.size());
  return tokens;
}

}  // namespace jerboa::server
