#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace jerboa::cli {

enum class Hash { sha1, sha256, sha512 };

/// The hash of a file as hexadecimal digits. Throws UsageError if the command was built without OpenSSL.
std::string hash_file(const std::filesystem::path& path, Hash hash);
/// The hash that git gives to a file's content; hubs identify small files by it.
std::string git_hash_file(const std::filesystem::path& path);
/// Converts a hash from base64, as in npm's integrity strings, to hexadecimal digits. Throws UsageError if it is
/// malformed.
std::string hex_of_base64(std::string_view text);

}  // namespace jerboa::cli
