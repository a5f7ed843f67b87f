#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <queue>
#include <set>
#include <unordered_map>
#include <utility>

#include <jerboa/base/error.h>
#include <jerboa/text/bpe_trainer.h>

#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"
#include "text/word_scanner.h"

namespace jerboa {
namespace {

using Pair = std::pair<TokenId, TokenId>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const auto key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(pair.first)) << 32 |
                     static_cast<std::uint32_t>(pair.second);
    return (key * 0x9E3779B97F4A7C15U) >> 16;
  }
};

struct Word {
  std::vector<TokenId> tokens;
  std::uint64_t count = 0;
};

/// How often each adjacent pair occurs, and in which words.
struct PairInfo {
  std::int64_t count = 0;
  std::vector<std::uint32_t> words;  // may include words that no longer have the pair
};

struct Candidate {
  std::int64_t count;
  Pair pair;
  // The most frequent pair first; ties go to the older tokens, so that the result does not depend on hashing.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Merging {
 public:
  explicit Merging(std::vector<Word> words) : words_(std::move(words)) {
    for (std::size_t i = 0; i < words_.size(); ++i) count_pairs(static_cast<std::uint32_t>(i), 1);
    for (const auto& [pair, info] : pairs_) queue_.push({info.count, pair});
  }

  /// The pair to merge next, or nothing if none is frequent enough.
  std::optional<Pair> best(std::int64_t min_frequency) {
    while (!queue_.empty()) {
      Candidate top = queue_.top();
      queue_.pop();
      const std::int64_t count = pairs_[top.pair].count;
      if (count < std::max<std::int64_t>(1, min_frequency)) continue;
      if (count == top.count) return top.pair;
      queue_.push({count, top.pair});  // it has become rarer since it was queued
    }
    return std::nullopt;
  }

  void join(Pair pair, TokenId joined) {
    changed_.clear();
    std::vector<std::uint32_t> words = std::move(pairs_[pair].words);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    for (const std::uint32_t index : words) {
      auto& tokens = words_[index].tokens;
      const bool has = std::adjacent_find(tokens.begin(), tokens.end(), [&](TokenId a, TokenId b) {
                         return a == pair.first && b == pair.second;
                       }) != tokens.end();
      if (!has) continue;
      count_pairs(index, -1);
      std::size_t to = 0;
      for (std::size_t from = 0; from < tokens.size(); ++to) {
        const bool here = from + 1 < tokens.size() && tokens[from] == pair.first && tokens[from + 1] == pair.second;
        tokens[to] = here ? joined : tokens[from];
        from += here ? 2 : 1;
      }
      tokens.resize(to);
      count_pairs(index, 1);
    }
    for (const Pair& changed : changed_) {
      const std::int64_t count = pairs_[changed].count;
      if (count > 0) queue_.push({count, changed});
    }
  }

 private:
  void count_pairs(std::uint32_t index, int sign) {
    const Word& word = words_[index];
    const std::int64_t change = sign * static_cast<std::int64_t>(word.count);
    for (std::size_t i = 0; i + 1 < word.tokens.size(); ++i) {
      const Pair pair{word.tokens[i], word.tokens[i + 1]};
      PairInfo& info = pairs_[pair];
      info.count += change;
      if (sign > 0) {
        if (info.words.empty() || info.words.back() != index) info.words.push_back(index);
        changed_.insert(pair);
      }
    }
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, PairInfo, PairHash> pairs_;
  std::priority_queue<Candidate> queue_;
  std::set<Pair> changed_;
};

nlohmann::json byte_level() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", true}};
}

}  // namespace

struct BpeTrainer::Words {
  std::unordered_map<std::string, std::uint64_t> counts;
};

