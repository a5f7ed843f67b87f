#include "cli/hash.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>

#include "cli/interrupt.h"

#ifdef JERBOA_PULL
#include <openssl/evp.h>
#endif

namespace jerboa::cli {
namespace {

#ifdef JERBOA_PULL
std::string hash_with_prefix(const std::filesystem::path& path, const EVP_MD* method, const std::string& prefix) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  EVP_DigestInit_ex(context.get(), method, nullptr);
  EVP_DigestUpdate(context.get(), prefix.data(), prefix.size());
  const FileReader file(path);
  std::vector<std::byte> part(std::min<std::uint64_t>(file.size(), 1 << 22));
  for (std::uint64_t at = 0; at < file.size(); at += part.size()) {
    part.resize(std::min<std::uint64_t>(part.size(), file.size() - at));
    file.read(at, part);
    EVP_DigestUpdate(context.get(), part.data(), part.size());
    end_if_interrupted();
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  EVP_DigestFinal_ex(context.get(), digest, &length);
  std::string out;
  for (unsigned int i = 0; i < length; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

const EVP_MD* method_of(Hash hash) {
  return hash == Hash::sha1 ? EVP_sha1() : hash == Hash::sha256 ? EVP_sha256() : EVP_sha512();
}
#else
using Method = int;
std::string hash_with_prefix(const std::filesystem::path&, Method, const std::string&) {
  throw UsageError("this build of jerboa cannot check files: it was built without libcurl or OpenSSL");
}
Method method_of(Hash) { return 0; }
#endif

}  // namespace

std::string hash_file(const std::filesystem::path& path, Hash hash) {
  return hash_with_prefix(path, method_of(hash), "");
}

std::string git_hash_file(const std::filesystem::path& path) {
  const std::string prefix = fmt::format("blob {}", std::filesystem::file_size(path));
  return hash_with_prefix(path, method_of(Hash::sha1), prefix + '\0');
}

std::string hex_of_base64(std::string_view text) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text.substr(0, text.find('='))) {
    const auto value = digits.find(c);
    if (value == std::string_view::npos) throw UsageError(fmt::format("{} is not base64", text));
    bits = (bits << 6 | static_cast<std::uint32_t>(value)) & 0xffffff;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += fmt::format("{:02x}", bits >> count & 0xff);
  }
  return out;
}

}  // namespace jerboa::cli
