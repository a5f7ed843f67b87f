// Reads tokenizer.json. The vocabulary and the merges, nearly all of the file, are read in one pass; the rest is small
// and goes through a JSON tree.
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include <jerboa/base/error.h>
#include <jerboa/text/tokenizer.h>

#include "base/parse_json.h"
#include "text/json_cursor.h"
#include "text/json_view.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"

namespace jerboa {
namespace {

using Json = nlohmann::json;

// A string in a growing block of text.
struct Slice {
  std::uint32_t begin = 0;
  std::uint32_t size = 0;
};

/// The "model" object as stored in the file.
struct ModelFile {
  std::string type;
  Vocab vocab;                 // from {"token": id}
  std::vector<double> scores;  // from [["token", score]]
  bool has_scores = false;
  std::string merge_text;
  std::vector<std::pair<Slice, Slice>> merges;
  bool has_merges = false;
  Json options = Json::object();  // everything else
};

TokenId checked_id(const JsonCursor& cursor, std::int64_t id) {
  if (id < 0 || id > max_token_id) cursor.fail(fmt::format("token id {} is out of range (0 to {})", id, max_token_id));
  return static_cast<TokenId>(id);
}

void read_vocab(JsonCursor& cursor, std::size_t file_size, ModelFile& model) {
  // A typical size; the table grows if this is too small.
  model.vocab = Vocab();
  model.vocab.reserve(file_size / 48, file_size / 6);
  if (cursor.peek() == '{') {
    cursor.begin_object();
    std::string_view token;
    std::string text;
    while (cursor.next_key(token)) {
      text = token;
      const std::size_t before = model.vocab.size();
      model.vocab.add(text, checked_id(cursor, cursor.integer()));
      if (model.vocab.size() == before) cursor.fail(fmt::format("the token {} occurs twice", in_quotes(text)));
    }
    return;
  }
  model.has_scores = true;
  model.scores.clear();
  cursor.begin_array();
  while (cursor.next_element()) {
    cursor.begin_array();
    if (!cursor.next_element()) cursor.fail("expected [token, score]");
    const TokenId id = checked_id(cursor, static_cast<std::int64_t>(model.scores.size()));
    model.vocab.add(cursor.string(), id);
    if (!cursor.next_element()) cursor.fail("expected [token, score]");
    model.scores.push_back(cursor.number());
    if (cursor.next_element()) cursor.fail("expected [token, score]");
  }
}

Slice keep(ModelFile& model, std::string_view text) {
  const Slice slice{static_cast<std::uint32_t>(model.merge_text.size()), static_cast<std::uint32_t>(text.size())};
  model.merge_text += text;
  return slice;
}

void read_merges(JsonCursor& cursor, std::size_t file_size, ModelFile& model) {
  model.has_merges = true;
  model.merges.clear();
  model.merge_text.clear();
  model.merge_text.reserve(file_size / 3);
  cursor.begin_array();
  while (cursor.next_element()) {
    if (cursor.peek() == '[') {
      cursor.begin_array();
      if (!cursor.next_element()) cursor.fail("expected a pair of tokens");
      const Slice left = keep(model, cursor.string());
      if (!cursor.next_element()) cursor.fail("expected a pair of tokens");
      const Slice right = keep(model, cursor.string());
      if (cursor.next_element()) cursor.fail("expected a pair of tokens");
      model.merges.emplace_back(left, right);
      continue;
    }
    const std::string_view line = cursor.string();
    if (line.starts_with("#version")) continue;
    const auto space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      cursor.fail("expected a merge, two tokens with a space between them");
    const Slice left = keep(model, line.substr(0, space));
    model.merges.emplace_back(left, keep(model, line.substr(space + 1)));
  }
}

Json parse_small(std::string_view text, const JsonCursor& cursor) {
  try {
    return parse_json(text, "the value before this place");
  } catch (const FileError& error) {
    cursor.fail(error.what());
  }
}

/// The next key of an object, which must not be among those `seen`.
std::optional<std::string> next_new_key(JsonCursor& cursor, std::set<std::string>& seen) {
  std::string_view key;
  if (!cursor.next_key(key)) return std::nullopt;
  if (!seen.emplace(key).second) cursor.fail(fmt::format("the key {} occurs twice", in_quotes(key)));
  return std::string(key);
}

ModelFile read_model(JsonCursor& cursor, std::size_t file_size) {
  ModelFile model;
  cursor.begin_object();
  std::set<std::string> seen;
  while (const auto next = next_new_key(cursor, seen)) {
    const std::string& key = *next;
    if (key == "vocab") {
      read_vocab(cursor, file_size, model);
    } else if (key == "merges") {
      read_merges(cursor, file_size, model);
    } else if (key == "type" && !cursor.null()) {
      model.type = cursor.string();
    } else {
      model.options[key] = parse_small(cursor.skip_value(), cursor);
    }
  }
  // Old files have no type; each kind of model has a characteristic field.
  if (model.type.empty()) {
    model.type = model.has_merges                                     ? "BPE"
                 : model.has_scores                                   ? "Unigram"
                 : model.options.contains("max_input_chars_per_word") ? "WordPiece"
                                                                      : "WordLevel";
  }
  return model;
}

MergeTable resolve_merges(const ModelFile& model, std::string_view continuing_prefix, const JsonView& where) {
  MergeTable table(model.merges.size());
  std::string joined;
  std::uint32_t rank = 0;
  const auto text = [&](Slice slice) { return std::string_view(model.merge_text).substr(slice.begin, slice.size); };
  const auto id_of = [&](std::string_view token) {
    const TokenId id = model.vocab.find(token);
    if (id == no_token)
      where.fail(fmt::format("merges[{}] needs the token \"{}\", which the vocabulary does not have", rank, token));
    return id;
  };
  for (const auto& [left, right] : model.merges) {
    std::string_view tail = text(right);
    const TokenId left_id = id_of(text(left));
    const TokenId right_id = id_of(tail);
    if (tail.starts_with(continuing_prefix)) tail.remove_prefix(continuing_prefix.size());
    joined = text(left);
    joined += tail;
    table.add(left_id, right_id, {rank, id_of(joined)});
    ++rank;
  }
  return table;
}

Model build_model(ModelFile& model, bool reads_bytes, const std::string& name) {
  const JsonView options(model.options, name + ": model");
  const auto find_unk = [&](std::string_view fallback) {
    const std::string token = options.string("unk_token", fallback);
    const TokenId id = model.vocab.find(token);
    if (id == no_token) options.fail(fmt::format("the unknown token \"{}\" is not in the vocabulary", token));
    return id;
  };
  if (model.type == "BPE") {
    if (model.has_scores) options.fail("a BPE vocabulary must be an object of tokens and ids");
    BpeModel::Options bpe;
    bpe.has_unk = options.has("unk_token");
    bpe.unk_token = options.string("unk_token", "");
    bpe.continuing_subword_prefix = options.string("continuing_subword_prefix", "");
    bpe.end_of_word_suffix = options.string("end_of_word_suffix", "");
    bpe.fuse_unk = options.boolean("fuse_unk", false);
    bpe.byte_fallback = options.boolean("byte_fallback", false);
    bpe.ignore_merges = options.boolean("ignore_merges", false);
    bpe.reads_bytes = reads_bytes;
    MergeTable merges = resolve_merges(model, bpe.continuing_subword_prefix, options);
    return BpeModel(std::move(model.vocab), std::move(merges), std::move(bpe));
  }
  if (model.type == "WordPiece") {
    const TokenId unk = find_unk("[UNK]");
    const auto max_characters = options.integer("max_input_chars_per_word", 100);
    return WordPieceModel(std::move(model.vocab), unk, options.string("continuing_subword_prefix", "##"),
                          max_characters < 0 ? 0 : static_cast<std::size_t>(max_characters));
  }
  if (model.type == "WordLevel") {
    const TokenId unk = model.vocab.find(options.string("unk_token", "<unk>"));
    return WordLevelModel(std::move(model.vocab), unk);
  }
  if (model.type == "Unigram") {
    if (!model.has_scores) options.fail("a Unigram vocabulary must be an array of [token, score]");
    TokenId unk = no_token;
    if (options.has("unk_id")) {
      const auto id = options.integer("unk_id");
      if (id < 0 || static_cast<std::size_t>(id) >= model.scores.size())
        options.fail(fmt::format("unk_id {} is not in the vocabulary of {}", id, model.scores.size()));
      unk = static_cast<TokenId>(id);
    }
    return UnigramModel(std::move(model.vocab), std::move(model.scores), unk, options.boolean("byte_fallback", false));
  }
  options.fail(
      fmt::format("unknown model type \"{}\"; BPE, WordPiece, WordLevel and Unigram are supported", model.type));
}

Side parse_side(const JsonView& json) {
  const std::string side = json.string("direction", "Right");
  if (side != "Left" && side != "Right") json.fail(fmt::format("unknown direction \"{}\"", side));
  return side == "Left" ? Side::left : Side::right;
}

std::size_t parse_size(const JsonView& json) {
  constexpr std::int64_t max_length = 1 << 30;
  const auto value = json.integer();
  if (value < 0) json.fail(fmt::format("{} is negative", value));
  return static_cast<std::size_t>(std::min(value, max_length));
}

Truncation parse_truncation(const JsonView& json) {
  Truncation truncation;
  truncation.max_length = parse_size(json.at("max_length"));
  truncation.side = parse_side(json);
  const std::string strategy = json.string("strategy", "LongestFirst");
  if (strategy == "OnlyFirst") {
    truncation.strategy = Truncation::Strategy::only_first;
  } else if (strategy == "OnlySecond") {
    truncation.strategy = Truncation::Strategy::only_second;
  } else if (strategy != "LongestFirst") {
    json.fail(fmt::format("unknown strategy \"{}\"", strategy));
  }
  return truncation;
}

Padding parse_padding(const JsonView& json) {
  // A file must not make every encoding arbitrarily long.
  constexpr std::size_t max_padding = 1 << 24;
  Padding padding;
  if (json.has("strategy") && json.at("strategy").is_object())
    padding.length = std::min(max_padding, parse_size(json.at("strategy").at("Fixed")));
  if (json.has("pad_to_multiple_of"))
    padding.multiple_of = std::clamp<std::size_t>(parse_size(json.at("pad_to_multiple_of")), 1, max_padding);
  padding.side = parse_side(json);
  const auto id = [&](std::string_view key) {
    const std::int64_t value = json.integer(key, 0);
    if (value < 0 || value > max_token_id)
      json.fail(fmt::format("{} is {}, which is out of range (0 to {})", key, value, max_token_id));
    return static_cast<std::int32_t>(value);
  };
  padding.id = id("pad_id");
  padding.type_id = id("pad_type_id");
  return padding;
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view text, std::string_view name) {
  if (text.size() > std::numeric_limits<std::uint32_t>::max())
    throw FileError(fmt::format("{}: {} bytes are more than a tokenizer.json can have", name, text.size()));
  if (const auto good = utf8::valid_prefix(text); good != text.size())
    throw FileError(fmt::format("{}: byte {} is not UTF-8", name, good));
  JsonCursor cursor(text, name);
  Json rest = Json::object();
  std::optional<ModelFile> model;
  cursor.begin_object();
  std::set<std::string> seen;
  while (const auto next = next_new_key(cursor, seen)) {
    const std::string& key = *next;
    if (key == "model") {
      model = read_model(cursor, text.size());
    } else {
      rest[key] = parse_small(cursor.skip_value(), cursor);
    }
  }
  cursor.finish();
  const std::string file(name);
  if (!model) throw FileError(fmt::format("{}: there is no \"model\"; is this a tokenizer.json?", name));

  const JsonView root(rest, file);
  const auto section = [&](std::string_view key) { return JsonView(root.at(key)); };
  auto parts = std::make_shared<detail::TokenizerParts>();
  if (root.has("normalizer")) parts->normalizer = Normalizer::parse(section("normalizer"));
  if (root.has("pre_tokenizer")) parts->pre_tokenizer = PreTokenizer::parse(section("pre_tokenizer"));
  if (root.has("post_processor")) parts->post_processor = PostProcessor::parse(section("post_processor"));
  if (root.has("decoder")) {
    parts->decoder = DecoderChain::parse(section("decoder"));
  } else {
    parts->decoder.add(decoders::Join{});
  }
  if (root.has("truncation")) parts->truncation = parse_truncation(section("truncation"));
  if (root.has("padding")) parts->padding = parse_padding(section("padding"));
  std::vector<AddedToken> added;
  if (root.has("added_tokens")) {
    const JsonView list = section("added_tokens");
    for (std::size_t i = 0; i < list.size(); ++i) added.push_back(AddedToken::parse(list.at(i)));
  }
  parts->added = AddedTokens(std::move(added), parts->normalizer);
  const JsonView options(model->options, file);
  const bool affixes =
      !options.string("continuing_subword_prefix", "").empty() || !options.string("end_of_word_suffix", "").empty();
  const bool reads_bytes = model->type == "BPE" && !affixes && parts->pre_tokenizer.leave_bytes();
  parts->model = build_model(*model, reads_bytes, file);
  return Tokenizer(std::move(parts));
}

}  // namespace jerboa
