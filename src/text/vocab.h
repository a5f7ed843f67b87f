#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace jerboa {

using TokenId = std::int32_t;
inline constexpr TokenId no_token = -1;
/// Limits the tables that are indexed by id; the largest vocabularies have a few hundred thousand tokens.
inline constexpr TokenId max_token_id = (1 << 24) - 1;

/// A fast hash of short byte strings; not designed to withstand adversaries beyond keeping tables correct.
std::uint64_t hash_bytes(std::string_view bytes);

/// Tokens by id and ids by token. The texts are in one block of memory.
class Vocab {
 public:
  void reserve(std::size_t tokens, std::size_t bytes);

  /// An existing text gets the new id; an existing id gets the new text. `id` must be in [0, max_token_id].
  void add(std::string_view text, TokenId id);

  /// no_token if there is none.
  TokenId find(std::string_view text) const;
  bool has(TokenId id) const { return id >= 0 && static_cast<std::size_t>(id) < texts_.size() && texts_[id].present; }
  /// The text of a token, or "" if there is none.
  std::string_view text(TokenId id) const;

  /// One more than the largest id.
  TokenId end_id() const { return static_cast<TokenId>(texts_.size()); }
  std::size_t size() const { return count_; }

 private:
  struct Text {
    std::uint32_t offset = 0;
    std::uint32_t size : 31 = 0;
    std::uint32_t present : 1 = 0;
  };
  struct Slot {
    std::uint32_t offset = 0;
    std::uint32_t size = 0;
    TokenId id = no_token;  // no_token: the slot is free
    std::uint32_t hash = 0;
  };
  void grow(std::size_t slots);
  std::size_t slot_of(std::string_view text, std::uint64_t hash) const;

  std::string bytes_;
  std::vector<Text> texts_;
  std::vector<Slot> slots_;  // open addressing, a power of two
  std::size_t count_ = 0;
};

}  // namespace jerboa
