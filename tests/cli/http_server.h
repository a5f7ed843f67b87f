#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace jerboa::test {

/// A small HTTP server on the loopback interface that serves texts, for clients that must cope with redirects, ranges,
/// tokens and connections that end too early.
class HttpServer {
 public:
  HttpServer();
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  struct Page {
    std::string body;
    std::string redirect = {};    ///< where to look instead
    std::string token = {};       ///< a bearer token that is needed
    std::size_t cut_after = 0;    ///< the connection ends after so many bytes of the body, once
    std::size_t pause_after = 0;  ///< the rest comes only when the server ends
    bool has_ranges = true;
  };
  void serve(const std::string& path, Page page);
  std::string address() const;
  /// The requested paths, with the first requested byte: "/a from 0".
  std::vector<std::string> requests() const;
  /// Whether any request had such a header.
  bool saw_header(const std::string& name) const;

 private:
  void run();
  void answer(int connection);
  // Until the client goes away, or the server ends.
  void wait_for_end(int connection) const;

  int listener_ = -1, port_ = 0;
  std::atomic<bool> is_over_ = false;
  mutable std::mutex mutex_;
  std::map<std::string, Page> pages_;
  std::vector<std::string> requests_, heads_;
  std::thread thread_;
};

}  // namespace jerboa::test
