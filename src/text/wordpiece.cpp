#include "text/wordpiece.h"

#include <algorithm>

#include "text/utf8.h"

namespace jerboa {

WordPieceModel::WordPieceModel(Vocab vocab, TokenId unk, std::string continuing_prefix, std::size_t max_characters)
    : vocab_(std::move(vocab)), unk_(unk), prefix_(std::move(continuing_prefix)), max_characters_(max_characters) {
  for (TokenId id = 0; id < vocab_.end_id(); ++id) longest_ = std::max(longest_, vocab_.text(id).size());
}

void WordPieceModel::tokenize(std::string_view word, ModelScratch& scratch, std::vector<Token>& out) const {
  const Range whole{0, static_cast<std::uint32_t>(word.size())};
  if (utf8::count(word) > max_characters_) {
    out.push_back({unk_, whole});
    return;
  }
  const std::size_t first = out.size();
  for (std::size_t begin = 0; begin < word.size();) {
    std::size_t end = std::min(word.size(), begin + longest_);
    while (end < word.size() && utf8::is_continuation(word[end])) --end;
    TokenId found = no_token;
    for (; end > begin; end = utf8::previous(word, end)) {
      std::string_view piece = word.substr(begin, end - begin);
      if (begin > 0 && !prefix_.empty()) {
        scratch.spelling = prefix_;
        scratch.spelling += piece;
        piece = scratch.spelling;
      }
      found = vocab_.find(piece);
      if (found != no_token) break;
    }
    if (found == no_token) {
      out.resize(first);
      out.push_back({unk_, whole});
      return;
    }
    out.push_back({found, {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)}});
    begin = end;
  }
}

void WordLevelModel::tokenize(std::string_view word, ModelScratch&, std::vector<Token>& out) const {
  const TokenId found = vocab_.find(word);
  const TokenId id = found == no_token ? unk_ : found;
  if (id != no_token) out.push_back({id, {0, static_cast<std::uint32_t>(word.size())}});
}

}  // namespace jerboa
