#include "wgsl/persistent.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <set>

#include <jerboa/backend/webgpu.h>
#include <jerboa/models/family.h>
#include <jerboa/models/greedy.h>

#include "wgsl/folding.h"
#include "wgsl/phase_source.h"
#include "wgsl/shader_text.h"

// Steps of a program as phases of one dispatch: the same results as from one dispatch for each. Drivers on the CPU run
// one workgroup, and some of them two, at the same time.
namespace jerboa::test::persistent_test {
namespace {

Target phase_target(int workgroups, int subgroup_size = 0) {
  Target target = gpu_target(subgroup_size);
  target.workgroup_bytes = 32768;
  target.persistent_workgroups = workgroups;
  return target;
}

Device device_with(const Target& target) { return Device::webgpu({.target = target}); }

models::Config small_llama(int key_heads = 2) {
  const std::string heads = R"("num_attention_heads": 4, "num_key_value_heads": )" + std::to_string(key_heads);
  return models::Config::parse(R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, )" + heads +
                                   R"(, "head_dim": 16, "intermediate_size": 96, "vocab_size": 320,
      "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 4096})",
                               "config.json");
}

Tensor chain(Tensor x, int layers, std::int64_t width) {
  for (int i = 0; i < layers; ++i) x = softmax(tanh(linear("w" + std::to_string(i), x, width, DType::f32)), -1) * 64.0;
  return x;
}

Graph chain_graph(int layers, std::int64_t width) {
  return trace([&] { output("y", chain(tensor_input("x", {1, width}), layers, width)); });
}

int dispatches_on(const Device& device, const Graph& graph) {
  Session session(device);
  session.add_entry("run", graph);
  return session.kernel_count("run");
}

// Runs a graph as one dispatch, several times.
void expect_one_dispatch(const Graph& graph, const Target& target) {
  const Device device = device_with(target);
  EXPECT_EQ(dispatches_on(device, graph), 1);
  expect_reference_on(device, graph, inputs_of(graph), 3, 2e-5);
}

TEST(PersistentDispatch, EqualsTheReference) {
  for (const int workgroups : {1, 2})
    for (const int subgroup_size : {0, 32})
      expect_one_dispatch(chain_graph(6, 256), phase_target(workgroups, subgroup_size));
}

// A product reads a row in fours, and a softmax of the same phase a part of it that begins anywhere.
TEST(PersistentDispatch, StagesOperandsThatOnlyOnePartOfAPhaseReadsInFours) {
  const Graph graph = trace([] {
    const Tensor x = chain(tensor_input("x", {1, 64}), 5, 64);
    output("y", linear("v", x, 64, DType::f32));
    output("z", softmax(slice(x, 1, 1, 64), -1));
  });
  expect_one_dispatch(graph, phase_target(1));
}

struct Emitted {
  std::string refusal;
  std::shared_ptr<const PersistentDispatch> dispatch;
};

Emitted emitted(const Graph& graph, const Target& target) {
  Program program = lower(graph, target);
  emit_wgsl(program, target);
  std::string refusal = wgsl::make_persistent(program, target);
  return {std::move(refusal), program.gpu.persistent};
}

// The probe passes a word for each thread in several phases, whatever the program needs. Drivers that check indices
// would move accesses outside of the buffer.
TEST(PersistentDispatch, IsProbedWithAsManyWordsAsItNeeds) {
  const Graph graph = chain_graph(6, 32);
  const Target target = phase_target(2);
  ASSERT_LT(emitted(graph, target).dispatch->words, 8 * target.persistent_threads);
  expect_one_dispatch(graph, target);
}

TEST(PersistentDispatch, ReadsRowsWithinItsTable) {
  const auto dispatch = emitted(chain_graph(6, 32), phase_target(1)).dispatch;
  const std::string& source = dispatch->shader.source;
  std::size_t most = 0;
  while (source.find("memory_start_" + std::to_string(most) + " =") != std::string::npos) ++most;
  ASSERT_GT(most, 0U);
  EXPECT_EQ(dispatch->table.size(),
            static_cast<std::size_t>(dispatch->probe_row) * 4 + (most + wgsl::row_header + 3) / 4 * 4);
}

// The names after a keyword, up to a character that no name has.
std::set<std::string> names_after(const std::string& text, const std::string& keyword) {
  std::set<std::string> names;
  for (std::size_t at = text.find(keyword); at != std::string::npos; at = text.find(keyword, at + 1)) {
    const std::size_t begin = at + keyword.size();
    names.insert(text.substr(begin, text.find_first_of(": =<", begin) - begin));
  }
  return names;
}

// Loads are written out where they are used, so that a variable there must not have the name of what says where.
TEST(PersistentDispatch, HidesNoneOfItsNames) {
  const Graph graph = trace([] {
    const Tensor x = chain(tensor_input("x", {1, 64}), 5, 64);
    Tensor sum = x;
    for (int i = 0; i < 8; ++i) sum = sum + param_input("p" + std::to_string(i), {64});
    output("largest", max(sum, {-1}));
    output("where", argmax(sum, -1));
  });
  const std::string source = emitted(graph, phase_target(1)).dispatch->shader.source;
  std::set<std::string> shared = names_after(source, "var<private> ");
  for (const char* keyword : {"var<workgroup> ", "var<storage, read> ", "var<storage, read_write> ", "var<uniform> "})
    shared.merge(names_after(source, keyword));
  EXPECT_TRUE(shared.contains("table") && shared.contains("memory_start_14"));
  for (const char* keyword : {" let ", " var "})
    for (const std::string& name : names_after(source, keyword)) EXPECT_FALSE(shared.contains(name)) << name;
  expect_one_dispatch(graph, phase_target(1));
}

// A program whose one dispatch was changed, with parameters of its own.
class Changed {
 public:
  template <class Change>
  Changed(const Graph& graph, const Change& change, const Target& device_target = phase_target(1))
      : device_(device_with(device_target)), inputs_(inputs_of(graph)) {
    const Target& target = webgpu_target(device_.backend());
    program_ = lower(graph, target);
    emit_wgsl(program_, target);
    EXPECT_EQ(wgsl::make_persistent(program_, target), "");
    PersistentDispatch dispatch = *program_.gpu.persistent;
    change(dispatch);
    program_.gpu.persistent = std::make_shared<const PersistentDispatch>(std::move(dispatch));
    std::uint64_t seed = 1;
    for (const TensorInfo& tensor : graph.tensors) {
      if (tensor.storage != Storage::param) continue;
      const Sizes sizes = evaluate(tensor.type.shape, {});
      const auto storage = device_.backend().allocate(tensor.type.dtype, sizes, tensor.name);
      storage->upload(random_values(tensor.type.dtype, sizes, seed++));
      storage_.emplace(tensor.name, storage);
    }
    executable_ = device_.backend().load(program_, [&](const std::string& name) { return storage_.at(name); });
  }