BpeTrainer::BpeTrainer(BpeTraining options) : options_(std::move(options)), words_(std::make_unique<Words>()) {
  const std::set<std::string> distinct(options_.special_tokens.begin(), options_.special_tokens.end());
  if (distinct.size() != options_.special_tokens.size() || distinct.contains(""))
    throw UsageError("special tokens must be distinct and not empty");
  for (const std::string& token : options_.special_tokens) {
    if (!utf8::is_valid(token)) throw UsageError("a special token is not UTF-8");
    if (const auto bytes = spelled_bytes(token); bytes && bytes->size() == 1)
      throw UsageError(fmt::format("the special token \"{}\" is already a byte of the vocabulary", token));
  }
  const std::size_t least = 256 + options_.special_tokens.size();
  if (options_.vocab_size < 0 || static_cast<std::size_t>(options_.vocab_size) < least ||
      options_.vocab_size > max_token_id)
    throw UsageError(fmt::format(
        "a vocabulary of {} is out of range: 256 bytes and {} special tokens need {}, and the maximum is {}",
        options_.vocab_size, options_.special_tokens.size(), least, max_token_id));
}

BpeTrainer::BpeTrainer(BpeTrainer&&) noexcept = default;
BpeTrainer& BpeTrainer::operator=(BpeTrainer&&) noexcept = default;
BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add(std::string_view text) {
  if (text.size() > std::numeric_limits<std::uint32_t>::max())
    throw UsageError(fmt::format("a text of {} bytes is too long to add at once; add it in parts", text.size()));
  std::vector<Range> words;
  WordScanner::gpt2().split(text, {0, static_cast<std::uint32_t>(text.size())}, words);
  for (const Range word : words) ++words_->counts[std::string(text.substr(word.begin, word.end - word.begin))];
}

std::string BpeTrainer::train() const {
  // Ids: special tokens, the bytes in the order of their spelling, then the merges.
  nlohmann::json vocab = nlohmann::json::object();
  nlohmann::json added = nlohmann::json::array();
  std::vector<std::string> texts;
  const auto add_token = [&](const std::string& text) {
    vocab[text] = texts.size();
    texts.push_back(text);
    return static_cast<TokenId>(texts.size() - 1);
  };
  for (const std::string& token : options_.special_tokens) {
    added.push_back({{"id", add_token(token)},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  std::vector<std::pair<char32_t, unsigned char>> spellings;
  for (int byte = 0; byte < 256; ++byte)
    spellings.emplace_back(utf8::decode(byte_alphabet()[static_cast<std::size_t>(byte)], 0).code,
                           static_cast<unsigned char>(byte));
  std::sort(spellings.begin(), spellings.end());
  std::array<TokenId, 256> byte_ids{};
  for (const auto& [code, byte] : spellings) byte_ids[byte] = add_token(utf8::encode(code));

  std::vector<Word> words;
  words.reserve(words_->counts.size());
  for (const auto& [text, count] : words_->counts) {
    Word word{{}, count};
    for (const char byte : text) word.tokens.push_back(byte_ids[static_cast<unsigned char>(byte)]);
    words.push_back(std::move(word));
  }
  Merging merging(std::move(words));
  nlohmann::json merges = nlohmann::json::array();
  const auto min_frequency = static_cast<std::int64_t>(std::min<std::uint64_t>(options_.min_frequency, 1ULL << 62));
  while (texts.size() < static_cast<std::size_t>(options_.vocab_size)) {
    const auto pair = merging.best(min_frequency);
    if (!pair) break;
    const std::string& left = texts[static_cast<std::size_t>(pair->first)];
    const std::string& right = texts[static_cast<std::size_t>(pair->second)];
    merges.push_back({left, right});
    // Another pair or a special token may have the same text: then the merge produces the existing token.
    const auto known = vocab.find(left + right);
    const TokenId joined = known != vocab.end() ? known->get<TokenId>() : add_token(left + right);
    merging.join(*pair, joined);
  }

  const nlohmann::json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level()},
      {"post_processor", byte_level()},
      {"decoder", byte_level()},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", vocab},
        {"merges", merges}}},
  };
  return file.dump(1) + "\n";
}

}  // namespace jerboa
