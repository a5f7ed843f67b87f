#include <algorithm>
#include <atomic>
#include <exception>
#include <fmt/format.h>
#include <limits>
#include <thread>

#include <jerboa/base/error.h>
#include <jerboa/text/tokenizer.h>

#include "text/tokenizer_parts.h"
#include "text/utf8.h"

namespace jerboa {
namespace detail {

ScratchPool::Loan ScratchPool::borrow() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return Loan(*this, std::make_unique<Scratch>());
  auto scratch = std::move(free_.back());
  free_.pop_back();
  return Loan(*this, std::move(scratch));
}

void ScratchPool::give_back(std::unique_ptr<Scratch> scratch) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(scratch));
}

const Vocab& TokenizerParts::vocab() const {
  return std::visit([](const auto& m) -> const Vocab& { return m.vocab(); }, model);
}

std::optional<std::string_view> TokenizerParts::token(TokenId id) const {
  if (const AddedToken* token = added.find(id)) return token->content;
  if (vocab().has(id)) return vocab().text(id);
  return std::nullopt;
}

bool TokenizerParts::reads_bytes() const {
  const auto* bpe = std::get_if<BpeModel>(&model);
  return bpe && bpe->options().reads_bytes;
}

}  // namespace detail

namespace {

using detail::ScratchPool;
using detail::TokenizerParts;

// Limits the length of texts, so that offsets fit in 32 bits even if rewriting makes a text a few times longer.
constexpr std::size_t max_text = std::numeric_limits<std::uint32_t>::max() / 8;

class Encoder {
 public:
  Encoder(const TokenizerParts& parts, std::string_view text, Encoding& out)
      : parts_(parts), text_(text), out_(out), loan_(parts.scratch.borrow()) {}

  void run() {
    std::uint32_t at = 0;
    for (const auto& match : parts_.added.matches(text_, false)) {
      normalize_and_encode({at, match.range.begin});
      put(match.id, match.range);
      at = match.range.end;
    }
    normalize_and_encode({at, static_cast<std::uint32_t>(text_.size())});
  }

 private:
  void put(TokenId id, Range range) {
    out_.ids.push_back(id);
    out_.offsets.push_back({range.begin, range.end});
  }

  void normalize_and_encode(Range segment) {
    if (segment.empty()) return;
    AlignedText text(text_.substr(segment.begin, segment.end - segment.begin));
    parts_.normalizer.apply(text);
    if (!parts_.added.any(true)) {
      encode_words(text, segment.begin == 0, [&](Range range) { return shifted(text.original(range), segment.begin); });
      return;
    }
    const auto source = [&](Range range) { return shifted(text.original(range), segment.begin); };
    std::uint32_t at = 0;
    const auto encode_until = [&](std::uint32_t end) {
      if (end == at) return;
      AlignedText stretch(text.text().substr(at, end - at));
      encode_words(stretch, source({at, end}).begin == 0,
                   [&](Range range) { return source(shifted(stretch.original(range), at)); });
    };
    for (const auto& match : parts_.added.matches(text.text(), true)) {
      encode_until(match.range.begin);
      put(match.id, source(match.range));
      at = match.range.end;
    }
    encode_until(static_cast<std::uint32_t>(text.text().size()));
  }

  /// `source` maps a range of `text` to the original.
  template <typename Source>
  void encode_words(AlignedText& text, bool at_start, Source source) {
    Words words{text, {{0, static_cast<std::uint32_t>(text.text().size())}}, at_start};
    parts_.pre_tokenizer.apply(words);
    std::visit([&](const auto& model) { tokenize(model, words, source); }, parts_.model);
  }

  template <typename AnyModel, typename Source>
  void tokenize(const AnyModel& model, const Words& words, Source source) {
    auto& [scratch, tokens] = *loan_;
    const bool bytes = parts_.reads_bytes();
    const std::string_view text = words.text.text();
    out_.ids.reserve(out_.ids.size() + words.ranges.size());
    out_.offsets.reserve(out_.offsets.size() + words.ranges.size());
    for (const Range word : words.ranges) {
      tokens.clear();
      model.tokenize(text.substr(word.begin, word.end - word.begin), scratch, tokens);
      for (const Token& token : tokens) {
        Range range = shifted(token.range, word.begin);
        if (bytes) range = whole_characters(text, range);
        put(token.id, source(range));
      }
    }
  }

  // A token of a byte-level model may begin or end inside a character.
  static Range whole_characters(std::string_view text, Range range) {
    for (int i = 0; i < 3 && range.begin > 0 && utf8::is_continuation(text[range.begin]); ++i) --range.begin;
    for (int i = 0; i < 3 && range.end < text.size() && utf8::is_continuation(text[range.end]); ++i) ++range.end;
    return range;
  }

