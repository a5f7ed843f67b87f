#include "verify/encoder_goldens.h"

#include <filesystem>
#include <gtest/gtest.h>

#include <jerboa/base/error.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace jerboa::encoder_goldens_test {
namespace {

const std::filesystem::path bert = JERBOA_SOURCE_DIR "/tests/data/goldens/bert";

// The folder with one element of a golden tensor changed.
template <class T>
std::vector<CaseReport> with_changed(const std::string& tensor, std::size_t at, T value) {
  const test::TempFolder folder;
  for (const char* file : {"config.json", "model.safetensors"}) std::filesystem::copy(bert / file, folder / file);
  const SafeTensors golden = SafeTensors::open(bert / "golden.safetensors");
  std::vector<TensorView> views;
  std::vector<T> changed;
  for (const std::string& name : golden.names()) {
    views.push_back(golden.view(name));
    if (name != tensor) continue;
    if constexpr (std::is_same_v<T, float>)
      changed = to_f32(golden.view(name));
    else
      changed = to_i32(golden.view(name));
    changed.at(at) = value;
    views.back() = view_of(name, golden.view(name).shape, std::span<const T>(changed));
  }
  write_safetensors(folder / "golden.safetensors", views);
  return verify_encoder_goldens(folder.path(), Device::cpu());
}

const CaseReport& report_of(const std::vector<CaseReport>& reports, const std::string& name) {
  for (const CaseReport& report : reports)
    if (report.name == name) return report;
  throw UsageError("there is no report of " + name);
}

TEST(EncoderGoldens, Hold) {
  const auto reports = verify_encoder_goldens(bert, Device::cpu());
  EXPECT_EQ(reports.size(), 2u);
  for (const CaseReport& report : reports) EXPECT_TRUE(report.ok) << report.name << ": " << report.message;
}

TEST(EncoderGoldens, NoticeAWrongValueOfATokenButNotOfPadding) {
  const std::size_t width = 64, time = 11;
  const auto wrong = with_changed("hidden", (time + 6) * width + 3, 5.0f);
  EXPECT_FALSE(report_of(wrong, "hidden").ok);
  EXPECT_NE(report_of(wrong, "hidden").message.find("1 of"), std::string::npos) << report_of(wrong, "hidden").message;
  EXPECT_TRUE(report_of(wrong, "pooled").ok);
  EXPECT_TRUE(report_of(with_changed("hidden", (time + 7) * width + 3, 5.0f), "hidden").ok);
  EXPECT_FALSE(report_of(with_changed("pooled", 70, 1.0f), "pooled").ok);
}

TEST(EncoderGoldens, AreRefusedIfTheMaskIsNotALength) {
  test::expect_error<FileError>([] { with_changed<std::int32_t>("attention_mask", 3, 0); },
                                "attention_mask has a gap in row 0");
  test::expect_error<FileError>([] { with_changed<std::int32_t>("attention_mask", 11, 0); },
                                "attention_mask hides the first token of row 1");
}

}  // namespace
}  // namespace jerboa::encoder_goldens_test