  Executable& executable() { return *executable_; }
  std::size_t steps() const { return program_.gpu.steps.size(); }
  std::unique_ptr<RunResults> run(const std::vector<std::string>& captures = {}) {
    return executable_->run({inputs_, {}, captures});
  }

 private:
  Device device_;
  std::map<std::string, HostTensor> inputs_;
  Program program_;
  std::map<std::string, std::shared_ptr<DeviceTensor>> storage_;
  std::unique_ptr<Executable> executable_;
};

TEST(PersistentDispatch, KeepsDispatchesIfTheDriverDoesNotCompileThemAsOne) {
  const Graph graph = chain_graph(5, 64);
  Changed whole(graph, [](PersistentDispatch&) {});
  EXPECT_EQ(whole.executable().kernel_count(), 1);
  const HostTensor wanted = whole.run()->read("y");
  for (const char* wrong : {"const wrong: f32 = no_such_name;\n", "/*"}) {
    Changed changed(graph, [&](PersistentDispatch& dispatch) { dispatch.shader.source.insert(0, wrong); });
    EXPECT_EQ(changed.executable().kernel_count(), static_cast<int>(changed.steps()));
    const HostTensor computed = changed.run()->read("y");
    for (std::int64_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(computed.number(i), wanted.number(i), 1e-4);
  }
}

// Threads of a subgroup exchange values after they have waited for different words.
TEST(PersistentDispatch, IsRefusedIfThreadsOfASubgroupDoNotMeetAfterWaiting) {
  const auto steps_with = [](const std::string& met) {
    Changed changed(
        chain_graph(5, 64),
        [&](PersistentDispatch& dispatch) {
          std::string& source = dispatch.shader.source;
          const std::string all = "subgroupAdd(select(0u, 1u, is_right))";
          const std::size_t at = source.find(all);
          ASSERT_NE(at, std::string::npos);
          source.replace(at, all.size(), met);
        },
        phase_target(1, 32));
    return std::pair(changed.executable().kernel_count(), static_cast<int>(changed.steps()));
  };
  EXPECT_EQ(steps_with("subgroupAdd(select(0u, 1u, is_right))").first, 1);
  const auto [kernels, steps] = steps_with("subgroupAdd(select(0u, 1u, is_right && lane % 4u != 3u))");
  EXPECT_EQ(kernels, steps);
}

// As if workgroups had timed out.
void fail_in_first_phase(PersistentDispatch& dispatch) {
  std::string& source = dispatch.shader.source;
  source.insert(source.find("case 0u: {") + 10, " atomicStore(&control[1], 1u);");
}

TEST(PersistentDispatch, ThatFailedGivesNoResultsHoweverOftenTheyAreRead) {
  Changed changed(chain_graph(5, 64), fail_in_first_phase);
  EXPECT_EQ(changed.executable().kernel_count(), 1);
  const auto first = changed.run(), second = changed.run();
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(first->read("y"), DeviceError);
    EXPECT_THROW(second->read("y"), DeviceError);
    EXPECT_THROW(second->wait(), DeviceError);
  }
  EXPECT_NO_THROW(changed.run()->read("y"));
  EXPECT_EQ(changed.executable().kernel_count(), static_cast<int>(changed.steps()));
}

// As if the store of a word never arrived, except in the probe. `before` runs first.
void pass_nothing_at(PersistentDispatch& dispatch, std::int64_t place, const std::string& before = "") {
  const std::string start = "fn pass_word(place: u32, word: u32) {";
  dispatch.shader.source.insert(dispatch.shader.source.find(start) + start.size(),
                                " if (place == " + std::to_string(place) + "u && table[0].y == " +
                                    std::to_string(dispatch.phases) + "u) { " + before + "return; }");
}

TEST(PersistentDispatch, ThatFindsAWordUnwrittenFails) {
  Changed changed(chain_graph(5, 64), [](PersistentDispatch& dispatch) {
    pass_nothing_at(dispatch, PersistentDispatch::counter_words + 5);
  });
  EXPECT_EQ(changed.executable().kernel_count(), 1) << "the probe passes all of its words";
  const auto run = changed.run();
  EXPECT_THROW(run->read("y"), DeviceError);
  EXPECT_NO_THROW(changed.run()->read("y"));
  EXPECT_EQ(changed.executable().kernel_count(), static_cast<int>(changed.steps()));
}

TEST(PersistentDispatch, ThatFindsAnIntegerUnwrittenFails) {
  const Graph graph = trace([] {
    const Tensor largest = argmax(chain(tensor_input("x", {1, 64}), 4, 64), -1);
    // Two rows, so that another kernel reads it.
    const Tensor rows = embedding(param_input("table", {72, 64}), arange(2) + largest);
    output("y", linear("last", softmax(rows, -1), 64, DType::f32));
    output("largest", largest);
  });
  Changed changed(graph, [](PersistentDispatch& dispatch) {
    for (const auto& [buffer, first] : dispatch.words_of) pass_nothing_at(dispatch, first);
  });
  EXPECT_EQ(changed.executable().kernel_count(), 1);
  const auto run = changed.run();
  EXPECT_THROW(run->read("y"), DeviceError);
  EXPECT_NO_THROW(changed.run()->read("y"));
}

// A word that only the first run writes must not be found by the second one.
TEST(PersistentDispatch, FindsNoWordsOfTheRunBefore) {
  Changed changed(chain_graph(5, 64), [](PersistentDispatch& dispatch) {
    pass_nothing_at(dispatch, PersistentDispatch::counter_words + 5,
                    "if (atomicExchange(&control[2], 1u) == 0u) { atomicStore(&words[place], word); } ");
  });
  EXPECT_NO_THROW(changed.run()->read("y"));
  const auto second = changed.run();
  EXPECT_THROW(second->read("y"), DeviceError);
}

// Such runs are dispatches, over states that a failed run may have left half updated.
TEST(PersistentDispatch, ThatFailedFailsRunsWithCapturesToo) {
  const Graph graph = trace([] {
    const Tensor x = capture(chain(tensor_input("x", {1, 64}), 4, 64), "inside");
    output("y", softmax(linear("last", x, 64, DType::f32), -1));
  });
  Changed changed(graph, fail_in_first_phase);
  const auto captured_before = changed.run({"inside"});
  EXPECT_NO_THROW(captured_before->read("inside"));
  const auto failed = changed.run();
  const auto captured = changed.run({"inside"});
  EXPECT_THROW(captured->read("inside"), DeviceError);
  EXPECT_THROW(captured->read("y"), DeviceError);
  EXPECT_THROW(failed->read("y"), DeviceError);
  EXPECT_NO_THROW(changed.run({"inside"})->read("inside"));
}

// Each would move the parameters of the other.
TEST(PersistentDispatch, IsRefusedIfAnotherEntryHasItsParametersInOtherPools) {
  Session session(device_with(phase_target(1)));
  const auto graph = [](int layers) { return chain_graph(layers, 128); };
  session.add_entry("six", graph(6));
  session.add_entry("six as well", graph(6));
  session.add_entry("five", graph(5));
  EXPECT_EQ(session.kernel_count("six"), 1);
  EXPECT_EQ(session.kernel_count("six as well"), 1);
  EXPECT_GT(session.kernel_count("five"), 1);
  const TensorMap inputs = inputs_of(graph(6));
  const auto place = [&](const char* entry) {
    session.run(entry, inputs).get("y");
    const WebGpuBuffer weights = webgpu_buffer(*session.storage("w1"));
    return std::pair(weights.buffer, weights.offset);
  };
  const auto first = place("six");
  for (const char* entry : {"five", "six as well", "six", "five"}) EXPECT_EQ(place(entry), first) << entry;
}

TEST(PersistentDispatch, MayPoolParametersAnewOnceNoOtherEntryIsLeft) {
  const Graph six = chain_graph(6, 128), five = chain_graph(5, 128);
  const Device device = device_with(phase_target(1));
  std::map<std::string, std::shared_ptr<DeviceTensor>> storage;
  const auto find = [&](const std::string& name) {
    auto& tensor = storage[name];
    if (tensor == nullptr) tensor = device.backend().allocate(DType::f32, {128, 128}, name);
    return tensor;
  };
  auto executable = device.backend().compile(six, find);
  EXPECT_EQ(executable->kernel_count(), 1);
  EXPECT_GT(device.backend().compile(five, find)->kernel_count(), 1);
  executable.reset();
  EXPECT_EQ(device.backend().compile(five, find)->kernel_count(), 1);
}

// Data says how many keys there are, in words of which a compiler cannot know that all threads read the same.
TEST(PersistentDispatch, IsRefusedIfThreadsWaitInLoopsOverData) {
  const Graph graph = trace([] {
    const Tensor q = reshape(chain(tensor_input("x", {1, 64}), 5, 64), {1, 1, 1, 64});
    AttentionOptions options{.causal = true};
    options.lengths = tensor_input("lengths", {1}, DType::i32);
    options.positions = tensor_input("positions", {1, 1}, DType::i32);
    output("y", attention(q, param_input("k", {1, 1, 64, 64}), param_input("v", {1, 1, 64, 64}), options));
  });
  EXPECT_EQ(emitted(graph, phase_target(1)).refusal, "threads of attention_stream wait in loops over data");
  EXPECT_EQ(emitted(graph, phase_target(1, 32)).refusal, "") << "they need not wait with subgroups";
}

// Words are not shared by tensors that live one after another.
TEST(PersistentDispatch, IsRefusedIfItsWordsDoNotFitABinding) {
  const Graph graph = trace([] {
    Tensor x = tensor_input("x", {512, 256});
    for (int i = 0; i < 10; ++i) x = swap_axes(softmax(x, -1), 0, 1) * 300.0;
    output("y", linear("w", slice(x, 0, 0, 1), 64, DType::f32));
  });
  Target target = phase_target(1);
  EXPECT_EQ(emitted(graph, target).refusal, "");
  target.max_binding_bytes = 1 << 20;
  EXPECT_NE(emitted(graph, target).refusal.find("as words"), std::string::npos);
}

// A pool is bound for writing if anything in it is written, so that it must not be bound as another type as well.
TEST(PersistentDispatch, IsRefusedIfAPoolIsReadAndWrittenAsDifferentTypes) {
  const Graph graph = trace([] {
    // Weights in sixteens and a row in single elements, before the same text reads a row of what is written in the end.
    const Tensor first = param_input("first", {64, 64}), second = param_input("second", {2, 64});
    const auto add_row = [](const Tensor& x, const Tensor& rows) {
      return softmax(softmax(x, -1) + slice(rows, 0, 1, 2), -1);
    };
    const Tensor x = add_row(matmul(tensor_input("x", {1, 64}), first, {.transpose_b = true}), first);
    output("y", add_row(linear("w", x, 64, DType::f32), second));
    update(second, linear("new", tensor_input("z", {2, 64}), 64, DType::f32));
  });
  EXPECT_EQ(emitted(graph, phase_target(1)).refusal, "storage is written as a different type");
}

// Arrays that phases use one after another share the memory of the largest; the runner has a word of its own.
TEST(PersistentDispatch, CountsSharedWorkgroupMemoryOnce) {
  const auto dispatch =
      emitted(models::greedy_step_graph(small_llama(), {.cache = {.capacity = 32, .chunk = 8}}), phase_target(2, 32))
          .dispatch;
  ASSERT_NE(dispatch, nullptr);
  const std::string& source = dispatch->shader.source;
  std::int64_t bytes = 16;
  for (std::size_t at = source.find("var<workgroup> memory_"); at != std::string::npos;
       at = source.find("var<workgroup> memory_", at + 1)) {
    const std::size_t type = source.find("array<", at) + 6, count = source.find(", ", type) + 2;
    bytes += wgsl::workgroup_array_bytes(source.substr(type, count - 2 - type), std::stoll(source.substr(count)));
  }
  EXPECT_EQ(dispatch->shader.workgroup_bytes, bytes);
}

// As large as an H200, for steps that are only emitted.
Target large_gpu() {
  Target target = phase_target(132, 32);
  target.persistent_threads = 512;
  target.resident_workgroups = 264;
  target.f16 = true;
  target.workgroup_bytes = 48 << 10;
  target.max_buffer_bytes = target.max_binding_bytes = (std::int64_t{2} << 30) - 256;
  return target;
}

// Products of 8,192 inner elements, in the workgroup memory of a GPU that would run it. Nothing is run here.
TEST(PersistentDispatch, HoldsTheStepOfLlama1b) {
  const models::Config config = models::Config::parse(R"({"model_type": "llama", "hidden_size": 2048,
      "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
      "intermediate_size": 8192, "vocab_size": 128256, "hidden_act": "silu", "rms_norm_eps": 1e-5,
      "rope_theta": 500000, "max_position_embeddings": 131072, "tie_word_embeddings": true})",
                                                      "config.json");
  const models::GreedyOptions options{.cache = {.capacity = 800, .chunk = 512, .dtype = DType::f16},
                                      .weights = DType::f16};
  const Emitted step = emitted(models::greedy_step_graph(config, options), large_gpu());
  EXPECT_EQ(step.refusal, "");
  ASSERT_NE(step.dispatch, nullptr);
  EXPECT_LT(step.dispatch->phases, 7 * 16);
}

