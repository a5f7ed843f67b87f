#include "language/drafter.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include <jerboa/base/error.h>
#include <jerboa/generate/constraint.h>

#include "base/parse_json.h"

namespace jerboa::language {
namespace {

// Drafts are token ids, so both models must agree on their meaning. Models of one family often pad their vocabularies
// to different sizes; a draft ends before a token that only one of them has.
void check_same_tokens(const Model& drafts_with, const Model& drafts_for) {
  const auto ours = drafts_with.vocabulary(), theirs = drafts_for.vocabulary();
  const auto shared = static_cast<int>(std::min(ours->size(), theirs->size()));
  for (int token = 0; token < shared; ++token)
    if (ours->bytes(token) != theirs->bytes(token))
      throw UsageError(
          fmt::format("the draft model's tokenizer differs from the model's: token {} is {} instead of {}; use a draft "
                      "model of the same family",
                      token, in_quotes(ours->bytes(token)), in_quotes(theirs->bytes(token))));
}

}  // namespace

Drafter::Drafter(std::shared_ptr<Model> drafts_with, const Model& drafts_for)
    : runner_(std::move(drafts_with)), vocabulary_(drafts_for.vocabulary_size()) {
  check_same_tokens(runner_.model(), drafts_for);
}

std::vector<std::vector<std::int32_t>> Drafter::propose(std::vector<Request> requests) {
  const Model& model = runner_.model();
  const auto fits = [&](const Request& request) {
    return request.count > 0 && std::ssize(request.text) + request.count <= model.context() &&
           std::ranges::all_of(request.text, [&](std::int32_t token) { return token < model.vocabulary_size(); });
  };
  std::vector<std::optional<Stream>> streams;
  for (Request& request : requests) {
    const bool can_run = fits(request);
    GenerateOptions options{.max_tokens = request.count, .sampling = SamplerOptions{.temperature = 0}};
    streams.push_back(can_run ? std::optional(runner_.submit(std::move(request.text), options)) : std::nullopt);
  }
  std::vector<std::vector<std::int32_t>> drafts;
  for (std::optional<Stream>& stream : streams) {
    std::vector<std::int32_t>& draft = drafts.emplace_back();
    if (!stream) continue;
    Generation guessed = stream->wait();
    if (guessed.reason == StopReason::failed) throw DeviceError(guessed.error);
    draft = std::move(guessed.tokens);
    draft.erase(std::ranges::find_if(draft, [&](std::int32_t token) { return token >= vocabulary_; }), draft.end());
  }
  return drafts;
}

}  // namespace jerboa::language
