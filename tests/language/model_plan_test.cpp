#include "steps/model_plan.h"

#include <gtest/gtest.h>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/language/model.h>

#include "language/model_folder.h"
#include "support/expect_error.h"

// Decisions about a model's steps that need no device, and the runs and inputs of a scheduler's step.
namespace jerboa::language::model_plan_test {
namespace {

using models::Config;
using test::expect_error;
using test::ModelFolder;
using test::Tokens;

// The original context is 1000 tokens.
Config long_rope_config() {
  return Config::parse(R"({"model_type": "phi3", "vocab_size": 16, "hidden_size": 8, "num_attention_heads": 2,
      "num_key_value_heads": 1, "intermediate_size": 8, "hidden_act": "silu", "num_hidden_layers": 1,
      "max_position_embeddings": 16000, "original_max_position_embeddings": 1000,
      "rope_scaling": {"type": "longrope", "short_factor": [1, 1], "long_factor": [4, 4]}})");
}

// The frequencies that steps rotate keys with, over tables of every size that there is.
std::set<std::vector<float>> frequencies_of_all_steps(const ModelPlan& plan) {
  std::set<std::vector<float>> all;
  for (const int table : plan.scheduling().block_buckets) {
    const Graph graph = step_graph(plan.graph_settings(), {.table = table});
    for (const HostTensor& constant : graph.constants) all.emplace(constant.f32().begin(), constant.f32().end());
  }
  return all;
}

TEST(ModelPlan, RotatesKeysOfOneCacheInOneWay) {
  const std::vector<float> within{1, 0.01F}, beyond{0.25F, 0.0025F};
  const auto frequencies = [](int context, int block) {
    const ModelPlan plan(long_rope_config(), {.context = context, .block = block, .is_gpu = true});
    EXPECT_GT(plan.scheduling().block_buckets.size(), 1U) << context;
    return frequencies_of_all_steps(plan);
  };
  EXPECT_EQ(frequencies(4096, 16), std::set{beyond});  // although the first table is for 512 tokens
  EXPECT_EQ(frequencies(1000, 16), std::set{within});  // although 63 blocks have room for 1008
}

TEST(ModelPlan, KnowsALimitOnlyWhereTheModelNamesOne) {
  EXPECT_EQ(context_of(Config::parse(R"({"model_type": "xlstm"})"), 0), 4096);
  EXPECT_EQ(context_of(Config::parse(R"({"model_type": "xlstm"})"), 100'000), 100'000);
  EXPECT_EQ(context_of(long_rope_config(), 0), 4096);
  EXPECT_EQ(context_of(long_rope_config(), 16'000), 16'000);
  expect_error<UsageError>([] { context_of(long_rope_config(), 16'001); },
                           "the model supports at most 16000 tokens of context, not 16001");
}

// Blocks before the window can only be released if no layer sees further.
TEST(ModelPlan, HasAWindowIfEveryLayerHas) {
  const auto window_of = [](const char* golden) {
    return ModelPlan(Config::open(test::goldens / golden / "config.json"), {}).scheduling().window;
  };
  EXPECT_EQ(window_of("mistral"), 8);
  // If some layers see everything, the others have blocks of their own.
  const ModelPlan mixed(Config::open(test::goldens / "gemma2" / "config.json"), {});
  ASSERT_EQ(mixed.cache().windowed.size(), 1u);
  EXPECT_EQ(mixed.cache().windowed[0].window, 8);
  EXPECT_EQ(mixed.caches().size(), 2u) << "keys and values of one layer";
  EXPECT_EQ(mixed.windowed_caches().at(0).size(), 2u);
  for (const char* golden : {"gemma2", "llama", "mamba2", "gpt_oss", "deepseek_v3"}) EXPECT_EQ(window_of(golden), 0);
}

// Gemma 3 with a billion parameters: 4 layers see everything, 22 the latest 512 tokens.
TEST(ModelPlan, LayersWithWindowsTakeLittleOfALongContext) {
  const char* json = R"({"model_type": "gemma3_text", "hidden_size": 1152, "num_hidden_layers": 26,
      "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 6912,
      "vocab_size": 262144, "sliding_window": 512, "sliding_window_pattern": 6, "max_position_embeddings": 32768,
      "query_pre_attn_scalar": 256, "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6})";
  constexpr std::int64_t token = 2 * 256 * 4;  // bytes in a layer
  const auto cache_of = [&](int sequences, std::int64_t blocks) {
    const ModelPlan plan(Config::parse(json), {.context = 32768, .sequences = sequences});
    EXPECT_EQ(plan.cache().blocks, 1024);
    EXPECT_EQ(plan.cache().windowed.at(0).blocks, blocks);
    EXPECT_EQ(plan.cache().bytes, token * 32 * (4 * 1024 + 22 * blocks));
    std::int64_t allocated = 0;
    for (const TensorInfo& tensor : plan.outline().tensors)
      if (tensor.storage == Storage::state && tensor.name.starts_with("cache."))
        allocated += element_count(tensor.type.shape).value() * bits(tensor.type.dtype) / 8;
    EXPECT_EQ(allocated, plan.cache().bytes);
    return plan.cache().bytes;
  };
  // The window, a chunk of 128 tokens, and blocks that are begun; or a short text of each sequence.
  EXPECT_LT(cache_of(1, 22), token * 32768 * 5);
  EXPECT_LT(cache_of(16, 128), token * 32768 * 7) << "instead of 26";
}

serving::SequenceOptions greedy(int tokens) {
  serving::SequenceOptions options{.max_tokens = tokens};
  options.sampling.temperature = 0;
  return options;
}

TEST(ModelPlan, ReadsOnlyWantedOutputs) {
  const ModelFolder folder("llama");
  const ModelPlan plan(models::Config::open(folder.path() / "config.json"), {.chunk = 8, .block = 8});
  const auto reads_of = [&](serving::SequenceOptions options) {
    serving::Scheduler scheduler(plan.scheduling());
    scheduler.add(Tokens(20, 5), std::move(options), 0);
    std::vector<std::vector<std::string>> reads;
    for (int i = 0; i < 3; ++i) {
      const serving::Step step = *scheduler.next(0);
      reads.push_back(plan.runs_of(step).back().reads);
      if (i < 2) scheduler.complete(step, {}, 0);
    }
    return reads;
  };
  using Reads = std::vector<std::vector<std::string>>;
  EXPECT_EQ(reads_of(greedy(4)), (Reads{{}, {}, {"tokens"}})) << "a chunk of a prompt gives nothing before the last";
  serving::SequenceOptions on_host = greedy(4);
  on_host.sampler = [] { return std::make_unique<Sampler>(); };
  EXPECT_EQ(reads_of(on_host), (Reads{{}, {}, {"logits"}}));
  serving::SequenceOptions with_logprobs = greedy(4);
  with_logprobs.logprobs = 0;
  EXPECT_EQ(reads_of(with_logprobs), (Reads{{}, {}, {"tokens", "logprobs"}}));
  with_logprobs.logprobs = 3;
  EXPECT_EQ(reads_of(with_logprobs), (Reads{{}, {}, {"tokens", "logprobs", "likeliest", "likeliest_logprobs"}}));
}

// A fork in the middle of a block copies it before the step that writes there.
TEST(ModelPlan, CopiesAreDispatchesToo) {
  const ModelFolder folder("llama");
  const auto model = Model::load(folder.path(), {.device = Device::cpu(2), .block = 8});
  serving::Scheduler scheduler(model->scheduling());
  const auto first = scheduler.add(Tokens(20, 5), greedy(8), 0);
  bool has_forked = false;
  int with_copies = 0;
  while (scheduler.has_work()) {
    const serving::Step step = *scheduler.next(0);
    const Model::Running running = model->run(step);
    if (step.kind == serving::StepKind::decode) {
      const std::string entry = EntryKey{.rows = step.rows, .table = step.blocks}.name();
      const int copies = step.copies.empty() ? 0 : model->session().kernel_count("copy blocks");
      EXPECT_EQ(running.dispatches(), model->session().kernel_count(entry) + copies);
      with_copies += copies > 0 ? 1 : 0;
    }
    scheduler.complete(step, running.read(step), 0);
    if (!has_forked) scheduler.fork(first, greedy(8), 0);
    has_forked = true;
  }
  EXPECT_GT(with_copies, 0);
}

}  // namespace
}  // namespace jerboa::language::model_plan_test
