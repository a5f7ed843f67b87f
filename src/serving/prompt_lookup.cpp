#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/base/random.h>
#include <jerboa/serving/prompt_lookup.h>

namespace jerboa::serving {
namespace {

std::uint64_t hash_of(std::span<const std::int32_t> run) {
  std::uint64_t hash = run.size();
  for (const std::int32_t token : run) hash = split_mix(hash * split_mix_step + static_cast<std::uint32_t>(token) + 1);
  return hash;
}

}  // namespace

PromptLookup::PromptLookup(int shortest, int longest) : shortest_(shortest), longest_(longest) {
  if (shortest < 1 || longest < shortest)
    throw UsageError(fmt::format("prompt lookup needs 1 <= shortest <= longest, not {} and {}", shortest, longest));
}

// Indexes the runs that end just before each token. The run at the very end has no follower yet, so it cannot match
// itself.
void PromptLookup::index(std::span<const std::int32_t> tokens) {
  for (; indexed_ < tokens.size(); ++indexed_)
    for (auto size = static_cast<std::size_t>(shortest_); size <= static_cast<std::size_t>(longest_); ++size)
      if (size <= indexed_) followers_[hash_of(tokens.subspan(indexed_ - size, size))] = indexed_;
}

std::vector<std::int32_t> PromptLookup::propose(std::span<const std::int32_t> tokens, int count) {
  index(tokens);
  for (auto size = static_cast<std::size_t>(longest_); size >= static_cast<std::size_t>(shortest_); --size) {
    if (size > tokens.size()) continue;
    const auto last = tokens.last(size);
    const auto found = followers_.find(hash_of(last));
    if (found == followers_.end()) continue;
    const std::size_t follower = found->second;
    const auto past = tokens.subspan(follower - size, size);
    if (!std::equal(last.begin(), last.end(), past.begin())) continue;  // another run with the same hash
    std::vector<std::int32_t> out;
    for (std::size_t at = follower; std::ssize(out) < count; ++at)
      out.push_back(at < tokens.size() ? tokens[at] : out[at - tokens.size()]);  // continues a loop
    return out;
  }
  return {};
}

}  // namespace jerboa::serving
