#include "server/http_server.h"

#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <csignal>
#include <ctime>
#include <fmt/format.h>
#include <set>
#include <utility>

#include <jerboa/base/error.h>

#include "server/api_error.h"

namespace jerboa::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr double linger_seconds = 2;  // lets a client that is still sending read why it is refused

std::chrono::nanoseconds nanoseconds(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

std::string date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

// The HTTP framing of an answer.
struct Framing {
  bool keep_alive = false, chunked = false, is_head_only = false;
  Headers headers = {};
};

std::string head_text(const HttpResponse& response, const Framing& framing, const std::string& length) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\nServer: jerboa\r\n{}", response.status,
                                reason_phrase(response.status), date(), length);
  if (!response.type.empty()) out += fmt::format("Content-Type: {}\r\n", response.type);
  for (const Headers* headers : {&framing.headers, &response.headers})
    for (const auto& [name, value] : *headers) out += fmt::format("{}: {}\r\n", name, value);
  out += framing.keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  return out + "X-Content-Type-Options: nosniff\r\n\r\n";
}

std::string whole_text(const HttpResponse& response, const Framing& framing) {
  const std::string length = response.status == 204 ? "" : fmt::format("Content-Length: {}\r\n", response.body.size());
  std::string out = head_text(response, framing, length);
  if (!framing.is_head_only && response.status != 204) out += response.body;
  return out;
}

HttpRequest to_request(const http::request<http::string_body>& message) {
  HttpRequest out;
  out.method = std::string(message.method_string());
  const std::string target(message.target());
  const std::size_t question = target.find('?');
  out.path = target.substr(0, question);
  if (question != std::string::npos) out.query = target.substr(question + 1);
  for (const auto& field : message) {
    std::string name(field.name_string());
    for (char& letter : name)
      if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
    out.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  return out;
}

int status_of(const error_code& error) {
  if (error == http::error::body_limit) return 413;
  if (error == http::error::header_limit || error == http::error::buffer_overflow) return 431;
  return 400;
}

bool is_malformed(const error_code& error) {
  return error != http::error::end_of_stream && error != http::error::partial_message &&
         error.category() == http::make_error_code(http::error::bad_method).category();
}

class Connection;

}  // namespace

// Destruction order matters: the context and its handlers, which hold the connections, go first.
class HttpServer::Loop {
 public:
  Loop(HttpOptions options, Screen screen, Handler handler)
      : options_(std::move(options)), screen_(std::move(screen)), handler_(std::move(handler)) {}

  void bind();
  void run(const std::function<void()>& on_ready);
  void drain();
  void stop() { context_.stop(); }
  int port() const { return port_; }
  bool is_draining() const { return is_draining_; }

  void add(Connection* connection) { connections_.insert(connection); }
  void remove(Connection* connection) {
    connections_.erase(connection);
    if (is_draining_ && connections_.empty() && !is_over_) context_.stop();
  }
  const HttpOptions& options() const { return options_; }
  Screening screen(const HttpRequest& head) const { return screen_(head); }
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) const {
    handler_(std::move(request), std::move(exchange));
  }
  asio::io_context& context() { return context_; }

 private:
  void accept();
  void wait_for_signal();
  void start_draining();

  HttpOptions options_;
  Screen screen_;
  Handler handler_;
  int port_ = 0;
  std::atomic<bool> is_draining_ = false;
  bool is_over_ = false;
  std::set<Connection*> connections_;
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  asio::steady_timer drain_timer_{context_}, accept_timer_{context_};
  asio::signal_set signals_{context_};
};

