#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <sys/resource.h>

#include "support/temp_folder.h"

// What it costs a user to include <jerboa/jerboa.h>.
namespace jerboa {
namespace {

double processor_seconds_of_children() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec) + 1e-6 * static_cast<double>(usage.ru_utime.tv_usec);
}

class UmbrellaHeader : public testing::Test {
 protected:
  std::string command(const char* options, const std::string& source) const {
    return std::string("\"") + JERBOA_CXX + "\" -std=c++20 " + options + " -I\"" + JERBOA_SOURCE_DIR + "/include\" \"" +
           (folder_ / source).string() + "\" > \"" + (folder_ / "output").string() + "\" 2>&1";
  }
  // CPU time of the compiler, the least of some runs: those alongside other processes take longer.
  double seconds_to_compile(const std::string& source) const {
    double least = 1e9;
    for (int i = 0; i < 3; ++i) {
      const double before = processor_seconds_of_children();
      EXPECT_EQ(std::system(command("-fsyntax-only", source).c_str()), 0) << test::read_text(folder_ / "output");
      least = std::min(least, processor_seconds_of_children() - before);
    }
    return least;
  }

  test::TempFolder folder_;
};

TEST_F(UmbrellaHeader, IncludesNothingFromThirdParties) {
  test::write_text(folder_ / "user.cpp", "#include <jerboa/jerboa.h>\nint main() {}\n");
  ASSERT_EQ(std::system(command("-M", "user.cpp").c_str()), 0);
  const std::string headers = test::read_text(folder_ / "output");
  ASSERT_NE(headers.find("jerboa/jerboa.h"), std::string::npos);
  for (const char* library : {"nlohmann", "/fmt/", "/hwy/", "webgpu/", "pcre2", "utf8proc", "CLI"})
    EXPECT_EQ(headers.find(library), std::string::npos) << library;
}

// In terms of the standard headers that it needs, so that the bound holds on any machine: those take 0.7 s where it may
// take 1.5 s.
TEST_F(UmbrellaHeader, TakesLittleLongerThanTheStandardHeaders) {
  std::string standard;
  for (const char* header : {"array", "filesystem", "functional", "map", "memory", "mutex", "optional", "set", "span",
                             "stdexcept", "string", "string_view", "unordered_map", "utility", "variant", "vector"})
    standard += std::string("#include <") + header + ">\n";
  test::write_text(folder_ / "standard.cpp", standard + "int main() {}\n");
  test::write_text(folder_ / "user.cpp", "#include <jerboa/jerboa.h>\nint main() {}\n");
  const double needed = seconds_to_compile("standard.cpp"), taken = seconds_to_compile("user.cpp");
  EXPECT_LT(taken, 2.1 * needed) << "jerboa.h took " << taken << " s, the standard headers " << needed << " s";
}

}  // namespace
}  // namespace jerboa