struct Widths {
  const char* name;
  int width, heads, key_heads, size, inner, layers;
};

std::ostream& operator<<(std::ostream& stream, const Widths& widths) { return stream << widths.name; }

models::Config config_of(const Widths& w, int vocabulary) {
  return models::Config::parse(
      fmt::format(R"({{"model_type": "llama", "hidden_size": {}, "num_hidden_layers": {}, "num_attention_heads": {},
      "num_key_value_heads": {}, "head_dim": {}, "intermediate_size": {}, "vocab_size": {}, "hidden_act": "silu",
      "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "tie_word_embeddings": true}})",
                  w.width, w.layers, w.heads, w.key_heads, w.size, w.inner, vocabulary),
      "config.json");
}

class PersistentWidths : public ::testing::TestWithParam<Widths> {};
INSTANTIATE_TEST_SUITE_P(Models, PersistentWidths,
                         ::testing::Values(Widths{"Qwen05b", 896, 14, 2, 64, 4864, 24},
                                           Widths{"Qwen15b", 1536, 12, 2, 128, 8960, 28},
                                           Widths{"SmolLm135m", 576, 9, 3, 64, 1536, 30},
                                           Widths{"SmolLm360m", 960, 15, 5, 64, 2560, 32},
                                           Widths{"TinyLlama", 2048, 32, 4, 64, 5632, 22}),
                         [](const auto& param) { return std::string(param.param.name); });

