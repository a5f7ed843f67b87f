#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/json_view.h"
#include "text/normalizer.h"
#include "text/unigram.h"
#include "text/vocab.h"

namespace jerboa {

/// A token that is matched in the text before the model sees it.
struct AddedToken {
  TokenId id = no_token;
  std::string content;
  bool single_word = false;  // only if no word character is adjacent
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = false;   // matched against the normalized text
  bool special = false;      // omitted by decode({.skip_special = true})

  static AddedToken parse(const JsonView& json);
};

/// The added tokens of a tokenizer.
class AddedTokens {
 public:
  struct Match {
    Range range;
    TokenId id;
  };

  AddedTokens() = default;
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  const std::vector<AddedToken>& all() const { return tokens_; }
  /// nullptr if no added token has the id or the content.
  const AddedToken* find(TokenId id) const;
  const AddedToken* find(std::string_view content) const;

  /// The added tokens in a text, leftmost and longest first, without overlaps. `normalized` selects which kind is
  /// matched.
  std::vector<Match> matches(std::string_view text, bool normalized) const;
  bool any(bool normalized) const { return index(normalized).any; }

 private:
  // The trie's ids are indices into tokens_.
  struct Index {
    bool any = false;
    std::array<bool, 256> first{};  // first bytes of tokens
    ByteTrie trie;
  };
  const Index& index(bool normalized) const { return normalized ? normalized_ : raw_; }

  std::vector<AddedToken> tokens_;
  std::unordered_map<TokenId, std::size_t> by_id_;
  std::unordered_map<std::string, std::size_t> by_content_;
  Index raw_;
  Index normalized_;
};

}  // namespace jerboa
