#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <sstream>
#include <unistd.h>

#include <jerboa/base/error.h>

#include "cli/arguments.h"
#include "cli/chat.h"
#include "cli/terminal.h"

// Commands that a user types in a chat.
namespace jerboa::cli {
namespace {

constexpr const char* chat_help =
    "/system [TEXT]      show or set the system message; /system - removes it\n"
    "/reset              forget the conversation, but for the system message\n"
    "/regen              answer the last message again\n"
    "/edit               change the last message, and answer that\n"
    "/save FILE          write the conversation as JSON\n"
    "/load FILE          go on with a conversation that was saved\n"
    "/params             show how answers are sampled; /params temperature 0.5 changes it\n"
    "/tokens             show how much of the context is used\n"
    "/help               show this list\n"
    "/bye                end the conversation, as Ctrl-D does\n"
    "A line that ends with \\ goes on in the next one, and what you paste is one message. Ctrl-C stops an answer.\n";

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") + 1 - begin);
}

std::string file_argument(std::string_view name, std::string_view rest) {
  if (rest.empty()) throw UsageError(fmt::format("{} needs the name of a file", name));
  const char* const home = std::getenv("HOME");
  return home != nullptr && rest.starts_with("~/") ? home + std::string(rest.substr(1)) : std::string(rest);
}

}  // namespace

const std::vector<std::string>& Chat::commands() {
  static const std::vector<std::string> names{"/help", "/system", "/reset",  "/regen",  "/edit",
                                              "/save", "/load",   "/params", "/tokens", "/bye"};
  return names;
}

bool Chat::is_command(std::string_view line) {
  if (line.size() < 2 || line[0] != '/') return false;
  const std::string_view word = line.substr(1, line.find_first_of(" \t\n", 1) - 1);
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

bool Chat::command(std::string_view line) {
  const auto end = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string_view name = line.substr(0, end), rest = trimmed(line.substr(end));
  try {
    if (name == "/bye" || name == "/exit" || name == "/quit") return false;
    if (name == "/help") {
      write_text(chat_help);
    } else if (name == "/system") {
      if (!rest.empty()) conversation_.set_system(rest == "-" ? "" : std::string(rest));
      const auto& messages = conversation_.messages();
      const bool is_set = !messages.empty() && messages[0]["role"] == "system";
      note(is_set ? "system: " + messages[0]["content"].get<std::string>() : "there is no system message");
    } else if (name == "/reset") {
      conversation_.reset();
      note("the conversation is forgotten");
    } else if (name == "/regen") {
      regenerate();
    } else if (name == "/edit") {
      draft_ = conversation_.last_message();
      replaces_last_ = !draft_.empty();
      if (draft_.empty()) note("there is no message to edit");
    } else if (name == "/save") {
      conversation_.save(file_argument(name, rest));
      note(fmt::format("{} saved in {}", counted(std::ssize(conversation_.messages()), "message"), rest));
    } else if (name == "/load") {
      conversation_.load(file_argument(name, rest));
      note(fmt::format("the conversation now has {}", counted(std::ssize(conversation_.messages()), "message")));
    } else if (name == "/params") {
      if (!rest.empty()) set_parameters(rest);
      show_parameters();
    } else if (name == "/tokens") {
      note(fmt::format("{} of {} tokens of the context are used, by {}",
                       conversation_.messages().empty() ? 0 : conversation_.tokens().size(), model_.context(),
                       counted(std::ssize(conversation_.messages()), "message")));
    } else {
      const std::string meant = nearest(name, commands());
      note(fmt::format("unknown command {}{}; a message may begin with a space", name,
                       meant.empty() ? std::string("; see /help") : fmt::format("; did you mean {}?", meant)));
    }
  } catch (const std::exception& error) {
    note(error.what());
  }
  return true;
}

std::string Chat::take_draft() { return std::exchange(draft_, {}); }

void Chat::regenerate() {
  const std::string message = conversation_.last_message();
  if (message.empty()) return note("there is no message to answer");
  if (flags_.seed) ++*flags_.seed;
  replaces_last_ = true;
  say(message);
}

void Chat::show_parameters() const {
  const GenerateOptions options = flags_.generation(model_);
  const SamplerOptions& sampling = *options.sampling;
  note(
      fmt::format("temperature {} · top-k {} · top-p {} · min-p {} · repetition-penalty {} · presence-penalty {} · "
                  "frequency-penalty {} · max-tokens {} · seed {}",
                  sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, sampling.repetition_penalty,
                  sampling.presence_penalty, sampling.frequency_penalty, options.max_tokens,
                  flags_.seed ? std::to_string(*flags_.seed) : "random"));
}

// Names and values are those of the command line's flags: "temperature 0.5 top-k=40".
void Chat::set_parameters(std::string_view words) {
  std::string text(words);
  std::replace(text.begin(), text.end(), '=', ' ');
  std::istringstream in(text);
  std::vector<std::string> arguments;
  LanguageFlags changed = flags_;
  for (std::string name, value; in >> name;) {
    std::replace(name.begin(), name.end(), '_', '-');
    arguments.push_back(name.starts_with("--") ? name : "--" + name);
    if (name.ends_with("greedy")) continue;
    if (in >> value) arguments.push_back(value);
    if (name == "temperature" || name == "--temperature") changed.greedy = false;
  }
  CLI::App app("", "/params");
  changed.add_sampling_to(app);
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // CLI11 expects them in reverse
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    std::string message = describe(error, app, arguments);
    throw UsageError(message.replace(0, message.find(':'), "/params"));
  }
  flags_ = std::move(changed);
}

}  // namespace jerboa::cli
