#include "text/pre_tokenizer.h"

#include <algorithm>
#include <fmt/format.h>

#include "text/byte_alphabet.h"
#include "text/nesting.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace jerboa {
namespace {

// Appends the parts that `behavior` makes of a range, given the matches in it.
void split_by(const std::vector<Range>& matches, Range range, SplitBehavior behavior, bool invert,
              std::vector<Range>& out) {
  struct Part {
    Range range;
    bool match;
  };
  std::vector<Part> parts;
  std::uint32_t at = range.begin;
  for (const Range match : matches) {
    if (match.begin > at) parts.push_back({{at, match.begin}, invert});
    parts.push_back({match, !invert});
    at = match.end;
  }
  if (at < range.end) parts.push_back({{at, range.end}, invert});

  auto emit = [&](Range part) {
    if (!part.empty()) out.push_back(part);
  };
  if (behavior == SplitBehavior::removed || behavior == SplitBehavior::isolated) {
    for (const Part& part : parts)
      if (behavior == SplitBehavior::isolated || !part.match) emit(part.range);
    return;
  }
  std::vector<Part> merged;
  for (const Part& part : parts) {
    bool join = false;
    if (!merged.empty()) {
      const bool previous = merged.back().match;
      switch (behavior) {
        case SplitBehavior::contiguous: join = part.match == previous; break;
        case SplitBehavior::merged_with_previous: join = part.match && !previous; break;
        case SplitBehavior::merged_with_next: join = previous && !part.match; break;
        default: break;
      }
    }
    if (join) {
      merged.back() = {{merged.back().range.begin, part.range.end}, part.match};
    } else {
      merged.push_back(part);
    }
  }
  for (const Part& part : merged) emit(part.range);
}

// Splits every word by the matches that find(text of the word) returns.
template <typename Find>
void split_words(Words& words, SplitBehavior behavior, bool invert, Find find) {
  std::vector<Range> out;
  for (const Range word : words.ranges) {
    std::vector<Range> matches = find(words.text.text().substr(word.begin, word.end - word.begin));
    for (Range& match : matches) match = shifted(match, word.begin);
    split_by(matches, word, behavior, invert, out);
  }
  words.ranges = std::move(out);
}

template <typename Predicate>
std::vector<Range> characters_where(std::string_view text, Predicate predicate) {
  std::vector<Range> matches;
  for (std::size_t at = 0; at < text.size();) {
    const utf8::Char c = utf8::decode(text, at);
    if (c.valid && predicate(c.code))
      matches.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + c.size)});
    at += c.size;
  }
  return matches;
}

// Rewrites the text word by word: edit(rewriter, range of a word) records changes within the range only.
template <typename EditWord>
void rewrite_words(Words& words, EditWord edit) {
  const std::string_view text = words.text.text();
  Rewriter rewriter(text);
  std::vector<Range> ranges;
  ranges.reserve(words.ranges.size());
  for (const Range word : words.ranges) {
    const auto begin = static_cast<std::uint32_t>(rewriter.target_size(word.begin));
    edit(rewriter, word);
    ranges.push_back({begin, static_cast<std::uint32_t>(rewriter.target_size(word.end))});
  }
  words.text.apply(std::move(rewriter));
  words.ranges = std::move(ranges);
}

std::string_view view(const Words& words, Range range) {
  return words.text.text().substr(range.begin, range.end - range.begin);
}

}  // namespace

