#include "server/request.h"

#include <gtest/gtest.h>

#include "server/api_error.h"
#include "server/embeddings.h"

namespace jerboa::server::request_test {
namespace {

ChatRequest chat(const std::string& more, const RequestLimits& limits = {}) {
  return parse_chat_request(parse_body(R"({"messages": [{"role": "user", "content": "Hi"}])" + more + "}"), limits);
}

struct Refused {
  std::string param, message;
};
template <class Parse>
Refused refused(const Parse& parse) {
  try {
    parse();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    const Json body = Json::parse(error.body());
    EXPECT_EQ(body["error"]["type"], "invalid_request_error");
    return {body["error"]["param"].is_null() ? "" : body["error"]["param"].get<std::string>(), error.what()};
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

TEST(ServerRequest, ReadsSampling) {
  const ChatRequest request = chat(R"(, "model": "m", "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1,
      "presence_penalty": 1, "frequency_penalty": -1, "seed": -7, "stop": ["a", "b"], "n": 3, "max_tokens": 10,
      "max_completion_tokens": 20, "logit_bias": {"5": -100}, "stream": true, "stream_options": {"include_usage": true},
      "logprobs": true, "top_logprobs": 4, "user": "someone", "store": false)");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.max_tokens, 20);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.choices, 3);
  EXPECT_TRUE(request.stream && request.include_usage);
  EXPECT_EQ(request.logprobs, 4);
  const SamplerOptions sampling = request.sampling({.temperature = 0.7f, .repetition_penalty = 1.1f});
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.repetition_penalty, 1.1f);  // as the model recommends
  EXPECT_EQ(sampling.frequency_penalty, -1.0f);
  EXPECT_EQ(sampling.seed, static_cast<std::uint64_t>(-7));
  EXPECT_EQ(sampling.logit_bias, (std::vector<std::pair<int, float>>{{5, -100.0f}}));
}

TEST(ServerRequest, TreatsNullAsAbsent) {
  const ChatRequest request =
      chat(R"(, "temperature": null, "stop": null, "tools": null, "tool_choice": null, "response_format": null,
             "max_tokens": null, "logit_bias": null, "stream": null, "n": null, "seed": null)");
  EXPECT_FALSE(request.temperature || request.max_tokens || request.schema || request.stream);
}

TEST(ServerRequest, ReportsErrors) {
  const struct {
    const char *more, *param;
  } table[] = {
      {R"(, "temperature": -1)", "temperature"},
      {R"(, "temperature": "hot")", "temperature"},
      {R"(, "temperature": 1e300)", "temperature"},
      {R"(, "top_p": 1.5)", "top_p"},
      {R"(, "top_k": 1.5)", "top_k"},
      {R"(, "top_k": -1)", "top_k"},
      {R"(, "presence_penalty": 3)", "presence_penalty"},
      {R"(, "seed": 1.5)", "seed"},
      {R"(, "seed": 18446744073709551615)", "seed"},
      {R"(, "n": 0)", "n"},
      {R"(, "n": 1000)", "n"},
      {R"(, "max_tokens": 0)", "max_tokens"},
      {R"(, "max_completion_tokens": 101)", "max_completion_tokens"},
      {R"(, "stop": "")", "stop"},
      {R"(, "stop": [1])", "stop"},
      {R"(, "stop": ["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])", "stop"},
      {R"(, "stream": "yes")", "stream"},
      {R"(, "logprobs": 3)", "logprobs"},
      {R"(, "top_logprobs": 3)", "top_logprobs"},
      {R"(, "logprobs": true, "top_logprobs": 21)", "top_logprobs"},
      {R"(, "logit_bias": {"x": 1})", "logit_bias"},
      {R"(, "logit_bias": {"1": 101})", "logit_bias.1"},
      {R"(, "logit_bias": [1])", "logit_bias"},
      {R"(, "response_format": {"type": "xml"})", "response_format.type"},
      {R"(, "response_format": {"type": "json_schema"})", "response_format.schema"},
      {R"(, "response_format": {"type": "json_schema", "json_schema": {}})", "response_format.json_schema.schema"},
      {R"(, "response_format": "json")", "response_format"},
      {R"(, "tools": {})", "tools"},
      {R"(, "tools": [{"type": "web_search"}])", "tools[0].type"},
      {R"(, "tools": [{"type": "function"}])", "tools[0].function"},
      {R"(, "tools": [{"type": "function", "function": {}}])", "tools[0].function.name"},
      {R"(, "tools": [{"type": "function", "function": {"name": "a b"}}])", "tools[0].function.name"},
      {R"(, "tools": [{"type": "function", "function": {"name": "a", "parameters": []}}])",
       "tools[0].function.parameters"},
      {R"(, "tool_choice": "required")", "tool_choice"},
      {R"(, "tools": [{"type": "function", "function": {"name": "a"}}],
            "tool_choice": {"type": "function", "function": {"name": "b"}})",
       "tool_choice"},
      {R"(, "tools": [{"type": "function", "function": {"name": "a"}}], "tool_choice": "always")", "tool_choice"},
      {R"(, "chat_template_kwargs": 3)", "chat_template_kwargs"},
      {R"(, "stream_options": true)", "stream_options"},
  };
  for (const auto& row : table)
    EXPECT_EQ(refused([&] { chat(row.more, {.max_tokens = 100}); }).param, row.param) << row.more;
}

TEST(ServerRequest, RefusesMessagesThatAreNone) {
  const struct {
    const char *body, *param;
  } table[] = {
      {"{}", "messages"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": "Hi"})", "messages"},
      {R"({"messages": ["Hi"]})", "messages[0]"},
      {R"({"messages": [{"content": "Hi"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "wizard", "content": "Hi"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user", "content": 3}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]})",
       "messages[0].content[0].type"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})", "messages[0].content[0].text"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{}]}]})", "messages[0].tool_calls[0].function"},
  };
  for (const auto& row : table)
    EXPECT_EQ(refused([&] { parse_chat_request(parse_body(row.body), {}); }).param, row.param) << row.body;
}