// Rows of weights that no team of threads shares evenly. Nothing is run here.
TEST_P(PersistentWidths, AreOneDispatch) {
  const models::GreedyOptions options{.cache = {.capacity = 256, .chunk = 128, .dtype = DType::f16},
                                      .weights = DType::f16};
  const Emitted step = emitted(models::greedy_step_graph(config_of(GetParam(), 4096), options), large_gpu());
  EXPECT_EQ(step.refusal, "");
  ASSERT_NE(step.dispatch, nullptr);
  EXPECT_EQ(step.dispatch->shader.threads, 512);
}

// A decoder's attention over a cache with this many positions, in parts if there are many.
Tensor attend(const Tensor& x, int places) {
  const Tensor position = state_input("position", {1, 1}, DType::i32, Init::constant(places - 20));
  const Tensor length = state_input("length", {1}, DType::i32, Init::constant(places - 19));
  const auto cached = [&](const std::string& name) {
    const Tensor cache = state_input("cache." + name, {1, 1, places, 16});
    const Tensor next = cache_append(cache, split_heads(linear(name, x, 16, DType::f32), 1), position);
    update(cache, next);
    return next;
  };
  const Tensor k = cached("k"), v = cached("v"), q = split_heads(linear("q", x, 64, DType::f32), 4);
  const Tensor seen = attention(q, k, v, {.causal = true, .lengths = length, .positions = position});
  update(position, position + 1);
  update(length, length + 1);
  return merge_heads(seen);
}

