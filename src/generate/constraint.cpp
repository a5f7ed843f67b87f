#include <algorithm>
#include <fmt/core.h>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include <jerboa/generate/constraint.h>

#include "generate/matcher.h"
#include "generate/token_trie.h"

namespace jerboa {
namespace {

constexpr std::size_t max_masks = 512;  // 19 KB each for 150,000 tokens

class GrammarConstraint : public Constraint {
 public:
  GrammarConstraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary)
      : grammar_(std::move(grammar)),
        vocabulary_(std::move(vocabulary)),
        matcher_(grammar_),
        position_(matcher_.start()) {}

  const TokenMask& allowed(int tokens_left) override {
    const Mask& known = mask();
    if (tokens_left == unlimited || known.farthest < tokens_left) return known.tokens;
    // Near the limit: only tokens after which the text can still be completed at one token per byte or, if it is
    // already too late, tokens that bring the end closer.
    const std::int64_t reach = std::max<std::int64_t>(tokens_left - 1, matcher_.distance(position_) - 1);
    const bool common = known.common <= reach;
    bool any = common;
    limited_ = common ? known.tokens : TokenMask(vocabulary_->size());
    for (const auto& [token, distance] : known.others) {
      const bool near = distance <= reach;
      any = any || near;
      if (near != common) limited_.set(static_cast<std::size_t>(token), near);
    }
    if (complete()) {
      for (const int token : vocabulary_->end_tokens()) limited_.allow(static_cast<std::size_t>(token));
      any = true;
    }
    return any ? limited_ : known.tokens;  // without single-byte tokens it may be impossible to finish in time
  }

  void accept(int token) override {
    if (token < 0 || static_cast<std::size_t>(token) >= vocabulary_->size())
      throw ConstraintError(fmt::format("token {} is out of range", token));
    if (ended_) throw ConstraintError(fmt::format("token {} comes after the end of the text", token));
    const auto& ends = vocabulary_->end_tokens();
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
      if (!complete()) throw ConstraintError("the text is not complete yet");
      ended_ = true;
      return;
    }
    const std::string& bytes = vocabulary_->bytes(token);
    const Matcher::Position to = within_budget([&] { return position_after(bytes); });
    if (to == Matcher::dead) throw ConstraintError(fmt::format("token {} is not allowed here", token));
    position_ = to;
    matcher_.extend_allowance();
  }

  bool complete() const override { return matcher_.complete(position_); }

  void reset() override {
    position_ = matcher_.start();
    ended_ = false;
  }

 private:
  // The allowed tokens, and how many more bytes the text needs after each, which is the same number for nearly all of
  // them.
  struct Mask {
    TokenMask tokens;
    std::int64_t farthest = 0, common = 0;
    std::vector<std::pair<std::int32_t, std::int64_t>> others;  // those whose distance differs from the common one
  };

  const Mask& mask() {
    if (const auto found = masks_.find(position_); found != masks_.end()) return found->second;
    if (masks_.size() >= max_masks) masks_.clear();
    Mask made = within_budget([&] { return compute(); });
    return masks_.emplace(position_, std::move(made)).first->second;
  }

  Mask compute() {
    const TokenTrie& trie = vocabulary_->trie();
    const auto& nodes = trie.nodes();
    Mask out{TokenMask(vocabulary_->size()), 0, 0, {}};
    std::unordered_map<std::int64_t, std::size_t> tally;
    fitting_.clear();
    path_.resize(trie.longest() + 1);
    path_[0] = position_;
    for (std::size_t i = 0; i < nodes.size();) {
      const TokenTrie::Node& node = nodes[i];
      const Matcher::Position to = matcher_.next(path_[node.depth], node.byte);
      if (to == Matcher::dead) {
        i = node.skip;
        continue;
      }
      path_[node.depth + 1u] = to;
      for (std::int32_t token = node.first_token; token >= 0; token = trie.next_same(token)) {
        out.tokens.allow(static_cast<std::size_t>(token));
        fitting_.emplace_back(token, matcher_.distance(to));
      }
      ++i;
    }
    if (fitting_.empty() && !complete()) throw ConstraintError("no token of the vocabulary can continue the text");
    if (complete())
      for (const int token : vocabulary_->end_tokens()) out.tokens.allow(static_cast<std::size_t>(token));
    for (std::size_t i = 0, begin = 0; i < fitting_.size(); begin = i) {  // adjacent tokens mostly agree
      while (i < fitting_.size() && fitting_[i].second == fitting_[begin].second) ++i;
      out.farthest = std::max(out.farthest, fitting_[begin].second);
      tally[fitting_[begin].second] += i - begin;
    }
    std::size_t most = 0;
    for (const auto& [distance, count] : tally) {
      if (count < most || (count == most && distance > out.common)) continue;
      most = count;
      out.common = distance;
    }
    for (const auto& fit : fitting_)
      if (fit.second != out.common) out.others.push_back(fit);
    return out;
  }

  Matcher::Position position_after(const std::string& bytes) {
    Matcher::Position to = bytes.empty() ? Matcher::dead : position_;
    for (std::size_t i = 0; i < bytes.size() && to != Matcher::dead; ++i)
      to = matcher_.next(to, static_cast<std::uint8_t>(bytes[i]));
    return to;
  }

  // If one token needs more positions than the matcher has room for, its cache is dropped. A grammar that exceeds the
  // whole capacity is refused.
  template <class Work>
  std::invoke_result_t<Work> within_budget(Work work) {
    matcher_.start_work();
    try {
      return work();
    } catch (const Matcher::TooManyPositions&) {
      forget();
    }
    matcher_.start_work();
    return work();
  }

  // Drops the cache, except for the current position.
  void forget() {
    auto [fresh, here] = Matcher::continued(matcher_, position_);
    matcher_ = std::move(fresh);
    position_ = here;
    masks_.clear();
  }

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  Matcher matcher_;
  Matcher::Position position_;
  bool ended_ = false;
  std::unordered_map<Matcher::Position, Mask> masks_;
  TokenMask limited_;
  std::vector<Matcher::Position> path_;  // scratch of compute()
  std::vector<std::pair<std::int32_t, std::int64_t>> fitting_;
};

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::vector<int> end_tokens)
    : bytes_(std::move(tokens)), end_tokens_(std::move(end_tokens)) {
  for (const int token : end_tokens_) {
    if (token < 0 || static_cast<std::size_t>(token) >= bytes_.size())
      throw UsageError(fmt::format("end token {} is not in a vocabulary of {}", token, bytes_.size()));
    bytes_[static_cast<std::size_t>(token)].clear();
  }
  trie_ = std::make_unique<TokenTrie>(bytes_);
}

Vocabulary::~Vocabulary() = default;

std::unique_ptr<Constraint> make_constraint(std::shared_ptr<const Grammar> grammar,
                                            std::shared_ptr<const Vocabulary> vocabulary) {
  return std::make_unique<GrammarConstraint>(std::move(grammar), std::move(vocabulary));
}

}  // namespace jerboa
