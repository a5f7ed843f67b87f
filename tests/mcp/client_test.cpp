#include "mcp/client.h"

#include <cstdint>
#include <deque>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mcp/protocol.h"

// The client's side of the protocol, with a server that is a list of messages.
namespace jerboa::test::client_test {
namespace {

using mcp::Json;

// The messages that were sent, and the replies to deliver after a given number of them.
struct Script {
  std::vector<Json> sent;
  std::deque<std::pair<std::size_t, Json>> answers;
  std::size_t gone_after = SIZE_MAX;  // after this many messages, the server receives no more
};

class ScriptedTransport final : public mcp::Transport {
 public:
  explicit ScriptedTransport(Script& script) : script_(script) {}
  void send(const Json& message) override {
    if (script_.sent.size() >= script_.gone_after) throw mcp::ConnectionLost("the server is gone");
    script_.sent.push_back(message);
  }
  std::optional<Json> receive(double) override {
    if (script_.answers.empty() || script_.answers.front().first > script_.sent.size()) return std::nullopt;
    Json message = script_.answers.front().second;
    script_.answers.pop_front();
    return message;
  }

 private:
  Script& script_;
};

class McpClientTest : public testing::Test {
 protected:
  mcp::Client connect(double seconds = 60) {
    script.answers.push_front({1, mcp::make_result(1, {{"protocolVersion", "2025-06-18"}})});
    return mcp::Client(std::make_unique<ScriptedTransport>(script), {.name = "server", .seconds = seconds});
  }
  void after(std::size_t sent, Json message) { script.answers.emplace_back(sent, std::move(message)); }
  static Json page(const std::vector<std::string>& names) {
    Json tools = Json::array();
    for (const std::string& name : names) tools.push_back({{"name", name}});
    return {{"tools", tools}};
  }

