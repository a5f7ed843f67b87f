#include "server/http_server.h"

#include <chrono>
#include <condition_variable>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

#include "server/socket_client.h"

namespace jerboa::server::http_server_test {
namespace {

using test::body_of;
using test::get;
using test::post;
using test::SocketClient;
using test::status_of;

// A server that echoes bodies, and keeps the exchanges of /held for the test to answer.
class Echo {
 public:
  explicit Echo(HttpOptions options = {})
      : server_(
            with_any_port(std::move(options)), [](const HttpRequest& head) { return screen(head); },
            [this](HttpRequest request, std::shared_ptr<Exchange> exchange) {
              handle(std::move(request), std::move(exchange));
            }),
        thread_([this] { server_.run(); }) {}
  ~Echo() {
    held_.clear();
    server_.stop();
    thread_.join();
  }
  Echo(const Echo&) = delete;
  Echo& operator=(const Echo&) = delete;

  int port() const { return server_.port(); }
  HttpServer& server() { return server_; }
  std::shared_ptr<Exchange> held() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [this] { return !held_.empty(); });
    auto out = held_.front();
    held_.erase(held_.begin());
    return out;
  }

 private:
  static HttpOptions with_any_port(HttpOptions options) {
    options.port = 0;
    return options;
  }
  static Screening screen(const HttpRequest& head) {
    if (head.path != "/refused") return {.headers = {{"X-Screened", "yes"}}};
    return {.answer = HttpResponse{.status = 403, .body = "no"}};
  }
  void handle(const HttpRequest& request, std::shared_ptr<Exchange> exchange) {
    if (request.path != "/held")
      return exchange->respond(
          {.type = "text/plain", .body = request.method + " " + request.query + " " + request.body});
    const std::lock_guard lock(mutex_);
    held_.push_back(std::move(exchange));
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Exchange>> held_;
  HttpServer server_;
  std::thread thread_;
};

bool becomes_closed(const Exchange& exchange) {
  for (int i = 0; i < 2000 && !exchange.is_closed(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return exchange.is_closed();
}

TEST(HttpServer, AnswersSeveralRequestsOnOneConnection) {
  Echo echo;
  SocketClient client(echo.port());
  for (const char* body : {"first", "second"}) {
    client.send(post("/x?a=1", body));
    const std::string answer = client.read(body);
    EXPECT_EQ(status_of(answer), 200);
    EXPECT_EQ(body_of(answer), std::string("POST a=1 ") + body);
    EXPECT_NE(answer.find("X-Screened: yes\r\n"), std::string::npos);
    EXPECT_NE(answer.find("Connection: keep-alive\r\n"), std::string::npos);
  }
  client.send(get("/one") + get("/two", "Connection: close\r\n"));  // pipelined
  const std::string both = client.read();
  EXPECT_EQ(both.find("HTTP/1.1 200", both.find("HTTP/1.1 200") + 1) != std::string::npos, true) << both;
}

TEST(HttpServer, ReadsBodiesInChunksAndOfOldClients) {
  Echo echo;
  SocketClient chunked(echo.port());
  chunked.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(body_of(chunked.read("abcde")), "POST  abcde");
  SocketClient old(echo.port());
  old.send("GET / HTTP/1.0\r\n\r\n");
  const std::string answer = old.read();
  EXPECT_EQ(status_of(answer), 200);
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  SocketClient careful(echo.port());
  careful.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(careful.read("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  careful.send("abc");
  EXPECT_EQ(body_of(careful.read("abc")), "POST  abc");
  SocketClient head(echo.port());
  head.send("HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const std::string headers = head.read();
  EXPECT_EQ(body_of(headers), "");
  EXPECT_NE(headers.find("Content-Length: 5\r\n"), std::string::npos) << headers;
}

TEST(HttpServer, StreamsAnswers) {
  Echo echo;
  SocketClient client(echo.port());
  client.send(get("/held"));
  const auto exchange = echo.held();
  exchange->start({.type = "text/event-stream"});
  exchange->write("data: 1\n\n");
  EXPECT_NE(client.read("9\r\ndata: 1\n\n\r\n").find("Transfer-Encoding: chunked"), std::string::npos);
  exchange->write("data: 2\n\n");
  exchange->finish();
  EXPECT_EQ(client.read("0\r\n\r\n"), "9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  client.send(post("/", "next"));
  EXPECT_EQ(status_of(client.read("next")), 200);
}

TEST(HttpServer, NoticesThatAClientIsGone) {
  Echo echo;
  SocketClient gone(echo.port()), half(echo.port());
  gone.send(get("/held"));
  const auto first = echo.held();
  EXPECT_FALSE(first->is_closed());
  gone.close();
  EXPECT_TRUE(becomes_closed(*first));
  first->write("late");  // and nothing happens
  half.send(get("/held"));
  const auto second = echo.held();
  second->start({});
  half.half_close();
  EXPECT_TRUE(becomes_closed(*second));
}

TEST(HttpServer, ClosesAConnectionWhoseExchangeIsDropped) {
  Echo echo;
  SocketClient client(echo.port());
  client.send(get("/held"));
  echo.held().reset();
  EXPECT_EQ(client.read(), "");
}

TEST(HttpServer, LimitsRequests) {
  Echo echo({.body_bytes = 1000, .header_bytes = 2000});
  const auto answer = [&](const std::string& request) {
    SocketClient client(echo.port());
    client.send(request);
    return client.read();
  };
  EXPECT_EQ(status_of(answer(post("/", std::string(1001, 'x')))), 413);
  EXPECT_EQ(status_of(answer(post("/", std::string(3'000'000, 'x')))), 413);
  EXPECT_EQ(status_of(answer("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
                             std::string(2000, 'x') + "\r\n0\r\n\r\n")),
            413);
  EXPECT_EQ(status_of(answer(get("/", "X: " + std::string(3000, 'x') + "\r\n"))), 431);
  EXPECT_EQ(status_of(answer("nonsense\r\n\r\n")), 400);
  EXPECT_EQ(status_of(answer("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n")), 400);
  EXPECT_EQ(status_of(answer(post("/refused", "body"))), 403);
  const std::string error = body_of(answer(post("/", std::string(1001, 'x'))));
  EXPECT_NE(error.find("exceeds the limit of 1000 bytes"), std::string::npos) << error;
}

TEST(HttpServer, LimitsTime) {
  Echo echo({.read_seconds = 2});
  SocketClient slow(echo.port());
  slow.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  SocketClient loris(echo.port());
  loris.send("GET / HTTP/1.1\r\nHo");
  SocketClient silent(echo.port());
  EXPECT_EQ(silent.read(), "");
  EXPECT_EQ(status_of(slow.read()), 408);
  EXPECT_EQ(status_of(loris.read()), 408);
  SocketClient dripping(echo.port());  // a byte now and then does not extend the time
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) {
    dripping.send("G");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  dripping.read();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(HttpServer, ClosesOnClientsThatDoNotRead) {
  Echo echo({.write_seconds = 60, .unsent_bytes = 1 << 20});
  SocketClient client(echo.port());
  client.send(get("/held"));
  const auto exchange = echo.held();
  exchange->start({});
  for (int i = 0; i < 64 && !exchange->is_closed(); ++i) {
    exchange->write(std::string(1 << 20, 'x'));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(becomes_closed(*exchange));
}

TEST(HttpServer, ClosesOnClientsThatReadNothingForTooLong) {
  Echo echo({.write_seconds = 0.3, .unsent_bytes = 1 << 30});
  SocketClient client(echo.port());
  client.send(get("/held"));
  const auto exchange = echo.held();
  exchange->start({});
  exchange->write(std::string(64 << 20, 'x'));
  EXPECT_TRUE(becomes_closed(*exchange));
}

TEST(HttpServer, LimitsConnections) {
  Echo echo({.connections = 2});
  SocketClient first(echo.port()), second(echo.port());
  first.send(post("/", "a"));
  EXPECT_EQ(status_of(first.read("POST  a")), 200);
  second.send(post("/", "b"));
  EXPECT_EQ(status_of(second.read("POST  b")), 200);
  SocketClient third(echo.port());
  EXPECT_EQ(status_of(third.read()), 503);
  first.send(post("/", "c"));
  EXPECT_EQ(status_of(first.read("POST  c")), 200);
}

TEST(HttpServer, Drains) {
  HttpOptions options{.port = 0};
  std::shared_ptr<Exchange> held;
  std::mutex mutex;
  HttpServer server(
      options, [](const HttpRequest&) { return Screening{}; },
      [&](const HttpRequest&, std::shared_ptr<Exchange> exchange) {
        const std::lock_guard lock(mutex);
        held = std::move(exchange);
      });
  std::thread thread([&] { server.run(); });
  SocketClient idle(server.port()), busy(server.port());
  busy.send(get("/"));
  const auto has_held = [&] {
    const std::lock_guard lock(mutex);
    return held != nullptr;
  };
  while (!has_held()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  server.drain();
  EXPECT_EQ(idle.read(), "");  // an idle connection ends at once
  EXPECT_THROW(SocketClient(server.port()).read(), std::runtime_error);
  held->respond({.body = "done"});
  held.reset();
  const std::string answer = busy.read();
  EXPECT_EQ(status_of(answer), 200);
  EXPECT_EQ(body_of(answer), "done");
  busy.close();
  thread.join();
}

TEST(HttpServer, NamesAnAddressThatItCannotBind) {
  Echo echo;
  try {
    const HttpServer second({.port = echo.port()}, {}, {});
    FAIL() << "the port is taken";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("cannot bind to 127.0.0.1:"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace jerboa::server::http_server_test