namespace {

using Loop = HttpServer::Loop;

// One client. Everything runs on the loop's thread, so nothing is locked.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Loop& loop, tcp::socket socket)
      : loop_(loop),
        socket_(std::move(socket)),
        timer_(loop.context()),
        buffer_(loop.options().header_bytes + (std::size_t{64} << 10)) {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.non_blocking(true, ignored);
    loop_.add(this);
  }
  ~Connection() { loop_.remove(this); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Loop& loop() const { return loop_; }
  void read_head();
  void refuse(const ApiError& error, Headers headers = {});
  /// Sends more of the current answer; after the last part the connection takes the next request or closes.
  void send(std::string data, bool is_last);
  /// Closes the connection without the rest of an answer.
  void close();
  void close_if_idle() {
    if (state_ == State::reading_head && buffer_.size() == 0 && !parser_->got_some()) close();
  }

 private:
  enum class State { reading_head, reading_body, answering, lingering, closed };
  using Parser = http::request_parser<http::string_body>;

  void on_head(const error_code& error);
  void read_body();
  void on_body(const error_code& error);
  void on_read_error(const error_code& error);
  void watch();
  void check_client(std::uint64_t request);
  void write_some();
  void answered();
  void linger();
  void discard();
  void expire_in(double seconds);
  void on_expired();

  Loop& loop_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  State state_ = State::reading_head;
  HttpRequest request_;
  Framing framing_;
  std::uint64_t request_number_ = 0, timer_number_ = 0;
  bool is_late_ = false, is_last_ = false, is_writing_ = false;
  std::string unsent_, in_flight_;
  std::shared_ptr<std::atomic<bool>> is_closed_;  // shared with the current exchange
  char scratch_[4096];
};

class HttpExchange final : public Exchange {
 public:
  HttpExchange(std::shared_ptr<Connection> connection, Framing framing, std::shared_ptr<std::atomic<bool>> is_closed)
      : connection_(std::move(connection)), framing_(std::move(framing)), is_closed_(std::move(is_closed)) {}
  ~HttpExchange() override {
    if (!is_done_) abort();
    // This may be the last reference, on any thread, but connections must end on the loop's thread.
    asio::io_context& context = connection_->loop().context();
    asio::post(context, [connection = std::move(connection_)] {});
  }
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  void respond(HttpResponse response) override { send(whole_text(response, framing_), true); }
  void start(HttpResponse head) override {
    send(head_text(head, framing_, framing_.chunked ? "Transfer-Encoding: chunked\r\n" : ""), false);
  }
  void write(std::string data) override {
    if (data.empty()) return;
    send(framing_.chunked ? fmt::format("{:x}\r\n{}\r\n", data.size(), data) : std::move(data), false);
  }
  void finish() override { send(framing_.chunked ? "0\r\n\r\n" : "", true); }
  void abort() override {
    is_done_ = true;
    asio::post(connection_->loop().context(), [connection = connection_] { connection->close(); });
  }
  bool is_closed() const override { return *is_closed_; }

 private:
  void send(std::string data, bool is_last) {
    if (is_done_) return;
    is_done_ = is_last;
    asio::post(connection_->loop().context(), [connection = connection_, data = std::move(data), is_last]() mutable {
      connection->send(std::move(data), is_last);
    });
  }

  std::shared_ptr<Connection> connection_;
  Framing framing_;
  std::shared_ptr<std::atomic<bool>> is_closed_;
  bool is_done_ = false;
};

void Connection::read_head() {
  state_ = State::reading_head;
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(loop_.options().header_bytes));
  parser_->body_limit(loop_.options().body_bytes);
  framing_ = {};
  expire_in(loop_.options().read_seconds);
  http::async_read_header(socket_, buffer_, *parser_,
                          [self = shared_from_this()](const error_code& error, std::size_t) { self->on_head(error); });
}

void Connection::on_read_error(const error_code& error) {
  if (state_ == State::closed) return;
  if (is_late_ && parser_->got_some())
    return refuse({408, fmt::format("the request did not arrive within {} seconds", loop_.options().read_seconds)});
  if (!is_malformed(error)) return close();
  const int status = status_of(error);
  if (status == 413)
    return refuse({413, fmt::format("the request's body exceeds the limit of {} bytes", loop_.options().body_bytes)});
  if (status == 431)
    return refuse({431, fmt::format("the request's head exceeds the limit of {} bytes", loop_.options().header_bytes)});
  refuse({400, "the request is not valid HTTP: " + error.message()});
}

