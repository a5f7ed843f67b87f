#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/base/error.h>

namespace jerboa::cli {

/// A command line that is wrong in a way that only the command can see; main exits with ExitCode::usage.
class BadArguments : public UsageError {
 public:
  using UsageError::UsageError;
};

/// Accepts finite numbers from `least` to `most`.
CLI::Validator number_from(double least, double most);
/// Accepts finite numbers above `least`, up to `most`.
CLI::Validator number_above(double least, double most);
/// Accepts whole numbers from `least` to `most`.
CLI::Validator whole_number(std::int64_t least, std::int64_t most);
/// Accepts the names of devices, whether the machine has them or not.
CLI::Validator device_name();
/// Accepts one of a few words.
CLI::Validator one_of(std::vector<std::string> words);
/// Accepts a file that exists.
CLI::Validator existing_file();
/// Accepts such a file, or - for standard input.
CLI::Validator file_or_input();
/// Accepts a path at which a file can be, whether there is one or not.
CLI::Validator place_for_file();

/// An option that may be given several times, with one value each time: what follows the value is not swallowed.
CLI::Option* one_value_each(CLI::Option* option);

/// The lines at the end of a command's --help.
void add_examples(CLI::App& command, std::span<const char* const> lines);
void add_examples(CLI::App& command, std::initializer_list<const char*> lines);

/// The word that `word` is probably meant to be, or "".
std::string nearest(std::string_view word, const std::vector<std::string>& words);

/// The error of a command line in one line, which names flags as they are typed.
std::string describe(const CLI::ParseError& error, const CLI::App& app, const std::vector<std::string>& arguments);

/// The subcommand that was parsed last: `tokenizer train` of `jerboa tokenizer train …`.
const CLI::App& parsed_command(const CLI::App& app);
/// "jerboa tokenizer train"
std::string full_name(const CLI::App& command);

}  // namespace jerboa::cli
