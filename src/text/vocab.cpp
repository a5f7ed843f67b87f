#include "text/vocab.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace jerboa {
namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  a ^= b;
  a *= 0x9E3779B97F4A7C15U;
  return a ^ a >> 29;
}

std::uint64_t load(const char* at, std::size_t size) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, size);
  return word;
}

}  // namespace

std::uint64_t hash_bytes(std::string_view bytes) {
  std::uint64_t hash = mix(0x2545F4914F6CDD1DU, bytes.size());
  while (bytes.size() > 8) {
    hash = mix(hash, load(bytes.data(), 8));
    bytes.remove_prefix(8);
  }
  if (!bytes.empty()) hash = mix(hash, load(bytes.data(), bytes.size()));
  return hash ^ hash >> 32;
}

void Vocab::reserve(std::size_t tokens, std::size_t bytes) {
  bytes_.reserve(bytes);
  texts_.reserve(tokens);
  grow(std::bit_ceil(std::max<std::size_t>(16, tokens * 2)));
}

std::size_t Vocab::slot_of(std::string_view text, std::uint64_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  while (slots_[at].id != no_token) {
    const Slot& slot = slots_[at];
    if (slot.hash == static_cast<std::uint32_t>(hash) && slot.size == text.size() &&
        std::memcmp(bytes_.data() + slot.offset, text.data(), text.size()) == 0)
      break;
    at = (at + 1) & mask;
  }
  return at;
}

void Vocab::grow(std::size_t slots) {
  if (slots <= slots_.size()) return;
  std::vector<Slot> old(slots);
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.id == no_token) continue;
    std::size_t at = hash_bytes(std::string_view(bytes_).substr(slot.offset, slot.size)) & mask;
    while (slots_[at].id != no_token) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

void Vocab::add(std::string_view text, TokenId id) {
  if ((count_ + 1) * 2 > slots_.size()) grow(std::max<std::size_t>(16, slots_.size() * 2));
  const std::uint64_t hash = hash_bytes(text);
  Slot& slot = slots_[slot_of(text, hash)];
  if (slot.id == no_token) {
    slot.offset = static_cast<std::uint32_t>(bytes_.size());
    slot.size = static_cast<std::uint32_t>(text.size());
    slot.hash = static_cast<std::uint32_t>(hash);
    bytes_ += text;
    ++count_;
  }
  slot.id = id;
  if (static_cast<std::size_t>(id) >= texts_.size()) texts_.resize(static_cast<std::size_t>(id) + 1);
  Text& entry = texts_[static_cast<std::size_t>(id)];
  entry.offset = slot.offset;
  entry.size = slot.size & 0x7FFFFFFF;
  entry.present = 1;
}

TokenId Vocab::find(std::string_view text) const {
  return slots_.empty() ? no_token : slots_[slot_of(text, hash_bytes(text))].id;
}

std::string_view Vocab::text(TokenId id) const {
  if (!has(id)) return {};
  const Text& entry = texts_[static_cast<std::size_t>(id)];
  return std::string_view(bytes_).substr(entry.offset, entry.size);
}

}  // namespace jerboa
