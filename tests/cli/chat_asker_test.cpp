#include "cli/chat_asker.h"

#include <gtest/gtest.h>

#include "cli/chat_model.h"

// A model's output, split into thoughts, text and calls.
namespace jerboa::cli::chat_asker_test {
namespace {

using mcp::Json;

ChatAnswer read(const std::string& chat_template, const std::string& answer, const Json& tools = Json::array()) {
  const test::ChatModel folder(256);
  folder.write("chat_template.jinja", chat_template);
  LanguageModel model = folder.open({.device = Device::cpu(1)});
  const ChatAsker asked(model, tools);
  const Json messages = Json::array({{{"role", "user"}, {"content", "hi"}}});
  const ChatAsker::Prepared question = asked.prepare({.messages = messages});
  Generation generation;
  generation.text = answer;
  for (const char byte : answer) generation.tokens.push_back(static_cast<unsigned char>(byte));
  return asked.read(question, generation);
}

TEST(ChatAsker, SeparatesTheChannelsOfHarmony) {
  const ChatAnswer answer = read("{{ messages[0].content }}<|start|>assistant{# <|channel|> #}",
                                 "<|channel|>analysis<|message|>The user greets.<|end|><|start|>assistant"
                                 "<|channel|>final<|message|>Hello!");
  EXPECT_EQ(answer.thoughts, "The user greets.");
  EXPECT_EQ(answer.text, "Hello!");
}

TEST(ChatAsker, SeparatesThoughtsThatThePromptBegins) {
  const ChatAnswer answer = read("{{ messages[0].content }}<think>\n", "hm\n</think>\n\nyes");
  EXPECT_EQ(answer.thoughts, "hm\n");
  EXPECT_EQ(answer.text, "yes");
}

TEST(ChatAsker, ReadsCalls) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "weather"}}])");
  const std::string text = R"(Let me see. <tool_call>{"name": "weather", "arguments": {"place": "Rome"}}</tool_call>)";
  const ChatAnswer answer = read("{{ messages[0].content }}{{ tools }}", text, tools);
  EXPECT_EQ(answer.text, "Let me see.");
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].name, "weather");
  EXPECT_EQ(Json::parse(answer.calls[0].arguments), (Json{{"place", "Rome"}}));
  EXPECT_EQ(read("{{ messages[0].content }}", text).text, text);  // without tools there are no calls
}

}  // namespace
}  // namespace jerboa::cli::chat_asker_test