  const TokenizerParts& parts_;
  std::string_view text_;
  Encoding& out_;
  ScratchPool::Loan loan_;
};

// For text that is not UTF-8 and a model that cannot read bytes: replaces invalid bytes by U+FFFD, keeping the offsets.
void replace_invalid(AlignedText& aligned) {
  const std::string_view text = aligned.text();
  Rewriter rewriter(text);
  for (std::size_t at = utf8::valid_prefix(text); at < text.size(); at += utf8::valid_prefix(text.substr(at))) {
    std::size_t size = 0;
    utf8::measure(text.substr(at), size);
    rewriter.replace(at, at + size, utf8::replacement_bytes);
    at += size;
  }
  aligned.apply(std::move(rewriter));
}

Encoding encode_text(const TokenizerParts& parts, std::string_view text, std::int32_t type_id) {
  if (text.size() > max_text)
    throw UsageError(fmt::format("a text of {} bytes is too long to encode at once; split it into parts of at most {}",
                                 text.size(), max_text));
  Encoding out;
  if (parts.reads_bytes() || utf8::is_valid(text)) {
    Encoder(parts, text, out).run();
  } else {
    AlignedText valid(text);
    replace_invalid(valid);
    Encoder(parts, valid.text(), out).run();
    for (TextSpan& span : out.offsets) {
      const Range source = valid.original({span.begin, span.end});
      span = {source.begin, source.end};
    }
  }
  out.type_ids.assign(out.size(), type_id);
  out.special_mask.assign(out.size(), 0);
  out.attention_mask.assign(out.size(), 1);
  return out;
}

template <typename Change>
void for_each_array(Encoding& encoding, Change change) {
  change(encoding.ids);
  change(encoding.offsets);
  change(encoding.type_ids);
  change(encoding.special_mask);
  change(encoding.attention_mask);
}

void truncate(Encoding& encoding, std::size_t length, Side side) {
  if (encoding.size() <= length) return;
  const auto extra = static_cast<std::ptrdiff_t>(encoding.size() - length);
  for_each_array(encoding, [&](auto& array) {
    side == Side::right ? void(array.resize(length)) : void(array.erase(array.begin(), array.begin() + extra));
  });
}

void truncate(Encoding& first, Encoding* second, std::size_t budget, const Truncation& truncation) {
  const std::size_t second_size = second ? second->size() : 0;
  if (first.size() + second_size <= budget) return;
  using Strategy = Truncation::Strategy;
  if (!second || truncation.strategy == Strategy::only_first) {
    truncate(first, budget > second_size ? budget - second_size : 0, truncation.side);
  } else if (truncation.strategy == Strategy::only_second) {
    truncate(*second, budget > first.size() ? budget - first.size() : 0, truncation.side);
  } else {
    // Truncates the longer text first: the shorter one keeps everything if that is less than half, and the other gets
    // the rest.
    std::size_t shorter = std::min(first.size(), second_size);
    std::size_t longer = shorter > budget ? shorter : std::max(shorter, budget - shorter);
    if (shorter + longer > budget) {
      shorter = budget / 2;
      longer = shorter + budget % 2;
    }
    const bool first_is_longer = first.size() > second_size;
    truncate(first, first_is_longer ? longer : shorter, truncation.side);
    truncate(*second, first_is_longer ? shorter : longer, truncation.side);
  }
}

void pad(Encoding& encoding, std::size_t length, const Padding& padding) {
  if (padding.multiple_of > 1) length = (length + padding.multiple_of - 1) / padding.multiple_of * padding.multiple_of;
  if (encoding.size() >= length) return;
  const std::size_t missing = length - encoding.size();
  const auto fill = [&](auto& array, auto value) {
    array.insert(padding.side == Side::right ? array.end() : array.begin(), missing, value);
  };
  fill(encoding.ids, padding.id);
  fill(encoding.offsets, TextSpan{});
  fill(encoding.type_ids, padding.type_id);
  fill(encoding.special_mask, std::uint8_t{1});
  fill(encoding.attention_mask, std::uint8_t{0});
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const detail::TokenizerParts> parts)
    : parts_(std::move(parts)), truncation_(parts_->truncation), padding_(parts_->padding) {}

Encoding Tokenizer::encode_unpadded(std::string_view first, const std::string_view* second,
                                    EncodeOptions options) const {
  std::vector<std::string_view> texts{first};
  if (second) texts.push_back(*second);
  std::vector<Encoding> encodings;
  for (const std::string_view text : texts)
    encodings.push_back(encode_text(*parts_, text, static_cast<std::int32_t>(encodings.size())));
  if (truncation_) {
    const std::size_t added = options.add_special ? parts_->post_processor.added(second != nullptr) : 0;
    const std::size_t budget = truncation_->max_length > added ? truncation_->max_length - added : 0;
    truncate(encodings[0], second ? &encodings[1] : nullptr, budget, *truncation_);
  }
  return parts_->post_processor.apply(std::move(encodings), texts, options.add_special);
}

Encoding Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  Encoding encoding = encode_unpadded(text, nullptr, options);
  if (padding_) pad(encoding, padding_->length.value_or(encoding.size()), *padding_);
  return encoding;
}