  Script script;
};

TEST_F(McpClientTest, BeginsWithTheHandshake) {
  connect();
  ASSERT_EQ(script.sent.size(), 2u);
  EXPECT_EQ(script.sent[0]["method"], "initialize");
  EXPECT_EQ(script.sent[0]["params"]["protocolVersion"], "2025-06-18");
  EXPECT_EQ(script.sent[0]["params"]["clientInfo"]["name"], "jerboa");
  EXPECT_EQ(script.sent[1]["method"], "notifications/initialized");
  EXPECT_FALSE(script.sent[1].contains("id"));
}

TEST_F(McpClientTest, FollowsThePagesOfTheTools) {
  Json first = page({"a", "b"});
  first["nextCursor"] = "more";
  after(3, mcp::make_result(2, first));
  after(4, mcp::make_result(3, page({"c"})));
  EXPECT_EQ(connect().list_tools().size(), 3u);
  EXPECT_EQ(script.sent[3]["params"]["cursor"], "more");
}

TEST_F(McpClientTest, StopsEndlessToolLists) {
  Json same = page({"a"});
  same["nextCursor"] = "again";
  for (std::size_t i = 0; i < 1000; ++i) after(3 + i, mcp::make_result(2 + i, same));
  mcp::Client client = connect();
  EXPECT_THROW(client.list_tools(), mcp::McpError);
}

TEST_F(McpClientTest, AnswersRequestsOfTheServerMeanwhile) {
  after(3, mcp::make_request("x", "ping", Json::object()));
  after(3, mcp::make_request(7, "sampling/createMessage", Json::object()));
  after(3, mcp::make_notification("notifications/message", {{"data", "busy"}}));
  after(3, mcp::make_result(99, {{"content", "of another call"}}));
  after(3, mcp::make_result(2, {{"content", Json::array({{{"type", "text"}, {"text", "done"}}})}}));
  mcp::Client client = connect();
  EXPECT_EQ(client.call_tool("a", {{"b", 1}}), (mcp::ToolResult{"done", false}));
  ASSERT_EQ(script.sent.size(), 5u);
  EXPECT_EQ(script.sent[2]["params"]["arguments"]["b"], 1);
  EXPECT_EQ(script.sent[3], mcp::make_result("x", Json::object()));
  EXPECT_EQ(script.sent[4]["error"]["code"], mcp::method_not_found);
}

TEST_F(McpClientTest, TellsErrorsOfToolsFromThoseOfTheProtocol) {
  after(3, mcp::make_result(2, {{"content", Json::array({{{"type", "text"}, {"text", "no"}}})}, {"isError", true}}));
  after(4, mcp::make_error(3, -32602, "unknown tool"));
  after(5, mcp::make_result(4, Json::array()));
  mcp::Client client = connect();
  EXPECT_EQ(client.call_tool("a", Json::object()), (mcp::ToolResult{"no", true}));
  for (const char* message :
       {"server: tools/call failed: unknown tool", "server: the result of a call is not an object"})
    try {
      client.call_tool("a", Json::object());
      FAIL() << message;
    } catch (const mcp::McpError& error) {
      EXPECT_STREQ(error.what(), message);
    }
}

TEST_F(McpClientTest, CancelsCallsThatTakeTooLongOrAreCancelled) {
  mcp::Client client = connect(0.01);
  EXPECT_THROW(client.call_tool("a", Json::object()), mcp::McpError);
  mcp::CallContext context;
  context.is_cancelled = [] { return true; };
  EXPECT_THROW(client.call_tool("a", Json::object(), context), mcp::McpError);
  ASSERT_EQ(script.sent.size(), 6u);
  EXPECT_EQ(script.sent[3]["method"], "notifications/cancelled");
  EXPECT_EQ(script.sent[3]["params"]["requestId"], script.sent[2]["id"]);
  EXPECT_EQ(script.sent[5]["params"]["requestId"], script.sent[4]["id"]);
}

// A caller may repeat a call after a lost connection, which must not happen to a call that arrived.
TEST_F(McpClientTest, LosesOnlyCallsThatDidNotArrive) {
  mcp::Client client = connect();
  const auto problem = [&](const mcp::CallContext& context = {}) -> std::string {
    try {
      client.call_tool("a", Json::object(), context);
    } catch (const mcp::ConnectionLost& error) {
      return fmt::format("lost: {}", error.what());
    } catch (const mcp::McpError& error) {
      return error.what();
    }
    return "";
  };
  script.gone_after = 3;
  after(3, mcp::make_request("x", "ping", Json::object()));
  EXPECT_EQ(problem(), "server: the server is gone");
  EXPECT_EQ(problem(), "lost: server: the server is gone");
  script.gone_after = 4;
  mcp::CallContext cancelled;
  cancelled.is_cancelled = [] { return true; };
  EXPECT_EQ(problem(cancelled), "server: the call was cancelled");
}

TEST_F(McpClientTest, PassesProgressOn) {
  after(3, mcp::make_notification("notifications/progress", {{"progressToken", 2}, {"progress", 1}, {"total", 4}}));
  after(3, mcp::make_notification("notifications/progress", {{"progressToken", 9}, {"progress", 3}}));
  after(3, mcp::make_result(2, {{"structuredContent", {{"a", 1}}}}));
  std::vector<std::pair<double, double>> reported;
  mcp::CallContext context;
  context.on_progress = [&](double done, double total) { reported.emplace_back(done, total); };
  EXPECT_EQ(connect().call_tool("a", Json::object(), context).text, "{\"a\":1}");
  EXPECT_EQ(script.sent[2]["params"]["_meta"]["progressToken"], 2);
  EXPECT_EQ(reported, (std::vector<std::pair<double, double>>{{1, 4}}));
}

TEST(McpContent, IsOneText) {
  EXPECT_EQ(
      mcp::content_text(Json::parse(R"([
    {"type": "text", "text": "a"}, {"type": "image", "mimeType": "image/png", "data": "AAAAAAAA"},
    {"type": "resource_link", "name": "b", "uri": "file:///b"}, {"type": "resource", "resource": {"uri": "c:", "text": "d"}},
    {"type": "resource", "resource": {"uri": "e:"}}, {"type": "hologram"}, 7])")),
      "a\n[image: image/png, 6 bytes]\n[b: file:///b]\nd\n[resource: e:]\n[hologram]\n[a part of an unknown type]");
}

}  // namespace
}  // namespace jerboa::test::client_test
