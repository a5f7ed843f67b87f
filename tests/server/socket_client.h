#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace jerboa::server::test {

/// A client that sends and reads bytes, whatever they are.
class SocketClient {
 public:
  explicit SocketClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("cannot connect");
  }
  ~SocketClient() { close(); }
  SocketClient(const SocketClient&) = delete;
  SocketClient& operator=(const SocketClient&) = delete;

  void send(const std::string& text) const { (void)!::send(socket_, text.data(), text.size(), MSG_NOSIGNAL); }
  void half_close() const { ::shutdown(socket_, SHUT_WR); }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  /// Reads until the server closes, or until `end` was read, or for some seconds at most.
  std::string read(const std::string& end = {}, double seconds = 120) {
    std::string out;
    char buffer[4096];
    pollfd ready{socket_, POLLIN, 0};
    while (::poll(&ready, 1, static_cast<int>(seconds * 1000)) > 0) {
      const ssize_t count = ::recv(socket_, buffer, sizeof buffer, 0);
      if (count <= 0) return out;
      out.append(buffer, static_cast<std::size_t>(count));
      if (!end.empty() && out.find(end) != std::string::npos) return out;
    }
    return out + "<no more within the time>";
  }

 private:
  int socket_;
};

inline std::string post(const std::string& path, const std::string& body, const std::string& headers = {}) {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}
inline std::string get(const std::string& path, const std::string& headers = {}) {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n";
}
inline int status_of(const std::string& answer) {
  return answer.size() > 12 && answer.rfind("HTTP/1.1 ", 0) == 0 ? std::stoi(answer.substr(9, 3)) : 0;
}
inline std::string body_of(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

}  // namespace jerboa::server::test
