#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

// The order of folders in docs/architecture.md, checked against every include in the sources.
namespace jerboa {
namespace {

namespace fs = std::filesystem;

const fs::path root = JERBOA_SOURCE_DIR;

using Order = std::map<std::string, std::set<std::string>>;  // a folder and those that it may include

Order documented_order() {
  std::ifstream file(root / "docs/architecture.md");
  Order order;
  std::string line;
  while (std::getline(file, line) && line != "```folders") {
  }
  while (std::getline(file, line) && line != "```") {
    const std::size_t colon = line.find(':');
    auto& allowed = order[line.substr(0, colon)];
    std::istringstream names(line.substr(colon + 1));
    for (std::string name; names >> name;) allowed.insert(name);
  }
  return order;
}

// "backend/cpu/reference/scan.cpp" belongs to backend/cpu, "backend/backend.h" to backend.
std::string folder_of(const fs::path& path) {
  std::vector<std::string> parts;
  for (const fs::path& part : path.parent_path()) parts.push_back(part.string());
  if (parts.empty()) return "";
  return parts[0] == "backend" && parts.size() > 1 ? parts[0] + "/" + parts[1] : parts[0];
}

// The project's folders whose headers a file includes.
std::set<std::string> included_folders(const fs::path& file) {
  static const std::regex include(R"re(^\s*#include\s+(?:<jerboa/([^>]+)>|"([^"]+)").*)re");
  std::set<std::string> folders;
  std::ifstream in(file);
  std::smatch match;
  for (std::string line; std::getline(in, line);) {
    if (!std::regex_match(line, match, include)) continue;
    const bool is_public = match[1].matched;
    const fs::path header = is_public ? match[1].str() : match[2].str();
    if (is_public || fs::exists(root / "src" / header)) folders.insert(folder_of(header));
  }
  return folders;
}

bool is_source(const fs::path& path) {
  return path.extension() == ".cpp" || path.extension() == ".h" || path.extension() == ".def";
}

template <class F>
void for_each_source(F use) {
  for (const fs::path& base : {root / "src", root / "include/jerboa"})
    for (auto it = fs::recursive_directory_iterator(base); it != fs::recursive_directory_iterator(); ++it) {
      if (it->path().filename() == "node_modules") it.disable_recursion_pending();
      const fs::path path = fs::relative(it->path(), base);
      if (it->is_regular_file() && is_source(path) && path != "jerboa.h") use(it->path(), folder_of(path));
    }
}

TEST(IncludeOrder, EveryIncludeFollowsTheDocumentedOrder) {
  const Order order = documented_order();
  ASSERT_GE(order.size(), 18u) << "docs/architecture.md has no list of folders";
  int files = 0;
  for_each_source([&](const fs::path& file, const std::string& folder) {
    ++files;
    ASSERT_TRUE(order.contains(folder)) << file << ": docs/architecture.md does not list the folder " << folder;
    for (const std::string& other : included_folders(file)) {
      EXPECT_TRUE(other == folder || order.at(folder).contains(other))
          << file << ": " << folder << " must not include " << other;
    }
  });
  EXPECT_GT(files, 200);
}

TEST(IncludeOrder, TheDocumentedOrderHasNoCycle) {
  const Order order = documented_order();
  std::vector<std::string> done;
  for (std::size_t before = order.size() + 1; done.size() < order.size() && done.size() != before;) {
    before = done.size();
    for (const auto& [folder, allowed] : order) {
      const auto is_done = [&](const std::string& name) {
        return std::find(done.begin(), done.end(), name) != done.end();
      };
      if (!is_done(folder) && std::all_of(allowed.begin(), allowed.end(), is_done)) done.push_back(folder);
    }
  }
  EXPECT_EQ(done.size(), order.size());
}

TEST(IncludeOrder, PublicHeadersIncludeNoThirdPartyHeaders) {
  static const std::regex third_party(R"(^\s*#include\s+<(nlohmann|fmt|hwy|CLI|utf8proc|pcre2|gtest).*)");
  for_each_source([&](const fs::path& file, const std::string&) {
    if (file.string().find("/include/jerboa/") == std::string::npos) return;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);)
      EXPECT_FALSE(std::regex_match(line, third_party)) << file << ": " << line;
  });
}

}  // namespace
}  // namespace jerboa