// The softmax that shares a phase with the product reads elements of attention's results, not what the product copies.
TEST(PersistentDispatch, CombinesNoPartsThatAnotherPartOfTheReaderReads) {
  const Graph graph = trace([] {
    const Tensor seen = attend(chain(tensor_input("x", {1, 1, 64}), 3, 64), 1024);
    output("o", linear("o", seen, 64, DType::f32));
    output("z", softmax(slice(seen, 2, 1, 64) * 10.0, -1));
  });
  EXPECT_EQ(emitted(graph, phase_target(2, 32)).dispatch->shader.source.find("all_top_"), std::string::npos);
  expect_one_dispatch(graph, phase_target(2, 32));
}

// The same text reads a row of two, and a whole tensor of one row.
TEST(PersistentDispatch, StagesNoMoreThanATensorHas) {
  const Graph graph = trace([] {
    const Tensor rows = softmax(tanh(linear("rows", tensor_input("x", {2, 64}), 64, DType::f32)), -1) * 64.0;
    const Tensor first = softmax(linear("a", slice(rows, 0, 0, 1), 64, DType::f32), -1) * 64.0;
    const Tensor second = softmax(linear("b", first, 64, DType::f32), -1) * 64.0;
    output("y", softmax(linear("c", second, 64, DType::f32), -1));
  });
  expect_one_dispatch(graph, phase_target(1, 32));
}

