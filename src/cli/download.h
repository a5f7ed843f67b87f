#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "cli/hash.h"

namespace jerboa::cli {

/// A URL with its access token.
struct Address {
  std::string url;
  std::string token = {};        ///< sent as a bearer token, but only to the URL's host
  std::string denied_help = {};  ///< added to the message if access is denied
};

struct Download {
  Address from;
  std::filesystem::path to;
  std::string label;           ///< for the progress bar and messages
  std::string hash;            ///< in hexadecimal digits
  Hash method = Hash::sha256;  ///< of the hash
  bool is_git_hash = false;    ///< git's blob hash, which includes the file's size
};

/// Fetches a file and checks its hash. After an interruption the partial file stays at `to` with ".part" appended, and
/// the next call resumes from it. A file that exists and has the right hash is not fetched again. Throws Error that
/// names the label, and Exit after Ctrl-C.
void download(const Download& file);
/// Fetches a small text.
std::string fetch_text(const Address& address);

}  // namespace jerboa::cli
