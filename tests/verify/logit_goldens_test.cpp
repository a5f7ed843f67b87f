#include "verify/logit_goldens.h"

#include <filesystem>
#include <gtest/gtest.h>

#include <jerboa/base/error.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace jerboa {
namespace {

const std::filesystem::path llama = JERBOA_SOURCE_DIR "/tests/data/goldens/llama";

// The folder with a `greedy` that extends the prompt by these tokens, the last one changed by an offset.
std::vector<CaseReport> with_greedy(std::int64_t more, std::int32_t change) {
  const test::TempFolder folder;
  for (const char* file : {"config.json", "model.safetensors"}) std::filesystem::copy(llama / file, folder / file);
  const SafeTensors golden = SafeTensors::open(llama / "golden.safetensors");
  const auto& prompt = golden.view("input_ids").shape;
  const std::int64_t before = golden.view("greedy").shape.at(1), after = prompt.at(1) + more;
  const auto all = to_i32(golden.view("greedy"));
  std::vector<std::int32_t> tokens;
  for (std::int64_t row = 0; row < prompt[0]; ++row)
    tokens.insert(tokens.end(), all.begin() + row * before, all.begin() + row * before + after);
  tokens.back() += change;
  std::vector<TensorView> views{view_of("greedy", {prompt[0], after}, std::span<const std::int32_t>(tokens))};
  for (const char* name : {"input_ids", "logits"}) views.push_back(golden.view(name));
  write_safetensors(folder / "golden.safetensors", views);
  return verify_logit_goldens(folder.path(), Device::cpu());
}

TEST(LogitGoldens, HoldTokenByTokenThroughTheCache) {
  for (const CaseReport& report : with_greedy(3, 0)) EXPECT_TRUE(report.ok) << report.name << ": " << report.message;
}

TEST(LogitGoldens, NoticeAWrongToken) {
  const auto reports = with_greedy(3, 1);
  EXPECT_TRUE(reports.at(0).ok);
  EXPECT_FALSE(reports.at(1).ok);
  EXPECT_NE(reports.at(1).message.find("instead of"), std::string::npos) << reports.at(1).message;
}

TEST(LogitGoldens, AreRefusedWhereTheyCouldNotFail) {
  test::expect_error<FileError>([] { with_greedy(0, 0); }, "greedy adds no token");
}

}  // namespace
}  // namespace jerboa
