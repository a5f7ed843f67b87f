#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fmt/format.h>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace jerboa {
namespace {

// Up to this many symbols, scanning all pairs is faster than keeping a heap of them.
constexpr std::size_t short_word = 96;

// The next "▁" that follows another character, at or after `from` (> 0); or the end.
std::size_t next_metaspace_boundary(std::string_view text, std::size_t from) {
  for (std::size_t at = text.find(utf8::metaspace, from); at != std::string_view::npos;
       at = text.find(utf8::metaspace, at + utf8::metaspace.size())) {
    if (!text.substr(0, at).ends_with(utf8::metaspace)) return at;
  }
  return text.size();
}

bool metaspace_begins_words(const Vocab& vocab) {
  if (vocab.find(utf8::metaspace) == no_token) return false;
  for (TokenId id = 0; id < vocab.end_id(); ++id) {
    const std::string_view text = vocab.text(id);
    if (text.size() > utf8::metaspace.size() && next_metaspace_boundary(text, 1) != text.size()) return false;
  }
  return true;
}

}  // namespace

MergeTable::MergeTable(std::size_t capacity) {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(8, capacity * 3 / 2));
  entries_.resize(slots);
  filter_.resize((slots << filter_bits) / 64);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
}

void MergeTable::add(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t pair = key(left, right);
  const std::uint64_t hash = pair * multiplier;
  const std::uint64_t bit = hash >> (shift_ - filter_bits);
  filter_[bit / 64] |= std::uint64_t{1} << bit % 64;
  std::size_t at = hash >> shift_;
  while (entries_[at].pair != no_pair) {
    if (entries_[at].pair == pair) return;
    at = (at + 1) & mask_;
  }
  entries_[at] = {pair, merge};
}

std::optional<std::pair<const Token*, const Token*>> WordCache::find(std::string_view word, std::uint64_t hash) const {
  if (slots_.empty()) return std::nullopt;
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash & mask; slots_[at].word_size != 0; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.hash == static_cast<std::uint32_t>(hash >> 32) && slot.word_size == word.size() &&
        std::memcmp(words_.data() + slot.word, word.data(), word.size()) == 0) {
      const Token* tokens = tokens_.data() + slot.token;
      return std::pair(tokens, tokens + slot.tokens);
    }
  }
  return std::nullopt;
}

void WordCache::add(std::string_view word, std::uint64_t hash, const Token* begin, const Token* end) {
  constexpr std::size_t slots = 1 << 16;
  if (slots_.empty()) slots_.resize(slots);
  if (count_ >= slots / 2) {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    words_.clear();
    tokens_.clear();
    count_ = 0;
  }
  std::size_t at = hash & (slots - 1);
  while (slots_[at].word_size != 0) at = (at + 1) & (slots - 1);
  slots_[at] = {static_cast<std::uint32_t>(hash >> 32), static_cast<std::uint32_t>(words_.size()),
                static_cast<std::uint32_t>(word.size()), static_cast<std::uint32_t>(tokens_.size()),
                static_cast<std::uint32_t>(end - begin)};
  words_ += word;
  tokens_.insert(tokens_.end(), begin, end);
  ++count_;
}

BpeModel::BpeModel(Vocab vocab, MergeTable merges, Options options)
    : vocab_(std::move(vocab)), merges_(std::move(merges)), options_(std::move(options)) {
  if (options_.has_unk) unk_ = vocab_.find(options_.unk_token);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] =
        options_.reads_bytes ? vocab_.find(byte_alphabet()[byte]) : vocab_.find(fmt::format("<0x{:02X}>", byte));
  }
  splits_at_metaspace_ = !options_.reads_bytes && !options_.ignore_merges &&
                         options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty() &&
                         metaspace_begins_words(vocab_);
}

void BpeModel::tokenize(std::string_view word, ModelScratch& scratch, std::vector<Token>& out) const {
  if (!splits_at_metaspace_) return tokenize_chunk(word, 0, scratch, out);
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t size = next_metaspace_boundary(word.substr(at), 1);
    tokenize_chunk(word.substr(at, size), static_cast<std::uint32_t>(at), scratch, out);
    at += size;
  }
}

void BpeModel::tokenize_chunk(std::string_view word, std::uint32_t offset, ModelScratch& scratch,
                              std::vector<Token>& out) const {
  const std::size_t first = out.size();
  const bool cached = word.size() <= WordCache::max_word;
  const std::uint64_t hash = cached ? hash_bytes(word) * 0x9E3779B97F4A7C15U : 0;
  if (cached) {
    if (const auto known = scratch.cache.find(word, hash)) {
      out.insert(out.end(), known->first, known->second);
      for (std::size_t i = first; offset != 0 && i < out.size(); ++i) {
        out[i].range.begin += offset;
        out[i].range.end += offset;
      }
      return;
    }
  }
  TokenId whole = no_token;
  if (options_.ignore_merges) whole = vocab_.find(options_.reads_bytes ? spell_bytes(word) : std::string(word));
  if (whole != no_token) {
    out.push_back({whole, {0, static_cast<std::uint32_t>(word.size())}});
  } else {
    options_.reads_bytes ? symbols_of_bytes(word, scratch) : symbols_of_characters(word, scratch);
    scratch.symbols.size() <= short_word ? merge_short(scratch) : merge_long(scratch);
    for (const auto& symbol : scratch.symbols)
      if (symbol.id != no_token) out.push_back({symbol.id, {symbol.begin, symbol.end}});
  }
  if (cached) scratch.cache.add(word, hash, out.data() + first, out.data() + out.size());
  for (std::size_t i = first; offset != 0 && i < out.size(); ++i) {
    out[i].range.begin += offset;
    out[i].range.end += offset;
  }
}

