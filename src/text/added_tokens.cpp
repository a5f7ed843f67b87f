#include "text/added_tokens.h"

#include <algorithm>
#include <fmt/format.h>

#include "text/unicode.h"
#include "text/utf8.h"

namespace jerboa {

AddedToken AddedToken::parse(const JsonView& json) {
  AddedToken token;
  const auto id = json.integer("id");
  if (id < 0 || id > max_token_id) json.fail(fmt::format("id {} is out of range (0 to {})", id, max_token_id));
  token.id = static_cast<TokenId>(id);
  token.content = json.string("content");
  token.single_word = json.boolean("single_word", false);
  token.lstrip = json.boolean("lstrip", false);
  token.rstrip = json.boolean("rstrip", false);
  token.special = json.boolean("special", false);
  token.normalized = json.boolean("normalized", !token.special);
  return token;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer) : tokens_(std::move(tokens)) {
  std::vector<std::string> patterns;
  patterns.reserve(tokens_.size());  // so that the views below stay valid
  std::vector<std::pair<std::string_view, TokenId>> raw;
  std::vector<std::pair<std::string_view, TokenId>> normalized;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    by_id_.insert_or_assign(token.id, i);
    by_content_.insert_or_assign(token.content, i);
    patterns.push_back(token.normalized ? normalizer.apply(token.content) : token.content);
    const std::string_view pattern = patterns.back();
    if (pattern.empty()) continue;
    Index& target = token.normalized ? normalized_ : raw_;
    target.any = true;
    target.first[static_cast<unsigned char>(pattern[0])] = true;
    (token.normalized ? normalized : raw).emplace_back(pattern, static_cast<TokenId>(i));
  }
  raw_.trie = ByteTrie(std::move(raw));
  normalized_.trie = ByteTrie(std::move(normalized));
}

const AddedToken* AddedTokens::find(TokenId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

std::vector<AddedTokens::Match> AddedTokens::matches(std::string_view text, bool normalized) const {
  std::vector<Match> matches;
  const Index& tokens = index(normalized);
  if (!tokens.any) return matches;
  const unicode::Classes classify;
  const auto is = [&](std::size_t at, std::uint8_t classes) {
    return classify.is(utf8::decode(text, at).code, classes);
  };
  std::size_t searched = 0;
  std::size_t taken = 0;
  while (searched < text.size()) {
    if (!tokens.first[static_cast<unsigned char>(text[searched])]) {
      ++searched;
      continue;
    }
    std::size_t length = 0;
    TokenId index = no_token;
    tokens.trie.prefixes(text.substr(searched), [&](std::size_t l, TokenId i) {
      length = l;
      index = i;
    });
    if (index == no_token) {
      ++searched;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
    std::size_t begin = searched;
    std::size_t end = searched + length;
    searched = end;
    if (begin < taken) continue;  // white space taken by the previous token
    if (token.single_word && ((begin > 0 && is(utf8::previous(text, begin), unicode::word)) ||
                              (end < text.size() && is(end, unicode::word))))
      continue;
    while (token.lstrip && begin > taken && is(utf8::previous(text, begin), unicode::space))
      begin = utf8::previous(text, begin);
    while (token.rstrip && end < text.size() && is(end, unicode::space)) end += utf8::decode(text, end).size;
    matches.push_back({{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)}, token.id});
    taken = end;
    searched = std::max(searched, end);
  }
  return matches;
}

}  // namespace jerboa
