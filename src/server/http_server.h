#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "server/http.h"

namespace jerboa::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                                   ///< 0: any that is free
  std::size_t body_bytes = std::size_t{8} << 20;     ///< the most that a request may have: 413
  std::size_t header_bytes = std::size_t{16} << 10;  ///< the same for its head: 431
  int connections = 1024;                            ///< at once; more are answered with 503
  double read_seconds = 30;   ///< within which a request must have arrived, or a connection without one is closed: 408
  double write_seconds = 30;  ///< within which a client must have read what was sent
  std::size_t unsent_bytes = std::size_t{8} << 20;  ///< that may wait for a slow client
  double drain_seconds = 30;                        ///< after drain(), until run() returns whatever is unfinished
  bool handles_signals = false;                     ///< SIGINT and SIGTERM drain; a second one stops at once
};

/// Serves HTTP/1.1 on one thread, however many connections there are. Answers may come from any thread.
class HttpServer {
 public:
  class Loop;  ///< internal

  /// Binds; throws UsageError if the address cannot be bound, or if Jerboa was built without Boost.
  HttpServer(const HttpOptions& options, Screen screen, Handler handler);
  ~HttpServer();

  int port() const;
  /// Serves until drain() or stop(). `on_ready` is called once signals are handled.
  void run(const std::function<void()>& on_ready = {});
  /// Accepts nothing more, and lets run() return once all requests have been answered. Any thread may call it.
  void drain();
  void stop();
  bool is_draining() const;

 private:
  std::shared_ptr<Loop> loop_;
};

}  // namespace jerboa::server
