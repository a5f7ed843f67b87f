#include "verify/train_goldens.h"

#include <gtest/gtest.h>

#include <jerboa/base/error.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"
#include "verify/goldens.h"

namespace jerboa {
namespace {

const std::filesystem::path goldens = JERBOA_SOURCE_DIR "/tests/data/goldens";

class TrainGoldens : public testing::TestWithParam<const char*> {};

TEST_P(TrainGoldens, HoldOnEveryDevice) {
  for (const Device& device : {Device::cpu(), Device::reference(), Device::reference64()}) {
    const auto reports = verify_train_goldens(goldens / GetParam(), device);
    EXPECT_GT(reports.size(), 40u);
    for (const CaseReport& report : reports)
      EXPECT_TRUE(report.ok) << device.name() << ' ' << report.name << ": " << report.message;
  }
}

TEST_P(TrainGoldens, HoldInMixedPrecision) {
  const auto reports = verify_train_goldens(goldens / GetParam(), Device::cpu(), {}, Precision::mixed_f16);
  EXPECT_GT(reports.size(), 40u);
  for (const CaseReport& report : reports) EXPECT_TRUE(report.ok) << report.name << ": " << report.message;
}

INSTANTIATE_TEST_SUITE_P(Families, TrainGoldens, testing::Values("train_gpt2", "train_llama", "train_qwen3"));

class LogitGoldens : public testing::TestWithParam<const char*> {};

TEST_P(LogitGoldens, HoldOnEveryDevice) {
  for (const Device& device : {Device::cpu(), Device::reference(), Device::reference64()}) {
    const auto reports = verify_goldens(goldens / GetParam(), device);
    EXPECT_EQ(reports.size(), 2u);
    for (const CaseReport& report : reports)
      EXPECT_TRUE(report.ok) << device.name() << ' ' << report.name << ": " << report.message;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LogitGoldens, testing::Values("gpt2", "llama", "llama3_scaled", "qwen3"));

// A copy of train_llama whose train.safetensors holds other tensors.
std::vector<CaseReport> reports_with(const std::function<void(std::vector<TensorView>&)>& change) {
  const test::TempFolder folder;
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy(goldens / "train_llama" / file, folder / file);
  const SafeTensors source = SafeTensors::open(goldens / "train_llama" / "train.safetensors");
  std::vector<TensorView> views;
  for (const std::string& name : source.names()) views.push_back(source.view(name));
  change(views);
  write_safetensors(folder / "train.safetensors", views);
  return verify_train_goldens(folder.path(), Device::reference());
}

std::vector<std::string> failures(const std::vector<CaseReport>& reports) {
  std::vector<std::string> lines;
  for (const CaseReport& report : reports)
    if (!report.ok) lines.push_back(report.name + ": " + report.message);
  return lines;
}

TEST(TrainGoldenFile, NeedsAGoldenForEveryParameter) {
  const auto reports = reports_with([](auto& views) {
    std::erase_if(views, [](const TensorView& view) { return view.name == "grad/lm_head.weight"; });
  });
  EXPECT_EQ(failures(reports).at(0), "grad/lm_head.weight: the file has no golden for this parameter");
}

TEST(TrainGoldenFile, NeedsAParameterForEveryGolden) {
  const std::vector<float> value{1};
  const auto reports =
      reports_with([&](auto& views) { views.push_back(view_of("after3/extra", {1}, std::span<const float>(value))); });
  EXPECT_EQ(failures(reports), std::vector<std::string>{"after3/extra: the model has no such parameter"});
}

TEST(TrainGoldenFile, NeedsBatchesOfTokens) {
  test::expect_error<FileError>(
      [] {
        reports_with([](auto& views) {
          for (TensorView& view : views)
            if (view.name == "ids") view.shape = {12, 17};
        });
      },
      "ids is [12, 17], not [steps, batch, time + 1]");
}

}  // namespace
}  // namespace jerboa