void Connection::on_head(const error_code& error) {
  if (error) return on_read_error(error);
  const auto& message = parser_->get();
  request_ = to_request(message);
  framing_ = {.keep_alive = parser_->keep_alive() && message.version() == 11 && !loop_.is_draining(),
              .chunked = message.version() == 11,
              .is_head_only = message.method() == http::verb::head};
  if (framing_.is_head_only) request_.method = "GET";
  if (loop_.is_draining()) return refuse({503, "the server is shutting down"});
  Screening screening = loop_.screen(request_);
  framing_.headers = std::move(screening.headers);
  if (screening.answer) {
    // The body, if there is one, is not read, so the connection cannot be reused.
    const bool has_body = parser_->content_length().value_or(0) > 0 || parser_->chunked();
    framing_.keep_alive = framing_.keep_alive && !has_body;
    state_ = State::answering;
    return send(whole_text(*screening.answer, framing_), true);
  }
  state_ = State::reading_body;
  expire_in(loop_.options().read_seconds);
  if (!beast::iequals(message[http::field::expect], "100-continue")) return read_body();
  in_flight_ = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(socket_, asio::buffer(in_flight_),
                    [self = shared_from_this()](const error_code& failed, std::size_t) {
                      if (failed) return self->close();
                      self->read_body();
                    });
}

void Connection::read_body() {
  http::async_read(socket_, buffer_, *parser_,
                   [self = shared_from_this()](const error_code& error, std::size_t) { self->on_body(error); });
}

void Connection::on_body(const error_code& error) {
  if (error) return on_read_error(error);
  ++timer_number_;  // invalidates pending timeouts
  state_ = State::answering;
  ++request_number_;
  is_closed_ = std::make_shared<std::atomic<bool>>(false);
  request_.body = std::move(parser_->get().body());
  watch();
  loop_.handle(std::move(request_), std::make_shared<HttpExchange>(shared_from_this(), framing_, is_closed_));
}

// Nothing is read while an answer is computed, so a disconnected client would go unnoticed.
void Connection::watch() {
  socket_.async_wait(tcp::socket::wait_read,
                     [self = shared_from_this(), request = request_number_](const error_code& error) {
                       if (!error) self->check_client(request);
                     });
}

void Connection::check_client(std::uint64_t request) {
  if (state_ != State::answering || request != request_number_) return;
  char byte = 0;
  error_code error;
  const std::size_t received = socket_.receive(asio::buffer(&byte, 1), tcp::socket::message_peek, error);
  if (error == asio::error::would_block) return watch();
  if (error || received == 0) close();
  // Otherwise the client has already sent its next request, which is read after this answer.
}

void Connection::refuse(const ApiError& error, Headers headers) {
  framing_.keep_alive = false;
  for (auto& header : headers) framing_.headers.push_back(std::move(header));
  state_ = State::answering;
  send(whole_text(error.response(), framing_), true);
}

void Connection::send(std::string data, bool is_last) {
  if (state_ != State::answering) return;
  if (unsent_.empty())
    unsent_ = std::move(data);
  else
    unsent_ += data;
  is_last_ = is_last_ || is_last;
  if (unsent_.size() > loop_.options().unsent_bytes && is_writing_) return close();
  if (!is_writing_) write_some();
}

void Connection::write_some() {
  is_writing_ = true;
  in_flight_ = std::exchange(unsent_, {});
  expire_in(loop_.options().write_seconds);
  asio::async_write(socket_, asio::buffer(in_flight_),
                    [self = shared_from_this()](const error_code& error, std::size_t) {
                      self->is_writing_ = false;
                      ++self->timer_number_;
                      if (self->state_ != State::answering) return;
                      if (error) return self->close();
                      if (!self->unsent_.empty()) return self->write_some();
                      if (self->is_last_) self->answered();
                    });
}

void Connection::answered() {
  is_last_ = false;
  is_closed_.reset();
  if (!framing_.keep_alive || loop_.is_draining()) return linger();
  read_head();
}

