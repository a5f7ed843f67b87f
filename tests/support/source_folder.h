#pragma once

#include <cstdlib>
#include <filesystem>

namespace jerboa::test {

/// The folder of the sources: where the test was built, unless JERBOA_SOURCES names a copy.
inline std::filesystem::path source_folder(const char* built_in) {
  const char* copied = std::getenv("JERBOA_SOURCES");
  return copied != nullptr ? copied : built_in;
}

}  // namespace jerboa::test
