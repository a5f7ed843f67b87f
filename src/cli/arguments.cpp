#include "cli/arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace jerboa::cli {
namespace {

// Quotes a value for a message if it is empty or has spaces.
std::string shown_value(const std::string& text) {
  return text.empty() || text.find(' ') != std::string::npos ? fmt::format("'{}'", text) : text;
}

// Parses the whole text as a number; NaN if it is none.
double number_of(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? value : std::nan("");
}

template <class Holds>
CLI::Validator number_check(std::string wanted, Holds holds) {
  return CLI::Validator(
      [wanted = std::move(wanted), holds](std::string& text) {
        const double value = number_of(text);
        return std::isfinite(value) && holds(value) ? std::string()
                                                    : fmt::format("must be {}, not {}", wanted, shown_value(text));
      },
      "");
}

// The edit distance of two words; swapping neighbours counts as one change.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  return cost[a.size()][b.size()];
}

template <class Kind>
bool is_a(const CLI::ParseError& error) {
  return dynamic_cast<const Kind*>(&error) != nullptr;
}

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::vector<std::string> commands_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; }))
    if (!sub->get_name().empty()) names.push_back(sub->get_name());
  return names;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& words) {
  const std::string found = nearest(word, words);
  return found.empty() ? "" : fmt::format("; did you mean {}?", found);
}

std::string describe_extra(const CLI::App& command, const std::string& extra) {
  if (extra.starts_with('-') && extra.size() > 1) {
    const std::string flag = extra.substr(0, extra.find('='));
    const std::string meant = suggestion(flag, flags_of(command));
    return fmt::format("unknown option {}{}", flag,
                       meant.empty() ? fmt::format("; see {} --help", full_name(command)) : meant);
  }
  const std::vector<std::string> commands = commands_of(command);
  if (commands.empty()) return fmt::format("unexpected argument '{}'; see {} --help", extra, full_name(command));
  const std::string meant = suggestion(extra, commands);
  return fmt::format("unknown command '{}'{}", extra,
                     meant.empty() ? fmt::format("; see {} --help", full_name(command)) : meant);
}

// CLI11 names an option by its short name if it has one; the name as the user typed it is clearer.
std::string flag_as_typed(const CLI::App& command, const std::string& name, const std::vector<std::string>& arguments) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_name() != name) continue;
    for (const std::string& argument : arguments) {
      const std::string flag = argument.substr(0, argument.find('='));
      for (const std::string& other : option->get_lnames())
        if (flag == "--" + other) return flag;
      for (const std::string& other : option->get_snames())
        if (flag == "-" + other) return flag;
    }
  }
  return name;
}

// Handles CLI11's messages of the form "NAME: message" and "NAME is required".
std::string with_typed_flag(const CLI::App& command, const std::string& message,
                            const std::vector<std::string>& arguments) {
  const auto end = message.find_first_of(": ");
  if (end == std::string::npos) return message;
  return flag_as_typed(command, message.substr(0, end), arguments) + message.substr(end);
}

std::string describe_missing(const CLI::App& command, const std::string& message) {
  if (message == "A subcommand is required")
    return fmt::format("a command is missing: {}", fmt::join(commands_of(command), ", "));
  const std::string name = message.substr(0, message.find(' '));
  return fmt::format("{} is missing; see {} --help", name, full_name(command));
}

}  // namespace

CLI::Validator number_from(double least, double most) {
  return number_check(fmt::format("from {} to {}", least, most),
                      [=](double value) { return value >= least && value <= most; });
}

CLI::Validator number_above(double least, double most) {
  return number_check(fmt::format("above {} and at most {}", least, most), [=](double value) {
    return value > least && static_cast<float>(value) > least && value <= most;
  });
}

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  return CLI::Validator(
      [=](std::string& text) {
        std::int64_t value = 0;
        const char* const end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error == std::errc() && stop == end && value >= least && value <= most) return std::string();
        return fmt::format("must be a whole number from {} to {}, not {}", least, most, shown_value(text));
      },
      "");
}

