#include "mcp/config.h"

#include <fstream>
#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace jerboa::test::config_test {
namespace {

class ConfigTest : public testing::Test {
 protected:
  std::vector<mcp::ServerConfig> read(const std::string& text) {
    std::ofstream(path) << text;
    return mcp::read_config(path);
  }
  std::string error_of(const std::string& text) {
    try {
      read(text);
    } catch (const UsageError& error) {
      return std::string(error.what()).substr(path.string().size());
    }
    return "";
  }

  TempFolder folder;
  std::filesystem::path path = folder / "mcp.json";
};

TEST_F(ConfigTest, ReadsProcessesAndAddresses) {
  const auto servers = read(R"({"mcpServers": {
    "files": {"command": "npx", "args": ["-y", "server"], "env": {"A": "b"}, "cwd": "/tmp", "timeout": 5},
    "web": {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer x"}},
    "off": {"command": "x", "disabled": true}}, "other": 1})");
  ASSERT_EQ(servers.size(), 2u);
  EXPECT_EQ(servers[0].name, "files");
  EXPECT_EQ(servers[0].process.command, (std::vector<std::string>{"npx", "-y", "server"}));
  EXPECT_EQ(servers[0].process.variables.at("A"), "b");
  EXPECT_EQ(servers[0].process.folder, "/tmp");
  EXPECT_EQ(servers[0].seconds, 5);
  EXPECT_EQ(servers[1].http.url, "https://example.org/mcp");
  EXPECT_EQ(servers[1].http.headers.at("Authorization"), "Bearer x");
  EXPECT_EQ(servers[1].seconds, 60);
}

TEST_F(ConfigTest, ReportsErrors) {
  const auto server = [](const std::string& json) { return "{\"mcpServers\": {\"a\": " + json + "}}"; };
  EXPECT_EQ(error_of("[]"), " must be an object");
  EXPECT_EQ(error_of("{}"), " has no \"mcpServers\"");
  EXPECT_EQ(error_of("{\"mcpServers\": []}"), ": mcpServers must be an object");
  EXPECT_EQ(error_of(server("1")), ": a must be an object");
  EXPECT_EQ(error_of(server("{}")), ": a needs either a \"command\" or a \"url\"");
  EXPECT_EQ(error_of(server(R"({"command": "a", "url": "http://b"})")), ": a needs either a \"command\" or a \"url\"");
  EXPECT_EQ(error_of(server(R"({"command": 1})")), ": a needs a text as its \"command\"");
  EXPECT_EQ(error_of(server(R"({"command": "a", "args": "b"})")), ": a needs a list of strings as its \"args\"");
  EXPECT_EQ(error_of(server(R"({"command": "a", "args": [1]})")), ": a needs a list of strings as its \"args\"");
  EXPECT_EQ(error_of(server(R"({"command": "a", "env": {"b": 1}})")), ": a needs an object of texts as its \"env\"");
  EXPECT_EQ(error_of(server(R"({"url": "file:///etc"})")),
            ": a has the url 'file:///etc'; it must begin with http:// or https://");
  EXPECT_EQ(error_of(server(R"({"url": "http://a", "headers": {"b": "c\r\nd"}})")),
            ": a has a line break in its \"headers\"");
  EXPECT_EQ(error_of(server(R"({"url": "http://a", "type": "sse"})")),
            ": a is of type sse, which the protocol has replaced by http");
  EXPECT_EQ(error_of(server(R"({"command": "a", "timeout": 0})")),
            ": a needs a \"timeout\" of more than 0 and at most 86400 seconds");
}

TEST_F(ConfigTest, GivesEachToolANameOfItsOwn) {
  std::vector<mcp::Tool> tools;
  mcp::add_tools(tools, {{"search", ""}, {"read file", ""}}, "one");
  mcp::add_tools(tools, {{"search", ""}, {std::string(100, 'x'), ""}}, "two");
  mcp::add_tools(tools, {{"search", ""}}, "two");
  std::vector<std::string> names;
  for (const mcp::Tool& tool : tools) names.push_back(tool.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"search", "read_file", "two_search", std::string(64, 'x'), "2_two_search"}));
}

}  // namespace
}  // namespace jerboa::test::config_test