void BpeModel::symbols_of_bytes(std::string_view word, ModelScratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  for (std::size_t i = 0; i < word.size(); ++i) {
    TokenId id = byte_tokens_[static_cast<unsigned char>(word[i])];
    const auto at = static_cast<std::uint32_t>(i);
    if (id == no_token) {
      if (unk_ == no_token) continue;
      if (options_.fuse_unk && !symbols.empty() && symbols.back().id == unk_ && symbols.back().end == at) {
        symbols.back().end = at + 1;
        continue;
      }
      id = unk_;
    }
    symbols.push_back({id, at, at + 1, 0, 0});
  }
}

void BpeModel::symbols_of_characters(std::string_view word, ModelScratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  bool after_unk = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t end = at + utf8::decode(word, at).size;
    std::string_view text = word.substr(at, end - at);
    if (!options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty()) {
      scratch.spelling = at > 0 ? options_.continuing_subword_prefix : std::string();
      scratch.spelling += text;
      if (end == word.size()) scratch.spelling += options_.end_of_word_suffix;
      text = scratch.spelling;
    }
    const Range range{static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(end)};
    const TokenId id = vocab_.find(text);
    auto has_byte = [&](char c) { return byte_tokens_[static_cast<unsigned char>(c)] != no_token; };
    if (id != no_token) {
      symbols.push_back({id, range.begin, range.end, 0, 0});
      after_unk = false;
    } else if (options_.byte_fallback && std::all_of(text.begin(), text.end(), has_byte)) {
      for (const char c : text)
        symbols.push_back({byte_tokens_[static_cast<unsigned char>(c)], range.begin, range.end, 0, 0});
      after_unk = false;
    } else if (unk_ != no_token) {
      if (options_.fuse_unk && after_unk) {
        symbols.back().end = range.end;
      } else {
        symbols.push_back({unk_, range.begin, range.end, 0, 0});
      }
      after_unk = true;
    }
    at = end;
  }
}

// Both merge functions join the leftmost pair of the lowest rank first.
void BpeModel::merge_short(ModelScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& merges = scratch.merges;  // merges[i] joins symbols i and i + 1
  std::size_t size = symbols.size();
  if (size < 2) return;
  merges.resize(size);
  for (std::size_t i = 0; i + 1 < size; ++i) merges[i] = merges_.find(symbols[i].id, symbols[i + 1].id);
  while (size > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < size; ++i)
      if (merges[i].rank < merges[best].rank) best = i;
    if (merges[best].rank == MergeTable::never) break;
    symbols[best].id = merges[best].id;
    symbols[best].end = symbols[best + 1].end;
    std::move(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 2,
              symbols.begin() + static_cast<std::ptrdiff_t>(size),
              symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    if (best + 2 < size) {
      std::move(merges.begin() + static_cast<std::ptrdiff_t>(best) + 2,
                merges.begin() + static_cast<std::ptrdiff_t>(size) - 1,
                merges.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    --size;
    if (best > 0) merges[best - 1] = merges_.find(symbols[best - 1].id, symbols[best].id);
    if (best + 1 < size) merges[best] = merges_.find(symbols[best].id, symbols[best + 1].id);
  }
  symbols.resize(size);
}

void BpeModel::merge_long(ModelScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  const auto later = [](const ModelScratch::Candidate& a, const ModelScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  const auto consider = [&](std::int32_t left) {
    if (left < 0) return;
    const std::int32_t right = symbols[static_cast<std::size_t>(left)].next;
    if (right < 0) return;
    const auto merge =
        merges_.find(symbols[static_cast<std::size_t>(left)].id, symbols[static_cast<std::size_t>(right)].id);
    if (merge.rank == MergeTable::never) return;
    heap.push_back({merge.rank, left, merge.id});
    std::push_heap(heap.begin(), heap.end(), later);
  };
  const auto size = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t i = 0; i < size; ++i) {
    symbols[static_cast<std::size_t>(i)].previous = i - 1;
    symbols[static_cast<std::size_t>(i)].next = i + 1 < size ? i + 1 : -1;
  }
  for (std::int32_t i = 0; i + 1 < size; ++i) consider(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const auto candidate = heap.back();
    heap.pop_back();
    auto& left = symbols[static_cast<std::size_t>(candidate.left)];
    if (left.id == no_token || left.next < 0) continue;
    auto& right = symbols[static_cast<std::size_t>(left.next)];
    // A candidate is stale when either side has changed since.
    const auto merge = merges_.find(left.id, right.id);
    if (merge.rank != candidate.rank || merge.id != candidate.id) continue;
    left.id = merge.id;
    left.end = right.end;
    right.id = no_token;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = candidate.left;
    consider(left.previous);
    consider(candidate.left);
  }
}

}  // namespace jerboa
