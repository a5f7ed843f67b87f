#pragma once

#include <string>

#include "cli/language_options.h"

namespace jerboa::cli {

/// Answers the lines of a JSON Lines file in a batch, and prints the answers as JSON lines in the same order. A line
/// that the model cannot answer gets {"error": …}, and the command then exits with 1.
void run_batch(const std::string& model, const std::string& file, const LanguageFlags& flags, bool log_probabilities);

}  // namespace jerboa::cli
