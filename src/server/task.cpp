#include "server/task.h"

#include <chrono>
#include <fmt/format.h>

#include <jerboa/language/model.h>
#include <jerboa/models/family.h>

namespace jerboa::server {
namespace {

std::string template_of(LanguageModel& model) {
  return model.has_chat_template() ? model.model().chat_template()->source() : std::string();
}

// sentence-transformers may keep config.json in a subfolder.
bool is_encoder(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return false;
  if (!std::filesystem::exists(path / "config.json")) return std::filesystem::exists(path / "modules.json");
  const models::FamilyGraphs& graphs = models::family_of(models::Config::open(path)).graphs;
  return graphs.encoder != nullptr && graphs.decoder == nullptr;
}

}  // namespace

ApiError late(double seconds) {
  return {504, fmt::format("there was no answer within {} seconds", seconds), "", "timeout"};
}

LoadedModel::LoadedModel(ServedModel served, LanguageModelOptions options, Reserve reserve)
    : served_(std::move(served)), options_(std::move(options)), reserve_(std::move(reserve)) {
  if (is_encoder(served_.path)) {
    if (!served_.draft_model.empty())
      throw UsageError(
          fmt::format("{} is an encoder, which does not generate text; --draft-model guesses for the first model, so "
                      "name a decoder first",
                      served_.name));
    encoder();
    return;
  }
  LanguageModelOptions watched = options_;
  watched.before_allocation = [this](std::int64_t bytes) {
    if (options_.before_allocation) options_.before_allocation(bytes);
    take(bytes);
  };
  language_ = LanguageModel::load(served_.path, watched);
  if (!served_.draft_model.empty())
    language_->draft_with(served_.draft_model,
                          {.device = watched.device, .before_allocation = watched.before_allocation});
  chat_format_ = chat_format_of(template_of(*language_));
}

void LoadedModel::take(std::int64_t bytes) {
  reserve_(bytes);
  bytes_ += bytes;
}

LanguageModel& LoadedModel::language() {
  if (!language_)
    throw ApiError(400, fmt::format("{} is an encoder, which does not generate text; use /v1/embeddings", name()),
                   "model");
  return *language_;
}

const LanguageModel& LoadedModel::language() const { return const_cast<LoadedModel*>(this)->language(); }

TextEncoder& LoadedModel::encoder() {
  if (encoder_) return *encoder_;
  const auto reserve_once = [this](std::int64_t bytes) {
    if (!has_room_for_encoder_) take(bytes);
    has_room_for_encoder_ = true;
  };
  encoder_ = TextEncoder::load(served_.path, {.device = options_.device,
                                              .context = options_.context,
                                              .weights = options_.weights,
                                              .precision = options_.precision.value_or(Precision::full),
                                              .before_allocation = reserve_once});
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
  std::vector<std::int32_t> tokens;
  try {
    tokens = language().encode_prompt(text, {.add_special = add_special});
  } catch (const UsageError& error) {
    throw ApiError(400, error.what(), "", "context_length_exceeded");
  }
  if (tokens.empty()) throw ApiError(400, "the prompt is empty");
  check_length(tokens.size());
  return tokens;
}

}  // namespace jerboa::server
