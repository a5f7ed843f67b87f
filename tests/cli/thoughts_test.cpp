#include "cli/thoughts.h"

#include <gtest/gtest.h>

namespace jerboa::cli::thoughts_test {
namespace {

// The text in pieces of every size, which must all come out the same.
std::string filtered(Thinking thinking, bool colours, const std::string& text, bool begins_inside = false) {
  std::string expected;
  for (std::size_t size = text.size(); size > 0; --size) {
    ThoughtFilter filter(thinking, colours, begins_inside);
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += size) out += filter.push(text.substr(at, size));
    out += filter.finish();
    // Dimmed pieces are marked one by one.
    for (const std::string between : {"\033[0m\033[2m"})
      for (auto at = out.find(between); at != std::string::npos; at = out.find(between)) out.erase(at, between.size());
    if (size == text.size()) expected = out;
    EXPECT_EQ(out, expected) << size;
  }
  return expected;
}

TEST(Thoughts, AreShownDimmed) {
  EXPECT_EQ(filtered(Thinking::show, true, "<think>hm</think>yes <b>"), "\033[2mhm\033[0myes <b>");
}

TEST(Thoughts, KeepTheirTagsWithoutColours) {
  EXPECT_EQ(filtered(Thinking::show, false, "<think>hm</think>yes <th"), "<think>hm</think>yes <th");
}

TEST(Thoughts, AreHidden) {
  EXPECT_EQ(filtered(Thinking::hide, true, "<think>\nhm\n</think>\n\nyes\n\nno"), "yes\n\nno");
  EXPECT_EQ(filtered(Thinking::hide, false, "hm</think> yes", true), "yes");
  EXPECT_EQ(filtered(Thinking::hide, false, "never ends", true), "");
}

TEST(Thoughts, MayBeginInThePrompt) {
  EXPECT_TRUE(ends_inside_thought("<assistant><think>\n"));
  EXPECT_FALSE(ends_inside_thought("<assistant><think>\n\n</think>\n\n"));
  EXPECT_FALSE(ends_inside_thought(""));
}

}  // namespace
}  // namespace jerboa::cli::thoughts_test
