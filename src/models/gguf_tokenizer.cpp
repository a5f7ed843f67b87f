#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include <jerboa/base/bit_cast.h>
#include <jerboa/base/error.h>

#include "base/parse_json.h"
#include "models/gguf_parts.h"

// A GGUF file holds only the tokens. Those of sentencepiece models become a tokenizer.model, which keeps their scores;
// those of byte-level BPE become a tokenizer.json.
namespace jerboa::models {
namespace {

using Json = nlohmann::ordered_json;

struct GgufTokens {
  /// Token types, numbered as in sentencepiece.
  enum Kind : std::int64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

  explicit GgufTokens(const Gguf& from) : file(from), texts(from.texts("tokenizer.ggml.tokens")) {
    if (file.has("tokenizer.ggml.token_type")) kinds = file.integers("tokenizer.ggml.token_type");
    if (kinds.empty()) kinds.assign(texts.size(), normal);
    if (file.has("tokenizer.ggml.scores")) scores = file.numbers("tokenizer.ggml.scores");
    if (kinds.size() != texts.size() || (!scores.empty() && scores.size() != texts.size()))
      fail(fmt::format("{} tokens have {} types and {} scores", texts.size(), kinds.size(), scores.size()));
  }

  const Gguf& file;
  std::vector<std::string> texts;
  std::vector<std::int64_t> kinds;
  std::vector<float> scores;

  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(fmt::format("{}: the tokenizer: {}", file.path().string(), what));
  }
  /// The token that a key names: "bos".
  std::optional<std::int64_t> marked(std::string_view mark) const {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", mark);
    if (!file.has(key)) return std::nullopt;
    const std::int64_t id = file.integer(key);
    if (id < 0 || id >= std::ssize(texts))
      fail(fmt::format("\"{}\" is {}, but there are {} tokens", key, id, texts.size()));
    return id;
  }
  const std::string& text(std::int64_t id) const { return texts[static_cast<std::size_t>(id)]; }
  bool flag(std::string_view name, bool otherwise) const {
    const std::string key = fmt::format("tokenizer.ggml.{}", name);
    return file.has(key) ? file.flag(key) : otherwise;
  }
};

/// Writes a protobuf message.
class Message {
 public:
  void number(std::uint32_t field, std::uint64_t value) {
    varint(field << 3);
    varint(value);
  }
  void real(std::uint32_t field, float value) {
    varint(field << 3 | 5);
    const auto bits = jerboa::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift & 0xff);
  }
  void text(std::uint32_t field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    bytes_ += value;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// The fields of sentencepiece's ModelProto.
std::string sentencepiece_model(const GgufTokens& tokens) {
  if (tokens.scores.empty()) tokens.fail("\"tokenizer.ggml.scores\" is missing, which a sentencepiece model needs");
  Message model;
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
    Message piece;
    piece.text(1, tokens.texts[i]);
    piece.real(2, tokens.scores[i]);
    piece.number(
        3, static_cast<std::uint64_t>(std::clamp<std::int64_t>(tokens.kinds[i], GgufTokens::normal, GgufTokens::byte)));
    model.text(1, piece.bytes());
  }
  Message trainer;
  trainer.number(3, 2);  // BPE
  trainer.number(35,
                 std::find(tokens.kinds.begin(), tokens.kinds.end(), GgufTokens::byte) != tokens.kinds.end() ? 1 : 0);
  constexpr std::array marks{std::pair{"unknown", 40U}, std::pair{"bos", 41U}, std::pair{"eos", 42U}};
  for (const auto& [mark, field] : marks)
    if (const auto id = tokens.marked(mark)) trainer.number(field, static_cast<std::uint64_t>(*id));
  model.text(2, trainer.bytes());
  Message normalizer;
  normalizer.text(1, "identity");
  normalizer.number(3, tokens.flag("add_space_prefix", true) ? 1 : 0);
  normalizer.number(4, tokens.flag("remove_extra_whitespaces", false) ? 1 : 0);
  normalizer.number(5, 1);  // spaces are written as ▁
  model.text(3, normalizer.bytes());
  return model.bytes();
}

// How a byte-level BPE splits text into words, by the names that GGUF uses (tokenizer.ggml.pre).
struct Words {
  std::string_view name;
  std::string_view pattern;  // "": that of GPT-2
  bool single_digits = false;
  bool nfc = false;
  bool whole_words = false;  // a word that is a token is not built by merges
  bool begins = false;       // texts begin with the beginning-of-text token
};

constexpr std::string_view gpt4_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array words_table{
    Words{.name = "gpt-2", .pattern = ""},
    Words{.name = "phi-2", .pattern = ""},
    Words{.name = "llama-bpe", .pattern = gpt4_pattern, .whole_words = true, .begins = true},
    Words{.name = "llama3", .pattern = gpt4_pattern, .whole_words = true, .begins = true},
    Words{.name = "llama-v3", .pattern = gpt4_pattern, .whole_words = true, .begins = true},
    Words{.name = "smaug-bpe", .pattern = gpt4_pattern, .whole_words = true},
    Words{.name = "dbrx", .pattern = gpt4_pattern},
    Words{.name = "qwen2", .pattern = qwen2_pattern, .nfc = true},
    Words{.name = "deepseek-r1-qwen", .pattern = qwen2_pattern, .nfc = true},
    Words{.name = "smollm", .pattern = "", .single_digits = true},
};

const Words& words_of(const GgufTokens& tokens, const GgufArchitecture& architecture) {
  constexpr const char* key = "tokenizer.ggml.pre";
  if (!tokens.file.has(key) && architecture.name == "gpt2") return words_table.front();
  const std::string wanted = tokens.file.text(key);
  std::vector<std::string_view> known;
  for (const Words& words : words_table) {
    if (words.name == wanted) return words;
    known.push_back(words.name);
  }
  tokens.fail(fmt::format("it cuts texts into words as {} does (\"{}\"), which is not known; known: {}",
                          in_quotes(wanted), key, fmt::join(known, ", ")));
}

Json pre_tokenizer(const Words& words) {
  auto steps = Json::array();
  if (words.single_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (!words.pattern.empty())
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", words.pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", false},
                   {"use_regex", words.pattern.empty()}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// Adds the token at the beginning of each text.
Json beginning(const std::string& token, std::int64_t id) {
  const auto special = [&](int type) { return Json{{"SpecialToken", {{"id", token}, {"type_id", type}}}}; };
  const auto text = [&](const char* name, int type) { return Json{{"Sequence", {{"id", name}, {"type_id", type}}}}; };
  return {{"type", "TemplateProcessing"},
          {"single", Json::array({special(0), text("A", 0)})},
          {"pair", Json::array({special(0), text("A", 0), special(1), text("B", 1)})},
          {"special_tokens", {{token, {{"id", token}, {"ids", Json::array({id})}, {"tokens", Json::array({token})}}}}}};
}

std::string byte_level_json(const GgufTokens& tokens, const Words& words, bool add_bos) {
  auto added = Json::array();
  Json::object_t vocabulary;  // filled as a list: inserting would compare each new key with all others
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) {
    const std::string& text = tokens.texts[i];
    if (!seen.insert(text).second) tokens.fail(fmt::format("the token {} occurs twice", in_quotes(text)));
    if (tokens.kinds[i] == GgufTokens::control || tokens.kinds[i] == GgufTokens::user_defined)
      added.push_back({{"id", i},
                       {"content", text},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", tokens.kinds[i] == GgufTokens::control}});
    else
      vocabulary.emplace_back(text, i);
  }
  const Json decoder{{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  const Json model{{"type", "BPE"},
                   {"ignore_merges", words.whole_words},
                   {"vocab", std::move(vocabulary)},
                   {"merges", tokens.file.texts("tokenizer.ggml.merges")}};
  const auto bos = tokens.marked("bos");
  const Json file{{"version", "1.0"},
                  {"truncation", nullptr},
                  {"padding", nullptr},
                  {"added_tokens", added},
                  {"normalizer", words.nfc ? Json{{"type", "NFC"}} : Json()},
                  {"pre_tokenizer", pre_tokenizer(words)},
                  {"post_processor", add_bos && bos ? beginning(tokens.text(*bos), *bos) : Json()},
                  {"decoder", decoder},
                  {"model", model}};
  return file.dump();
}

// Tokens that end a turn, which older files do not list.
constexpr std::array<std::string_view, 6> turn_ends{"<|eot_id|>", "<|im_end|>",    "<|end|>",
                                                    "<|eom_id|>", "<end_of_turn>", "<|endoftext|>"};

std::string generation_config(const GgufTokens& tokens) {
  std::vector<std::int64_t> ends;
  const auto add = [&](std::int64_t id) {
    if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  };
  for (const char* mark : {"eos", "eot", "eom"})
    if (const auto id = tokens.marked(mark)) add(*id);
  for (std::size_t i = 0; i < tokens.texts.size(); ++i)
    if (tokens.kinds[i] != GgufTokens::normal &&
        std::find(turn_ends.begin(), turn_ends.end(), tokens.texts[i]) != turn_ends.end())
      add(static_cast<std::int64_t>(i));
  Json config{{"eos_token_id", ends}};
  if (const auto id = tokens.marked("bos")) config["bos_token_id"] = *id;
  const auto recommend = [&](const char* key, const char* name, bool whole) {
    if (!tokens.file.has(key)) return;
    config["do_sample"] = true;
    config[name] = whole ? Json(tokens.file.integer(key)) : Json(tokens.file.number(key));
  };
  recommend("general.sampling.temp", "temperature", false);
  recommend("general.sampling.top_k", "top_k", true);
  recommend("general.sampling.top_p", "top_p", false);
  recommend("general.sampling.min_p", "min_p", false);
  return config.dump(2) + "\n";
}

std::string tokenizer_config(const GgufTokens& tokens, bool add_bos, bool sentencepiece) {
  Json config{{"tokenizer_class", sentencepiece ? "LlamaTokenizer" : "PreTrainedTokenizerFast"},
              {"add_bos_token", add_bos},
              {"add_eos_token", tokens.flag("add_eos_token", false)}};
  constexpr std::array marks{std::pair{"bos", "bos_token"}, std::pair{"eos", "eos_token"},
                             std::pair{"unknown", "unk_token"}, std::pair{"padding", "pad_token"}};
  for (const auto& [mark, name] : marks)
    if (const auto id = tokens.marked(mark)) config[name] = tokens.text(*id);
  if (tokens.file.has("tokenizer.chat_template")) config["chat_template"] = tokens.file.text("tokenizer.chat_template");
  return config.dump(2) + "\n";
}

}  // namespace

void read_gguf_tokenizer(const Gguf& file, const GgufArchitecture& architecture, GgufModel& model) {
  const std::string kind = file.text("tokenizer.ggml.model");
  if (kind != "llama" && kind != "gpt2")
    throw FileError(
        fmt::format("{}: a tokenizer of type {} (\"tokenizer.ggml.model\") is not supported, only llama and "
                    "gpt2; use the model's Hugging Face folder",
                    file.path().string(), in_quotes(kind)));
  const GgufTokens tokens(file);
  const bool sentencepiece = kind == "llama";
  try {
    const Words* words = sentencepiece ? nullptr : &words_of(tokens, architecture);
    const bool add_bos = tokens.flag("add_bos_token", sentencepiece || words->begins);
    model.tokenizer_name = sentencepiece ? "tokenizer.model" : "tokenizer.json";
    model.tokenizer = sentencepiece ? sentencepiece_model(tokens) : byte_level_json(tokens, *words, add_bos);
    model.tokenizer_config = tokenizer_config(tokens, add_bos, sentencepiece);
    model.generation_config = generation_config(tokens);
  } catch (const nlohmann::json::exception& error) {
    tokens.fail(json_reason(error));  // a text that is not UTF-8
  }
}

}  // namespace jerboa::models
