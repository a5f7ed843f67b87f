#include "text/decoder.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "text/byte_alphabet.h"
#include "text/nesting.h"
#include "text/pre_tokenizer.h"

namespace jerboa {
namespace {

// Removes the spaces that splitting added around punctuation and contractions.
std::string clean_up(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> fixes[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : fixes) text = replace_all(text, from, to);
  return text;
}

std::string stripped(std::string_view token, const decoders::Strip& strip) {
  for (std::size_t i = 0; i < strip.start && token.starts_with(strip.content); ++i)
    token.remove_prefix(strip.content.size());
  for (std::size_t i = 0; i < strip.stop && token.ends_with(strip.content); ++i)
    token.remove_suffix(strip.content.size());
  return std::string(token);
}

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

TokenDecoder::TokenDecoder(const DecoderChain& chain, bool raw_bytes)
    : chain_(&chain), raw_bytes_(raw_bytes), states_(chain.steps().size()) {}

void TokenDecoder::push(std::string_view token, std::string& out) { push_to(0, token, out); }

bool TokenDecoder::takes_fragments(std::size_t step) const {
  return std::all_of(chain_->steps().begin() + static_cast<std::ptrdiff_t>(step), chain_->steps().end(),
                     [](const auto& s) {
                       const auto* strip = std::get_if<decoders::Strip>(&s);
                       return std::holds_alternative<decoders::Fuse>(s) || (strip && strip->stop == 0);
                     });
}

// Passes `text` on as part of the single token that all tokens are fused into, either immediately or once that token is
// complete.
void TokenDecoder::fuse(std::size_t step, std::string_view text, std::string& out) {
  if (takes_fragments(step + 1)) {
    if (!states_[step].in_fragment) {
      states_[step].in_fragment = true;
      for (std::size_t i = step + 1; i < states_.size(); ++i) states_[i].in_fragment = true;
    }
    push_to(step + 1, text, out);
  } else {
    states_[step].held += text;
    states_[step].holds = true;
  }
}

void TokenDecoder::push_bytes(std::size_t step, std::string_view bytes, std::string& out) {
  if (raw_bytes_) return fuse(step, bytes, out);
  std::string text;
  states_[step].bytes.push(bytes, text);
  fuse(step, text, out);
}

void TokenDecoder::push_to(std::size_t step, std::string_view token, std::string& out) {
  if (step == chain_->steps().size()) {
    out += token;
    return;
  }
  State& state = states_[step];
  const bool first = std::exchange(state.first, false);
  std::visit(Overloaded{
                 [&](const decoders::ByteLevel&) {
                   const auto bytes = spelled_bytes(token);
                   push_bytes(step, bytes ? std::string_view(*bytes) : token, out);
                 },
                 [&](const decoders::ByteFallback&) {
                   std::string text;
                   if (const auto byte = fallback_byte(token)) {
                     const char c = static_cast<char>(*byte);
                     raw_bytes_ ? void(text += c) : state.bytes.push({&c, 1}, text);
                     if (!text.empty()) push_to(step + 1, text, out);
                     return;
                   }
                   state.bytes.finish(text);
                   if (!text.empty()) push_to(step + 1, text, out);
                   push_to(step + 1, token, out);
                 },
                 [&](const decoders::Fuse&) { fuse(step, token, out); },
                 [&](const decoders::Strip& strip) {
                   if (!state.in_fragment) return push_to(step + 1, stripped(token, strip), out);
                   // Strips the start of the fused token until another character comes or the limit is reached.
                   state.held += token;
                   std::string_view rest = state.held;
                   while (state.stripped < strip.start && !rest.empty() && rest.starts_with(strip.content)) {
                     rest.remove_prefix(strip.content.size());
                     ++state.stripped;
                   }
                   if (state.stripped < strip.start && strip.content.starts_with(rest)) {
                     state.held = std::string(rest);
                     return;
                   }
                   state.stripped = strip.start;
                   const std::string text(rest);
                   state.held.clear();
                   push_to(step + 1, text, out);
                 },
                 [&](const decoders::Replace& replace) {
                   std::string text;
                   std::size_t copied = 0;
                   for (const Range match : replace.pattern.find_all(token)) {
                     text += token.substr(copied, match.begin - copied);
                     text += replace.content;
                     copied = match.end;
                   }
                   text += token.substr(copied);
                   push_to(step + 1, text, out);
                 },
                 [&](const decoders::WordPiece& wordpiece) {
                   std::string text(token);
                   if (!first) {
                     const bool continues = !wordpiece.prefix.empty() && token.starts_with(wordpiece.prefix);
                     text = continues ? std::string(token.substr(wordpiece.prefix.size())) : fmt::format(" {}", token);
                   }
                   push_to(step + 1, wordpiece.cleanup ? clean_up(std::move(text)) : text, out);
                 },
                 [&](const decoders::Metaspace& metaspace) {
                   const bool drop = first && metaspace.drop_first;
                   push_to(step + 1, replace_all(token, metaspace.replacement, drop ? "" : " "), out);
                 },
                 [&](const decoders::Bpe& bpe) {
                   // The suffix is a space, except on the last token: one token is always held back.
                   const std::string previous = std::exchange(state.held, std::string(token));
                   if (std::exchange(state.holds, true)) push_to(step + 1, replace_all(previous, bpe.suffix, " "), out);
                 },
                 [&](const decoders::Ctc& ctc) {
                   if (!first && state.held == token) return;
                   state.held = std::string(token);
                   std::string text = replace_all(token, ctc.pad_token, "");
                   if (ctc.cleanup) text = replace_all(clean_up(std::move(text)), ctc.word_delimiter, " ");
                   if (!text.empty()) push_to(step + 1, text, out);
                 },
                 [&](const decoders::Join&) {
                   push_to(step + 1, first ? std::string(token) : fmt::format(" {}", token), out);
                 },
             },
             chain_->steps()[step]);
}

void TokenDecoder::finish(std::string& out) {
  finish_from(0, out);
  states_.assign(states_.size(), {});
}

void TokenDecoder::finish_from(std::size_t step, std::string& out) {
  for (; step < states_.size(); ++step) {
    State& state = states_[step];
    const auto& kind = chain_->steps()[step];
    std::string text;
    state.bytes.finish(text);
    if (std::holds_alternative<decoders::ByteLevel>(kind)) {
      if (!text.empty()) fuse(step, text, out);
    } else if (!text.empty()) {
      push_to(step + 1, text, out);
    }
    if (const auto* bpe = std::get_if<decoders::Bpe>(&kind)) {
      if (state.holds) push_to(step + 1, replace_all(state.held, bpe->suffix, ""), out);
    } else if (std::holds_alternative<decoders::Strip>(kind)) {
      if (!state.held.empty()) push_to(step + 1, state.held, out);
    } else if (state.holds) {
      push_to(step + 1, state.held, out);
    }
  }
}

DecoderChain DecoderChain::parse(const JsonView& json) {
  DecoderChain chain;
  chain.parse_into(json, 0);
  return chain;
}

void DecoderChain::parse_into(const JsonView& json, int depth) {
  check_nesting(json, depth);
  const std::string type = json.string("type");
  if (type == "Sequence") {
    const JsonView list = json.at("decoders");
    for (std::size_t i = 0; i < list.size(); ++i) parse_into(list.at(i), depth + 1);
  } else if (type == "ByteLevel") {
    add(decoders::ByteLevel{});
  } else if (type == "ByteFallback") {
    add(decoders::ByteFallback{});
  } else if (type == "Fuse") {
    add(decoders::Fuse{});
  } else if (type == "Strip") {
    const auto start = json.integer("start", 0);
    const auto stop = json.integer("stop", 0);
    const std::string content = json.string("content", " ");
    if (start < 0 || stop < 0) json.fail("start and stop must not be negative");
    if (content.empty()) json.fail("content must not be empty");
    add(decoders::Strip{content, static_cast<std::size_t>(start), static_cast<std::size_t>(stop)});
  } else if (type == "Replace") {
    add(decoders::Replace{Pattern::parse(json.at("pattern")), json.string("content")});
  } else if (type == "WordPiece") {
    add(decoders::WordPiece{json.string("prefix", "##"), json.boolean("cleanup", true)});
  } else if (type == "Metaspace") {
    const bool drop_first = parse_prepend_scheme(json) != PrependScheme::never;
    add(decoders::Metaspace{json.string("replacement", "\u2581"), drop_first});
  } else if (type == "BPEDecoder") {
    add(decoders::Bpe{json.string("suffix", "</w>")});
  } else if (type == "CTC") {
    add(decoders::Ctc{json.string("pad_token", "<pad>"), json.string("word_delimiter_token", "|"),
                      json.boolean("cleanup", true)});
  } else {
    json.fail(fmt::format("unknown decoder \"{}\"", type));
  }
}

}  // namespace jerboa