// The whole cache is copied before a row is stored in it, so words would be written twice.
TEST(PersistentDispatch, IsRefusedIfACacheIsAnActivation) {
  const Graph graph = trace([] {
    const Tensor x = chain(tensor_input("x", {1, 64}), 4, 64);
    const Tensor next = cache_append(state_input("cache", {1, 1, 32, 64}), reshape(x, {1, 1, 1, 64}),
                                     tensor_input("position", {1, 1}, DType::i32));
    output("y", linear("last", reshape(next, {1, 2048}), 64, DType::f32));
  });
  EXPECT_EQ(emitted(graph, phase_target(1)).refusal, "an op cannot run as a phase");
}

// The product that reads the parts of attention combines them.
TEST(PersistentDispatch, CombinesPartsOfAttentionWhereTheyAreRead) {
  const auto phases = [](int capacity) {
    return emitted(models::greedy_step_graph(small_llama(1), {.cache = {.capacity = capacity, .chunk = 8}}),
                   phase_target(2, 32))
        .dispatch;
  };
  const auto one_part = phases(32), parts = phases(1024);
  ASSERT_TRUE(one_part != nullptr && parts != nullptr);
  EXPECT_EQ(one_part->phases, parts->phases);
  EXPECT_EQ(one_part->shader.source.find("all_top_"), std::string::npos);
  EXPECT_NE(parts->shader.source.find("all_top_"), std::string::npos);
}

