#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace jerboa {

/// The tokens' bytes as a tree, flattened in depth-first order: a walk over all tokens is one pass over an array, and a
/// mismatch skips the whole subtree.
class TokenTrie {
 public:
  struct Node {
    std::uint32_t skip;        // the node after this subtree
    std::int32_t first_token;  // into same_bytes(), or -1
    std::uint16_t depth;       // bytes before this one
    std::uint8_t byte;
  };

  explicit TokenTrie(const std::vector<std::string>& tokens);

  const std::vector<Node>& nodes() const { return nodes_; }
  /// The next token with the same bytes, or -1.
  std::int32_t next_same(std::int32_t token) const { return next_same_[static_cast<std::size_t>(token)]; }
  std::size_t longest() const { return longest_; }

 private:
  std::vector<Node> nodes_;
  std::vector<std::int32_t> next_same_;
  std::size_t longest_ = 0;
};

}  // namespace jerboa
