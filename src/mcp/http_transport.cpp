#include <algorithm>
#include <curl/curl.h>
#include <deque>
#include <fmt/format.h>
#include <list>

#include "base/parse_json.h"
#include "mcp/event_stream.h"
#include "mcp/protocol.h"
#include "mcp/transport.h"

namespace jerboa::mcp {
namespace {

constexpr double seconds_to_notify = 10;

using Easy = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;
using Multi = std::unique_ptr<CURLM, decltype(&curl_multi_cleanup)>;
using Headers = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;

void append(Headers& headers, const std::string& line) {
  headers.reset(curl_slist_append(headers.release(), line.c_str()));
}

enum class Purpose : std::uint8_t { request, given_up, notification, listening, ending };

// A request in progress, with the answer so far.
struct Exchange {
  Easy easy{nullptr, curl_easy_cleanup};
  Headers headers{nullptr, curl_slist_free_all};
  Purpose purpose = Purpose::request;
  std::string sent, received;
  std::string* session = nullptr;
  EventStream events;
  bool has_answered = false;

  long status() const {
    long status = 0;
    curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
    return status;
  }
  bool is_stream() const {
    const char* type = nullptr;
    curl_easy_getinfo(easy.get(), CURLINFO_CONTENT_TYPE, &type);
    return type != nullptr && std::string_view(type).starts_with("text/event-stream") && status() == 200;
  }
};

std::size_t receive_body(char* data, std::size_t size, std::size_t count, void* to) {
  auto& exchange = *static_cast<Exchange*>(to);
  const std::string_view bytes(data, size * count);
  if (exchange.is_stream())
    exchange.events.add(bytes);
  else
    exchange.received += bytes;
  return exchange.received.size() + exchange.events.pending() > max_message_bytes ? 0 : bytes.size();
}

std::size_t receive_header(char* data, std::size_t size, std::size_t count, void* to) {
  const std::string_view line(data, size * count);
  constexpr std::string_view name = "mcp-session-id:";
  const auto is_same = [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); };
  if (line.size() > name.size() && std::equal(name.begin(), name.end(), line.begin(), is_same)) {
    const std::string_view value = line.substr(name.size());
    const std::size_t begin = std::min(value.find_first_not_of(" \t"), value.size());
    const std::size_t end = value.find_last_not_of(" \t\r\n") + 1;
    *static_cast<Exchange*>(to)->session = std::string(value.substr(begin, std::max(begin, end) - begin));
  }
  return line.size();
}

class HttpTransport final : public Transport {
 public:
  explicit HttpTransport(HttpOptions options) : options_(std::move(options)) {
    static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
    if (ready == CURLE_OK) multi_.reset(curl_multi_init());
    if (!multi_) throw McpError("libcurl could not be started");
  }

  ~HttpTransport() override {
    try {
      if (!session_.empty()) run_to_end(start(Purpose::ending, ""), 2);
    } catch (const Error&) {  // the server drops the session later by itself
    }
    for (Exchange& exchange : exchanges_) curl_multi_remove_handle(multi_.get(), exchange.easy.get());
  }

  void send(const Json& message) override {
    const bool expects_answer = message.contains("method") && message.contains("id");
    const std::string text = message.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (expects_answer) give_up_earlier();
    Exchange& exchange = start(expects_answer ? Purpose::request : Purpose::notification, text);
    if (!expects_answer) run_to_end(exchange, seconds_to_notify);
  }

  std::optional<Json> receive(double seconds) override {
    if (messages_.empty()) advance(seconds);
    if (!messages_.empty()) {
      Json message = std::move(messages_.front());
      messages_.pop_front();
      return message;
    }
    throw_failure();
    return std::nullopt;
  }

  // The server's own messages arrive over a request that stays open, if the server supports that.
  void begin(const std::string& version) override {
    version_ = version;
    start(Purpose::listening, "");
  }

 private:
  // Drops earlier exchanges: nobody waits for them any more, and their failure would say nothing about the new request.
  void give_up_earlier() {
    for (Exchange& exchange : exchanges_)
      if (exchange.purpose != Purpose::listening) exchange.purpose = Purpose::given_up;
    failure_.clear();
    is_lost_ = false;
  }

