#include "cli/process.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jerboa/base/error.h>

#include "cli/interrupt.h"

namespace jerboa::cli {
namespace {

std::string content_of(int descriptor) {
  std::string text;
  lseek(descriptor, 0, SEEK_SET);
  std::array<char, 4096> part{};
  for (ssize_t count = 0; (count = read(descriptor, part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(count));
  return text;
}

// An anonymous file. Unlike a pipe, it never fills up, so nothing has to be read while the program runs.
class Scratch {
 public:
  Scratch() : file_(std::tmpfile()) {
    if (file_ == nullptr) throw FileError(fmt::format("cannot create a temporary file: {}", std::strerror(errno)));
  }
  ~Scratch() { std::fclose(file_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  int descriptor() const { return fileno(file_); }

 private:
  std::FILE* file_;
};

std::string last_line_of(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.find_last_of('\n') + 1);
}

}  // namespace

std::string run_program(const std::vector<std::string>& command) {
  const Scratch out, errors;
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.descriptor(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.descriptor(), STDERR_FILENO);
  pid_t child = 0;
  const int failure = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) throw Error(fmt::format("cannot run {}: {}; is it installed?", command[0], std::strerror(failure)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  end_if_interrupted();  // Ctrl-C reached the program as well
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw Error(fmt::format("{} failed: {}", command[0], last_line_of(content_of(errors.descriptor()))));
  return content_of(out.descriptor());
}

}  // namespace jerboa::cli
