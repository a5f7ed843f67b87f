#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Requests and answers without the types of the HTTP library.
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

/// The destination of the answer to one request. Any thread may call anything, and nothing blocks. An exchange that is
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
  /// Ends an answer in pieces that cannot be completed, so that the client notices that it is incomplete.
  virtual void abort() = 0;
  /// Whether the client has disconnected or is too slow, so that nobody waits for the answer.
  virtual bool is_closed() const = 0;
  /// Adds to the log line of the answer, once it is complete.
  virtual void note(std::string text) { (void)text; }
};

/// The decision made from a request's head, before its body is read.
struct Screening {
  std::optional<HttpResponse> answer = {};  ///< answers at once; the body is not read
  Headers headers = {};                     ///< for every answer to this request
};
using Screen = std::function<Screening(const HttpRequest& head)>;
using Handler = std::function<void(HttpRequest request, std::shared_ptr<Exchange> exchange)>;

}  // namespace jerboa::server