  Exchange& start(Purpose purpose, const std::string& body) {
    Exchange& exchange = exchanges_.emplace_back();
    exchange.easy.reset(curl_easy_init());
    exchange.purpose = purpose;
    exchange.sent = body;
    exchange.session = &session_;
    CURL* const easy = exchange.easy.get();
    append(exchange.headers, "Accept: application/json, text/event-stream");
    append(exchange.headers, "Content-Type: application/json");
    append(exchange.headers, "Expect:");
    if (!session_.empty()) append(exchange.headers, "Mcp-Session-Id: " + session_);
    if (!version_.empty()) append(exchange.headers, "MCP-Protocol-Version: " + version_);
    for (const auto& [name, value] : options_.headers) append(exchange.headers, fmt::format("{}: {}", name, value));
    curl_easy_setopt(easy, CURLOPT_URL, options_.url.c_str());
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, 30L);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, exchange.headers.get());
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, receive_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &exchange);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, receive_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, &exchange);
    if (purpose == Purpose::ending) curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, "DELETE");
    if (!body.empty()) {
      curl_easy_setopt(easy, CURLOPT_POST, 1L);
      curl_easy_setopt(easy, CURLOPT_POSTFIELDS, exchange.sent.data());
      curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(exchange.sent.size()));
    }
    curl_multi_add_handle(multi_.get(), easy);
    return exchange;
  }

  void run_to_end(const Exchange& exchange, double seconds) {
    const auto is_running = [&, address = &exchange] {
      return std::any_of(exchanges_.begin(), exchanges_.end(), [&](const Exchange& one) { return &one == address; });
    };
    for (double waited = 0; is_running() && waited < seconds; waited += 0.05) advance(0.05);
    throw_failure();
  }

  void throw_failure() {
    if (failure_.empty()) return;
    const std::string failure = std::exchange(failure_, {});
    if (std::exchange(is_lost_, false)) throw ConnectionLost(failure);
    throw McpError(failure);
  }

  // Transfers data for at most this many seconds, or until something has happened.
  void advance(double seconds) {
    int running = 0;
    curl_multi_perform(multi_.get(), &running);
    collect();
    if (!messages_.empty() || !failure_.empty()) return;
    curl_multi_poll(multi_.get(), nullptr, 0, static_cast<int>(seconds * 1000), nullptr);
    curl_multi_perform(multi_.get(), &running);
    collect();
  }

  void collect() {
    for (Exchange& exchange : exchanges_)
      while (const auto data = exchange.events.take()) add_message(exchange, *data);
    int left = 0;
    while (const CURLMsg* done = curl_multi_info_read(multi_.get(), &left)) {
      if (done->msg != CURLMSG_DONE) continue;
      const CURLcode code = done->data.result;
      const auto exchange = std::find_if(exchanges_.begin(), exchanges_.end(),
                                         [&](const Exchange& one) { return one.easy.get() == done->easy_handle; });
      if (exchange == exchanges_.end()) continue;
      curl_multi_remove_handle(multi_.get(), done->easy_handle);
      finish(*exchange, code);
      exchanges_.erase(exchange);
    }
  }

  void finish(Exchange& exchange, CURLcode code) {
    const bool is_request = exchange.purpose == Purpose::request;
    if (!is_request && exchange.purpose != Purpose::notification) return;
    const long status = exchange.status();
    if ((code != CURLE_OK && !exchange.has_answered) || status >= 400) {
      failure_ = reason_of(exchange, code);
      // in the protocol, 404 means that the session has ended
      is_lost_ = is_request && (code == CURLE_COULDNT_CONNECT || (status == 404 && !session_.empty()));
      return;
    }
    if (!exchange.received.empty()) add_message(exchange, exchange.received);
    if (is_request && failure_.empty() && !exchange.has_answered)
      failure_ = fmt::format("{}: the connection ended without an answer", options_.url);
  }

  std::string reason_of(const Exchange& exchange, CURLcode code) const {
    const long status = exchange.status();
    if (code != CURLE_OK && !exchange.has_answered)
      return fmt::format("{}: {}", options_.url, curl_easy_strerror(code));
    if (status == 401 || status == 403)
      return fmt::format("{}: access was denied ({}); the headers in the configuration may hold a token", options_.url,
                         status);
    return fmt::format("{}: the server answered with {}{}", options_.url, status, reason_in(exchange.received));
  }

  // An error's body may be JSON-RPC or any text.
  static std::string reason_in(const std::string& body) {
    try {
      return ": " + parse_ordered_json(body, "").at("error").at("message").get<std::string>();
    } catch (const std::exception&) {
      return body.empty() ? "" : ": " + shortened(body.substr(0, body.find('\n')), 200);
    }
  }

  void add_message(Exchange& exchange, const std::string& text) {
    try {
      Json parsed = parse_ordered_json(text, "a message");
      for (Json& message : parsed.is_array() ? parsed : parsed = Json::array({parsed})) {  // a batch, or one
        if (!message.contains("method")) exchange.has_answered = true;
        messages_.push_back(std::move(message));
      }
    } catch (const FileError& error) {
      if (!text.empty()) failure_ = fmt::format("{}: {}", options_.url, error.what());
    }
  }

  HttpOptions options_;
  Multi multi_{nullptr, curl_multi_cleanup};
  std::string session_, version_, failure_;
  bool is_lost_ = false;           // the failure is a ConnectionLost
  std::list<Exchange> exchanges_;  // libcurl holds their addresses
  std::deque<Json> messages_;
};

}  // namespace

std::unique_ptr<Transport> open_http(const HttpOptions& options) { return std::make_unique<HttpTransport>(options); }

}  // namespace jerboa::mcp
