#include "cli/http_server.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <netinet/in.h>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

namespace jerboa::test {
namespace {

std::string header_of(const std::string& request, const std::string& name) {
  const auto at = request.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const auto begin = at + name.size() + 4;
  return request.substr(begin, request.find("\r\n", begin) - begin);
}

void send_all(int connection, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t count = send(connection, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (count <= 0) return;
    at += static_cast<std::size_t>(count);
  }
}

}  // namespace

HttpServer::HttpServer() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 16) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("cannot listen on the loopback interface");
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { run(); });
}

HttpServer::~HttpServer() {
  is_over_ = true;
  thread_.join();
  close(listener_);
}

std::string HttpServer::address() const { return "http://127.0.0.1:" + std::to_string(port_); }

void HttpServer::serve(const std::string& path, Page page) {
  const std::lock_guard lock(mutex_);
  pages_[path] = std::move(page);
}

std::vector<std::string> HttpServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

bool HttpServer::saw_header(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(heads_.begin(), heads_.end(),
                     [&](const std::string& head) { return !header_of(head, name).empty(); });
}

void HttpServer::run() {
  while (!is_over_) {
    pollfd ready{listener_, POLLIN, 0};
    if (poll(&ready, 1, 50) <= 0) continue;
    const int connection = accept(listener_, nullptr, nullptr);
    if (connection < 0) continue;
    answer(connection);
    close(connection);
  }
}

void HttpServer::answer(int connection) {
  std::string request;
  std::array<char, 4096> part{};
  while (request.find("\r\n\r\n") == std::string::npos) {
    const ssize_t count = recv(connection, part.data(), part.size(), 0);
    if (count <= 0) return;
    request.append(part.data(), static_cast<std::size_t>(count));
  }
  const auto begin = request.find(' ') + 1;
  const std::string path = request.substr(begin, request.find(' ', begin) - begin);
  const std::string range = header_of(request, "Range");
  std::size_t first = range.starts_with("bytes=") ? std::stoul(range.substr(6)) : 0;
  const std::lock_guard lock(mutex_);
  requests_.push_back(path + " from " + std::to_string(first));
  heads_.push_back(request);
  const auto found = pages_.find(path);
  const std::string end = "Connection: close\r\n\r\n";
  if (found == pages_.end()) return send_all(connection, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n" + end);
  Page& page = found->second;
  if (!page.token.empty() && header_of(request, "Authorization") != "Bearer " + page.token)
    return send_all(connection, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n" + end);
  if (!page.redirect.empty())
    return send_all(connection, "HTTP/1.1 302 Found\r\nLocation: " + page.redirect + "\r\nContent-Length: 0\r\n" + end);
  if (!page.has_ranges) first = 0;
  if (first > 0 && first >= page.body.size())
    return send_all(connection, "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n" + end);
  std::string head = first > 0
                         ? "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " + std::to_string(first) + "-" +
                               std::to_string(page.body.size() - 1) + "/" + std::to_string(page.body.size()) + "\r\n"
                         : "HTTP/1.1 200 OK\r\n";
  head += "Content-Length: " + std::to_string(page.body.size() - first) + "\r\n" + end;
  std::string body = page.body.substr(first);
  if (page.cut_after > 0) {
    body.resize(std::min(body.size(), page.cut_after));
    page.cut_after = 0;
  }
  if (page.pause_after == 0) return send_all(connection, head + body);
  send_all(connection, head + body.substr(0, page.pause_after));
  wait_for_end(connection);
}

void HttpServer::wait_for_end(int connection) const {
  for (char byte = 0; !is_over_;) {
    pollfd ready{connection, POLLIN, 0};
    if (poll(&ready, 1, 50) > 0 && recv(connection, &byte, 1, 0) <= 0) return;
  }
}

}  // namespace jerboa::test
