#include "server/server.h"

#include <chrono>
#include <future>
#include <gtest/gtest.h>
#include <thread>

#include <jerboa/language/text_encoder.h>

#include "server/fake_exchange.h"
#include "server/generation_task.h"
#include "server/live_server.h"
#include "server/reply.h"

// A server with a small model, accessed over sockets.
namespace jerboa::server::server_test {
namespace {

using jerboa::test::ModelFolder;
using test::body_of;
using test::ChatFolder;
using test::get;
using test::Live;
using test::post;
using test::question;
using test::simple_template;
using test::SocketClient;
using test::status_of;
using test::with;
using test::word_tokenizer;

// The data of a stream's events, from an answer in chunks.
std::vector<Json> events_of(const std::string& answer) {
  std::vector<Json> out;
  for (std::size_t at = 0; (at = answer.find("data: {", at)) != std::string::npos; ++at)
    out.push_back(Json::parse(answer.substr(at + 6, answer.find("\n\n", at) - at - 6)));
  return out;
}

TEST(Server, AnswersAsTheModelDoes) {
  const Live live;
  const Json answer = live.json("/v1/chat/completions", question);
  LanguageModel model = live.folder().open();
  const Generation expected = model.answer({{"user", "Hello"}}, jerboa::test::greedy(12));
  EXPECT_EQ(answer["choices"][0]["message"]["content"], Json::parse(dump(expected.text)));
  EXPECT_EQ(answer["usage"]["prompt_tokens"], expected.prompt_tokens);
  EXPECT_EQ(answer["usage"]["completion_tokens"], expected.tokens.size());
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["model"], "tiny");

  const Json completion =
      live.json("/v1/completions", {{"prompt", "Once"}, {"max_tokens", 12}, {"temperature", 0}, {"echo", true}});
  EXPECT_EQ(completion["choices"][0]["text"],
            Json::parse(dump("Once" + model.generate("Once", jerboa::test::greedy(12)).text)));
}

double metric(const Live& live, const std::string& name) {
  const std::string text = body_of(live.ask(get("/metrics", "Connection: close\r\n")));
  const std::size_t at = text.find("\njerboa_" + name + "{");
  EXPECT_NE(at, std::string::npos) << text;
  return std::stod(text.substr(text.find("} ", at) + 2));
}

TEST(Server, GuessesWithADraftModel) {
  const Live plain, drafting({}, {"tiny"}, 4);
  const Json asked = with(question, "max_tokens", 30);
  const auto text = [&](const Live& live) { return live.json("/v1/chat/completions", asked)["choices"][0]; };
  EXPECT_EQ(text(drafting), text(plain));
  EXPECT_EQ(metric(plain, "drafted_tokens_total"), 0);
  EXPECT_GT(metric(drafting, "accepted_tokens_total"), 0);
  EXPECT_LE(metric(drafting, "accepted_tokens_total"), metric(drafting, "drafted_tokens_total"));
}

TEST(Server, CountsTheMemoryOfTheDraftModel) {
  const ChatFolder folder;
  LanguageModelOptions options;
  options.device = Device::cpu(1);
  const auto bytes = [&](const std::filesystem::path& draft) {
    return LoadedModel({"tiny", folder.path(), 4, draft}, options, [](std::int64_t) {}).bytes();
  };
  EXPECT_GT(bytes(folder.path()), bytes("") * 3 / 2);
}

TEST(Server, SaysWhichModelADraftModelGuessesFor) {
  const ModelFolder encoder("bert");
  encoder.write("tokenizer.json", word_tokenizer());
  LanguageModelOptions options;
  options.device = Device::cpu(1);
  try {
    LoadedModel({"bert", encoder.path(), 4, encoder.path()}, options, [](std::int64_t) {});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "bert is an encoder, which does not generate text; --draft-model guesses for the first model, so name "
                 "a decoder first");
  }
}

