#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/aligned_text.h"
#include "text/vocab.h"

namespace jerboa {

/// A token of a word: its id, and the bytes of the word that it covers.
struct Token {
  TokenId id = no_token;
  Range range;
  bool operator==(const Token&) const = default;
};

/// Which pairs of tokens merge, into which token and in which order: the innermost lookup of byte-pair encoding. Most
/// pairs never merge, which a bit filter detects without a cache miss; the others are in an open-addressing table of
/// 16-byte entries.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = never;
    TokenId id = no_token;
  };
  static constexpr std::uint32_t never = 0xFFFFFFFF;

  explicit MergeTable(std::size_t capacity = 0);
  /// The first entry for a pair wins: it has the lower rank. At most `capacity` of them.
  void add(TokenId left, TokenId right, Merge merge);

  Merge find(TokenId left, TokenId right) const {
    const std::uint64_t pair = key(left, right);
    const std::uint64_t hash = pair * multiplier;
    if (!filter_bit(hash)) return {};
    for (std::size_t at = hash >> shift_;; at = (at + 1) & mask_) {
      if (entries_[at].pair == pair) return entries_[at].merge;
      if (entries_[at].pair == no_pair) return {};
    }
  }

 private:
  static constexpr std::uint64_t no_pair = ~std::uint64_t{0};
  struct Entry {
    std::uint64_t pair = no_pair;
    Merge merge;
  };
  static std::uint64_t key(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  static constexpr std::uint64_t multiplier = 0x9E3779B97F4A7C15U;
  static constexpr int filter_bits = 3;  // 8 filter bits per slot
  bool filter_bit(std::uint64_t hash) const {
    const std::uint64_t bit = hash >> (shift_ - filter_bits);
    return (filter_[bit / 64] >> bit % 64 & 1) != 0;
  }

  std::vector<std::uint64_t> filter_;
  std::vector<Entry> entries_;
  std::size_t mask_ = 0;
  int shift_ = 0;
};

/// Caches the tokens of words: most words of a text have been seen before. Bounded; cleared when full.
class WordCache {
 public:
  static constexpr std::size_t max_word = 64;

  /// The tokens of a word, or nullopt.
  std::optional<std::pair<const Token*, const Token*>> find(std::string_view word, std::uint64_t hash) const;
  void add(std::string_view word, std::uint64_t hash, const Token* begin, const Token* end);

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t word = 0;
    std::uint32_t word_size = 0;  // 0: free; no word is empty
    std::uint32_t token = 0;
    std::uint32_t tokens = 0;
  };
  std::vector<Slot> slots_;
  std::string words_;
  std::vector<Token> tokens_;
  std::size_t count_ = 0;
};

/// Working memory of one encoding, reused so that encoding does not allocate.
struct ModelScratch {
  struct Symbol {
    TokenId id;
    std::uint32_t begin;
    std::uint32_t end;
    std::int32_t previous;
    std::int32_t next;
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t left;
    TokenId id;
  };
  std::vector<Symbol> symbols;
  std::vector<MergeTable::Merge> merges;
  std::vector<Candidate> heap;
  std::string spelling;
  WordCache cache;
};

/// Byte-pair encoding: a word starts as bytes or characters, and the pair of the lowest rank is merged until no pair
/// merges.
class BpeModel {
 public:
  struct Options {
    std::string unk_token;
    std::string continuing_subword_prefix;
    std::string end_of_word_suffix;
    bool has_unk = false;
    bool fuse_unk = false;
    bool byte_fallback = false;
    bool ignore_merges = false;
    /// Words are bytes that the vocabulary spells in the byte alphabet.
    bool reads_bytes = false;
  };

  BpeModel() : BpeModel(Vocab(), MergeTable(), Options()) {}
  BpeModel(Vocab vocab, MergeTable merges, Options options);

  const Vocab& vocab() const { return vocab_; }
  const Options& options() const { return options_; }
  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<Token>& out) const;

 private:
  void tokenize_chunk(std::string_view word, std::uint32_t offset, ModelScratch& scratch,
                      std::vector<Token>& out) const;
  void symbols_of_bytes(std::string_view word, ModelScratch& scratch) const;
  void symbols_of_characters(std::string_view word, ModelScratch& scratch) const;
  void merge_short(ModelScratch& scratch) const;
  void merge_long(ModelScratch& scratch) const;

  Vocab vocab_;
  MergeTable merges_;
  Options options_;
  TokenId unk_ = no_token;
  std::array<TokenId, 256> byte_tokens_{};  // of the byte alphabet, or the fallback tokens
  /// Whether no token has a "▁" after another character, so that words can be split there. Such models receive whole
  /// texts as one word.
  bool splits_at_metaspace_ = false;
};

}  // namespace jerboa
