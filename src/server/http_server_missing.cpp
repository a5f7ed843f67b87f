#include <jerboa/base/error.h>

#include "server/http_server.h"

// Replaces http_server.cpp where Boost is not installed.
namespace jerboa::server {

class HttpServer::Loop {};

HttpServer::HttpServer(const HttpOptions&, Screen, Handler) {
  throw UsageError("this jerboa was built without its server; install Boost (Debian: libboost-dev) and build it again");
}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return 0; }
void HttpServer::run(const std::function<void()>&) {}
void HttpServer::drain() {}
void HttpServer::stop() {}
bool HttpServer::is_draining() const { return false; }

}  // namespace jerboa::server