TEST(Server, StreamsTheSame) {
  const Live live;
  const std::string whole = live.json("/v1/chat/completions", question)["choices"][0]["message"]["content"];
  const std::string answer = live.ask(
      "/v1/chat/completions", with(with(question, "stream", true), "stream_options", {{"include_usage", true}}));
  EXPECT_NE(answer.find("data: [DONE]\n\n"), std::string::npos);
  std::string text;
  const std::vector<Json> events = events_of(answer);
  for (const Json& event : events)
    if (!event["choices"].empty()) text += event["choices"][0]["delta"].value("content", "");
  EXPECT_EQ(text, whole);
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 12);
}

TEST(Server, DrawsSeveralAnswersWithSeeds) {
  const Live live;
  const Json request = with(with(with(question, "n", 3), "temperature", 1), "seed", 5);
  const Json first = live.json("/v1/chat/completions", request), second = live.json("/v1/chat/completions", request);
  ASSERT_EQ(first["choices"].size(), 3u);
  std::set<std::string> texts;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(first["choices"][i]["index"], i);
    EXPECT_EQ(first["choices"][i]["message"], second["choices"][i]["message"]);
    texts.insert(first["choices"][i]["message"]["content"]);
  }
  EXPECT_EQ(texts.size(), 3u);
  EXPECT_EQ(first["usage"]["completion_tokens"], 36);
}