namespace pre_tokenizers {

void ByteLevel::apply(Words& words) const {
  if (add_prefix_space) {
    rewrite_words(words, [&](Rewriter& out, Range word) {
      if (!view(words, word).starts_with(' ')) out.prepend(word.begin, " ");
    });
  }
  if (use_regex) {
    const WordScanner scanner = WordScanner::gpt2();
    std::vector<Range> ranges;
    for (const Range word : words.ranges) scanner.split(words.text.text(), word, ranges);
    words.ranges = std::move(ranges);
  }
  if (spell) {
    rewrite_words(words, [&](Rewriter& out, Range word) { spell_bytes(words.text.text(), out, word); });
  }
}

void Split::apply(Words& words) const {
  if (!scanner) {
    split_words(words, behavior, invert, [&](std::string_view text) { return pattern.find_all(text); });
    return;
  }
  // The known expressions match everything, so there is nothing between the matches to treat differently.
  std::vector<Range> ranges;
  for (const Range word : words.ranges) scanner->split(words.text.text(), word, ranges);
  words.ranges = std::move(ranges);
}

void SplitCharacters::apply(Words& words) const {
  const unicode::Classes classify;
  split_words(words, behavior, false, [&](std::string_view text) {
    return characters_where(text, [&](char32_t c) {
      switch (property) {
        case Property::space: return classify.is(c, unicode::space);
        case Property::punctuation: return unicode::is_ascii_punctuation(c) || classify.is(c, unicode::punctuation);
        case Property::digit: return classify.is(c, unicode::number);
        case Property::character: return c == character;
      }
      return false;
    });
  });
}

void Whitespace::apply(Words& words) const {
  const unicode::Classes classify;
  std::vector<Range> out;
  for (const Range word : words.ranges) {
    const std::string_view text = view(words, word);
    int previous = -1;
    for (std::size_t at = 0; at < text.size();) {
      const utf8::Char c = utf8::decode(text, at);
      const std::uint8_t classes = classify(c.code);
      const int kind = classes & unicode::space ? 0 : classes & unicode::word ? 1 : 2;
      const Range range =
          shifted({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + c.size)}, word.begin);
      if (kind != 0 && kind == previous) {
        out.back().end = range.end;
      } else if (kind != 0) {
        out.push_back(range);
      }
      previous = kind;
      at += c.size;
    }
  }
  words.ranges = std::move(out);
}

void Metaspace::apply(Words& words) const {
  rewrite_words(words, [&](Rewriter& out, Range word) {
    const std::string_view text = view(words, word);
    const bool prepend =
        prepend_scheme == PrependScheme::always ||
        (prepend_scheme == PrependScheme::first && words.at_start && words.text.original(word).begin == 0);
    if (prepend && !text.starts_with(replacement) && !text.starts_with(' ')) out.prepend(word.begin, replacement);
    for (std::size_t at = text.find(' '); at != std::string_view::npos; at = text.find(' ', at + 1))
      out.replace(word.begin + at, word.begin + at + 1, replacement);
  });
  if (split) {
    const Pattern pattern(replacement);
    split_words(words, SplitBehavior::merged_with_next, false,
                [&](std::string_view text) { return pattern.find_all(text); });
  }
}

void FixedLength::apply(Words& words) const {
  std::vector<Range> out;
  for (const Range word : words.ranges) {
    const std::string_view text = view(words, word);
    std::size_t begin = 0;
    std::size_t characters = 0;
    for (std::size_t at = 0; at < text.size();) {
      at += utf8::decode(text, at).size;
      if (++characters == length || at == text.size()) {
        out.push_back(shifted({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(at)}, word.begin));
        begin = at;
        characters = 0;
      }
    }
  }
  words.ranges = std::move(out);
}

}  // namespace pre_tokenizers

void PreTokenizer::apply(Words& words) const {
  std::erase_if(words.ranges, [](Range word) { return word.empty(); });
  for (const Step& step : steps_) std::visit([&](const auto& s) { s.apply(words); }, step);
}

bool PreTokenizer::leave_bytes() {
  auto* last = steps_.empty() ? nullptr : std::get_if<pre_tokenizers::ByteLevel>(&steps_.back());
  if (last) last->spell = false;
  return last != nullptr;
}

void PreTokenizer::forget_scanners() {
  for (Step& step : steps_)
    if (auto* split = std::get_if<pre_tokenizers::Split>(&step)) split->scanner.reset();
}

