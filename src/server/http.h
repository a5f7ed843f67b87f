#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Requests and answers as the rest of the server sees them, without the library behind them.
namespace jerboa::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method, path, query;  ///< "/v1/models?limit=2" is a path and a query
  Headers headers;                  ///< names in lower case
  std::string body;

  /// The value of the first header of this name, or "".
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  Headers headers = {};
};

/// "Not Found" for 404.
std::string_view reason_phrase(int status);

/// Where the answer to one request goes. Any thread may call anything, and nothing blocks. An exchange that is
/// destroyed without an answer closes the connection.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// A whole answer.
  virtual void respond(HttpResponse response) = 0;
  /// An answer in pieces: its head, then any number of write() and one finish().
  virtual void start(HttpResponse head) = 0;
  virtual void write(std::string data) = 0;
  virtual void finish() = 0;
  /// Ends an answer in pieces that cannot be completed: the client sees that it is not whole.
  virtual void abort() = 0;
  /// Whether the client went away or is too slow, so that no answer is wanted any more.
  virtual bool is_closed() const = 0;
  /// What the log tells of the answer besides its status, once it is complete.
  virtual void note(std::string text) { (void)text; }
};

/// What is decided when a request's head has arrived, before its body is read.
struct Screening {
  std::optional<HttpResponse> answer = {};  ///< given at once; the body is not read
  Headers headers = {};                     ///< of every answer to this request
};
using Screen = std::function<Screening(const HttpRequest& head)>;
using Handler = std::function<void(HttpRequest request, std::shared_ptr<Exchange> exchange)>;

}  // namespace jerboa::server