TEST(Server, ReportsLogprobs) {
  const Live live;
  const Json answer = live.json("/v1/chat/completions", with(with(question, "logprobs", true), "top_logprobs", 3));
  const Json& content = answer["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 12u);
  for (const Json& token : content) {
    ASSERT_EQ(token["top_logprobs"].size(), 3u);
    EXPECT_EQ(token["logprob"], token["top_logprobs"][0]["logprob"]);  // greedy
    EXPECT_GE(token["top_logprobs"][0]["logprob"], token["top_logprobs"][1]["logprob"]);
    EXPECT_LT(token["logprob"], 0);
  }
}

TEST(Server, HoldsAnswersToSchemas) {
  const Live live;
  const Json schema = Json::parse(
      R"({"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["age"]})");
  const Json answer = live.json("/v1/chat/completions",
                                with(with(with(question, "max_tokens", 60), "temperature", 1), "response_format",
                                     {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", schema}}}}));
  const Json text = Json::parse(answer["choices"][0]["message"]["content"].get<std::string>());
  EXPECT_TRUE(text["age"].is_number_integer());
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  const std::string refused =
      live.ask("/v1/chat/completions",
               with(question, "response_format",
                    {{"type", "json_schema"}, {"json_schema", {{"schema", {{"type", "string"}, {"not", {}}}}}}}));
  EXPECT_EQ(status_of(refused), 400) << refused;
}

TEST(Server, ForcesToolCalls) {
  const Live live;
  const Json tool = Json::parse(R"({"type": "function", "function": {"name": "add", "parameters": {"type": "object",
      "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["a"]}}})");
  const Json request =
      with(with(with(with(question, "tools", Json::array({tool})), "tool_choice", "required"), "max_tokens", 60),
           "temperature", 1);
  const Json answer = live.json("/v1/chat/completions", request);
  const Json& message = answer["choices"][0]["message"];
  ASSERT_EQ(message["tool_calls"].size(), 1u) << answer;
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "add");
  const Json arguments = Json::parse(message["tool_calls"][0]["function"]["arguments"].get<std::string>());
  EXPECT_TRUE(arguments["a"].is_number_integer());
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_TRUE(message["content"].is_null());

  const std::vector<Json> events = events_of(live.ask("/v1/chat/completions", with(request, "stream", true)));
  std::string name, streamed;
  for (const Json& event : events)
    for (const Json& call : event["choices"][0]["delta"].value("tool_calls", Json::array())) {
      name += call["function"].value("name", "");
      streamed += call["function"].value("arguments", "");
    }
  EXPECT_EQ(name, "add");
  EXPECT_TRUE(Json::parse(streamed)["a"].is_number_integer());
}

// Several tools, one of which must be called, in the formats that write its name outside of JSON.
TEST(Server, LetsAModelChooseTheToolItMustCall) {
  const Json tools = Json::parse(R"([
      {"type": "function", "function": {"name": "add", "parameters": {"type": "object",
        "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["a"]}}},
      {"type": "function", "function": {"name": "greet", "parameters": {"type": "object",
        "properties": {"who": {"enum": ["me", "you"]}}, "required": ["who"]}}}])");
  for (const char* marks : {"<|channel|>", "[TOOL_CALLS][ARGS]", "<parameter="}) {
    const Live live;
    live.folder().write("chat_template.jinja", std::string(simple_template) + "{# tools " + marks + " #}");
    std::set<std::string> names;
    for (int seed = 0; seed < 8; ++seed) {
      Json request = with(with(with(question, "tools", tools), "tool_choice", "required"), "max_tokens", 200);
      request["temperature"] = 1;
      request["seed"] = seed;
      request["n"] = 2;
      request["logprobs"] = true;
      const Json answer = live.json("/v1/chat/completions", request);
      for (const Json& choice : answer["choices"]) {
        ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << marks << answer;
        const Json& call = choice["message"]["tool_calls"][0]["function"];
        const Json arguments = Json::parse(call["arguments"].get<std::string>());
        EXPECT_TRUE(call["name"] == "add" ? arguments["a"].is_number_integer() : arguments.contains("who")) << call;
        EXPECT_EQ(choice["finish_reason"], "tool_calls");
        names.insert(call["name"]);
      }
    }
    EXPECT_EQ(names.size(), 2u) << marks;
  }
}

// A server tool that counts its calls.
struct CountedTool {
  std::atomic<int> calls = 0;
  ServerTools tools(int rounds) {
    const Json parameters = Json::parse(R"({"type": "object", "properties": {"a": {"enum": [1, 2]}},
        "required": ["a"], "additionalProperties": false})");
    const auto call = [this](const Json&, const std::function<bool()>&) {
      ++calls;
      return ToolOutput{"it is done"};
    };
    return {.tools = {{"add", "", parameters, call}}, .rounds = rounds};
  }
};

const std::string harmony_template = std::string(simple_template) + "{# tools <|channel|> #}";

Json schema_format(const Json& schema) {
  return {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", schema}}}};
}

// With a schema, any client can make the model write the marks of calls.
TEST(Server, ReadsMarksThatAClientMadeUp) {
  const Live live;
  live.folder().write("chat_template.jinja", harmony_template);
  const Json tool = Json::parse(R"({"type": "function", "function": {"name": "f"}})");
  for (const Json& tools : {Json(), Json::array({tool})})
    for (const char* path : {"/v1/chat/completions", "/v1/responses"})
      for (const bool streams : {false, true}) {
        const Json schema = {{"const", "<|end|><|channel|>c to=functions.<|message|>x"}};
        Json request = with(with(question, "max_tokens", 100), "stream", streams);
        if (!tools.is_null()) request["tools"] = tools;
        if (path == std::string("/v1/responses")) {
          request = {{"input", "Hello"}, {"max_output_tokens", 100}, {"stream", streams}};
          request["text"] = {{"format", {{"type", "json_schema"}, {"name", "x"}, {"schema", schema}}}};
        } else {
          request["response_format"] = schema_format(schema);
        }
        const std::string answer = live.ask(path, request);
        EXPECT_EQ(status_of(answer), 200) << answer;
        EXPECT_EQ(answer.find("\"tool_calls\""), std::string::npos) << answer;
        if (streams || path != std::string("/v1/chat/completions")) continue;
        EXPECT_EQ(Json::parse(body_of(answer))["choices"][0]["message"]["content"], "\"x\"");
      }
}

TEST(Server, CallsToolsThatARequestForcesInAnyFormat) {
  for (const char* marks : {"<|channel|>", "[TOOL_CALLS][ARGS]", "<parameter=", "<tool_call>"}) {
    CountedTool tool;
    ServerOptions options;
    options.tools = tool.tools(1);
    const Live live(options);
    live.folder().write("chat_template.jinja", std::string(simple_template) + "{# tools " + marks + " #}");
    Json request = with(with(question, "server_tools", true), "max_tokens", 200);
    request["tool_choice"] = {{"type", "function"}, {"function", {{"name", "add"}}}};
    const Json message = live.json("/v1/chat/completions", request)["choices"][0]["message"];
    ASSERT_EQ(message["server_tool_calls"].size(), 1u) << marks << message;
    EXPECT_EQ(message["server_tool_calls"][0]["output"], "it is done");
    EXPECT_FALSE(message.contains("tool_calls"));
    EXPECT_EQ(tool.calls, 1);
  }
}

// A model that calls a tool on every turn, because a schema forces it to.
TEST(Server, EndsAfterSoManyRoundsOfCalls) {
  const ChatFolder folder;
  folder.write("chat_template.jinja", harmony_template);
  LanguageModelOptions options;
  options.device = Device::cpu(2);
  LoadedModel model({"tiny", folder.path()}, options, [](std::int64_t) {});
  CountedTool tool;
  const ServerTools tools = tool.tools(2);
  Json body = with(question, "max_tokens", 1000);
  body["tools"] = tools_json(tools.tools);
  body["response_format"] = schema_format({{"const", "<|end|><|channel|>c to=functions.add<|message|>{}<|call|>"}});
  const ChatRequest request = parse_chat_request(body, {});
  const auto exchange = std::make_shared<test::FakeExchange>();
  const auto task = make_chat_task(request, make_chat_reply(exchange, request), {}, &tools);
  task->start(model);
  while (!task->pump()) model.language().poll(0);
  const auto message = exchange->json()["choices"][0]["message"];
  EXPECT_EQ(message["server_tool_calls"].size(), 2u) << message;
  EXPECT_EQ(tool.calls, 2);
  EXPECT_EQ(message["content"], "\"\"\"{}");  // what it wrote beside the calls, and the last one as text
}

// A tool that ignores cancellation, like a tool server that hangs.
TEST(Server, AnswersOthersWhileAToolIsStillBusyForAClientThatLeft) {
  std::promise<void> has_begun, may_end;
  std::atomic<bool> has_ended = false;
  ServerOptions options;
  options.tools.rounds = 1;
  options.tools.tools = {{"wait", "", Json::parse(R"({"type": "object", "additionalProperties": false})"),
                          [&](const Json&, const std::function<bool()>& is_cancelled) {
                            has_begun.set_value();
                            may_end.get_future().wait_for(std::chrono::seconds(60));
                            EXPECT_TRUE(is_cancelled());
                            has_ended = true;
                            return ToolOutput{};
                          }}};
  const Live live(options);
  SocketClient leaving(live.port());
  const Json calling = with(with(question, "server_tools", true), "tool_choice", "required");
  leaving.send(post("/v1/chat/completions", dump(with(calling, "max_tokens", 200))));
  ASSERT_EQ(has_begun.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  leaving.close();
  for (int i = 0; i < 3; ++i) live.json("/v1/chat/completions", question);
  EXPECT_FALSE(has_ended);
  const auto comes_to = [&](double unfinished) {
    for (int i = 0; i < 3000 && metric(live, "requests_unfinished") != unfinished; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return metric(live, "requests_unfinished") == unfinished;
  };
  EXPECT_TRUE(comes_to(1));  // so that the queue limits calls that are left
  EXPECT_FALSE(has_ended);
  may_end.set_value();
  EXPECT_TRUE(comes_to(0));
  EXPECT_TRUE(has_ended);
}

TEST(Server, CountsThoughtsAndCachedTokens) {
  const Live live;
  live.folder().write("chat_template.jinja", std::string(simple_template) + "<think>\n");
  const Json usage = live.json("/v1/chat/completions", question)["usage"];
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], 12);  // it does not stop thinking
  const Json request = {{"prompt", {std::string(200, 'x'), std::string(300, 'y')}}, {"max_tokens", 1}, {"n", 2}};
  EXPECT_EQ(live.json("/v1/completions", request)["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_GE(live.json("/v1/completions", request)["usage"]["prompt_tokens_details"]["cached_tokens"], 192 + 288);
}

TEST(Server, TakesResponses) {
  const Live live;
  const Json answer = live.json("/v1/responses", {{"input", "Hello"}, {"max_output_tokens", 12}, {"temperature", 0}});
  EXPECT_EQ(answer["status"], "incomplete");
  EXPECT_EQ(answer["output"][0]["content"][0]["text"],
            live.json("/v1/chat/completions", question)["choices"][0]["message"]["content"]);
}

TEST(Server, TokenizesAndBack) {
  const Live live;
  const Json tokens = live.json("/tokenize", {{"content", "Hi!"}});
  EXPECT_EQ(tokens["tokens"], Json({72, 105, 33}));
  EXPECT_EQ(live.json("/detokenize", {{"tokens", tokens["tokens"]}})["content"], "Hi!");
  EXPECT_EQ(live.json("/tokenize", {{"messages", question["messages"]}})["count"], 23);
}

TEST(Server, ListsModelsAndMetrics) {
  const Live live({}, {"tiny", "other"});
  live.json("/v1/chat/completions", question);
  const auto fetch = [&](const std::string& path) { return live.ask(get(path, "Connection: close\r\n")); };
  const Json list = Json::parse(body_of(fetch("/v1/models")));
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(list["data"][0]["max_model_len"], 2048);
  EXPECT_FALSE(list["data"][1]["loaded"]);  // until it is asked for
  EXPECT_EQ(Json::parse(body_of(fetch("/v1/models/other")))["id"], "other");
  EXPECT_EQ(status_of(fetch("/v1/models/none")), 404);
  EXPECT_EQ(live.json("/v1/chat/completions", with(question, "model", "other"))["model"], "other");
  const std::string metrics = fetch("/metrics");
  for (const char* line :
       {"jerboa_http_answers_total{route=\"/v1/chat/completions\",status=\"200\"} 2\n",
        "jerboa_generated_tokens_total{model=\"tiny\"} 12\n", "jerboa_model_loaded{model=\"other\"} 1\n"})
    EXPECT_NE(metrics.find(line), std::string::npos) << line << metrics;
  EXPECT_EQ(Json::parse(body_of(fetch("/v1/metrics")))["models"][0]["generated_tokens_total"], 12.0);
  EXPECT_EQ(body_of(fetch("/health")), "{\"status\":\"ok\"}");
  EXPECT_NE(fetch("/").find("Content-Security-Policy: default-src 'none'"), std::string::npos);
}

TEST(Server, RefusesWithTheRightStatus) {
  ServerOptions options;
  options.limits.max_tokens = 100;
  const Live live(options);
  const auto code = [&](const std::string& path, const Json& body, int status) {
    const std::string answer = live.ask(path, body);
    EXPECT_EQ(status_of(answer), status) << answer;
    return Json::parse(body_of(answer))["error"]["code"];
  };
  EXPECT_EQ(code("/v1/chat/completions", with(question, "model", "none"), 404), "model_not_found");
  EXPECT_NE(live.ask("/v1/chat/completions", with(question, "model", "none")).find("there is tiny"), std::string::npos);
  EXPECT_EQ(code("/v1/chat/completions", with(question, "max_tokens", 101), 400), Json());
  EXPECT_EQ(code("/v1/completions", {{"prompt", std::string(3000, 'x')}}, 400), "context_length_exceeded");
  EXPECT_EQ(code("/v1/completions", {{"prompt", ""}}, 400), Json());
  EXPECT_EQ(code("/v1/completions", {{"prompt", Json::array({1, 99999})}}, 400), Json());
  EXPECT_EQ(code("/v1/completions", {{"prompt", "a"}, {"logit_bias", {{"99999", 1}}}}, 400), Json());
  EXPECT_EQ(code("/v1/nothing", Json::object(), 404), "unknown_url");
  EXPECT_EQ(code("/../../etc/passwd", Json::object(), 404), "unknown_url");
  EXPECT_EQ(status_of(live.ask(get("/v1/chat/completions", "Connection: close\r\n"))), 405);
}

TEST(Server, LimitsTimeAndQueue) {
  ServerOptions options;
  options.queue = 2;
  options.limits.seconds = 1e-6;
  const Live live(options);
  const std::string late = live.ask("/v1/chat/completions", question);
  EXPECT_EQ(status_of(late), 504) << late;
  std::promise<void> may_load;
  ServerOptions patient;
  patient.queue = 1;
  patient.model.before_allocation = [loads = may_load.get_future().share()](std::int64_t) { loads.wait(); };
  const Live busy(patient);
  SocketClient first(busy.port());
  first.send(post("/v1/chat/completions", dump(with(with(question, "max_tokens", 1500), "stream", true))));
  const auto has_arrived = [&] {
    const std::string metrics = body_of(busy.ask(get("/v1/metrics", "Connection: close\r\n")));
    return Json::parse(metrics)["requests_in_progress"] == 2;  // that one, and this
  };
  for (int i = 0; i < 10'000 && !has_arrived(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::string refused = busy.ask("/v1/chat/completions", question);
  EXPECT_EQ(status_of(refused), 429) << refused;
  EXPECT_NE(refused.find("Retry-After: 1\r\n"), std::string::npos);
  may_load.set_value();
  first.read("data: ");
  first.close();  // and its place is free within a step
  for (int i = 0; i < 3000; ++i) {
    if (status_of(busy.ask("/v1/chat/completions", with(question, "max_tokens", 1))) == 200) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << "the place of a client that is gone is still taken";
}

TEST(Server, EmbedsTexts) {
  const ModelFolder folder("bert");
  folder.write("tokenizer.json", word_tokenizer());
  ServerOptions options;
  options.http.port = 0;
  options.model.device = Device::cpu(2);
  const ChatFolder decoder;
  Server server({{"bert", folder.path()}, {"tiny", decoder.path()}}, options);
  server.load_first();
  std::thread thread([&] { server.run(); });
  const auto ask = [&](const std::string& path, const Json& body) {
    SocketClient client(server.port());
    client.send(post(path, dump(body), "Connection: close\r\n"));
    return client.read();
  };
  const std::vector<std::string> texts = {"w5 w6 w7", "w8"};
  TextEncoder encoder = TextEncoder::load(folder.path(), {.device = Device::cpu(2)});
  const Embeddings expected = encoder.embed(texts);
  const Json answer = Json::parse(body_of(ask("/v1/embeddings", {{"model", "bert"}, {"input", texts}})));
  ASSERT_EQ(answer["data"].size(), 2u) << answer;
  for (std::int64_t i = 0; i < 2; ++i) {
    const auto row = expected.row(i);
    EXPECT_EQ(answer["data"][static_cast<std::size_t>(i)]["embedding"].get<std::vector<float>>(),
              std::vector<float>(row.begin(), row.end()));
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 4);
  const Json short_one =
      Json::parse(body_of(ask("/v1/embeddings", {{"input", Json::array({5, 6})}, {"dimensions", 4}})));
  EXPECT_EQ(short_one["data"][0]["embedding"].size(), 4u);
  EXPECT_EQ(status_of(ask("/v1/embeddings", {{"input", "w5"}, {"dimensions", 100000}})), 400);
  EXPECT_EQ(status_of(ask("/v1/chat/completions", question)), 400);  // an encoder does not write
  const Json decoded = Json::parse(body_of(ask("/v1/embeddings", {{"model", "tiny"}, {"input", "Hello"}})));
  EXPECT_EQ(decoded["data"][0]["embedding"].size(), 64u);
  server.drain();
  thread.join();
}

TEST(Server, ConcurrentTextsEqualTextsAlone) {
  ServerOptions options;
  options.model.deterministic = true;
  const Live live(options);
  const auto ask = [&](int i) -> std::string {
    Json request = with(with(with(question, "seed", i), "temperature", 1), "max_tokens", 10 + i);
    request["messages"][0]["content"] = "Question " + std::string(static_cast<std::size_t>(i % 5), 'x');
    return live.json("/v1/chat/completions", request)["choices"][0]["message"]["content"];
  };
  std::vector<std::string> alone, together(12);
  for (int i = 0; i < 12; ++i) alone.push_back(ask(i));
  std::vector<std::thread> threads;
  for (int i = 0; i < 12; ++i) threads.emplace_back([&, i] { together[static_cast<std::size_t>(i)] = ask(i); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(alone, together);
}

}  // namespace
}  // namespace jerboa::server::server_test