CLI::Validator device_name() {
  return CLI::Validator(
      [](std::string& text) {
        for (const char* name : {"best", "cpu", "webgpu", "reference", "reference64"})
          if (text == name) return std::string();
        if (text.starts_with("webgpu:") && text.size() > 7) return std::string();
        return fmt::format("must be best, cpu, webgpu, webgpu:NAME or reference, not {}", shown_value(text));
      },
      "");
}

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string described = fmt::format("{}", fmt::join(words, "|"));  // for --help and completion
  return CLI::Validator(
      [words = std::move(words)](std::string& text) {
        if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
        const std::vector<std::string> others(words.begin(), words.end() - 1);
        return fmt::format("must be {}{}{}, not {}", fmt::join(others, ", "), others.empty() ? "" : " or ",
                           words.back(), shown_value(text));
      },
      described);
}

CLI::Validator existing_file() {
  return CLI::Validator(
      [](std::string& text) {
        std::error_code error;
        if (!std::filesystem::exists(text, error)) return fmt::format("{}: no such file", text);
        if (std::filesystem::is_directory(text, error)) return fmt::format("{} is a folder, not a file", text);
        return std::string();
      },
      "");
}

CLI::Validator file_or_input() {
  return CLI::Validator([](std::string& text) { return text == "-" ? std::string() : existing_file()(text); }, "");
}

CLI::Validator place_for_file() {
  return CLI::Validator(
      [](std::string& text) {
        std::error_code error;
        if (std::filesystem::is_directory(text, error)) return fmt::format("{} is a folder, not a file", text);
        const std::filesystem::path folder = std::filesystem::path(text).parent_path();
        if (!folder.empty() && !std::filesystem::is_directory(folder, error))
          return fmt::format("{}: there is no folder {}", text, folder.string());
        return std::string();
      },
      "");
}

CLI::Option* one_value_each(CLI::Option* option) { return option->allow_extra_args(false); }

void add_examples(CLI::App& command, std::span<const char* const> lines) {
  command.footer(fmt::format("Examples:\n  {}", fmt::join(lines, "\n  ")));
}

void add_examples(CLI::App& command, std::initializer_list<const char*> lines) {
  add_examples(command, std::span(lines.begin(), lines.size()));
}

std::string nearest(std::string_view word, const std::vector<std::string>& words) {
  if (word.size() < 3) return "";  // too short to guess from
  std::string best;
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : words)
    if (const std::size_t found = distance(word, candidate); found < least) {
      least = found;
      best = candidate;
    }
  return best;
}

const CLI::App& parsed_command(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  return *command;
}

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? "jerboa" : full_name(*parent) + " " + command.get_name();
}

std::string describe(const CLI::ParseError& error, const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App& command = parsed_command(app);
  std::string message = error.what();
  const auto typed = [&](const std::string& name) { return flag_as_typed(command, name, arguments); };
  const std::vector<std::string> extras = command.remaining();
  const bool is_missing = is_a<CLI::RequiredError>(error);
  const bool has_unknown =
      !extras.empty() && (extras.front().starts_with('-') || message == "A subcommand is required");
  if (is_a<CLI::ExtrasError>(error) || (is_missing && has_unknown)) {
    // The missing argument may be the one that was mistyped.
    message = describe_extra(command, extras.empty() ? "" : extras.front());
  } else if (is_missing) {
    message = describe_missing(command, message);
  } else if (is_a<CLI::ArgumentMismatch>(error)) {
    const bool is_repeated = message.find("At Most") != std::string::npos;
    message = fmt::format("{} {}", typed(message.substr(0, message.find(':'))),
                          is_repeated ? "is given more than once" : "needs a value");
  } else if (is_a<CLI::ExcludesError>(error)) {
    constexpr std::string_view between = " excludes ";
    const auto at = message.find(between);
    message = fmt::format("{} and {} contradict each other; give one of them", typed(message.substr(0, at)),
                          typed(message.substr(at + between.size())));
  } else if (is_a<CLI::ConversionError>(error)) {
    constexpr std::string_view begin = "Could not convert: ", between = " = ";
    if (message.starts_with(begin)) {
      message.erase(0, begin.size());
      const auto at = message.find(between);
      message = fmt::format("{}: {} is not a number in its range", typed(message.substr(0, at)),
                            message.substr(at + between.size()));
    }
  } else {
    message = with_typed_flag(command, message, arguments);
  }
  std::replace(message.begin(), message.end(), '\n', ' ');
  return fmt::format("{}: {}", full_name(command), message);
}

}  // namespace jerboa::cli