TEST(ServerRequest, RefusesBodiesThatAreNotJsonObjects) {
  const std::string deep(100'000, '[');
  for (const std::string& body :
       {std::string(""), std::string("{"), std::string("{\"a\": 1, \"a\": 2}"), deep, std::string("{\"a\": \"\xff\"}")})
    EXPECT_EQ(refused([&] { parse_body(body); }).param, "");
  EXPECT_EQ(refused([] { parse_chat_request(parse_body("[]"), {}); }).message,
            "the request's body must be a JSON object");
}

TEST(ServerRequest, PreparesMessagesForTemplates) {
  const ChatRequest request = parse_chat_request(parse_body(R"({"messages": [
      {"role": "developer", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]},
      {"role": "assistant", "content": null, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}},
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "not JSON"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "2"}]})"),
                                                 {});
  EXPECT_EQ(request.messages[0]["role"], "system");
  EXPECT_EQ(request.messages[1]["content"], "Hello");
  EXPECT_EQ(request.messages[2]["content"], "");
  EXPECT_EQ(request.messages[2]["tool_calls"][0]["function"]["arguments"], Json({{"a", 1}}));
  EXPECT_EQ(request.messages[2]["tool_calls"][1]["function"]["arguments"], "not JSON");
  EXPECT_EQ(request.messages[3]["tool_call_id"], "c1");
}

TEST(ServerRequest, ReadsToolChoices) {
  const std::string tools =
      R"(, "tools": [{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "b"}}])";
  EXPECT_EQ(chat("").tool_choice, ToolChoice::none);
  EXPECT_EQ(chat(tools).tool_choice, ToolChoice::automatic);
  EXPECT_EQ(chat(tools + R"(, "tool_choice": "auto")").tools.size(), 2u);
  EXPECT_EQ(chat(tools + R"(, "tool_choice": "none")").tools_json, Json());
  EXPECT_EQ(chat(tools + R"(, "tool_choice": "required")").tool_choice, ToolChoice::required);
  const ChatRequest named = chat(tools + R"(, "tool_choice": {"type": "function", "function": {"name": "b"}})");
  ASSERT_EQ(named.tools.size(), 1u);
  EXPECT_EQ(named.tools[0].name, "b");
  EXPECT_EQ(named.tools_json.size(), 2u);  // the model still sees both
}

TEST(ServerRequest, ReadsFormats) {
  EXPECT_EQ(chat(R"(, "response_format": {"type": "json_object"})").schema, Json({{"type", "object"}}));
  EXPECT_FALSE(chat(R"(, "response_format": {"type": "text"})").schema);
  const ChatRequest request = chat(
      R"(, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}})");
  EXPECT_EQ(request.schema, Json({{"type", "integer"}}));
}