SplitBehavior parse_split_behavior(const JsonView& json) {
  const std::string name = json.string();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  json.fail(fmt::format("unknown split behavior \"{}\"", name));
}

PrependScheme parse_prepend_scheme(const JsonView& json) {
  // Files from before prepend_scheme have add_prefix_space.
  if (!json.has("prepend_scheme"))
    return json.boolean("add_prefix_space", true) ? PrependScheme::always : PrependScheme::never;
  const std::string name = json.string("prepend_scheme");
  if (name == "first") return PrependScheme::first;
  if (name == "never") return PrependScheme::never;
  if (name == "always") return PrependScheme::always;
  json.fail(fmt::format("unknown prepend_scheme \"{}\"", name));
}

PreTokenizer PreTokenizer::parse(const JsonView& json) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.parse_into(json, 0);
  return pre_tokenizer;
}

void PreTokenizer::parse_into(const JsonView& json, int depth) {
  using pre_tokenizers::SplitCharacters;
  using Property = SplitCharacters::Property;
  check_nesting(json, depth);
  const std::string type = json.string("type");
  if (type == "Sequence") {
    const JsonView list = json.at("pretokenizers");
    for (std::size_t i = 0; i < list.size(); ++i) parse_into(list.at(i), depth + 1);
  } else if (type == "ByteLevel") {
    add(pre_tokenizers::ByteLevel{json.boolean("add_prefix_space", true), json.boolean("use_regex", true), true});
  } else if (type == "Split") {
    Pattern pattern = Pattern::parse(json.at("pattern"));
    const SplitBehavior behavior = parse_split_behavior(json.at("behavior"));
    const bool invert = json.boolean("invert", false);
    // A scanner returns the matches themselves, as these two common spellings of "one word per match" require.
    const bool one_word_per_match =
        (behavior == SplitBehavior::isolated && !invert) || (behavior == SplitBehavior::removed && invert);
    auto scanner = one_word_per_match ? WordScanner::for_regex(pattern.regex()) : std::nullopt;
    add(pre_tokenizers::Split{std::move(pattern), behavior, invert, scanner});
  } else if (type == "Whitespace") {
    add(pre_tokenizers::Whitespace{});
  } else if (type == "WhitespaceSplit") {
    add(SplitCharacters{Property::space, SplitBehavior::removed, 0});
  } else if (type == "BertPreTokenizer") {
    add(SplitCharacters{Property::space, SplitBehavior::removed, 0});
    add(SplitCharacters{Property::punctuation, SplitBehavior::isolated, 0});
  } else if (type == "Punctuation") {
    const auto behavior = json.has("behavior") ? parse_split_behavior(json.at("behavior")) : SplitBehavior::isolated;
    add(SplitCharacters{Property::punctuation, behavior, 0});
  } else if (type == "Digits") {
    const bool individual = json.boolean("individual_digits", false);
    add(SplitCharacters{Property::digit, individual ? SplitBehavior::isolated : SplitBehavior::contiguous, 0});
  } else if (type == "CharDelimiterSplit") {
    const std::string delimiter = json.string("delimiter");
    if (utf8::count(delimiter) != 1) json.fail("delimiter must be one character");
    add(SplitCharacters{Property::character, SplitBehavior::removed, utf8::decode(delimiter, 0).code});
  } else if (type == "Metaspace") {
    add(pre_tokenizers::Metaspace{json.string("replacement", "\u2581"), parse_prepend_scheme(json),
                                  json.boolean("split", true)});
    if (utf8::count(json.string("replacement", "\u2581")) != 1) json.fail("replacement must be one character");
  } else if (type == "FixedLength") {
    const auto length = json.integer("length", 5);
    if (length < 1) json.fail("length must be at least 1");
    add(pre_tokenizers::FixedLength{static_cast<std::size_t>(length)});
  } else {
    json.fail(fmt::format("unknown pre-tokenizer \"{}\"", type));
  }
}

}  // namespace jerboa
