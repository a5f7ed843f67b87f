#include "generate/token_trie.h"

#include <algorithm>
#include <fmt/core.h>

#include <jerboa/generate/constraint.h>

#include "base/stable_sort.h"

namespace jerboa {

TokenTrie::TokenTrie(const std::vector<std::string>& tokens) : next_same_(tokens.size(), -1) {
  std::vector<std::uint32_t> open;  // the nodes of the current token's bytes
  const std::string* previous = nullptr;
  const auto before = [&](std::size_t a, std::size_t b) { return tokens[a] < tokens[b]; };
  for (const std::size_t token : detail::stable_order(tokens.size(), before)) {
    const std::string& bytes = tokens[token];
    if (bytes.empty()) continue;
    if (bytes.size() > UINT16_MAX) throw ConstraintError(fmt::format("token {} has {} bytes", token, bytes.size()));
    longest_ = std::max(longest_, bytes.size());
    std::size_t common = 0;
    if (previous != nullptr)
      common = static_cast<std::size_t>(
          std::mismatch(previous->begin(), previous->end(), bytes.begin(), bytes.end()).second - bytes.begin());
    for (; open.size() > common; open.pop_back()) nodes_[open.back()].skip = static_cast<std::uint32_t>(nodes_.size());
    for (std::size_t i = common; i < bytes.size(); ++i) {
      open.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({0, -1, static_cast<std::uint16_t>(i), static_cast<std::uint8_t>(bytes[i])});
    }
    Node& node = nodes_[open.back()];
    next_same_[token] = node.first_token;
    node.first_token = static_cast<std::int32_t>(token);
    previous = &bytes;
  }
  for (const std::uint32_t node : open) nodes_[node].skip = static_cast<std::uint32_t>(nodes_.size());
}

}  // namespace jerboa
