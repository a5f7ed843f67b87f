#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/base/random.h>
#include <jerboa/serving/prompt_lookup.h>

#include "support/expect_error.h"

namespace jerboa::serving {
namespace {

using Tokens = std::vector<std::int32_t>;

TEST(PromptLookup, ProposesTheEarlierContinuation) {
  PromptLookup lookup;
  EXPECT_EQ(lookup.propose(Tokens{5, 6, 7, 8, 9, 5, 6}, 3), (Tokens{7, 8, 9}));
}

TEST(PromptLookup, PrefersLongerRunsAndLaterOnes) {
  EXPECT_EQ(PromptLookup(1, 3).propose(Tokens{1, 2, 3, 4, 9, 3, 5, 1, 2, 3}, 1), Tokens{4});
  EXPECT_EQ(PromptLookup(1, 1).propose(Tokens{1, 2, 3, 4, 9, 3, 5, 1, 2, 3}, 1), Tokens{5});
}

TEST(PromptLookup, ProposesNothingAfterANewRun) {
  PromptLookup lookup;
  EXPECT_TRUE(lookup.propose(Tokens{1, 2, 3, 4}, 3).empty());
  EXPECT_TRUE(lookup.propose(Tokens{1, 2, 3, 4, 2}, 3).empty()) << "a run of one is too short";
  EXPECT_TRUE(PromptLookup().propose(Tokens{1}, 3).empty());
  EXPECT_TRUE(PromptLookup().propose(Tokens{}, 3).empty());
}

TEST(PromptLookup, GoesOnWithALoop) {
  EXPECT_EQ(PromptLookup().propose(Tokens{1, 2, 3, 1, 2, 3, 1, 2}, 7), (Tokens{3, 1, 2, 3, 1, 2, 3}));
}

// The index that grows with the text finds what a search through all of it finds.
TEST(PromptLookup, AgreesWithASearch) {
  SplitMix random(1);
  PromptLookup lookup(2, 4);
  Tokens tokens;
  for (int i = 0; i < 500; ++i) {
    tokens.push_back(static_cast<std::int32_t>(random.below(4)));
    Tokens found;
    for (std::size_t size = 4; size >= 2 && found.empty(); --size)
      for (std::size_t end = tokens.size(); end-- > size && found.empty();)
        if (tokens.size() > size && std::equal(tokens.end() - static_cast<std::ptrdiff_t>(size), tokens.end(),
                                               tokens.begin() + static_cast<std::ptrdiff_t>(end - size)))
          found = {tokens[end]};
    EXPECT_EQ(lookup.propose(tokens, 1), found) << "after " << i;
  }
}

TEST(PromptLookup, ChecksItsSizes) {
  jerboa::test::expect_error<UsageError>([] { PromptLookup(0, 3); }, "1 <= shortest <= longest");
  jerboa::test::expect_error<UsageError>([] { PromptLookup(3, 2); }, "not 3 and 2");
}

}  // namespace
}  // namespace jerboa::serving
