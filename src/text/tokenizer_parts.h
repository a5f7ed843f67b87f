#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/text/tokenizer.h>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"

namespace jerboa::detail {

/// Working memory that encodings borrow, so that each thread has its own and word caches outlive a call.
class ScratchPool {
 public:
  struct Scratch {
    ModelScratch model;
    std::vector<Token> tokens;
  };
  class Loan {
   public:
    Loan(ScratchPool& pool, std::unique_ptr<Scratch> scratch) : pool_(pool), scratch_(std::move(scratch)) {}
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() { pool_.give_back(std::move(scratch_)); }
    Scratch& operator*() { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

  Loan borrow();

 private:
  void give_back(std::unique_ptr<Scratch> scratch);
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

/// The stages of a tokenizer, in the order in which a text passes through them.
struct TokenizerParts {
  Normalizer normalizer;
  AddedTokens added;
  PreTokenizer pre_tokenizer;
  Model model;
  PostProcessor post_processor;
  DecoderChain decoder;
  std::optional<Truncation> truncation;
  std::optional<Padding> padding;

  mutable ScratchPool scratch;

  const Vocab& vocab() const;
  /// The text of a token as in the vocabulary, or nothing if there is no such token.
  std::optional<std::string_view> token(TokenId id) const;
  /// Whether the model reads bytes, so that text which is not UTF-8 passes through unchanged.
  bool reads_bytes() const;
};

}  // namespace jerboa::detail