Encoding Tokenizer::encode_pair(std::string_view first, std::string_view second, EncodeOptions options) const {
  Encoding encoding = encode_unpadded(first, &second, options);
  if (padding_) pad(encoding, padding_->length.value_or(encoding.size()), *padding_);
  return encoding;
}

std::vector<Encoding> Tokenizer::encode_batch(std::span<const std::string> texts, EncodeOptions options) const {
  std::vector<Encoding> encodings(texts.size());
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failure;
  std::once_flag failed;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < texts.size(); i = next++)
        encodings[i] = encode_unpadded(texts[i], nullptr, options);
    } catch (...) {
      std::call_once(failed, [&] { failure = std::current_exception(); });
      next = texts.size();
    }
  };
  // A thread costs about as much as encoding this many bytes.
  constexpr std::size_t bytes_per_thread = std::size_t{64} * 1024;
  std::size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  [[maybe_unused]] const std::size_t threads =
      std::min({texts.size(), bytes / bytes_per_thread + 1,
                static_cast<std::size_t>(std::max(1U, std::thread::hardware_concurrency()))});
  {
#ifdef __cpp_lib_jthread  // standard libraries for browsers have none, and one thread does all the work
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
#endif
    work();
  }
  if (failure) std::rethrow_exception(failure);
  if (padding_) {
    std::size_t longest = 0;
    for (const Encoding& encoding : encodings) longest = std::max(longest, encoding.size());
    for (Encoding& encoding : encodings) pad(encoding, padding_->length.value_or(longest), *padding_);
  }
  return encodings;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, DecodeOptions options) const {
  StreamDecoder stream(*this, options);
  std::string text;
  for (const std::int32_t id : ids) stream.push_to(id, text);
  return text += stream.finish();
}

std::int32_t Tokenizer::vocab_size() const {
  std::int32_t size = parts_->vocab().end_id();
  for (const AddedToken& token : parts_->added.all()) size = std::max(size, token.id + 1);
  return size;
}

std::optional<std::int32_t> Tokenizer::token_to_id(std::string_view token) const {
  if (const AddedToken* added = parts_->added.find(token)) return added->id;
  const TokenId id = parts_->vocab().find(token);
  if (id == no_token) return std::nullopt;
  return id;
}

std::optional<std::string> Tokenizer::id_to_token(std::int32_t id) const {
  const auto token = parts_->token(id);
  if (!token) return std::nullopt;
  return std::string(*token);
}

bool Tokenizer::is_special(std::int32_t id) const {
  const AddedToken* token = parts_->added.find(id);
  return token && token->special;
}

std::vector<std::pair<std::string, std::int32_t>> Tokenizer::special_tokens() const {
  std::vector<std::pair<std::string, std::int32_t>> tokens;
  for (const AddedToken& token : parts_->added.all())
    if (token.special) tokens.emplace_back(token.content, token.id);
  return tokens;
}

std::string Tokenizer::model_type() const {
  constexpr std::string_view names[] = {"BPE", "WordPiece", "WordLevel", "Unigram"};
  return std::string(names[parts_->model.index()]);
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, DecodeOptions options)
    : parts_(tokenizer.parts_),
      options_(options),
      decoder_(std::make_unique<TokenDecoder>(parts_->decoder, options.raw_bytes)) {}
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

void StreamDecoder::push_to(std::int32_t id, std::string& out) {
  if (const AddedToken* added = parts_->added.find(id)) {
    if (!(options_.skip_special && added->special)) decoder_->push(added->content, out);
  } else if (parts_->vocab().has(id)) {
    decoder_->push(parts_->vocab().text(id), out);
  }
}

std::string StreamDecoder::push(std::int32_t id) {
  std::string out;
  push_to(id, out);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  decoder_->finish(out);
  return out;
}

}  // namespace jerboa
