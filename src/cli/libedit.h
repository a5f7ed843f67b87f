#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "cli/line_editor.h"

namespace jerboa::cli {

/// Line editing by libedit, if the command was built with it.
struct LineEditor::Editing {
  /// Returns null if the build has no libedit.
  static std::unique_ptr<Editing> open(std::filesystem::path history, std::vector<std::string> words);
  virtual ~Editing() = default;
  virtual Input read(const char* prompt, const std::string& draft) = 0;
  /// Adds a message to the history.
  virtual void remember(const std::string& message) = 0;
};

}  // namespace jerboa::cli
