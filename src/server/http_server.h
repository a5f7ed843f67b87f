#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "server/http.h"

namespace jerboa::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                                   ///< 0: any that is free
  std::size_t body_bytes = std::size_t{8} << 20;     ///< limit of a request's body: 413
  std::size_t header_bytes = std::size_t{16} << 10;  ///< limit of its head: 431
  int connections = 1024;                            ///< open at once; further ones are answered with 503
  double read_seconds = 30;   ///< for a request to arrive, or for an idle connection to be closed: 408
  double write_seconds = 30;  ///< for a client to read what was sent
  std::size_t unsent_bytes = std::size_t{8} << 20;  ///< limit of what may be queued for a slow client
  double drain_seconds = 30;                        ///< after drain(); then run() returns with requests unfinished
  bool handles_signals = false;                     ///< SIGINT and SIGTERM drain; a second one stops at once
};

/// Serves HTTP/1.1 on one thread, however many connections there are. Answers may come from any thread.
class HttpServer {
 public:
  class Loop;  ///< internal

  /// Binds the address; throws UsageError if that fails, or if Jerboa was built without Boost.
  HttpServer(const HttpOptions& options, Screen screen, Handler handler);
  ~HttpServer();

  int port() const;
  /// Serves until drain() or stop(). Calls `on_ready` once signals are handled.
  void run(const std::function<void()>& on_ready = {});
  /// Stops accepting connections, and lets run() return once all requests have been answered. Any thread may call it.
  void drain();
  void stop();
  bool is_draining() const;

 private:
  std::shared_ptr<Loop> loop_;
};

}  // namespace jerboa::server
