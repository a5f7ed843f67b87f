#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/base/error.h>

namespace jerboa::cli {

/// An error in the command line that only the command itself can detect; main exits with ExitCode::usage.
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
/// Accepts names of devices, whether or not the machine has them.
CLI::Validator device_name();
/// Accepts one of a few words.
CLI::Validator one_of(std::vector<std::string> words);
/// Accepts a file that exists.
CLI::Validator existing_file();
/// Accepts an existing file, or - for standard input.
CLI::Validator file_or_input();
/// Accepts a path where a file can be created or overwritten.
CLI::Validator place_for_file();

/// Makes an option repeatable with one value each time, so that it does not swallow the arguments after its value.
CLI::Option* one_value_each(CLI::Option* option);

/// Adds examples at the end of a command's --help.
void add_examples(CLI::App& command, std::span<const char* const> lines);
void add_examples(CLI::App& command, std::initializer_list<const char*> lines);

/// The word that the user probably meant, or "".
std::string nearest(std::string_view word, const std::vector<std::string>& words);

/// A one-line message for a command line error, which names flags as they were typed.
std::string describe(const CLI::ParseError& error, const CLI::App& app, const std::vector<std::string>& arguments);

/// The innermost subcommand that was parsed: `tokenizer train` of `jerboa tokenizer train …`.
const CLI::App& parsed_command(const CLI::App& app);
/// "jerboa tokenizer train"
std::string full_name(const CLI::App& command);

}  // namespace jerboa::cli
