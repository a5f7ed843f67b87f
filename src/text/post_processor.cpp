#include "text/post_processor.h"

#include <fmt/format.h>
#include <iterator>
#include <nlohmann/json.hpp>

#include "text/nesting.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace jerboa {
namespace {

TokenId parse_id(const JsonView& json) {
  const auto id = json.integer();
  if (id < 0 || id > max_token_id) json.fail(fmt::format("id {} is out of range (0 to {})", id, max_token_id));
  return static_cast<TokenId>(id);
}

std::int32_t parse_type(const JsonView& json) {
  return static_cast<std::int32_t>(json.integer("type_id", 0) & 0x7FFFFFFF);
}

std::vector<PostProcessor::Piece> parse_pieces(const JsonView& list, const JsonView& json) {
  using Kind = PostProcessor::Piece::Kind;
  std::vector<PostProcessor::Piece> pieces;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonView item = list.at(i);
    if (item.has("Sequence")) {
      const JsonView sequence = item.at("Sequence");
      const std::string id = sequence.string("id");
      if (id != "A" && id != "B") sequence.fail(fmt::format("sequence \"{}\" is neither A nor B", id));
      pieces.push_back({id == "A" ? Kind::first : Kind::second, parse_type(sequence), {}});
      continue;
    }
    const JsonView special = item.at("SpecialToken");
    const JsonView ids = json.at("special_tokens").at(special.string("id")).at("ids");
    PostProcessor::Piece piece{Kind::tokens, parse_type(special), {}};
    for (std::size_t j = 0; j < ids.size(); ++j) piece.tokens.push_back(parse_id(ids.at(j)));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// BERT's and RoBERTa's ["</s>", 2].
PostProcessor::Piece parse_token(const JsonView& json, std::int32_t type_id) {
  return {PostProcessor::Piece::Kind::tokens, type_id, {parse_id(json.at(1))}};
}

void append(Encoding& to, Encoding&& from) {
  const auto move = [](auto& a, auto& b) { a.insert(a.end(), b.begin(), b.end()); };
  move(to.ids, from.ids);
  move(to.offsets, from.offsets);
  move(to.type_ids, from.type_ids);
  move(to.special_mask, from.special_mask);
  move(to.attention_mask, from.attention_mask);
}

void trim_offsets(Encoding& encoding, std::string_view text, bool add_prefix_space) {
  const unicode::Classes classify;
  const auto is_space = [&](std::size_t at) { return classify.is(utf8::decode(text, at).code, unicode::space); };
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    TextSpan& span = encoding.offsets[i];
    // If the tokenizer adds a prefix space, a space at the very start of the text belongs to the user and stays.
    const bool keep_first = add_prefix_space && span.begin == 0;
    while (!keep_first && span.begin < span.end && is_space(span.begin)) {
      span.begin += utf8::decode(text, span.begin).size;
    }
    while (span.end > span.begin) {
      const std::size_t last = utf8::previous(text, span.end);
      if (!is_space(last)) break;
      span.end = static_cast<std::uint32_t>(last);
    }
  }
}

Encoding fill(const std::vector<PostProcessor::Piece>& pieces, std::vector<Encoding>& encodings) {
  using Kind = PostProcessor::Piece::Kind;
  Encoding out;
  for (const auto& piece : pieces) {
    if (piece.kind == Kind::tokens) {
      for (const TokenId id : piece.tokens) {
        out.ids.push_back(id);
        out.offsets.push_back({});
        out.type_ids.push_back(piece.type_id);
        out.special_mask.push_back(1);
        out.attention_mask.push_back(1);
      }
      continue;
    }
    const std::size_t index = piece.kind == Kind::first ? 0 : 1;
    if (index >= encodings.size()) continue;
    Encoding text = encodings[index];
    text.type_ids.assign(text.size(), piece.type_id);
    append(out, std::move(text));
  }
  return out;
}

}  // namespace

std::size_t PostProcessor::added(bool pair) const {
  std::size_t count = 0;
  for (const auto& step : steps_) {
    if (const auto* form = std::get_if<Template>(&step))
      for (const Piece& piece : pair ? form->pair : form->single) count += piece.tokens.size();
  }
  return count;
}

Encoding PostProcessor::apply(std::vector<Encoding> encodings, const std::vector<std::string_view>& texts,
                              bool add_special) const {
  const bool pair = encodings.size() > 1;
  for (const auto& step : steps_) {
    if (const auto* trim = std::get_if<TrimOffsets>(&step)) {
      for (std::size_t i = 0; i < encodings.size() && i < texts.size(); ++i)
        trim_offsets(encodings[i], texts[i], trim->add_prefix_space);
    } else if (add_special) {
      const auto& form = std::get<Template>(step);
      Encoding filled = fill(pair ? form.pair : form.single, encodings);
      encodings.clear();
      encodings.push_back(std::move(filled));
    }
  }
  Encoding out = std::move(encodings[0]);
  if (encodings.size() > 1) {
    encodings[1].type_ids.assign(encodings[1].size(), 1);
    append(out, std::move(encodings[1]));
  }
  return out;
}

PostProcessor PostProcessor::parse(const JsonView& json) {
  PostProcessor processor;
  processor.parse_into(json, 0);
  return processor;
}

void PostProcessor::parse_into(const JsonView& json, int depth) {
  using Kind = Piece::Kind;
  check_nesting(json, depth);
  const std::string type = json.string("type");
  if (type == "Sequence") {
    const JsonView list = json.at("processors");
    for (std::size_t i = 0; i < list.size(); ++i) parse_into(list.at(i), depth + 1);
  } else if (type == "TemplateProcessing") {
    add(Template{parse_pieces(json.at("single"), json), parse_pieces(json.at("pair"), json)});
  } else if (type == "ByteLevel") {
    if (json.boolean("trim_offsets", true)) steps_.emplace_back(TrimOffsets{json.boolean("add_prefix_space", true)});
  } else if (type == "BertProcessing") {
    const Piece cls = parse_token(json.at("cls"), 0);
    const Piece sep = parse_token(json.at("sep"), 0);
    const Piece second_sep = parse_token(json.at("sep"), 1);
    add(Template{{cls, {Kind::first, 0, {}}, sep},
                 {cls, {Kind::first, 0, {}}, sep, {Kind::second, 1, {}}, second_sep}});
  } else if (type == "RobertaProcessing") {
    if (json.boolean("trim_offsets", true)) steps_.emplace_back(TrimOffsets{json.boolean("add_prefix_space", true)});
    const Piece cls = parse_token(json.at("cls"), 0);
    const Piece sep = parse_token(json.at("sep"), 0);
    const Piece first{Kind::first, 0, {}};
    const Piece second{Kind::second, 0, {}};
    add(Template{{cls, first, sep}, {cls, first, sep, sep, second, sep}});
  } else {
    json.fail(fmt::format("unknown post-processor \"{}\"", type));
  }
}

}  // namespace jerboa
