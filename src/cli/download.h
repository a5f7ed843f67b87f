#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "cli/hash.h"

namespace jerboa::cli {

/// Where something is.
struct Address {
  std::string url;
  std::string token = {};        ///< sent as a bearer token, to the URL's host alone
  std::string denied_help = {};  ///< what to add to the message if access is denied
};

struct Download {
  Address from;
  std::filesystem::path to;
  std::string label;           ///< for the progress bar and messages
  std::string hash;            ///< in hexadecimal digits
  Hash method = Hash::sha256;  ///< of the hash
  bool is_git_hash = false;    ///< the hash is git's, with the file's size
};

/// Fetches a file and checks its hash. What was fetched before an interruption stays in `to` with ".part" appended, and
/// the next call goes on from there. A file that is there already and has the right hash is not fetched again. Throws
/// Error that names the label, and Exit after Ctrl-C.
void download(const Download& file);
/// The body of a small answer.
std::string fetch_text(const Address& address);

}  // namespace jerboa::cli
