#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>

#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>
#include <jerboa/transform/decompose.h>
#include <jerboa/transform/optimizer.h>

#include "models/golden_families.h"

// C++ leaves the order in which the arguments of a call are evaluated to the compiler. If several of them trace nodes,
// two compilers make two different graphs, and two program files. These hashes identify a graph's sequence of nodes,
// and every compiler must compute the same ones. A change to a model, a gradient or a decomposition changes them:
// replace them with what the test prints, once g++ and clang agree.
namespace jerboa {
namespace {

std::uint64_t hash_of(const Graph& graph) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const Node& node : graph.nodes)
    for (const char c :
         fmt::format("{} {} {}\n", name(node.op), fmt::join(node.inputs, " "), attrs_to_json(node.attrs)))
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

models::Config config_of(const std::string& family) {
  return models::Config::open(std::filesystem::path(JERBOA_SOURCE_DIR "/tests/data/goldens") / family);
}

Graph training_step(const std::string& family) {
  const models::Config config = config_of(family);
  return trace([&] {
    const Tensor ids = tensor_input("ids", {2, 4}, DType::i32);
    const Tensor targets = tensor_input("targets", {2, 4}, DType::i32);
    const Tensor loss = mean(cross_entropy(models::family_of(config).logits(config, {.ids = ids}), targets));
    const AdamW optimizer{.lr = warmup_cosine(1e-3, 10, 100), .weight_decay = 0.1, .clip_norm = 1};
    append_optimizer(append_grad(loss), optimizer);
    output("loss", loss);
  });
}

Graph decode_step(const std::string& family) {
  const models::Config config = config_of(family);
  return trace([&] {
    models::TextInputs inputs{.ids = tensor_input("ids", {1, 4}, DType::i32)};
    inputs.positions = tensor_input("positions", {1, 4}, DType::i32);
    inputs.lengths = tensor_input("lengths", {1}, DType::i32);
    inputs.cache.capacity = 16;
    inputs.weights = DType::i4;
    output("logits", models::family_of(config).logits(config, inputs));
  });
}

struct Hashes {
  std::uint64_t trained, decoded;
};

const std::map<std::string, Hashes> known{
    {"gemma2", {0xc215f36d0b572b5a, 0xeb2c2ce10f08e6b6}},    {"gemma3_text", {0x72178cbe26ae8d6d, 0xbe6608437f6277f2}},
    {"gpt2", {0xb57bae3d5eb759d1, 0xa8508c4ff12b7389}},      {"llama", {0x2d1234cb252e552d, 0xbf792dac62ee4b69}},
    {"mistral", {0xd300a73a924cdd8d, 0x76b35076d85b6cef}},   {"phi3", {0x0383f0a247e4348b, 0x00113e05084280db}},
    {"qwen2", {0x6ef325c44f4abb85, 0x6e68a361cacdef2e}},     {"qwen3", {0xa43e1732a88c71f0, 0xb2057236b40929ad}},
    {"qwen3_moe", {0xd50a9b00bf4fff6a, 0x4cbba95dcb0c6123}}, {"smollm3", {0x2650011614529393, 0x8ccbe19a8b0da85d}},
};

class EvaluationOrder : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, EvaluationOrder, ::testing::ValuesIn(test::golden_families()), test::name_of);

TEST_P(EvaluationOrder, DoesNotDecideAGraph) {
  const std::uint64_t trained = hash_of(decompose(training_step(GetParam())));
  const std::uint64_t decoded = hash_of(decompose(decode_step(GetParam())));
  const std::string line = fmt::format("{{\"{}\", {{0x{:016x}, 0x{:016x}}}}},", GetParam(), trained, decoded);
  const auto found = known.find(GetParam());
  ASSERT_NE(found, known.end()) << line;
  EXPECT_EQ(found->second.trained, trained) << line;
  EXPECT_EQ(found->second.decoded, decoded) << line;
}

}  // namespace
}  // namespace jerboa
