#include <filesystem>
#include <gtest/gtest.h>
#include <set>
#include <sstream>

#include "support/temp_folder.h"

namespace jerboa {
namespace {

namespace fs = std::filesystem;

// Products with weights go through Modules, which alone know how weights are stored. These multiply a weight with
// something other than rows of activations, or round it first.
TEST(Families, MultiplyWeightsThroughModules) {
  const std::set<std::string> exceptions{"modules.cpp", "bit_linear.cpp", "deepseek_v3.cpp"};
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(fs::path(JERBOA_SOURCE_DIR) / "src/models")) {
    std::istringstream lines(test::read_text(entry.path()));
    for (std::string line; std::getline(lines, line);) {
      const std::string code = line.substr(0, line.find("//"));
      for (const char* product : {"matmul(", "matmul_quantised(", "matmul_grouped(", "matmul_grouped_quantised("})
        if (code.find(product) != std::string::npos) found.insert(entry.path().filename().string());
    }
  }
  EXPECT_EQ(found, exceptions);
}

}  // namespace
}  // namespace jerboa
