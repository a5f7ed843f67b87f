#include <gtest/gtest.h>

#include <jerboa/language/runner.h>
#include <jerboa/runtime/device_kind.h>

#include "language/model_folder.h"

// The same texts on WebGPU: batches, forks, drafts, sampling and steps in flight.
namespace jerboa::language::webgpu_language_test {
namespace {

using test::greedy;
using test::ModelFolder;
using test::Tokens;

LanguageModel on_webgpu(const ModelFolder& folder, LanguageModelOptions options = {}) {
  options.device = Device::webgpu();
  return folder.open(options);
}

TEST(WebGpuLanguage, TellsAGpuFromASoftwareDriver) {
  WebGpuOptions options;
  options.target = webgpu_target(Device::webgpu().backend());
  for (const bool software : {false, true}) {
    options.target->software = software;
    EXPECT_NE(is_gpu(Device::webgpu(options)), software);
  }
  EXPECT_FALSE(is_gpu(Device::cpu(1)));
}

TEST(WebGpuLanguage, GeneratesTheSameTextsTogetherAsTheCpuAlone) {
  const ModelFolder folder("llama");
  LanguageModel model = on_webgpu(folder, {.sequences = 2, .block = 8, .device_sampling = true, .pipelined = true});
  LanguageModel alone = folder.open();
  const GenerateOptions sampled{.max_tokens = 10,
                                .sampling = SamplerOptions{.temperature = 0.8f,
                                                           .top_k = 40,
                                                           .top_p = 0.9f,
                                                           .frequency_penalty = 0.6f,
                                                           .logit_bias = {{65, 2}},
                                                           .seed = 1}};
  GenerateOptions guessing = folder.as_golden();
  guessing.drafts = 3;
  const Tokens prompt = folder.prompt();
  Stream first = model.submit(prompt, folder.as_golden()), second = model.submit(prompt, sampled);
  for (int i = 0; i < 5; ++i) first.next();
  Stream third = model.runner().fork(first, greedy(19));
  EXPECT_EQ(first.wait().tokens, folder.continuation());
  EXPECT_EQ(second.wait().tokens, alone.continue_tokens(prompt, sampled).tokens);
  EXPECT_EQ(model.continue_tokens(prompt, guessing).tokens, folder.continuation());
  EXPECT_GT(model.statistics().reused, 0);
  Tokens rest = folder.continuation();
  const Generation forked = third.wait();
  rest.erase(rest.begin(), rest.begin() + (forked.prompt_tokens - std::ssize(prompt)));
  rest.resize(std::min(rest.size(), forked.tokens.size()));
  EXPECT_EQ(forked.tokens, rest);
  EXPECT_GE(forked.tokens.size(), 10u);
}

TEST(WebGpuLanguage, KeepsOnlyVisibleBlocksOfLayersWithWindows) {
  for (const char* family : {"gemma2", "gpt_oss"}) {
    SCOPED_TRACE(family);
    const ModelFolder folder(family);
    LanguageModel model =
        on_webgpu(folder, {.context = 128, .chunk = 4, .sequences = 3, .block = 4, .pipelined = true});
    LanguageModel whole = folder.open({.context = 128, .block = 128});
    EXPECT_LT(model.model().cache().windowed.at(0).blocks, model.model().cache().blocks / 2);
    const Tokens prompt = folder.prompt();
    const int length = 100 - static_cast<int>(prompt.size());
    const Tokens wanted = whole.continue_tokens(prompt, greedy(length)).tokens;
    Stream first = model.submit(prompt, greedy(length));
    for (int i = 0; i < 7; ++i) first.next();
    Stream fork = model.runner().fork(first, greedy(20));
    EXPECT_EQ(first.wait().tokens, wanted);
    const Generation forked = fork.wait();
    const auto from = wanted.begin() + (forked.prompt_tokens - std::ssize(prompt));
    EXPECT_EQ(forked.tokens, Tokens(from, std::min(from + 20, wanted.end())));
    EXPECT_EQ(model.continue_tokens(prompt, greedy(length)).tokens, wanted);
    EXPECT_GT(model.statistics().reused, 0);
  }
}

// Texts continue with prompt lookup, and the draft model is not used again.
TEST(WebGpuLanguage, GoesOnWithoutADraftModelThatFails) {
  const ModelFolder folder("llama");
  LanguageModel model = folder.open(), plain = folder.open();
  const Device lost = Device::webgpu();
  model.draft_with(folder.path(), {.device = lost});
  GenerateOptions guessing = greedy(20);
  guessing.drafts = 4;
  EXPECT_GT(model.continue_tokens(folder.prompt(), guessing).drafted, 0);
  force_device_loss(lost.backend());
  Tokens repeated = folder.prompt();
  repeated.insert(repeated.end(), repeated.begin(), repeated.end());
  testing::internal::CaptureStderr();
  Stream first = model.submit(repeated, guessing), second = model.submit(folder.prompt(), guessing);
  EXPECT_EQ(first.wait().tokens, plain.continue_tokens(repeated, greedy(20)).tokens);
  EXPECT_EQ(second.wait().tokens, plain.continue_tokens(folder.prompt(), greedy(20)).tokens);
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string line = "jerboa: the draft model failed and is no longer used: ";
  EXPECT_EQ(said.find(line), said.rfind(line)) << said;
  EXPECT_NE(said.find(line), std::string::npos) << said;
}

TEST(WebGpuLanguage, CachesIn8BitsServeEveryText) {
  const ModelFolder folder("llama");
  const LanguageModelOptions options{.sequences = 2, .block = 8, .cache = DType::i8, .deterministic = true};
  LanguageModel model = on_webgpu(folder, options), alone = on_webgpu(folder, options);
  const Tokens prompt = folder.prompt();
  Stream first = model.submit(prompt, greedy(12)),
         second = model.submit(Tokens(prompt.begin(), prompt.begin() + 9), greedy(6));
  for (int i = 0; i < 3; ++i) first.next();
  Stream forked = model.runner().fork(first, greedy(5));
  const Tokens wanted = alone.continue_tokens(prompt, greedy(12)).tokens;
  EXPECT_EQ(first.wait().tokens, wanted);
  second.wait();
  const Generation rest = forked.wait();
  const auto from = wanted.begin() + (rest.prompt_tokens - std::ssize(prompt));
  EXPECT_EQ(rest.tokens, Tokens(from, from + std::ssize(rest.tokens)));
  EXPECT_EQ(model.continue_tokens(prompt, greedy(12)).tokens, wanted) << "from the cache";
}

// There is memory for one text at a time: the second is refused, and the first is not affected.
TEST(WebGpuLanguage, RefusesTheTextThatThereIsNoMemoryFor) {
  const ModelFolder folder("llama");
  const Device device = Device::webgpu();
  LanguageModel model = folder.open({.device = device, .sequences = 2});
  EXPECT_EQ(model.continue_tokens(folder.prompt(), folder.as_golden()).tokens, folder.continuation());
  model.runner().clear_cache();
  refuse_buffers_above(device.backend(), 4096);
  Stream first = model.submit(folder.prompt(), folder.as_golden()), second = model.submit(folder.prompt(), greedy(4));
  const Generation refused = second.wait();
  EXPECT_EQ(refused.reason, StopReason::failed);
  EXPECT_NE(refused.error.find("memory"), std::string::npos) << refused.error;
  EXPECT_EQ(first.wait().tokens, folder.continuation());
  EXPECT_EQ(model.continue_tokens(folder.prompt(), folder.as_golden()).tokens, folder.continuation());
}

}  // namespace
}  // namespace jerboa::language::webgpu_language_test
