#include "server/model_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <gtest/gtest.h>
#include <regex>

#include "server/fake_exchange.h"
#include "server/generation_task.h"
#include "server/live_server.h"

// Which models are in memory, how long requests wait for them, and what is logged.
namespace jerboa::server::model_pool_test {
namespace {

using test::body_of;
using test::ChatFolder;
using test::get;
using test::Live;
using test::post;
using test::question;
using test::SocketClient;
using test::status_of;
using test::with;

Json list_of(const Live& live) {
  return Json::parse(body_of(live.ask(get("/v1/models", "Connection: close\r\n"))))["data"];
}

std::vector<bool> loaded(const Live& live) {
  std::vector<bool> out;
  for (const Json& model : list_of(live)) out.push_back(model["loaded"]);
  return out;
}

// The memory of a model, most of which is its cache.
std::int64_t bytes_of(const LanguageModelOptions& options) {
  std::int64_t bytes = 0;
  LanguageModelOptions counting = options;
  counting.before_allocation = [&](std::int64_t wanted) { bytes = wanted; };
  const ChatFolder folder;
  const auto statistics = folder.open(counting).statistics();
  EXPECT_GE(bytes, statistics.weight_bytes + statistics.cache_bytes);
  EXPECT_LE(bytes, statistics.weight_bytes + statistics.cache_bytes + 100'000);
  EXPECT_GT(statistics.cache_bytes, 2 * static_cast<std::int64_t>(file_size(folder.path() / "model.safetensors")));
  return bytes;
}

TEST(ModelPool, KeepsToTheMemoryThatModelsTake) {
  ServerOptions options;
  options.model.cache_tokens = 4096;
  const std::int64_t one = bytes_of(options.model);
  options.memory = 2 * one + one / 2;
  const Live live(options, {"a", "b", "c"});
  const auto is_busy = [&] {
    const Json metrics = Json::parse(body_of(live.ask(get("/v1/metrics", "Connection: close\r\n"))));
    return std::any_of(metrics["models"].begin(), metrics["models"].end(),
                       [](const Json& model) { return model.value("requests_unfinished", 0.0) > 0; });
  };
  const auto ask = [&](const char* name) {
    EXPECT_EQ(live.json("/v1/chat/completions", with(question, "model", name))["model"], name);
    for (int i = 0; i < 10'000 && is_busy(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_FALSE(is_busy()) << "a request that was answered is still unfinished";
  };
  ask("a");
  ask("b");
  EXPECT_EQ(loaded(live), (std::vector<bool>{true, true, false}));
  ask("a");
  ask("c");  // b was not used for longest
  EXPECT_EQ(loaded(live), (std::vector<bool>{true, false, true}));
}

// While the pool is destroyed, a worker asks the others for memory, including one that has stopped.
TEST(ModelPool, IsAskedForRoomUntilTheEnd) {
  WorkerOptions options;
  options.model.device = Device::cpu(1);
  options.model.cache_tokens = 4096;
  const ChatFolder folder;
  const std::int64_t one = bytes_of(options.model);
  MemoryBudget budget(one + one / 2);
  std::function<bool()> make_room = [] { return false; };
  ModelWorker first({"first", folder.path()}, options, budget, [&] { return make_room(); });
  first.load();
  first.stop();
  EXPECT_TRUE(first.is_idle());
  EXPECT_FALSE(first.ask_to_unload());  // it has no thread that could, and none is started
  EXPECT_THROW(first.submit(nullptr), ApiError);

  std::atomic<int> asked = 0;
  ModelWorker second({"second", folder.path()}, options, budget, [&] { return make_room(); });
  make_room = [&] {
    ++asked;
    return first.ask_to_unload();
  };
  const auto exchange = std::make_shared<test::FakeExchange>();
  const ChatRequest request = parse_chat_request(question, {});
  second.submit(make_chat_task(request, make_chat_reply(exchange, request), {}));
  for (int i = 0; i < 10'000 && asked == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GT(asked, 0);
  second.stop();
  EXPECT_EQ(exchange->response.status, 503);
}

TEST(ModelPool, RefusesModelsThatCanNeverFit) {
  ServerOptions options;
  options.model.cache_tokens = 4096;
  options.memory = bytes_of(options.model) - 1;
  const Live live(options);
  const std::string refused = live.ask("/v1/chat/completions", question);
  EXPECT_EQ(status_of(refused), 400) << refused;
  const Json error = Json::parse(body_of(refused))["error"];
  EXPECT_EQ(error["code"], "model_too_large");
  EXPECT_NE(error["message"].get<std::string>().find("MiB of memory, but --memory allows "), std::string::npos)
      << error;
  options.http.port = 0;
  const ChatFolder folder;
  Server server({{"tiny", folder.path()}}, options);
  EXPECT_THROW(server.load_first(), ApiError);  // and the command says so before it listens
}

TEST(ModelPool, CountsTheEncoderOfADecoder) {
  ServerOptions options;
  options.model.cache_tokens = 4096;
  options.memory = bytes_of(options.model) + 1000;  // but not its weights a second time
  const Live live(options);
  live.json("/v1/chat/completions", question);
  const std::string refused = live.ask("/v1/embeddings", {{"input", "Hello"}});
  EXPECT_EQ(status_of(refused), 400) << refused;
  live.json("/v1/chat/completions", question);
}

TEST(ModelPool, UnloadsAfterIdleTime) {
  ServerOptions options;
  options.idle_seconds = 0.2;
  const Live live(options);
  for (int round = 0; round < 2; ++round) {
    live.json("/v1/chat/completions", question);
    for (int i = 0; i < 6000 && loaded(live)[0]; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_FALSE(loaded(live)[0]);
  }
}

TEST(ModelPool, TimeIncludesLoading) {
  std::promise<void> is_over;
  ServerOptions options;
  options.limits.seconds = 0.3;
  options.model.before_allocation = [over = is_over.get_future().share()](std::int64_t) { over.wait(); };
  const Live live(options);
  for (const char* path : {"/v1/chat/completions", "/v1/embeddings", "/tokenize"}) {
    Json body = with(question, "input", "Hello");
    body["content"] = "Hello";
    const std::string late = live.ask(path, body);
    EXPECT_EQ(status_of(late), 504) << late;
  }
  is_over.set_value();
}

TEST(ModelPool, LogsDetailsThatClientsMustNotSee) {
  testing::internal::CaptureStderr();
  std::string path;
  {
    const Live live;
    path = live.folder().path().string();
    live.folder().write("config.json", "{");
    for (const char* route : {"/v1/chat/completions", "/v1/embeddings"}) {
      const std::string failed = live.ask(route, with(question, "input", "Hello"));
      EXPECT_EQ(status_of(failed), 500) << failed;
      EXPECT_EQ(failed.find(path), std::string::npos) << failed;
      EXPECT_NE(failed.find("the model tiny cannot be loaded; the server's log says why"), std::string::npos);
    }
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find(path + "/config.json"), std::string::npos);
}

TEST(ModelPool, LogsNothingThatATerminalObeys) {
  testing::internal::CaptureStderr();
  {
    ServerOptions options;
    options.is_quiet = false;
    options.api_key = "secret";
    const Live live(options);
    for (const char* key : {"Connection: close\r\n", "Authorization: Bearer secret\r\nConnection: close\r\n"}) {
      live.ask(
          get("/a\xc2\x9b"
              "31mb",
              key));
      live.ask(get("/" + std::string(5000, 'x'), key));
    }
    live.ask("GE\033T / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("GET /a 31mb 401\n"), std::string::npos) << log;
  EXPECT_NE(log.find("GET /a 31mb 404 "), std::string::npos) << log;
  EXPECT_EQ(log.find('\033'), std::string::npos) << log;
  EXPECT_EQ(log.find('\x9b'), std::string::npos) << log;
  EXPECT_EQ(log.find(std::string(201, 'x')), std::string::npos) << log;
  EXPECT_NE(log.find(std::string(150, 'x')), std::string::npos) << log;
}

TEST(ModelPool, LogsRequestsUnlessItIsQuiet) {
  const auto log_of = [](bool is_quiet) {
    testing::internal::CaptureStderr();
    {
      ServerOptions options;
      options.is_quiet = is_quiet;
      options.api_key = "secret";
      const Live live(options);
      const std::string key = "Authorization: Bearer secret\r\nConnection: close\r\n";
      live.ask(post("/v1/chat/completions", dump(question), key));
      live.ask(post("/v1/embeddings", dump({{"input", "Hello"}}), key));
      live.ask(get("/v1/nothing", key));
      live.ask(get("/health", key));
      live.ask(get("/v1/models", "Connection: close\r\n"));
    }
    return testing::internal::GetCapturedStderr();
  };
  const std::string log = log_of(false);
  for (const char* line :
       {"loading tiny", "loaded tiny in [0-9.]+ s, [0-9.]+ MiB",
        "POST /v1/chat/completions 200 [0-9]+ ms, 23 \\+ 12 tokens", "POST /v1/embeddings 200 [0-9]+ ms, 5 tokens",
        "GET /v1/nothing 404 [0-9]+ ms", "GET /v1/models 401", "unloaded tiny"})
    EXPECT_TRUE(std::regex_search(log, std::regex("(^|\n)\\d\\d:\\d\\d:\\d\\d " + std::string(line) + "\n")))
        << line << "\n"
        << log;
  EXPECT_EQ(log.find("/health"), std::string::npos);
  EXPECT_EQ(log_of(true), "");
}

}  // namespace
}  // namespace jerboa::server::model_pool_test
