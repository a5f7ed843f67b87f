#include "base/stable_sort.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>

namespace jerboa::detail {
namespace {

TEST(StableSort, KeepsTheOrderOfEqualValues) {
  std::vector<std::pair<int, char>> values{{2, 'a'}, {1, 'b'}, {2, 'c'}, {1, 'd'}, {0, 'e'}, {1, 'f'}};
  stable_sort(values, [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string letters;
  for (const auto& [number, letter] : values) letters += letter;
  EXPECT_EQ(letters, "ebdfac");
}

TEST(StableSort, MovesValuesThatCannotBeCopied) {
  std::vector<std::unique_ptr<int>> values;
  for (const int value : {3, 1, 2}) values.push_back(std::make_unique<int>(value));
  stable_sort(values, [](const auto& a, const auto& b) { return *a < *b; });
  EXPECT_EQ((std::vector<int>{*values[0], *values[1], *values[2]}), (std::vector<int>{1, 2, 3}));
}

TEST(StableSort, OrderOfNothingIsEmpty) {
  EXPECT_TRUE(stable_order(0, [](std::size_t, std::size_t) { return true; }).empty());
}

}  // namespace
}  // namespace jerboa::detail
