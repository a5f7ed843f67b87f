#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.h"
#include "text/vocab.h"

namespace jerboa {

/// BERT's WordPiece: the longest token that begins a word, then the longest that continues it, and so on; a word that
/// cannot be covered is unknown as a whole.
class WordPieceModel {
 public:
  WordPieceModel(Vocab vocab, TokenId unk, std::string continuing_prefix, std::size_t max_characters);

  const Vocab& vocab() const { return vocab_; }
  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<Token>& out) const;

 private:
  Vocab vocab_;
  TokenId unk_;
  std::string prefix_;
  std::size_t max_characters_;
  std::size_t longest_ = 0;  // bytes of the longest token
};

/// One token per word: that of the vocabulary, or the unknown token.
class WordLevelModel {
 public:
  WordLevelModel(Vocab vocab, TokenId unk) : vocab_(std::move(vocab)), unk_(unk) {}

  const Vocab& vocab() const { return vocab_; }
  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<Token>& out) const;

 private:
  Vocab vocab_;
  TokenId unk_;
};

}  // namespace jerboa
