#include "tests/web/cases.h"

namespace jerboa::test {
namespace {

HostTensor random_numbers(const Sizes& sizes, std::uint64_t seed) {
  HostTensor values(DType::f32, sizes);
  SplitMix random(seed);
  for (float& value : values.f32()) value = static_cast<float>(2 * random.uniform() - 1);
  return values;
}

HostTensor random_ids(const Sizes& sizes, std::uint64_t seed) {
  HostTensor values(DType::i32, sizes);
  SplitMix random(seed);
  for (auto& value : values.as<std::int32_t>()) value = static_cast<std::int32_t>(random.below(256));
  return values;
}

// Training, and one forward pass for batches of several sizes; dropout, so the random state must agree too.
WebCase regression() {
  const auto predict = [](const Inputs& in) {
    const Tensor up = param_input("up", {24, 6}, {.init = Init::normal(0.4)});
    const Tensor down = param_input("down", {3, 24}, {.init = Init::uniform(0.3)});
    const Tensor hidden = nn::Dropout{0.25}(tanh(matmul(in["x"], up, {.transpose_b = true})));
    return matmul(hidden, down, {.transpose_b = true});
  };
  const auto loss = [&](const Inputs& in) { return mean(square(predict(in) - in["y"])); };
  WebCase web_case{"regression",
                   {{"step", training_graph({{"x", {10, 6}}, {"y", {10, 3}}}, loss, Adam{.lr = 1e-2, .clip_norm = 1})},
                    {"forward", forward_graph({{"x", {Dim::symbol("N", 300), 6}}}, predict)}},
                   {}};
  for (std::uint64_t i = 0; i < 5; ++i)
    web_case.runs.push_back({"step", {{"x", random_numbers({10, 6}, i)}, {"y", random_numbers({10, 3}, 100 + i)}}});
  for (const std::int64_t rows : {1, 7, 300, 2})
    web_case.runs.push_back({"forward", {{"x", random_numbers({rows, 6}, 200 + static_cast<std::uint64_t>(rows))}}});
  return web_case;
}

// Software drivers take minutes to compile the kernels meant for GPUs, some of which the regression covers.
Target software() {
  Target target = Target::webgpu_default();
  target.software = true;
  return target;
}

// The example with tiny sizes: a forward pass, 20 steps, decoding.
Gpt tiny_gpt() { return {.width = 32, .layers = 2, .heads = 4, .context = 16}; }

WebCase gpt() {
  const TextData text(JERBOA_SOURCE_DIR "/README.md", {.batch = 4, .length = 16});
  WebCase web_case{"gpt", gpt_graphs(tiny_gpt(), 4, 20), {}};
  web_case.target = software();
  const HostTensor context = random_ids({1, 16}, 3);
  web_case.runs.push_back({"forward", {{"ids", context}}});
  for (int i = 0; i < 20; ++i) web_case.runs.push_back({"step", text.batch(i)});
  web_case.runs.push_back({"forward", {{"ids", context}}});
  for (const std::int64_t length : {1, 5, 16, 9})
    web_case.runs.push_back({"decode", {{"ids", random_ids({1, length}, static_cast<std::uint64_t>(length))}}});
  return web_case;
}

// Llama with key/value caches: a prompt in one run, then one token per run.
WebCase llama_decode() {
  const std::filesystem::path folder = JERBOA_SOURCE_DIR "/tests/data/goldens/train_llama";
  const auto config = models::Config::parse(FileContent(folder / "config.json").text());
  const models::Family& family = models::family_of(config);
  const Dim time = Dim::symbol("T", 32);
  const InputSpecs specs{
      {"ids", {1, time}, DType::i32}, {"positions", {1, time}, DType::i32}, {"lengths", {1}, DType::i32}};
  WebCase web_case{"llama_decode",
                   {{"decode", forward_graph(specs,
                                             [&](const Inputs& in) {
                                               return family.logits(config,
                                                                    {.tensors = in.all(), .cache = {.capacity = 24}});
                                             })}},
                   {}};
  web_case.target = software();
  web_case.params = models::read_params(SafeTensors::open(folder), web_case.graphs[0].second, family);
  std::int32_t done = 0;
  for (const std::int32_t length : {7, 1, 1, 3, 1}) {
    HostTensor positions(DType::i32, {1, length});
    for (std::int32_t& position : positions.as<std::int32_t>()) position = done++;
    web_case.runs.push_back({"decode",
                             {{"ids", random_ids({1, length}, static_cast<std::uint64_t>(done))},
                              {"positions", positions},
                              {"lengths", HostTensor({1}, std::span<const std::int32_t>(&done, 1))}}});
  }
  return web_case;
}

}  // namespace

std::vector<WebCase> web_cases() { return {regression(), gpt(), llama_decode()}; }

Trainer<Gpt> web_trainer() {
  return {tiny_gpt(), next_token_loss, {.optimizer = gpt_optimizer(20, 2e-4), .device = Device::cpu()}};
}

void export_page_program(const std::filesystem::path& folder) {
  export_gpt(folder, tiny_gpt(), FileContent(JERBOA_SOURCE_DIR "/README.md").text(), 4, 60, software());
}

}  // namespace jerboa::test
