#include <gtest/gtest.h>
#include <map>

#include <jerboa/base/random.h>
#include <jerboa/serving/seen_tokens.h>
#include <jerboa/serving/step.h>

namespace jerboa::serving {
namespace {

std::map<std::int32_t, float> listed(const SeenTokens& seen) {
  std::vector<std::int32_t> tokens(seen.size());
  std::vector<float> occurrences(seen.size());
  seen.list(tokens, occurrences);
  std::map<std::int32_t, float> out;
  for (std::size_t i = 0; i < tokens.size(); ++i) out[tokens[i]] = occurrences[i];
  EXPECT_EQ(out.size(), tokens.size()) << "a token is listed twice";
  return out;
}

// From the definition: the last `window` of all tokens.
std::map<std::int32_t, float> counted(const std::vector<std::int32_t>& all, std::size_t prompt, std::size_t window) {
  std::map<std::int32_t, float> out;
  for (std::size_t i = all.size() > window ? all.size() - window : 0; i < all.size(); ++i) {
    float& count = out.try_emplace(all[i], only_in_prompt).first->second;
    if (i >= prompt) count = count == only_in_prompt ? 1 : count + 1;
  }
  return out;
}

TEST(SeenTokens, DistinguishesPromptAndGeneratedTokens) {
  SeenTokens seen(std::vector<std::int32_t>{5, 6, 5}, 0);
  for (const std::int32_t token : {6, 9, 6}) seen.push(token);
  EXPECT_EQ(listed(seen), (std::map<std::int32_t, float>{{5, only_in_prompt}, {6, 2}, {9, 1}}));
}

TEST(SeenTokens, CountsTokensInTheWindow) {
  SplitMix random(3);
  for (const int window : {0, 1, 2, 5, 9, 40}) {
    std::vector<std::int32_t> all;
    for (int i = 0; i < 7; ++i) all.push_back(static_cast<std::int32_t>(random.below(6)));
    SeenTokens seen(all, window);
    const auto size = window == 0 ? all.size() + 100 : static_cast<std::size_t>(window);
    for (int i = 0; i < 30; ++i) {
      EXPECT_EQ(listed(seen), counted(all, 7, size)) << window;
      SeenTokens before_another = seen;
      before_another.leave_room();
      EXPECT_EQ(listed(before_another), counted(all, 7, size - 1)) << window;
      all.push_back(static_cast<std::int32_t>(random.below(6)));
      seen.push(all.back());
    }
  }
}

}  // namespace
}  // namespace jerboa::serving
