#include "cli/download.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "cli/interrupt.h"
#include "cli/terminal.h"

#ifdef JERBOA_PULL
#include <cstdio>
#include <curl/curl.h>
#include <memory>

namespace jerboa::cli {
namespace {

namespace fs = std::filesystem;

constexpr int attempts = 4;  // as long as each of them receives something
constexpr std::size_t max_text = 64 << 20;

using Handle = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;

Handle open_handle(const Address& address) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  Handle handle(ready == CURLE_OK ? curl_easy_init() : nullptr, curl_easy_cleanup);
  if (!handle) throw Error("libcurl could not be started");
  curl_easy_setopt(handle.get(), CURLOPT_URL, address.url.c_str());
  curl_easy_setopt(handle.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle.get(), CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle.get(), CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(handle.get(), CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(handle.get(), CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(handle.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle.get(), CURLOPT_CONNECTTIMEOUT, 30L);
  curl_easy_setopt(handle.get(), CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle.get(), CURLOPT_LOW_SPEED_TIME, 60L);
  curl_easy_setopt(handle.get(), CURLOPT_USERAGENT, "jerboa/" JERBOA_VERSION);
  if (!address.token.empty()) {
    curl_easy_setopt(handle.get(), CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl_easy_setopt(handle.get(), CURLOPT_XOAUTH2_BEARER, address.token.c_str());
  }
  return handle;
}

long status_of(const Handle& handle) {
  long status = 0;
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
  return status;
}

std::string reason_of(const Handle& handle, CURLcode code, const Address& address) {
  const long status = status_of(handle);
  if (code != CURLE_HTTP_RETURNED_ERROR) return curl_easy_strerror(code);
  if (status == 401 || status == 403) return fmt::format("access was denied ({}){}", status, address.denied_help);
  if (status == 404) return "it does not exist (404)";
  return fmt::format("the server answered with {}", status);
}

// Calls `callback` regularly during a transfer; it ends the transfer by returning 1.
void watch(const Handle& handle, curl_xferinfo_callback callback, void* data) {
  curl_easy_setopt(handle.get(), CURLOPT_XFERINFOFUNCTION, callback);
  curl_easy_setopt(handle.get(), CURLOPT_XFERINFODATA, data);
  curl_easy_setopt(handle.get(), CURLOPT_NOPROGRESS, 0L);
}

struct Transfer {
  std::FILE* file;
  std::int64_t had;  // bytes before this attempt
  ProgressBar* bar;
};

std::size_t write_body(char* data, std::size_t size, std::size_t count, void* to) {
  return std::fwrite(data, size, count, static_cast<Transfer*>(to)->file);
}

int show_progress(void* of, curl_off_t total, curl_off_t now, curl_off_t, curl_off_t) {
  const auto* transfer = static_cast<Transfer*>(of);
  if (now > 0) transfer->bar->show(transfer->had + now, total > 0 ? transfer->had + total : 0);
  return CatchInterrupts::is_set() ? 1 : 0;
}

bool has_hash(const fs::path& path, const Download& file) {
  return (file.is_git_hash ? git_hash_file(path) : hash_file(path, file.method)) == file.hash;
}

// Makes one attempt to fetch the rest of a file. Returns whether it is complete; throws if another attempt is
// pointless.
bool fetch_rest(const Download& file, const fs::path& part, ProgressBar& bar) {
  std::error_code ignored;
  const std::int64_t had = fs::exists(part, ignored) ? static_cast<std::int64_t>(fs::file_size(part)) : 0;
  const std::unique_ptr<std::FILE, decltype(&std::fclose)> out(std::fopen(part.c_str(), "ab"), std::fclose);
  if (!out) throw FileError(fmt::format("{}: cannot write", part.string()));
  Transfer transfer{out.get(), had, &bar};
  const Handle handle = open_handle(file.from);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, write_body);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEDATA, &transfer);
  watch(handle, show_progress, &transfer);
  if (had > 0) curl_easy_setopt(handle.get(), CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(had));
  const CURLcode code = curl_easy_perform(handle.get());
  const bool is_written = std::fflush(out.get()) == 0;
  end_if_interrupted();
  if (!is_written || code == CURLE_WRITE_ERROR)
    throw FileError(fmt::format("{}: cannot write; is the disk full?", part.string()));
  if (code == CURLE_OK) return true;
  const bool has_no_ranges = code == CURLE_RANGE_ERROR;
  const bool is_past_end = code == CURLE_HTTP_RETURNED_ERROR && status_of(handle) == 416;
  if (had > 0 && is_past_end && has_hash(part, file)) return true;
  if (had > 0 && (has_no_ranges || is_past_end)) {
    fs::remove(part, ignored);
    return false;
  }
  const bool has_advanced = static_cast<std::int64_t>(fs::file_size(part, ignored)) > had;
  if (code == CURLE_HTTP_RETURNED_ERROR || !has_advanced)
    throw Error(fmt::format("{}: {}{}", file.label, reason_of(handle, code, file.from),
                            had > 0 || has_advanced ? "; repeat the command to resume" : ""));
  return false;
}

}  // namespace

void download(const Download& file) {
  std::error_code ignored;
  if (fs::exists(file.to, ignored) && has_hash(file.to, file)) return;
  fs::create_directories(file.to.parent_path());
  const fs::path part = file.to.string() + ".part";
  ProgressBar bar(file.label);
  bool had_wrong_hash = false;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const bool is_continued = fs::exists(part, ignored);
    had_wrong_hash = false;
    if (!fetch_rest(file, part, bar)) continue;
    if (has_hash(part, file)) return fs::rename(part, file.to);
    fs::remove(part);
    // The partial file may be of another version.
    had_wrong_hash = true;
    if (!is_continued) break;
  }
  if (had_wrong_hash)
    throw Error(fmt::format("{}: the download does not have the expected hash; try again", file.label));
  throw Error(fmt::format("{}: the connection ended too early; repeat the command to resume", file.label));
}

std::string fetch_text(const Address& address) {
  const Handle handle = open_handle(address);
  std::string body;
  const auto append = +[](char* data, std::size_t size, std::size_t count, void* to) -> std::size_t {
    auto& text = *static_cast<std::string*>(to);
    if (text.size() + size * count > max_text) return 0;
    text.append(data, size * count);
    return size * count;
  };
  const auto callback =
      +[](void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) { return CatchInterrupts::is_set() ? 1 : 0; };
  curl_easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, append);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEDATA, &body);
  watch(handle, callback, nullptr);
  const CURLcode code = curl_easy_perform(handle.get());
  end_if_interrupted();
  if (code != CURLE_OK) throw Error(fmt::format("{}: {}", address.url, reason_of(handle, code, address)));
  return body;
}

}  // namespace jerboa::cli

#else

namespace jerboa::cli {
namespace {

[[noreturn]] void refuse_to_download() {
  throw UsageError("this build of jerboa cannot download: it was built without libcurl or OpenSSL");
}

}  // namespace

void download(const Download&) { refuse_to_download(); }
std::string fetch_text(const Address&) { refuse_to_download(); }

}  // namespace jerboa::cli

#endif
