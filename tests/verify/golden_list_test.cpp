#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <set>
#include <sstream>

#include <jerboa/models/family.h>

#include "support/temp_folder.h"

namespace jerboa {
namespace {

namespace fs = std::filesystem;

// The folders that ctest runs the command on.
std::set<std::string> listed_goldens() {
  const std::string file = test::read_text(fs::path(JERBOA_SOURCE_DIR) / "tests/verify/CMakeLists.txt");
  const std::string begin = "set(all ";
  const std::size_t first = file.find(begin) + begin.size();
  std::istringstream names(file.substr(first, file.find(')', first) - first));
  std::set<std::string> listed;
  for (std::string name; names >> name;) listed.insert(name);
  return listed;
}

// There are folders for families to come, too.
bool has_family(const fs::path& folder) {
  if (!fs::exists(folder / "config.json")) return true;
  const std::string type = models::Config::open(folder).text("model_type");
  const auto known = models::families();
  return std::any_of(known.begin(), known.end(), [&](const models::Family& row) { return row.model_type == type; });
}

TEST(Goldens, OfEveryFamilyAreVerified) {
  const auto listed = listed_goldens();
  EXPECT_GT(listed.size(), 50U);
  for (const auto& entry : fs::directory_iterator(fs::path(JERBOA_SOURCE_DIR) / "tests/data/goldens"))
    if (fs::exists(entry.path() / "golden.safetensors") && has_family(entry.path())) {
      EXPECT_TRUE(listed.contains(entry.path().filename().string())) << entry.path();
    }
}

}  // namespace
}  // namespace jerboa
