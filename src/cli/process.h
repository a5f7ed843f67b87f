#pragma once

#include <string>
#include <vector>

namespace jerboa::cli {

/// Runs a program, found on PATH and without a shell, and returns its standard output. If it fails, throws Error that
/// names the program and quotes the last line of its standard error.
std::string run_program(const std::vector<std::string>& command);

}  // namespace jerboa::cli