TEST(ServerRequest, ReadsPrompts) {
  const auto prompts = [](const std::string& prompt) {
    return parse_completion_request(parse_body(R"({"prompt": )" + prompt + "}"), {}).prompts;
  };
  EXPECT_EQ(prompts("\"a\""), (std::vector<Prompt>{"a"}));
  EXPECT_EQ(prompts(R"(["a", "b"])"), (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(prompts("[1, 2]"), (std::vector<Prompt>{std::vector<std::int32_t>{1, 2}}));
  EXPECT_EQ(prompts("[[1], [2]]").size(), 2u);
  for (const char* wrong : {"3", "[]", "{}", "[true]", "[1, \"a\"]", "[1.5]", "[-1]", "[4294967296]"})
    EXPECT_EQ(refused([&] { prompts(wrong); }).param, "prompt") << wrong;
  EXPECT_EQ(parse_completion_request(parse_body(R"({"prompt": "a"})"), {}).max_tokens, 16);
  const auto parse = [](const std::string& body) { return [body] { parse_completion_request(parse_body(body), {}); }; };
  EXPECT_EQ(refused(parse(R"({"prompt": "a", "suffix": "b"})")).param, "suffix");
  EXPECT_EQ(refused(parse(R"({"prompt": "a", "best_of": 2})")).param, "best_of");
  EXPECT_EQ(refused(parse(R"({"prompt": "a", "echo": true, "logprobs": 1})")).param, "echo");
  EXPECT_EQ(refused(parse(R"({"prompt": ["a", "b", "c"], "n": 8})")).param, "n");
}

TEST(ServerRequest, ReadsResponses) {
  const ChatRequest request = parse_responses_request(parse_body(R"({"model": "m", "instructions": "Be brief.",
      "max_output_tokens": 7, "stream": true, "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "null"}}},
      "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
      "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\": 1}"},
                {"type": "function_call_output", "call_id": "c", "output": "2"}]})"),
                                                      {});
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(request.schema, Json({{"type", "null"}}));
  ASSERT_EQ(request.messages.size(), 4u);
  EXPECT_EQ(request.messages[0]["content"], "Be brief.");
  EXPECT_EQ(request.messages[1]["content"], "Hi");
  EXPECT_EQ(request.messages[2]["tool_calls"][0]["function"]["arguments"]["a"], 1);
  EXPECT_EQ(request.messages[3]["role"], "tool");
  EXPECT_TRUE(request.variables.is_null());
  const auto parse = [](const std::string& body) { return [body] { parse_responses_request(parse_body(body), {}); }; };
  EXPECT_EQ(refused(parse(R"({"input": "a", "previous_response_id": "x"})")).param, "previous_response_id");
  EXPECT_EQ(refused(parse(R"({"input": [{"type": "item_reference"}]})")).param, "input[0].type");
  EXPECT_EQ(refused(parse("{}")).param, "input");
}

TEST(ServerRequest, ReadsCallsOfResponsesAsOneMessage) {
  const ChatRequest request = parse_responses_request(parse_body(R"({"reasoning": {"effort": "none"},
      "input": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "So:"},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call", "call_id": "d", "name": "g", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "1"},
                {"type": "function_call_output", "call_id": "d", "output": "2"},
                {"type": "reasoning", "summary": []},
                {"type": "function_call", "call_id": "e", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "e", "output": "3"}]})"),
                                                      {});
  std::vector<std::string> roles;
  for (const Json& message : request.messages) roles.push_back(message["role"]);
  EXPECT_EQ(roles, (std::vector<std::string>{"user", "assistant", "tool", "tool", "assistant", "tool"}));
  EXPECT_EQ(request.messages[1]["content"], "So:");
  EXPECT_EQ(request.messages[1]["tool_calls"][1]["function"]["name"], "g");
  EXPECT_EQ(request.messages[4]["tool_calls"].size(), 1u);
  EXPECT_EQ(request.variables["enable_thinking"], false);
  EXPECT_EQ(request.variables["reasoning_effort"], "none");
}

TEST(ServerRequest, TakesMinusOneForAllThereIsRoomFor) {
  EXPECT_EQ(chat(R"(, "max_tokens": -1)").max_tokens, INT32_MAX);
  EXPECT_EQ(chat(R"(, "max_tokens": -1)", {.max_tokens = 100}).max_tokens, 100);
  EXPECT_EQ(refused([] { chat(R"(, "max_tokens": -2)"); }).param, "max_tokens");
  EXPECT_EQ(parse_completion_request(parse_body(R"({"prompt": "a", "max_tokens": -1})"), {}).max_tokens, INT32_MAX);
}

TEST(ServerRequest, ReadsEmbeddings) {
  const EmbeddingRequest request =
      parse_embedding_request(parse_body(R"({"input": ["a", "b"], "encoding_format": "base64", "dimensions": 8})"), {});
  EXPECT_EQ(request.inputs.size(), 2u);
  EXPECT_TRUE(request.as_base64);
  EXPECT_EQ(request.dimensions, 8);
  const auto parse = [](const std::string& body) { return [body] { parse_embedding_request(parse_body(body), {}); }; };
  EXPECT_EQ(refused(parse("{}")).param, "input");
  EXPECT_EQ(refused(parse(R"({"input": "a", "encoding_format": "hex"})")).param, "encoding_format");
  EXPECT_EQ(refused(parse(R"({"input": "a", "dimensions": 0})")).param, "dimensions");
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob\xff"), "Zm9vYv8=");
}

TEST(ServerRequest, ReadsReranking) {
  const RerankRequest request = parse_rerank_request(
      parse_body(R"({"query": "q", "documents": ["a", {"text": "b"}], "top_n": 1, "return_documents": true})"), {});
  EXPECT_EQ(request.documents, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.most, 1);
  EXPECT_TRUE(request.returns_documents);
  const auto parse = [](const std::string& body) { return [body] { parse_rerank_request(parse_body(body), {}); }; };
  EXPECT_EQ(refused(parse(R"({"documents": ["a"]})")).param, "query");
  EXPECT_EQ(refused(parse(R"({"query": "q", "documents": []})")).param, "documents");
  EXPECT_EQ(refused(parse(R"({"query": "q", "documents": [3]})")).param, "documents[0]");
  EXPECT_EQ(refused(parse(R"({"query": "q", "documents": ["a"], "top_n": 0})")).param, "top_n");
}

}  // namespace
}  // namespace jerboa::server::request_test
