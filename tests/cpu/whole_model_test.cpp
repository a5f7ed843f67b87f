#include <gtest/gtest.h>

#include <jerboa/backend/cpu.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

#include "verify/train_goldens.h"

// Training steps of whole models on the CPU engine: every dispatch writes only its results, and the resulting bits
// depend neither on prior memory contents, nor on the memory plan, nor on the number of threads.
namespace jerboa {
namespace {

const std::filesystem::path goldens = JERBOA_SOURCE_DIR "/tests/data/goldens";

struct Variant {
  bool fused = true, recompute = true, planned = true;
  int threads = 1;
  std::optional<float> sentinel = {};
  bool guard = false;
};

Device device_of(const Variant& variant) {
  CpuOptions options;
  options.threads = variant.threads;
  options.target.fuse = variant.fused;
  options.target.recompute = variant.recompute;
  options.target.plan = variant.planned;
  options.sentinel = variant.sentinel;
  options.guard = variant.guard;
  return Device(make_cpu_backend(options));
}

std::string describe(const Variant& variant) {
  return std::string(variant.fused ? "fused" : "unfused") + (variant.recompute ? "" : ", nothing computed again") +
         (variant.planned ? "" : ", a buffer a tensor") + ", " + std::to_string(variant.threads) + " threads" +
         (variant.sentinel ? ", " + std::to_string(*variant.sentinel) + " in memory" : "") +
         (variant.guard ? ", guarded" : "");
}

// Losses of two steps, with the gradients and parameters after them.
struct Training {
  std::vector<double> losses;
  TensorMap grads, params;

  bool operator==(const Training&) const = default;
};

Training train(const std::filesystem::path& folder, const Variant& variant) {
  const auto config = models::Config::open(folder);
  const models::Family& family = models::family_of(config);
  const InputSpecs specs{{"ids", {4, 16}, DType::i32}, {"targets", {4, 16}, DType::i32}};
  const auto loss = [&](const Inputs& in) {
    return mean(cross_entropy(family.logits(config, {.tensors = {{"ids", in["ids"]}}}), in["targets"]));
  };
  Module module =
      compile(training_graph(specs, loss, AdamW{.lr = 1e-3, .clip_norm = 1}), {.device = device_of(variant)});
  module.session().upload_params(models::read_params(SafeTensors::open(folder), module.ir(), family));
  Training result;
  for (int step = 0; step < 2; ++step) {
    HostTensor ids(DType::i32, {4, 16}), targets = ids;
    for (std::int64_t i = 0; i < ids.size(); ++i) {
      ids.set_number(i, static_cast<double>((i * 7 + step) % 50));
      targets.set_number(i, static_cast<double>((i * 11 + step) % 50));
    }
    result.losses.push_back(module.step({{"ids", ids}, {"targets", targets}}).loss());
  }
  result.grads = module.session().download_param_grads();
  result.params = module.session().download_params();
  return result;
}

class WholeModel : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, WholeModel, testing::Values("train_gpt2", "train_llama", "train_qwen3"));

TEST_P(WholeModel, GivesTheSameBitsHoweverItRuns) {
  for (const bool fused : {true, false})
    for (const bool recompute : {true, false}) {
      const Training wanted = train(goldens / GetParam(), {.fused = fused, .recompute = recompute});
      for (Variant variant :
           {Variant{.threads = 3}, Variant{.sentinel = 7e8f}, Variant{.sentinel = -3e-9f},
            Variant{.planned = false, .sentinel = 7e8f}, Variant{.planned = false, .threads = 3, .sentinel = -3e-9f},
            Variant{.guard = true}, Variant{.planned = false, .threads = 3, .guard = true}}) {
        variant.fused = fused;
        variant.recompute = recompute;
        EXPECT_TRUE(wanted == train(goldens / GetParam(), variant)) << describe(variant);
      }
    }
}

TEST_P(WholeModel, FollowsTheGoldensHoweverItRuns) {
  for (const bool fused : {true, false})
    for (const bool recompute : {true, false})
      for (const CaseReport& report : verify_train_goldens(
               goldens / GetParam(), device_of({.fused = fused, .recompute = recompute, .guard = true})))
        EXPECT_TRUE(report.ok) << fused << recompute << ' ' << report.name << ": " << report.message;
}

}  // namespace
}  // namespace jerboa
