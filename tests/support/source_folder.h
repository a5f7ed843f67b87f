#pragma once

#include <cstdlib>
#include <filesystem>

namespace jerboa::test {

/// Where a test finds the files of the sources: where it was built, unless JERBOA_SOURCES says that they were copied.
inline std::filesystem::path source_folder(const char* built_in) {
  const char* copied = std::getenv("JERBOA_SOURCES");
  return copied != nullptr ? copied : built_in;
}

}  // namespace jerboa::test