// Closing a socket with unread data resets the connection, and the client may lose the answer.
void Connection::linger() {
  state_ = State::lingering;
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  expire_in(linger_seconds);
  discard();
}

void Connection::discard() {
  socket_.async_read_some(asio::buffer(scratch_), [self = shared_from_this()](const error_code& error, std::size_t) {
    if (error) return self->close();
    self->discard();
  });
}

void Connection::close() {
  if (state_ == State::closed) return;
  state_ = State::closed;
  if (is_closed_) *is_closed_ = true;
  timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
}

void Connection::expire_in(double seconds) {
  timer_.expires_after(nanoseconds(seconds));
  timer_.async_wait([self = shared_from_this(), number = ++timer_number_](const error_code& error) {
    if (!error && number == self->timer_number_) self->on_expired();
  });
}

void Connection::on_expired() {
  if (state_ != State::reading_head && state_ != State::reading_body) return close();
  is_late_ = true;
  error_code ignored;
  socket_.cancel(ignored);  // the pending read fails, and its handler answers
}

}  // namespace

void HttpServer::Loop::bind() {
  error_code error;
  const auto check = [&](const char* what) {
    if (error)
      throw UsageError(fmt::format("cannot {} {}:{}: {}", what, options_.host, options_.port, error.message()));
  };
  tcp::resolver resolver(context_);
  const auto found = resolver.resolve(options_.host, std::to_string(options_.port), tcp::resolver::passive, error);
  check("resolve");
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  check("open");
  acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  acceptor_.bind(endpoint, error);
  check("bind to");
  acceptor_.listen(asio::socket_base::max_listen_connections, error);
  check("listen on");
  port_ = acceptor_.local_endpoint().port();
}

void HttpServer::Loop::run(const std::function<void()>& on_ready) {
  if (options_.handles_signals) {
    signals_.add(SIGINT);
    signals_.add(SIGTERM);
    wait_for_signal();
  }
  accept();
  if (on_ready) on_ready();
  context_.run();
  is_over_ = true;
}

void HttpServer::Loop::wait_for_signal() {
  signals_.async_wait([this](const error_code& error, int) {
    if (error) return;
    if (is_draining_) return context_.stop();
    start_draining();
    wait_for_signal();
  });
}

void HttpServer::Loop::accept() {
  acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    if (error) {  // too many open files, for example; some will be closed
      accept_timer_.expires_after(std::chrono::milliseconds(100));
      return accept_timer_.async_wait([this](const error_code& stopped) {
        if (!stopped) accept();
      });
    }
    const bool is_full = connections_.size() >= static_cast<std::size_t>(options_.connections);
    const auto connection = std::make_shared<Connection>(*this, std::move(socket));
    if (is_full)
      connection->refuse({503, fmt::format("the server has {} connections, which is its limit", options_.connections)});
    else
      connection->read_head();
    accept();
  });
}

void HttpServer::Loop::drain() {
  asio::post(context_, [this] { start_draining(); });
}

void HttpServer::Loop::start_draining() {
  if (is_draining_.exchange(true)) return;
  error_code ignored;
  acceptor_.close(ignored);
  accept_timer_.cancel();
  if (connections_.empty()) return context_.stop();
  const std::set<Connection*> all = connections_;
  for (Connection* connection : all) connection->close_if_idle();
  drain_timer_.expires_after(nanoseconds(options_.drain_seconds));
  drain_timer_.async_wait([this](const error_code& error) {
    if (!error) context_.stop();
  });
}

HttpServer::HttpServer(const HttpOptions& options, Screen screen, Handler handler)
    : loop_(std::make_shared<Loop>(options, std::move(screen), std::move(handler))) {
  loop_->bind();
}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return loop_->port(); }
void HttpServer::run(const std::function<void()>& on_ready) { loop_->run(on_ready); }
void HttpServer::drain() { loop_->drain(); }
void HttpServer::stop() { loop_->stop(); }
bool HttpServer::is_draining() const { return loop_->is_draining(); }

}  // namespace jerboa::server
