#pragma once

#include <string>
#include <vector>

#include <jerboa/language/text_encoder.h>

#include "cli/language_options.h"

namespace jerboa::cli {

/// Flags that say how a text encoder is loaded.
struct EncoderFlags {
  std::string model;
  ModelFlags loading;

  void add_to(CLI::App& command);
  /// Checks what needs no model; throws BadArguments.
  void check() const;
  /// Loads the encoder, and reports that if it takes a while.
  TextEncoder open() const;
};

/// Adds a flag for the format of the results, "json" (a line each) or "text".
void add_format_to(CLI::App& command, std::string& format);

/// Texts from the command line and from a file.
struct TextFlags {
  std::vector<std::string> texts;
  std::string file, name = "texts";

  /// `called` is the name of the texts in messages: texts, documents.
  void add_to(CLI::App& command, const std::string& called);
  /// All texts. Throws BadArguments if there are none.
  std::vector<std::string> read() const;
};

/// The lines of a file or, for "-", of standard input.
std::vector<std::string> read_lines(const std::string& path);

}  // namespace jerboa::cli
