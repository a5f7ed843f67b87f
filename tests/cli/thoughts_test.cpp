#include "cli/thoughts.h"

#include <gtest/gtest.h>

#include "base/json_value.h"

namespace jerboa::cli::thoughts_test {
namespace {

struct Piece {
  std::string text;
  bool is_thought = false;
};

std::string shown(Thinking thinking, bool colours, const std::vector<Piece>& pieces) {
  ThoughtView view(thinking, colours);
  std::string out;
  for (const Piece& piece : pieces) out += view.show(piece.text, piece.is_thought);
  return out + view.finish();
}

TEST(Thoughts, AreShownDimmed) {
  EXPECT_EQ(shown(Thinking::show, true, {{"hm", true}, {"yes", false}}), "\033[2mhm\033[0m\n\nyes");
  EXPECT_EQ(shown(Thinking::show, true, {{"hm\n", true}, {"yes", false}}), "\033[2mhm\n\033[0m\nyes");
}

TEST(Thoughts, HaveTagsWithoutColours) {
  EXPECT_EQ(shown(Thinking::show, false, {{"h", true}, {"m", true}, {"yes", false}, {"!", false}}),
            "<think>\nhm\n</think>\n\nyes!");
  EXPECT_EQ(shown(Thinking::show, false, {{"never ends", true}}), "<think>\nnever ends\n</think>\n\n");
}

TEST(Thoughts, AreHidden) {
  for (const bool colours : {false, true})
    EXPECT_EQ(shown(Thinking::hide, colours, {{"hm", true}, {"yes", false}, {"hm", true}, {"no", false}}), "yesno");
}

TEST(Thoughts, AreTurnedOffAsTheTemplateTakesIt) {
  const auto variables = [](Thinking thinking, const char* source) {
    return json_value(template_variables(thinking, source));
  };
  EXPECT_EQ(variables(Thinking::hide, "{{ reasoning_effort }}")["enable_thinking"], true);
  EXPECT_FALSE(variables(Thinking::hide, "{{ reasoning_effort }}").contains("reasoning_effort"));
  EXPECT_EQ(variables(Thinking::off, "")["enable_thinking"], false);
  EXPECT_FALSE(variables(Thinking::off, "").contains("reasoning_effort"));
  EXPECT_EQ(variables(Thinking::off, "{{ reasoning_effort }}")["reasoning_effort"], "low");
  EXPECT_EQ(variables(Thinking::off, "{% if reasoning_effort == 'none' %}")["reasoning_effort"], "none");
}

}  // namespace
}  // namespace jerboa::cli::thoughts_test
