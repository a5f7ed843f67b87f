#pragma once

#include <string>
#include <vector>

#include <jerboa/language/text_encoder.h>

#include "cli/language_options.h"

namespace jerboa::cli {

/// How a text encoder is loaded.
struct EncoderFlags {
  std::string model;
  ModelFlags loading;

  void add_to(CLI::App& command);
  /// What can be wrong without the model; throws BadArguments.
  void check() const;
  /// Loads it, and says so while it takes time.
  TextEncoder open() const;
};

/// How results are printed: "json", a line each, or "text".
void add_format_to(CLI::App& command, std::string& format);

/// Texts on the command line, and those of a file.
struct TextFlags {
  std::vector<std::string> texts;
  std::string file, name = "texts";

  /// `called` is what the texts are called: texts, documents.
  void add_to(CLI::App& command, const std::string& called);
  /// All of them. Throws BadArguments if there are none.
  std::vector<std::string> read() const;
};

/// The lines of a file, or of standard input for "-".
std::vector<std::string> read_lines(const std::string& path);

}  // namespace jerboa::cli
