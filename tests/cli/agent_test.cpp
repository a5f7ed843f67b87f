#include "cli/agent.h"

#include <deque>
#include <gtest/gtest.h>

// The loop of questions and calls, with a model whose answers are given here.
namespace jerboa::test::agent_test {
namespace {

using cli::Calls;
using cli::ChatAnswer;
using mcp::Json;

class AgentTest : public testing::Test {
 protected:
  AgentTest() {
    const mcp::Tool add{
        "add", "", Json::object(), [](const Json& arguments, const mcp::CallContext&) {
          return mcp::ToolResult{std::to_string(arguments.at("a").get<int>() + arguments.at("b").get<int>())};
        }};
    const mcp::Tool fail{"fail", "", Json::object(), [](const Json&, const mcp::CallContext&) -> mcp::ToolResult {
                           throw mcp::McpError("the server is gone");
                         }};
    tools = {cli::callable(add), cli::callable(fail)};
  }

  ChatAnswer run(std::deque<ChatAnswer> says, const cli::AgentOptions& options = {}, bool is_cancelled = false) {
    cli::AgentParts parts;
    parts.ask = [&](const Json&, Calls calls) {
      asked.push_back(calls);
      ChatAnswer next = says.front();
      says.pop_front();
      return next;
    };
    parts.add_results = [&](Json& so_far, const Json& results) {
      for (const Json& result : results) so_far.push_back(result);
      return has_room;
    };
    parts.is_cancelled = [=] { return is_cancelled; };
    return cli::answer_with_tools(messages, tools, options, parts);
  }

  std::vector<server::ServerTool> tools;
  std::vector<Calls> asked;
  bool has_room = true;
  Json messages = Json::array({{{"role", "user"}, {"content", "2 + 40?"}}});
};

TEST_F(AgentTest, CallsAndReadsTheResult) {
  const ChatAnswer answer = run({{"Let me see.", {{"add", R"({"a": 2, "b": 40})"}}}, {"It is 42."}});
  EXPECT_EQ(answer.text, "It is 42.");
  EXPECT_EQ(messages, Json::parse(R"([{"role": "user", "content": "2 + 40?"},
    {"role": "assistant", "content": "Let me see.", "tool_calls": [
      {"id": "call_0_0", "type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 40}}}]},
    {"role": "tool", "tool_call_id": "call_0_0", "name": "add", "content": "42"},
    {"role": "assistant", "content": "It is 42."}])"));
}

TEST_F(AgentTest, ReportsErrorsToTheModel) {
  run({{"", {{"ad", "{}"}, {"add", "{\"a\": "}, {"add", "[1]"}, {"add", "{\"a\": 1}"}, {"fail", ""}}}, {"Sorry."}});
  const auto result = [&](std::size_t i) { return messages[2 + i]["content"].get<std::string>(); };
  EXPECT_EQ(result(0), "error: there is no tool \"ad\"; available: add, fail");
  EXPECT_TRUE(result(1).starts_with("error: the arguments")) << result(1);
  EXPECT_EQ(result(2), "error: the arguments are not a JSON object");
  EXPECT_TRUE(result(3).starts_with("error: ")) << result(3);
  EXPECT_EQ(result(4), "error: the server is gone");
  // As templates and the server's requests take them: an object, or the text that the model wrote.
  EXPECT_EQ(messages[1]["tool_calls"][2]["function"]["arguments"], "[1]");
  EXPECT_EQ(messages[1]["tool_calls"][4]["function"]["arguments"], Json::object());
}

TEST_F(AgentTest, CallsNoMoreWhenTheContextIsFull) {
  has_room = false;
  EXPECT_EQ(run({{"", {{"add", R"({"a": 1, "b": 1})"}}}, {"Two."}}).text, "Two.");
  EXPECT_EQ(asked, (std::vector<Calls>{Calls::allowed, Calls::forbidden}));
}

TEST_F(AgentTest, EndsAfterSoManyRounds) {
  const ChatAnswer call{"", {{"add", R"({"a": 1, "b": 1})"}}};
  EXPECT_EQ(run({call, call, {"Enough."}}, {.rounds = 2, .requires_call = true}).text, "Enough.");
  EXPECT_EQ(asked, (std::vector<Calls>{Calls::required, Calls::allowed, Calls::forbidden}));
}

TEST_F(AgentTest, PerformsNoCallsThatWereForbidden) {
  const ChatAnswer call{"Once more.", {{"add", R"({"a": 1, "b": 1})"}}};
  for (const int rounds : {1, 0}) {
    asked.clear();
    const ChatAnswer answer = run({call, call}, {.rounds = rounds});
    EXPECT_EQ(answer.text, "Once more.");
    EXPECT_TRUE(answer.calls.empty());
    EXPECT_EQ(asked.size(), static_cast<std::size_t>(rounds) + 1);
    EXPECT_EQ(asked.back(), Calls::forbidden);
    // Without calls that have no results, so that the conversation can continue.
    EXPECT_EQ(messages.back(), (Json{{"role", "assistant"}, {"content", "Once more."}}));
  }
}

TEST_F(AgentTest, EndsWhenItIsCancelled) {
  run({{"", {{"add", R"({"a": 1, "b": 1})"}}}}, {}, true);
  EXPECT_EQ(messages.size(), 3u);  // whole, so that the conversation can continue
}

}  // namespace
}  // namespace jerboa::test::agent_test
