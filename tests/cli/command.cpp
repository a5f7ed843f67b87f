#include "cli/command.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <thread>
#include <unistd.h>

namespace jerboa::test {
namespace {

using Clock = std::chrono::steady_clock;

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

std::string content_of(std::FILE* file) {
  std::string text;
  std::rewind(file);
  std::array<char, 4096> part{};
  for (std::size_t count = 0; (count = std::fread(part.data(), 1, part.size(), file)) > 0;)
    text.append(part.data(), count);
  return text;
}

// Runs in the child process and never returns.
[[noreturn]] void become(const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& variables) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words{const_cast<char*>(JERBOA_COMMAND)};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  execv(words[0], words.data());
  _exit(127);
}

void limit_files(std::size_t bytes) {
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, SIG_IGN);  // so that writing fails, as on a full disk
}

}  // namespace

Outcome run_command(const std::vector<std::string>& arguments, const RunSettings& settings) {
  std::FILE *in = std::tmpfile(), *out = std::tmpfile(), *err = std::tmpfile();
  if (in == nullptr || out == nullptr || err == nullptr) throw std::runtime_error("cannot create temporary files");
  std::fwrite(settings.input.data(), 1, settings.input.size(), in);
  std::rewind(in);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(fileno(in), STDIN_FILENO);
    lseek(STDIN_FILENO, 0, SEEK_SET);
    const int target = settings.output.empty() ? fileno(out) : open(settings.output.c_str(), O_WRONLY);
    dup2(target, STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    if (settings.max_file_bytes > 0) limit_files(settings.max_file_bytes);
    become(arguments, settings.variables);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  Outcome outcome{code_of(status), content_of(out), content_of(err)};
  for (std::FILE* file : {in, out, err}) std::fclose(file);
  return outcome;
}

PseudoTerminal::PseudoTerminal(const std::vector<std::string>& arguments,
                               const std::map<std::string, std::string>& variables, CtrlC ctrl_c) {
  winsize size{};
  size.ws_row = 40;
  size.ws_col = 100;
  child_ = forkpty(&terminal_, nullptr, nullptr, &size);
  if (child_ < 0) throw std::runtime_error("there is no pseudo-terminal");
  if (child_ == 0) {
    setenv("TERM", "xterm-256color", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    std::signal(SIGINT, ctrl_c == CtrlC::is_ignored ? SIG_IGN : SIG_DFL);
    become(arguments, variables);
  }
}

PseudoTerminal::~PseudoTerminal() {
  if (child_ > 0) {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  close(terminal_);
}

void PseudoTerminal::type(const std::string& keys) const {
  if (write(terminal_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size()))
    throw std::runtime_error("cannot type into the pseudo-terminal");
}

bool PseudoTerminal::wait_for_editor() const {
  const auto end = Clock::now() + std::chrono::seconds(60);
  termios settings{};
  while (Clock::now() < end) {
    if (tcgetattr(terminal_, &settings) == 0 && (settings.c_lflag & ICANON) == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

bool PseudoTerminal::read_some(double seconds) {
  pollfd ready{terminal_, POLLIN, 0};
  if (poll(&ready, 1, static_cast<int>(seconds * 1000)) <= 0) return false;
  std::array<char, 4096> part{};
  const ssize_t count = read(terminal_, part.data(), part.size());
  if (count <= 0) return false;
  shown_.append(part.data(), static_cast<std::size_t>(count));
  return true;
}

bool PseudoTerminal::expect(const std::string& text, double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    if (const auto found = shown_.find(text, expected_); found != std::string::npos) {
      expected_ = found + text.size();
      return true;
    }
    if (Clock::now() > end || (!read_some(0.1) && child_ < 0)) return false;
  }
}

int PseudoTerminal::wait(double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    while (read_some(0.02)) {
    }
    int status = 0;
    if (waitpid(child_, &status, WNOHANG) == child_) {
      child_ = -1;
      while (read_some(0.02)) {
      }
      return code_of(status);
    }
  }
  return -1000;
}

}  // namespace jerboa::test
