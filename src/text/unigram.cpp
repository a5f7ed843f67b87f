#include "text/unigram.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "base/stable_sort.h"
#include "text/utf8.h"

namespace jerboa {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, TokenId>> tokens) {
  detail::stable_sort(tokens, [](const auto& a, const auto& b) { return a.first < b.first; });
  // Breadth first: a node covers the tokens [begin, end), which share their first `depth` bytes.
  struct Pending {
    std::uint32_t node;
    std::size_t begin, end, depth;
  };
  nodes_.push_back({});
  std::vector<Pending> queue{{0, 0, tokens.size(), 0}};
  for (std::size_t next = 0; next < queue.size(); ++next) {
    const Pending at = queue[next];
    std::size_t begin = at.begin;
    for (; begin < at.end && tokens[begin].first.size() == at.depth; ++begin)
      if (at.depth > 0) nodes_[at.node].id = tokens[begin].second;
    nodes_[at.node].children = static_cast<std::uint32_t>(nodes_.size());
    while (begin < at.end) {
      const char byte = tokens[begin].first[at.depth];
      std::size_t end = begin;
      while (end < at.end && tokens[end].first[at.depth] == byte) ++end;
      queue.push_back({static_cast<std::uint32_t>(nodes_.size()), begin, end, at.depth + 1});
      nodes_.push_back({0, 0, static_cast<unsigned char>(byte), no_token});
      ++nodes_[at.node].count;
      begin = end;
    }
  }
  for (std::uint32_t i = 0; i < nodes_[0].count; ++i)
    first_[nodes_[nodes_[0].children + i].byte] = nodes_[0].children + i;
}

std::uint32_t ByteTrie::child(std::uint32_t node, unsigned char byte) const {
  if (node == 0) return first_[byte];
  const auto begin = nodes_.begin() + nodes_[node].children;
  const auto end = begin + nodes_[node].count;
  const auto found = std::lower_bound(begin, end, byte, [](const Node& n, unsigned char b) { return n.byte < b; });
  return found != end && found->byte == byte ? static_cast<std::uint32_t>(found - nodes_.begin()) : 0;
}

UnigramModel::UnigramModel(Vocab vocab, std::vector<double> scores, TokenId unk, bool byte_fallback)
    : vocab_(std::move(vocab)), scores_(std::move(scores)), unk_(unk), byte_fallback_(byte_fallback) {
  // As in sentencepiece: an unknown character is less likely than any token.
  constexpr double unk_penalty = 10;
  double lowest = scores_.empty() ? 0 : std::numeric_limits<double>::infinity();
  for (const double score : scores_) lowest = std::min(lowest, score);
  unk_score_ = lowest - unk_penalty;
  for (std::size_t byte = 0; byte < 256; ++byte) byte_tokens_[byte] = vocab_.find(fmt::format("<0x{:02X}>", byte));
  std::vector<std::pair<std::string_view, TokenId>> tokens;
  for (TokenId id = 0; id < vocab_.end_id(); ++id)
    if (vocab_.has(id)) tokens.emplace_back(vocab_.text(id), id);
  trie_ = ByteTrie(std::move(tokens));
}

void UnigramModel::tokenize(std::string_view word, ModelScratch&, std::vector<Token>& out) const {
  struct Best {
    double score = 0;
    TokenId id = no_token;  // of the token that ends here on the best path
    std::uint32_t begin = 0;
    bool reached = false;
  };
  std::vector<Best> best(word.size() + 1);
  best[0].reached = true;
  const auto offer = [&](std::size_t begin, std::size_t end, TokenId id, double score) {
    Best& at = best[end];
    const double total = best[begin].score + score;
    if (!at.reached || total > at.score) at = {total, id, static_cast<std::uint32_t>(begin), true};
  };
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t character = utf8::decode(word, begin).size;
    bool covered = false;
    trie_.prefixes(word.substr(begin), [&](std::size_t length, TokenId id) {
      if (length < character) return;
      offer(begin, begin + length, id, scores_[static_cast<std::size_t>(id)]);
      covered = covered || length == character;
    });
    if (!covered) offer(begin, begin + character, unk_, unk_score_);
    begin += character;
  }

  const std::size_t first = out.size();
  for (std::size_t end = word.size(); end > 0; end = best[end].begin) {
    const Token token{best[end].id, {best[end].begin, static_cast<std::uint32_t>(end)}};
    // Adjacent unknown characters become one unknown token.
    if (token.id == unk_ && out.size() > first && out.back().id == unk_) {
      out.back().range.begin = token.range.begin;
    } else {
      out.push_back(token);
    }
  }
  std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
  if (!byte_fallback_) {
    if (unk_ == no_token) std::erase_if(out, [](const Token& token) { return token.id == no_token; });
    return;
  }
  const std::vector<Token> tokens(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
  out.resize(first);
  for (const Token& token : tokens) {
    const std::string_view text = word.substr(token.range.begin, token.range.end - token.range.begin);
    auto has_byte = [&](char c) { return byte_tokens_[static_cast<unsigned char>(c)] != no_token; };
    if (token.id == unk_ && std::all_of(text.begin(), text.end(), has_byte)) {
      for (const char c : text) out.push_back({byte_tokens_[static_cast<unsigned char>(c)], token.range});
    } else if (token.id != no_token) {
      out.push_back(token);
    }
  }
}

}  // namespace jerboa
