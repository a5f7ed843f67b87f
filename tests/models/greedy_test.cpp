#include <gtest/gtest.h>

#include <jerboa/frontend/compile.h>
#include <jerboa/models/greedy.h>

#include "models/golden_families.h"

// Greedy decoding on the device generates the same tokens as transformers and as the loop on the host (GreedyDecode in
// decode_test.cpp, LanguageModel.ContinuesAsTransformersDoes).
namespace jerboa::greedy_test {
namespace {

using Tokens = std::vector<std::int32_t>;

const std::filesystem::path goldens = JERBOA_SOURCE_DIR "/tests/data/goldens";

// "gpu": the kernels for GPUs, whatever the driver. "persistent": these as phases of one dispatch, of one workgroup,
// because software drivers run workgroups one after another; "unsound": of several.
Device device_named(const std::string& name) {
#ifdef JERBOA_WEBGPU
  if (name == "gpu" || name == "persistent" || name == "unsound") {
    Target target = Target::webgpu_default();
    target.max_bindings = 16;
    target.subgroup_size = 32;
    if (name == "persistent") target.persistent_workgroups = 1;
    if (name == "unsound") target.persistent_workgroups = 64;
    return Device::webgpu({.target = target});
  }
#endif
  return Device::by_name(name);
}

class GreedyOnDevice : public testing::TestWithParam<std::tuple<const char*, std::string>> {
 protected:
  GreedyOnDevice() : session_(device_named(std::get<0>(GetParam()))) {
    const auto folder = goldens / std::get<1>(GetParam());
    const SafeTensors golden = SafeTensors::open(folder / "golden.safetensors"), weights = SafeTensors::open(folder);
    prompt_ = to_i32(golden.view("input_ids"));
    wanted_ = to_i32(golden.view("greedy"));
    wanted_.erase(wanted_.begin(), wanted_.begin() + std::ssize(prompt_));
    const models::Config config = models::Config::open(folder);
    const models::GreedyOptions options{.cache = {.capacity = 64, .chunk = 8}};
    const Graph step = models::greedy_step_graph(config, options);
    session_.add_entry("step", step);
    session_.add_entry("prompt", models::greedy_prompt_graph(config, Dim::symbol("T", 8), options));
    session_.upload_params(models::read_params(weights, step, models::family_of(config)));
  }

  // Feeds the prompt in pieces, and returns the token after it.
  std::int32_t feed(const Tokens& prompt, std::size_t piece) {
    Result result;
    for (std::size_t from = 0; from < prompt.size(); from += piece) {
      const auto count = static_cast<std::int64_t>(std::min(piece, prompt.size() - from));
      HostTensor ids(DType::i32, {1, count}), positions(DType::i32, {1, count}), lengths(DType::i32, {1});
      for (std::int64_t i = 0; i < count; ++i) {
        ids.set_number(i, prompt[from + static_cast<std::size_t>(i)]);
        positions.set_number(i, static_cast<double>(from) + static_cast<double>(i));
      }
      lengths.set_number(0, static_cast<double>(from) + static_cast<double>(count));
      result = session_.run("prompt", {{"ids", ids}, {"positions", positions}, {"lengths", lengths}});
    }
    return static_cast<std::int32_t>(result.get("token").item());
  }

  void SetUp() override {
    const bool is_one_dispatch = session_.kernel_count("step") == 1;
    EXPECT_EQ(is_one_dispatch, std::string(std::get<0>(GetParam())) == "persistent");
  }

  // All steps are submitted before the first result is read.
  Tokens steps(std::size_t count) {
    std::vector<Result> results;
    for (std::size_t i = 0; i < count; ++i) results.push_back(session_.run("step", {}));
    Tokens tokens;
    for (const Result& result : results) tokens.push_back(static_cast<std::int32_t>(result.get("token").item()));
    return tokens;
  }

  Session session_;
  Tokens prompt_, wanted_;
};

TEST_P(GreedyOnDevice, GeneratesTransformersTokens) {
  for (const std::size_t piece : {8u, 3u}) {  // the second prompt starts over
    Tokens written{feed(prompt_, piece)};
    const Tokens rest = steps(wanted_.size() - 1);
    written.insert(written.end(), rest.begin(), rest.end());
    EXPECT_EQ(written, wanted_) << "prompt in pieces of " << piece;
    EXPECT_EQ(session_.download_state(models::greedy_token).item(), wanted_.back());
    const auto length = static_cast<std::int32_t>(prompt_.size() + wanted_.size());
    EXPECT_EQ(session_.download_state(models::greedy_length).item(), length);
    EXPECT_EQ(session_.download_state(models::greedy_position).item(), length - 1);
  }
}

std::string device_and_family(const testing::TestParamInfo<GreedyOnDevice::ParamType>& info) {
  return std::get<0>(info.param) + ("_" + std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Families, GreedyOnDevice,
                         testing::Combine(testing::Values("cpu"), testing::ValuesIn(test::golden_families())),
                         device_and_family);
#ifdef JERBOA_WEBGPU
INSTANTIATE_TEST_SUITE_P(WebGpu, GreedyOnDevice,
                         testing::Combine(testing::Values("webgpu"), testing::Values("llama", "qwen3", "gemma2")),
                         device_and_family);
INSTANTIATE_TEST_SUITE_P(Persistent, GreedyOnDevice,
                         testing::Combine(testing::Values("persistent"), testing::Values("llama", "qwen3")),
                         device_and_family);
// There, workgroups do not run at the same time, which the probe detects.
INSTANTIATE_TEST_SUITE_P(Unsound, GreedyOnDevice,
                         testing::Combine(testing::Values("unsound"), testing::Values("llama")), device_and_family);
// There, recurrences compute the ops around them.
INSTANTIATE_TEST_SUITE_P(GpuKernels, GreedyOnDevice,
                         testing::Combine(testing::Values("gpu"), testing::Values("mamba2")), device_and_family);
#endif

}  // namespace
}  // namespace jerboa::greedy_test
