#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/generate/logprobs.h>

namespace jerboa::logprobs_test {
namespace {

TEST(Logprobs, ListTheMostLikelyTokensInOrder) {
  const std::vector<float> logits = {1.0f, 3.0f, 2.0f, 3.0f, -std::numeric_limits<float>::infinity()};
  const TokenDistribution found = distribution_of(logits, 3);
  ASSERT_EQ(found.likeliest.size(), 3u);
  EXPECT_EQ(found.likeliest[0].first, 1);
  EXPECT_EQ(found.likeliest[1].first, 3);
  EXPECT_EQ(found.likeliest[2].first, 2);
  double sum = 0;
  for (int token = 0; token < 5; ++token) sum += std::exp(static_cast<double>(found.logprob(token)));
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_FLOAT_EQ(found.likeliest[0].second, found.logprob(1));
  EXPECT_EQ(distribution_of(logits, 0).likeliest.size(), 0u);
  EXPECT_EQ(distribution_of(logits, 20).likeliest.size(), 5u);
}

}  // namespace
}  // namespace jerboa::logprobs_test
