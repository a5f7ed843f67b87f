#include "verify/op_goldens.h"

#include <gtest/gtest.h>

#include <jerboa/base/error.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace jerboa {
namespace {

// A golden file with one case of these tensors.
SafeTensors write_case(const test::TempFolder& folder, const std::string& cases,
                       const std::vector<TensorView>& tensors) {
  write_safetensors(folder / "ops.safetensors", tensors, {{"cases", cases}});
  return SafeTensors::open(folder / "ops.safetensors");
}

constexpr float two[] = {1, 2};
constexpr float doubled[] = {2, 4};

TensorView pair(const std::string& name, std::span<const float> values) { return view_of(name, {2}, values); }

CaseReport only_report(const std::string& cases, const std::vector<TensorView>& tensors) {
  const test::TempFolder folder;
  const auto reports = verify_op_goldens(write_case(folder, cases, tensors), evaluate_on_reference);
  EXPECT_EQ(reports.size(), 1u);
  return reports.at(0);
}

TEST(OpGoldens, AllCasesHoldForwardAndBackward) {
  const auto file = SafeTensors::open(JERBOA_SOURCE_DIR "/tests/data/goldens/ops.safetensors");
  const auto reports = verify_op_goldens(file, evaluate_on_reference);
  EXPECT_EQ(reports.size(), 97u);
  for (const CaseReport& report : reports) EXPECT_TRUE(report.ok) << report.name << ": " << report.message;
}

// The same file with an engine that is slightly wrong: every case must notice.
TEST(OpGoldens, EveryCaseNoticesAWrongEngine) {
  const auto file = SafeTensors::open(JERBOA_SOURCE_DIR "/tests/data/goldens/ops.safetensors");
  const auto wrong = [](const Graph& graph, const std::vector<TensorId>& keep,
                        const std::map<std::string, HostTensor>& inputs) {
    auto values = evaluate_on_reference(graph, keep, inputs);
    HostTensor& last = values.back();
    for (std::int64_t i = 0; i < last.size(); ++i)
      last.set_number(i, is_float(last.dtype()) ? last.number(i) * 1.001 : last.number(i) + 1);
    return values;
  };
  for (const CaseReport& report : verify_op_goldens(file, wrong)) EXPECT_FALSE(report.ok) << report.name;
}

TEST(OpGoldens, ReportsTheError) {
  const std::string cases = R"({"a": {"op": "add", "attrs": {}}})";
  const auto sum = [&](std::span<const float> out) {
    return only_report(cases, {pair("a/in0", two), pair("a/in1", two), pair("a/out", out), pair("a/cotangent", two),
                               pair("a/grad0", two), pair("a/grad1", two)});
  };
  EXPECT_TRUE(sum(doubled).ok);
  const auto wrong = sum(two);
  EXPECT_FALSE(wrong.ok);
  EXPECT_EQ(wrong.message, "out: 2 of 2 values differ, the most at 1: 4 instead of 2");
}

TEST(OpGoldens, AnUnknownOpOrAttributeFails) {
  EXPECT_EQ(only_report(R"({"a": {"op": "blend", "attrs": {}}})", {pair("a/out", two)}).message,
            "unknown op \"blend\"");
  EXPECT_EQ(only_report(R"({"a": {"op": "exp", "attrs": {"base": 2}}})", {pair("a/out", two)}).message,
            "exp has no attribute base");
}

TEST(OpGoldens, TensorsThatDoNotFitTheOpFail) {
  const auto missing = only_report(R"({"a": {"op": "add"}})", {pair("a/in0", two), pair("a/out", two)});
  EXPECT_EQ(missing.message, "add: the operand b is missing");
  const auto many =
      only_report(R"({"a": {"op": "exp"}})", {pair("a/in0", two), pair("a/in1", two), pair("a/out", two)});
  EXPECT_EQ(many.message, "2 inputs and 0 integer inputs are more than exp takes");
  EXPECT_FALSE(only_report(R"({"a": {"op": "exp"}})", {pair("a/in0", two)}).ok);
  EXPECT_EQ(only_report(R"({"a": {"op": "sum"}})", {pair("a/in0", two), pair("a/out", two)}).message,
            "out is [] instead of [2]");
}

TEST(OpGoldens, ChecksEveryOutputAndGradient) {
  const std::string top = R"({"a": {"op": "top_k", "attrs": {"k": 1}}})";
  constexpr float largest[] = {2};
  constexpr std::int32_t at[] = {1}, elsewhere[] = {0};
  const auto value = view_of("a/out", {1}, std::span<const float>(largest));
  const auto index = [](std::span<const std::int32_t> values) { return view_of("a/out1", {1}, values); };
  constexpr float to_largest[] = {0, 2};
  const auto cotangent = view_of("a/cotangent", {1}, std::span<const float>(largest));
  const auto top_of = [&](const TensorView& indices) {
    return only_report(top, {pair("a/in0", two), value, indices, cotangent, pair("a/grad0", to_largest)});
  };
  EXPECT_TRUE(top_of(index(at)).ok);
  EXPECT_FALSE(top_of(index(elsewhere)).ok);
  EXPECT_EQ(only_report(top, {pair("a/in0", two), value, cotangent, pair("a/grad0", to_largest)}).message,
            "top_k has 2 results, but out1 is missing");

  const std::string product = R"({"a": {"op": "mul"}})";
  constexpr float squares[] = {1, 4};
  std::vector<TensorView> tensors = {pair("a/in0", two), pair("a/in1", two), pair("a/out", squares),
                                     pair("a/cotangent", two), pair("a/grad0", squares)};
  EXPECT_EQ(only_report(product, tensors).message, "there is a cotangent, but grad1 is missing");
  tensors.push_back(pair("a/grad1", squares));
  EXPECT_TRUE(only_report(product, tensors).ok);
}

TEST(OpGoldens, GoldensThatCouldNotFailAreRefused) {
  const std::string cases = R"({"a": {"op": "exp"}})";
  const std::vector<float> none;
  const auto empty = [&](const std::string& name) { return view_of(name, {0}, std::span<const float>(none)); };
  EXPECT_EQ(only_report(cases, {empty("a/in0"), empty("a/out")}).message,
            "out has no elements, so anything would pass");
  constexpr float zeros[] = {0, 0}, ones[] = {1, 1};
  const std::vector<TensorView> forward{pair("a/in0", zeros), pair("a/out", ones)};
  const auto message = [](const std::string& of, std::vector<TensorView> tensors, const std::vector<TensorView>& more) {
    tensors.insert(tensors.end(), more.begin(), more.end());
    return only_report(of, tensors).message;
  };
  EXPECT_EQ(message(cases, forward, {pair("a/cotangent", ones), pair("a/grad0", ones)}), "");
  EXPECT_EQ(message(cases, forward, {pair("a/cotangent", ones), pair("a/grad0", ones), pair("a/grad1", ones)}),
            "grad1 is in the file, but the case does not use it");
  EXPECT_EQ(message(cases, forward, {}), "exp has a gradient, but cotangent is missing");
  EXPECT_EQ(message(cases, forward, {pair("a/cotangent", zeros), pair("a/grad0", zeros)}),
            "the cotangent is zero, so any gradient that is a multiple of it would pass");
}

TEST(OpGoldens, WithoutAGradientNeedNoCotangent) {
  EXPECT_TRUE(only_report(R"({"a": {"op": "floor"}})", {pair("a/in0", two), pair("a/out", two)}).ok);
  constexpr std::int32_t whole[] = {1, 2};
  const auto integers = [&](const std::string& name) {
    return view_of(name, {2}, std::span<const std::int32_t>(whole));
  };
  EXPECT_TRUE(only_report(R"({"a": {"op": "abs"}})", {integers("a/in0"), integers("a/out")}).ok);
}

TEST(OpGoldens, AFileWithoutCasesIsRefused) {
  const test::TempFolder folder;
  for (const char* cases : {"", "[1]", "{"}) {
    const SafeTensors file = write_case(folder, cases, {pair("a", two)});
    test::expect_error<FileError>([&] { verify_op_goldens(file, evaluate_on_reference); }, "no JSON object");
  }
}

}  // namespace
}  // namespace jerboa
