#include "steps/text_options.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>

namespace jerboa::language {
namespace {

// The last tokens of a prompt that affect how its continuation is decoded: some of them, and all bytes of characters
// that are not in the vocabulary, which are decoded together.
std::span<const std::int32_t> deciding_tokens(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt) {
  constexpr std::size_t some = 16;
  const auto is_byte = [&](std::int32_t token) { return tokenizer.id_to_token(token).value_or("").starts_with("<0x"); };
  std::size_t first = prompt.size() > some ? prompt.size() - some : 0;
  while (first > 0 && is_byte(prompt[first])) --first;
  return prompt.subspan(first);
}

// Decodes the end of the prompt first, so that the continuation is not decoded as the beginning of a text, which would
// drop its leading space.
class DecodedText final : public serving::TextStream {
 public:
  DecodedText(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt) : decoder_(tokenizer) {
    for (const std::int32_t token : deciding_tokens(tokenizer, prompt)) decoder_.push(token);
  }
  std::string push(std::int32_t token) override { return decoder_.push(token); }
  std::string finish() override { return decoder_.finish(); }

 private:
  StreamDecoder decoder_;
};

// In bytes, at least: vocabularies write some bytes as several characters.
std::size_t longest_token(const Tokenizer& tokenizer) {
  std::size_t longest = 1;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (const auto token = tokenizer.id_to_token(id)) longest = std::max(longest, token->size());
  return longest;
}

// Drops an incomplete character at the end.
std::string_view whole_characters(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0 && (static_cast<unsigned char>(text[end - 1]) & 0xc0) == 0x80) --end;
  return text.substr(0, end > 0 ? end - 1 : 0);
}

}  // namespace

serving::SequenceOptions sequence_options(const TextModel& model, const TextRequest& request, double now) {
  serving::SequenceOptions out;
  out.max_tokens = request.max_tokens;
  if (request.seconds) out.deadline = now + *request.seconds;
  out.sampling = request.sampling.value_or(model.recommended_sampling);
  out.end_tokens = model.end_tokens;
  out.sampler = request.sampler;
  if (!out.sampler && out.sampling.temperature > 0 && !model.samples_on_device)
    out.sampler = [sampling = out.sampling] { return std::make_unique<Sampler>(sampling); };
  if (request.grammar)
    out.constraint = [grammar = request.grammar, vocabulary = model.vocabulary()] {
      return make_constraint(grammar, vocabulary);
    };
  out.text = [&tokenizer = model.tokenizer](std::span<const std::int32_t> prompt) {
    return std::make_unique<DecodedText>(tokenizer, prompt);
  };
  out.stop = request.stop;
  out.drafts = model.is_deterministic ? 0 : request.drafts;
  return out;
}

std::vector<std::int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text, int context,
                                        EncodeOptions options) {
  // More bytes than the context can hold even if every token is the longest one, plus a margin, because the last word
  // is cut in two.
  const auto tokens = static_cast<std::size_t>(context) + 64;
  if (text.size() > tokens * 16 && text.size() > tokens * longest_token(tokenizer)) {
    const std::string_view beginning = whole_characters(text.substr(0, tokens * longest_token(tokenizer)));
    if (std::ssize(tokenizer.encode(beginning, options).ids) > context)
      throw UsageError(
          fmt::format("the prompt has {} bytes, far more than the {} tokens of the context; shorten it, or load the "
                      "model with a larger context",
                      text.size(), context));
  }
  return tokenizer.encode(text, options).ids;
}

}  // namespace jerboa::language
