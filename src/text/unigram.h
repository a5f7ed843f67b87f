#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "text/bpe.h"
#include "text/vocab.h"

namespace jerboa {

/// A byte trie in arrays. The children of a node are contiguous, in the order of their bytes.
class ByteTrie {
 public:
  ByteTrie() = default;
  /// `tokens` need not be sorted; of equal texts, the last id wins.
  explicit ByteTrie(std::vector<std::pair<std::string_view, TokenId>> tokens);

  /// Calls found(length, id) for each token that `text` begins with, shortest first.
  template <typename Found>
  void prefixes(std::string_view text, Found found) const {
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < text.size() && !nodes_.empty(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (nodes_[node].id != no_token) found(i + 1, nodes_[node].id);
    }
  }

 private:
  struct Node {
    std::uint32_t children = 0;  // the first
    std::uint16_t count = 0;
    unsigned char byte = 0;
    TokenId id = no_token;
  };
  /// 0 (the root) if there is no such child.
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;

  std::vector<Node> nodes_;
  std::array<std::uint32_t, 256> first_{};  // the children of the root
};

/// sentencepiece's unigram model: the most probable segmentation of a word into tokens.
class UnigramModel {
 public:
  /// scores[id]: the log probability of a token. `unk` may be no_token.
  UnigramModel(Vocab vocab, std::vector<double> scores, TokenId unk, bool byte_fallback);

  const Vocab& vocab() const { return vocab_; }
  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<Token>& out) const;

 private:
  Vocab vocab_;
  std::vector<double> scores_;
  TokenId unk_;
  double unk_score_ = 0;
  bool byte_fallback_;
  std::array<TokenId, 256> byte_tokens_{};
  ByteTrie trie_;
};

}  // namespace jerboa
