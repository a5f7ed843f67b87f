#include <array>
#include <gtest/gtest.h>
#include <map>

#include <jerboa/base/error.h>
#include <jerboa/serving/draft_verification.h>

#include "support/expect_error.h"

namespace jerboa::serving {
namespace {

using Tokens = std::vector<std::int32_t>;

std::int32_t draw(std::span<const float> distribution, CounterRandom& random) {
  double left = random.uniform();
  for (std::size_t i = 0; i + 1 < distribution.size(); ++i)
    if ((left -= distribution[i]) < 0) return static_cast<std::int32_t>(i);
  return static_cast<std::int32_t>(distribution.size()) - 1;
}

TEST(VerifyChoices, KeepsWhatTheModelChoseToo) {
  const auto verify = [](const Tokens& draft, const Tokens& chosen) {
    const Verified out = verify_choices(draft, chosen);
    return std::pair(out.accepted, out.token);
  };
  EXPECT_EQ(verify({1, 2, 3}, {1, 2, 3, 4}), std::pair(3, 4));
  EXPECT_EQ(verify({1, 2, 3}, {1, 9, 3, 4}), std::pair(1, 9));
  EXPECT_EQ(verify({1}, {2, 3}), std::pair(0, 2));
  EXPECT_EQ(verify({}, {5}), std::pair(0, 5));
  jerboa::test::expect_error<UsageError>([] { verify_choices(Tokens{1}, Tokens{1}); }, "needs 2 choices");
}

// A toy model over three tokens: what comes next depends on the last token.
constexpr std::array<std::array<float, 3>, 3> model = {{{0.6f, 0.3f, 0.1f}, {0.1f, 0.2f, 0.7f}, {0.4f, 0.0f, 0.6f}}};
constexpr std::array<std::array<float, 3>, 3> drafter = {{{0.2f, 0.2f, 0.6f}, {0.3f, 0.4f, 0.3f}, {0.5f, 0.5f, 0.0f}}};

// The texts of three tokens after token 0, drawn by `next`, against the model's own probabilities.
template <class Write>
void expect_distribution(Write write) {
  constexpr int count = 100000;
  std::map<Tokens, int> seen;
  for (int i = 0; i < count; ++i) {
    const Tokens text = write(static_cast<std::uint64_t>(i));
    ++seen[Tokens(text.begin(), text.begin() + 3)];
  }
  double chi_square = 0;
  int cells = 0;
  for (std::int32_t a = 0; a < 3; ++a)
    for (std::int32_t b = 0; b < 3; ++b)
      for (std::int32_t c = 0; c < 3; ++c) {
        const auto index = [](std::int32_t token) { return static_cast<std::size_t>(token); };
        const double expected =
            count * static_cast<double>(model[0][index(a)]) * model[index(a)][index(b)] * model[index(b)][index(c)];
        const Tokens text{a, b, c};
        const double difference = seen[text] - expected;
        if (expected == 0) {
          EXPECT_EQ(seen[text], 0);
          continue;
        }
        chi_square += difference * difference / expected;
        ++cells;
      }
  EXPECT_EQ(cells, 21);
  EXPECT_LT(chi_square, 45.3) << "20 degrees of freedom: 1 in 1000 by chance";
}

TEST(VerifyDraws, PreservesTheDistribution) {
  std::int64_t accepted = 0;
  expect_distribution([&](std::uint64_t seed) {
    CounterRandom random(seed * 7919 + 1);
    Tokens text;
    while (text.size() < 3) {
      std::int32_t last = text.empty() ? 0 : text.back();
      Tokens draft;
      std::vector<float> p(model[static_cast<std::size_t>(last)].begin(), model[static_cast<std::size_t>(last)].end()),
          q;
      for (int i = 0; i < 2; ++i) {
        const auto& distribution = drafter[static_cast<std::size_t>(last)];
        q.insert(q.end(), distribution.begin(), distribution.end());
        draft.push_back(last = draw(distribution, random));
        p.insert(p.end(), model[static_cast<std::size_t>(last)].begin(), model[static_cast<std::size_t>(last)].end());
      }
      const Verified verified = verify_draws(draft, p, q, random);
      accepted += verified.accepted;
      text.insert(text.end(), draft.begin(), draft.begin() + verified.accepted);
      text.push_back(verified.token);
    }
    return text;
  });
  EXPECT_GT(accepted, 50000);
}

// Drafts that do not depend on chance, compared with draws of the model.
TEST(VerifyChoices, PreservesTheDistributionOfDraws) {
  std::int64_t accepted = 0;
  expect_distribution([&](std::uint64_t seed) {
    CounterRandom random(seed * 104729 + 5);
    Tokens text;
    while (text.size() < 3) {
      const std::int32_t last = text.empty() ? 0 : text.back();
      const Tokens draft = {(last + 1) % 3, 0};
      Tokens chosen;
      for (const std::int32_t before : {last, draft[0], draft[1]})
        chosen.push_back(draw(model[static_cast<std::size_t>(before)], random));
      const Verified verified = verify_choices(draft, chosen);
      accepted += verified.accepted;
      text.insert(text.end(), draft.begin(), draft.begin() + verified.accepted);
      text.push_back(verified.token);
    }
    return text;
  });
  EXPECT_GT(accepted, 50000);
}

TEST(VerifyDraws, ChecksItsInputs) {
  CounterRandom random(0);
  const std::vector<float> two = {0.5f, 0.5f}, four = {0.5f, 0.5f, 0.5f, 0.5f};
  jerboa::test::expect_error<UsageError>([&] { verify_draws(Tokens{1}, four, four, random); }, "4 and 4 probabilities");
  jerboa::test::expect_error<UsageError>([&] { verify_draws(Tokens{2}, four, two, random); },
                                         "token 2, but there are 2");
}

}  // namespace
}  // namespace jerboa::serving
