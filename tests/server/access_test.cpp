#include "server/access.h"

#include <gtest/gtest.h>

namespace jerboa::server::access_test {
namespace {

HttpRequest request(const std::string& path, Headers headers) {
  return {.method = "GET", .path = path, .query = {}, .headers = std::move(headers), .body = {}};
}

int status(const HttpRequest& head, const AccessOptions& options) {
  const Screening found = screen(head, options);
  return found.answer ? found.answer->status : 200;
}

TEST(Access, NeedsTheKeyExceptForOpenPaths) {
  const AccessOptions options{.api_key = "secret", .origins = {}, .host = "127.0.0.1", .open_paths = {"/health", "/"}};
  EXPECT_EQ(status(request("/v1/models", {}), options), 401);
  EXPECT_EQ(status(request("/v1/models", {{"authorization", "Bearer secret"}}), options), 200);
  for (const char* wrong : {"Bearer secre", "Bearer secrets", "Bearer ", "Bearer", "secret", "Basic secret", ""})
    EXPECT_EQ(status(request("/v1/models", {{"authorization", wrong}}), options), 401) << wrong;
  EXPECT_EQ(status(request("/health", {}), options), 200);
  EXPECT_EQ(status(request("/", {}), options), 200);
  EXPECT_EQ(status(request("/health/x", {}), options), 401);
}

TEST(Access, OnLoopbackOnlyLoopbacksNamesAreAnswered) {
  for (const char* host : {"localhost:8080", "localhost", "127.0.0.1:80", "[::1]:8080", "127.1.2.3"})
    EXPECT_EQ(status(request("/", {{"host", host}}), {}), 200) << host;
  for (const char* host : {"evil.example", "evil.example:8080", "localhost.evil.example", "127.evil.example",
                           "127.0.0.1.evil.example", "127.0.0.evil", "127.0.0.256", "127.0.0.1.1", "127.0.0.", "127."})
    EXPECT_EQ(status(request("/", {{"host", host}}), {}), 403) << host;
  EXPECT_EQ(status(request("/", {{"host", "server.example"}}), {.host = "0.0.0.0"}), 200);
}

TEST(Access, OtherPagesAreRefusedUnlessTheyAreAllowed) {
  const Headers same_origin = {{"host", "localhost:8080"}, {"origin", "http://localhost:8080"}};
  const Headers other = {{"host", "localhost:8080"}, {"origin", "https://page.example"}};
  EXPECT_EQ(status(request("/", same_origin), {}), 200);
  EXPECT_TRUE(screen(request("/", same_origin), {}).headers.empty());
  EXPECT_EQ(status(request("/", other), {}), 403);
  EXPECT_EQ(status(request("/", {{"host", "localhost"}, {"origin", "null"}}), {}), 403);
  const Headers rebound = {{"host", "127.evil.example:8080"}, {"origin", "http://127.evil.example:8080"}};
  EXPECT_EQ(status(request("/", rebound), {}), 403);
  const AccessOptions allowing{.api_key = "secret", .origins = {"https://page.example"}};
  const Screening refused = screen(request("/v1/models", other), allowing);
  ASSERT_TRUE(refused.answer);
  EXPECT_EQ(refused.answer->status, 401);  // and the page can read why
  EXPECT_EQ(refused.headers.at(0).second, "https://page.example");
  HttpRequest preflight = request("/v1/models", other);
  preflight.method = "OPTIONS";
  EXPECT_EQ(status(preflight, allowing), 204);  // browsers send no key with it
  EXPECT_EQ(status(preflight, {}), 403);
}

TEST(Access, ComparesKeys) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abcabc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("a", ""));
  EXPECT_FALSE(equal_in_constant_time("", "a"));
}

}  // namespace
}  // namespace jerboa::server::access_test
