#include <gtest/gtest.h>

#include <jerboa/base/random.h>

namespace jerboa {
namespace {

// The known answers of Random123 for threefry2x32 with 20 rounds.
TEST(Threefry, GivesTheKnownAnswers) {
  constexpr std::uint32_t all = 0xffffffff;
  EXPECT_EQ(threefry({0, 0}, {0, 0}), (WordPair{0x6b200159, 0x99ba4efe}));
  EXPECT_EQ(threefry({all, all}, {all, all}), (WordPair{0x1cb996fc, 0xbb002be7}));
  EXPECT_EQ(threefry({0x13198a2e, 0x03707344}, {0x243f6a88, 0x85a308d3}), (WordPair{0xc4923a9c, 0x483df7a0}));
}

}  // namespace
}  // namespace jerboa