struct Weights {
  DType weights, cache;
  bool f16;
  int capacity = 32, key_heads = 2, width = 64, inner = 96;
};

class PersistentDecoder : public ::testing::TestWithParam<Weights> {};
INSTANTIATE_TEST_SUITE_P(
    Weights, PersistentDecoder,
    ::testing::Values(Weights{DType::f32, DType::f32, false}, Weights{DType::f16, DType::f16, true},
                      Weights{DType::bf16, DType::f32, true}, Weights{DType::f16, DType::f16, true, 1024, 1},
                      Weights{DType::f16, DType::f16, true, 32, 2, 144, 304}),
    [](const auto& param) {
      return fmt::format("{}_of_{}_and_{}", name(param.param.weights), param.param.capacity, param.param.width);
    });

// A decoder's step, which updates its caches and counters in place.
TEST_P(PersistentDecoder, WritesTheTokensOfSeparateDispatches) {
  const models::GreedyOptions options{.cache = {.capacity = GetParam().capacity, .chunk = 8, .dtype = GetParam().cache},
                                      .weights = GetParam().weights};
  const Graph graph = models::greedy_step_graph(
      config_of({"", GetParam().width, 4, GetParam().key_heads, 16, GetParam().inner, 3}, 320), options);
  const auto write = [&](int workgroups) {
    Target target = phase_target(workgroups, 32);
    target.f16 = GetParam().f16;
    if (GetParam().width % 64 != 0) target.persistent_threads = 512;
    Session session(device_with(target));
    session.add_entry("step", graph);
    EXPECT_EQ(session.kernel_count("step") == 1, workgroups > 0);
    std::uint64_t seed = 1;
    for (const TensorInfo& tensor : graph.tensors)
      if (tensor.storage == Storage::param && tensor.tied_to.empty())
        session.upload_param(tensor.name,
                             random_values(tensor.type.dtype, evaluate(tensor.type.shape, {}), seed++).bytes());
    std::vector<double> tokens;
    for (int i = 0; i < 12; ++i) tokens.push_back(session.run("step", {}).get("token").item());
    return tokens;
  };
  EXPECT_EQ(write(2), write(0));
}

}  // namespace
}  // namespace jerboa::test::persistent_test
