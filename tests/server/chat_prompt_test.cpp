#include "server/chat_prompt.h"

#include <gtest/gtest.h>

namespace jerboa::test::chat_prompt_test {
namespace {

using server::Json;

constexpr const char* plain_template =
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}<assistant>";

server::ChatRequest request_of(const char* more) {
  return server::parse_chat_request(
      Json::parse(std::string(R"({"messages": [{"role": "user", "content": "2+2?"})") + more + "}"), {});
}

TEST(ChatPrompt, ShowsCallsAndResultsToTemplatesWithoutTools) {
  const server::ChatPrompt prompt =
      server::make_chat_prompt(ChatTemplate(plain_template), server::chat_format_of(plain_template), request_of(R"(,
    {"role": "assistant", "content": "Well.", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 2}"}},
      {"id": "2", "type": "function", "function": {"name": "now", "arguments": ""}}]},
    {"role": "tool", "tool_call_id": "1", "content": "4"}, {"role": "tool", "tool_call_id": "2", "content": "noon"}])"));
  EXPECT_EQ(prompt.text,
            "<user>2+2?<assistant>Well.\n<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":2}}\n</tool_call>\n"
            "<tool_call>\n{\"name\":\"now\",\"arguments\":{}}\n</tool_call>"
            "<user><tool_response>\n4\n</tool_response>\n<tool_response>\nnoon\n</tool_response><assistant>");
  EXPECT_FALSE(prompt.grammar);
}

TEST(ChatPrompt, LeavesThemToTemplatesThatKnowTools) {
  const std::string source = std::string("{% if tools %}[{{ tools | length }}]{% endif %}") + plain_template;
  const server::ChatPrompt prompt =
      server::make_chat_prompt(ChatTemplate(source), server::chat_format_of(source), request_of(R"(,
    {"role": "tool", "tool_call_id": "1", "content": "4"}],
    "tools": [{"type": "function", "function": {"name": "add"}}])"));
  EXPECT_EQ(prompt.text, "[1]<user>2+2?<tool>4<assistant>");
}

TEST(ChatPrompt, BeginsACallThatIsRequiredAndEndsThoughtsBeforeIt) {
  const std::string source = std::string(plain_template) + "<think>\n";
  const server::ChatPrompt prompt =
      server::make_chat_prompt(ChatTemplate(source), server::chat_format_of(source), request_of(R"(],
    "tools": [{"type": "function", "function": {"name": "add"}}], "tool_choice": "required")"));
  EXPECT_TRUE(prompt.text.ends_with("<assistant><think>\n</think>\n\n<tool_call>\n")) << prompt.text;
  EXPECT_EQ(prompt.opening, "<tool_call>\n");
  EXPECT_TRUE(prompt.grammar);
  EXPECT_FALSE(prompt.is_in_thoughts);
}

}  // namespace
}  // namespace jerboa::test::chat_prompt_test
