#include "verify/compare.h"

#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace jerboa {
namespace {

std::optional<std::string> compare(const std::vector<double>& computed, const std::vector<double>& golden) {
  return difference(computed, golden);
}

TEST(Difference, HoldsWithinTheTolerance) {
  EXPECT_FALSE(compare({}, {}));
  EXPECT_FALSE(compare({100.005, 0.000009}, {100, 0}));
}

TEST(Difference, NamesTheWorstValue) {
  EXPECT_EQ(compare({1, 2.5, 3.1}, {1, 2, 3}), "2 of 3 values differ, the most at 1: 2.5 instead of 2");
}

TEST(Difference, SeesAnErrorThatOnlyTheWholeShows) {
  // Each value is within the absolute bound, and all of them are off by half.
  EXPECT_EQ(compare(std::vector<double>(10, 1.5e-5), std::vector<double>(10, 1e-5)),
            "the relative error of the whole tensor is 0.5");
}

TEST(Difference, NeverAcceptsNan) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(compare({nan}, {0}));
  EXPECT_TRUE(compare({0}, {nan}));
  EXPECT_TRUE(compare({std::numeric_limits<double>::infinity()}, {0}));
}

TEST(Difference, MayAskForEqualValues) {
  const std::vector<double> values{1, 0, -2}, other{1, 0, -2.0000001};
  EXPECT_FALSE(difference(values, values, {0, 0, 0}));
  EXPECT_TRUE(difference(values, other, {0, 0, 0}));
}

TEST(Difference, ComparesSizes) { EXPECT_EQ(compare({1}, {1, 2}), "1 values instead of 2"); }

}  // namespace
}  // namespace jerboa
