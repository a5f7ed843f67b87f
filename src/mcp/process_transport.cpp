#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/parse_json.h"
#include "mcp/line_buffer.h"
#include "mcp/protocol.h"
#include "mcp/transport.h"

namespace jerboa::mcp {
namespace {

constexpr std::size_t kept_error_bytes = 4096;
constexpr double seconds_to_end = 2;

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Descriptor() { close(); }
  void close() {
    if (value_ >= 0) ::close(std::exchange(value_, -1));
  }
  int get() const { return value_; }

 private:
  int value_ = -1;
};

struct Ends {
  Descriptor here, there;
};

Ends open_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw McpError(fmt::format("cannot create a pipe: {}", std::strerror(errno)));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// A socket rather than a pipe, because writing to a process that has ended must not raise SIGPIPE.
Ends open_socket() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw McpError(fmt::format("cannot create a socket: {}", std::strerror(errno)));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// The environment of a server: only what every program needs, so that keys and tokens meant for others do not leak.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& variables) {
  std::map<std::string, std::string> all;
  for (const char* name : {"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"})
    if (const char* value = std::getenv(name)) all[name] = value;
  for (const auto& [name, value] : variables) all[name] = value;
  std::vector<std::string> lines;
  for (const auto& [name, value] : all) lines.push_back(fmt::format("{}={}", name, value));
  return lines;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

class ProcessTransport final : public Transport {
 public:
  explicit ProcessTransport(const ProcessOptions& options) : program_(options.command.at(0)) {
    Ends input = open_socket(), output = open_pipe(), errors = open_pipe();
    start(options, input.there.get(), output.there.get(), errors.there.get());
    input_ = std::move(input.here);
    output_ = std::move(output.here);
    errors_ = std::move(errors.here);
    for (const int descriptor : {input_.get(), output_.get(), errors_.get()})
      fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  }

  // Closing a server's input asks it to end. If it does not, it gets SIGTERM and finally SIGKILL.
  ~ProcessTransport() override {
    input_.close();
    for (const int signal : {0, SIGTERM, SIGKILL}) {
      if (has_ended_) return;
      if (signal != 0) kill(-child_, signal);
      wait(seconds_to_end);
    }
  }

  // Reads while it writes, because a server may stop reading until its output has been read.
  void send(const Json& message) override {
    const std::string line = message.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    for (std::string_view rest = line; !rest.empty();) {
      const ssize_t count = ::send(input_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
      if (count > 0)
        rest.remove_prefix(static_cast<std::size_t>(count));
      else if (errno == EAGAIN || errno == EINTR)
        read_some(0.05, true);
      else
        throw ConnectionLost(end_of_process());
    }
  }

  std::optional<Json> receive(double seconds) override {
    if (auto message = next_message()) return message;
    if (output_.get() < 0) throw McpError(end_of_process());
    read_some(seconds, false);
    return next_message();
  }

 private:
  void start(const ProcessOptions& options, int input, int output, int errors) {
    std::vector<std::string> command = options.command, variables = environment_with(options.variables);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
    if (!options.folder.empty()) posix_spawn_file_actions_addchdir_np(&actions, options.folder.c_str());
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    const int failure = posix_spawnp(&child_, program_.c_str(), &actions, &attributes, pointers_to(command).data(),
                                     pointers_to(variables).data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (failure != 0) throw McpError(fmt::format("cannot run {}: {}", program_, std::strerror(failure)));
  }

  std::optional<Json> next_message() {
    while (const auto line = lines_.take()) {
      if (line->empty()) continue;
      try {
        return parse_ordered_json(*line, "a message");
      } catch (const FileError&) {
        remember(*line + "\n");  // not a message, but it may explain an error
      }
    }
    if (lines_.size() > max_message_bytes) throw McpError(fmt::format("{}: a message is too long", program_));
    return std::nullopt;
  }

  void read_some(double seconds, bool wants_to_write) {
    std::array<pollfd, 3> polled{
        {{output_.get(), POLLIN, 0}, {errors_.get(), POLLIN, 0}, {wants_to_write ? input_.get() : -1, POLLOUT, 0}}};
    if (poll(polled.data(), polled.size(), static_cast<int>(seconds * 1000)) <= 0) return;
    if (polled[1].revents != 0) read_from(errors_, [&](std::string_view text) { remember(text); });
    if (polled[0].revents != 0) read_from(output_, [&](std::string_view text) { lines_.add(text); });
  }

  template <class Take>
  static void read_from(Descriptor& descriptor, const Take& take) {
    std::array<char, 65536> part;
    const ssize_t count = read(descriptor.get(), part.data(), part.size());
    if (count > 0)
      take(std::string_view(part.data(), static_cast<std::size_t>(count)));
    else if (count == 0 || (errno != EAGAIN && errno != EINTR))
      descriptor.close();
  }

  void remember(std::string_view text) {
    said_ += text;
    if (said_.size() > kept_error_bytes) said_.erase(0, said_.size() - kept_error_bytes);
  }

  void wait(double seconds) {
    for (double waited = 0; !has_ended_ && waited < seconds; waited += 0.01) {
      has_ended_ = waitpid(child_, &status_, WNOHANG) == child_;
      if (!has_ended_) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  // How the process ended, and its last words.
  std::string end_of_process() {
    if (errors_.get() >= 0) read_some(0.1, false);
    wait(0.5);
    std::string how = "closed its output";
    if (has_ended_)
      how = WIFEXITED(status_) ? fmt::format("ended with exit code {}", WEXITSTATUS(status_))
                               : fmt::format("was ended by signal {}", WTERMSIG(status_));
    while (said_.ends_with('\n')) said_.pop_back();
    const std::string last = said_.substr(said_.find_last_of('\n') + 1);
    return fmt::format("{} {}{}", program_, how, last.empty() ? "" : ": " + shortened(last, 300));
  }

  std::string program_, said_;
  pid_t child_ = -1;
  bool has_ended_ = false;
  int status_ = 0;
  Descriptor input_, output_, errors_;
  LineBuffer lines_;
};

}  // namespace

std::unique_ptr<Transport> open_process(const ProcessOptions& options) {
  return std::make_unique<ProcessTransport>(options);
}

}  // namespace jerboa::mcp
