#pragma once

#include <span>
#include <string_view>

namespace jerboa::server {

/// A file of the chat page, embedded in the program.
struct PageFile {
  std::string_view path, type, content;
};
std::span<const PageFile> page_files();

}  // namespace jerboa::server
