#include "server/reply.h"

#include <gtest/gtest.h>

#include "server/fake_exchange.h"

namespace jerboa::server::reply_test {
namespace {

using test::FakeExchange;
using Kind = OutputEvent::Kind;

const OutputEvents call = {
    {Kind::reasoning, "Hm."}, {Kind::content, "So: "}, {Kind::call, "f"}, {Kind::arguments, "{\"a\""}};
const OutputEvents rest = {{Kind::arguments, ":1}"}, {Kind::call, "g"}, {Kind::arguments, "{}"}};

TEST(ChatReply, IsWhole) {
  const auto exchange = std::make_shared<FakeExchange>();
  const auto reply = make_chat_reply(exchange, {});
  reply->begin("m");
  reply->add(0, call, {});
  reply->add(0, rest, {});
  reply->end(0, StopReason::end);
  EXPECT_FALSE(exchange->is_finished);
  reply->finish({.prompt_tokens = 3, .completion_tokens = 4, .cached_tokens = 1});
  const auto json = exchange->json();
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "m");
  const auto& message = json["choices"][0]["message"];
  EXPECT_EQ(message["content"], "So: ");
  EXPECT_EQ(message["reasoning_content"], "Hm.");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], "{\"a\":1}");
  EXPECT_EQ(message["tool_calls"][1]["function"]["name"], "g");
  EXPECT_NE(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);
  EXPECT_EQ(json["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(json["usage"]["total_tokens"], 7);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
}

TEST(ChatReply, Streams) {
  const auto exchange = std::make_shared<FakeExchange>();
  ChatRequest request;
  request.stream = request.include_usage = true;
  request.choices = 2;
  const auto reply = make_chat_reply(exchange, request);
  reply->begin("m");
  reply->add(1, call, {});
  reply->add(1, rest, {});
  reply->end(1, StopReason::end);
  reply->end(0, StopReason::length);
  reply->finish({.prompt_tokens = 3, .completion_tokens = 4});
  EXPECT_EQ(exchange->response.type, "text/event-stream; charset=utf-8");
  EXPECT_TRUE(exchange->ends_with("data: [DONE]\n\n"));
  const auto events = exchange->events();
  ASSERT_EQ(events.size(), 12u);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[1]["choices"][0]["index"], 1);
  EXPECT_EQ(events[2]["choices"][0]["delta"]["reasoning_content"], "Hm.");
  EXPECT_EQ(events[3]["choices"][0]["delta"]["content"], "So: ");
  const auto tool = [&](std::size_t event) { return events[event]["choices"][0]["delta"]["tool_calls"][0]; };
  EXPECT_EQ(tool(4)["function"]["name"], "f");
  EXPECT_EQ(tool(4)["index"], 0);
  EXPECT_TRUE(tool(4).contains("id"));
  EXPECT_EQ(tool(5)["function"]["arguments"], "{\"a\"");
  EXPECT_EQ(tool(6)["index"], 0);
  EXPECT_EQ(tool(7)["index"], 1);
  EXPECT_EQ(tool(8)["index"], 1);
  EXPECT_EQ(events[9]["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(events[10]["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(events[10]["usage"].is_null());
  EXPECT_TRUE(events[11]["choices"].empty());
  EXPECT_EQ(events[11]["usage"]["completion_tokens"], 4);
}

TEST(ChatReply, DropsArgumentsOfNoCall) {
  const auto exchange = std::make_shared<FakeExchange>();
  const auto reply = make_chat_reply(exchange, {});
  reply->begin("m");
  reply->add(0, {{Kind::content, "a"}, {Kind::arguments, "{}"}}, {});
  reply->end(0, StopReason::end);
  reply->finish({});
  const auto message = exchange->json()["choices"][0]["message"];
  EXPECT_EQ(message["content"], "a");
  EXPECT_FALSE(message.contains("tool_calls"));
}

TEST(ChatReply, HasLogprobs) {
  ChatRequest request;
  request.logprobs = 1;
  for (const bool streams : {false, true}) {
    request.stream = streams;
    const auto exchange = std::make_shared<FakeExchange>();
    const auto reply = make_chat_reply(exchange, request);
    reply->begin("m");
    reply->add(0, {{Kind::content, "é"}}, {{"\xc3", -0.5f, {{"a", -0.25f}}}, {"\xa9", -1.0f, {}}});
    reply->end(0, StopReason::stop);
    reply->finish({});
    const auto logprobs =
        streams ? exchange->events()[1]["choices"][0]["logprobs"] : exchange->json()["choices"][0]["logprobs"];
    ASSERT_EQ(logprobs["content"].size(), 2u);
    EXPECT_EQ(logprobs["content"][0]["bytes"], nlohmann::json::array({0xc3}));
    EXPECT_EQ(logprobs["content"][0]["logprob"], -0.5);
    EXPECT_EQ(logprobs["content"][0]["top_logprobs"][0]["token"], "a");
  }
}

TEST(ChatReply, Fails) {
  const ApiError error(503, "no memory");
  const auto whole = std::make_shared<FakeExchange>();
  make_chat_reply(whole, {})->fail(error);
  EXPECT_EQ(whole->response.status, 503);
  EXPECT_EQ(whole->json()["error"]["message"], "no memory");
  ChatRequest request;
  request.stream = true;
  const auto refused = std::make_shared<FakeExchange>();
  make_chat_reply(refused, request)->fail(error);  // before anything was sent
  EXPECT_EQ(refused->response.status, 503);
  const auto exchange = std::make_shared<FakeExchange>();
  const auto reply = make_chat_reply(exchange, request);
  reply->begin("m");
  reply->fail(error);
  EXPECT_EQ(exchange->events().back()["error"]["message"], "no memory");
  EXPECT_FALSE(exchange->ends_with("[DONE]\n\n"));
  EXPECT_TRUE(exchange->is_finished);
}

TEST(CompletionReply, IsWholeOrStreams) {
  CompletionRequest request;
  request.prompts = {"a", "b"};
  request.logprobs = 1;
  for (const bool streams : {false, true}) {
    request.stream = streams;
    const auto exchange = std::make_shared<FakeExchange>();
    const auto reply = make_completion_reply(exchange, request);
    reply->begin("m");
    reply->add(0, {{Kind::content, "é"}}, {{"\xc3", -1.0f, {{"y", -0.5f}}}, {"\xa9", -1.0f, {}}});
    reply->add(0, {{Kind::content, "yz"}}, {{"yz", -1.0f, {}}});
    reply->add(1, {{Kind::content, "w"}}, {});
    reply->end(0, StopReason::context);
    reply->end(1, StopReason::end);
    reply->finish({});
    if (streams) {
      const auto events = exchange->events();
      ASSERT_EQ(events.size(), 5u);
      EXPECT_EQ(events[1]["choices"][0]["logprobs"]["text_offset"][0], 1);
      EXPECT_EQ(events[3]["choices"][0]["finish_reason"], "length");
      EXPECT_TRUE(exchange->ends_with("data: [DONE]\n\n"));
    } else {
      const auto choices = exchange->json()["choices"];
      EXPECT_EQ(choices[0]["text"], "éyz");
      EXPECT_EQ(choices[0]["logprobs"]["tokens"][2], "yz");
      EXPECT_EQ(choices[0]["logprobs"]["text_offset"], nlohmann::json({0, 1, 1}));
      EXPECT_EQ(choices[0]["logprobs"]["top_logprobs"][0]["y"], -0.5);
      EXPECT_EQ(choices[0]["finish_reason"], "length");
      EXPECT_EQ(choices[1]["finish_reason"], "stop");
    }
  }
}

TEST(ResponsesReply, IsAListOfItems) {
  const auto exchange = std::make_shared<FakeExchange>();
  const auto reply = make_responses_reply(exchange, {});
  reply->begin("m");
  reply->add(0, call, {});
  reply->add(0, rest, {});
  reply->end(0, StopReason::end);
  reply->finish({.prompt_tokens = 3, .completion_tokens = 4, .reasoning_tokens = 2});
  const auto json = exchange->json();
  EXPECT_EQ(json["status"], "completed");
  ASSERT_EQ(json["output"].size(), 4u);
  EXPECT_EQ(json["output"][0]["type"], "reasoning");
  EXPECT_EQ(json["output"][1]["content"][0]["text"], "So: ");
  EXPECT_EQ(json["output"][2]["arguments"], "{\"a\":1}");
  EXPECT_EQ(json["output"][3]["name"], "g");
  EXPECT_EQ(json["usage"]["output_tokens"], 4);
  EXPECT_EQ(json["usage"]["output_tokens_details"]["reasoning_tokens"], 2);
}

TEST(ResponsesReply, Streams) {
  const auto exchange = std::make_shared<FakeExchange>();
  ChatRequest request;
  request.stream = true;
  const auto reply = make_responses_reply(exchange, request);
  reply->begin("m");
  reply->add(0, {{Kind::content, "a"}}, {});
  reply->add(0, {{Kind::content, "b"}, {Kind::call, "f"}, {Kind::arguments, "{}"}}, {});
  reply->end(0, StopReason::length);
  reply->finish({});
  std::vector<std::string> types;
  for (const auto& event : exchange->events()) {
    EXPECT_EQ(event["sequence_number"], types.size());
    types.push_back(event["type"].get<std::string>().substr(event["type"] == "error" ? 0 : 9));
  }
  EXPECT_EQ(types,
            (std::vector<std::string>{"created", "in_progress", "output_item.added", "content_part.added",
                                      "output_text.delta", "output_text.delta", "output_text.done", "content_part.done",
                                      "output_item.done", "output_item.added", "function_call_arguments.delta",
                                      "function_call_arguments.done", "output_item.done", "incomplete"}));
  EXPECT_EQ(exchange->events().back()["response"]["output"].size(), 2u);
}

}  // namespace
}  // namespace jerboa::server::reply_test
