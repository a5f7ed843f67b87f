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
  TextEncoder open() const;
};

/// The lines of a file, or of standard input for "-".
std::vector<std::string> read_lines(const std::string& path);
/// The texts given, followed by the lines of a file if there is one. Throws UsageError if there are none.
std::vector<std::string> all_texts(const std::vector<std::string>& given, const std::string& file);

}  // namespace jerboa::cli
