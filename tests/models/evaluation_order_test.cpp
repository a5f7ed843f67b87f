#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>

#include <jerboa/models/family.h>
#include <jerboa/models/pooling.h>
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
    const Tensor loss =
        mean(cross_entropy(models::family_of(config).logits(config, {.tensors = {{"ids", ids}}}), targets));
    const AdamW optimizer{.lr = warmup_cosine(1e-3, 10, 100), .weight_decay = 0.1, .clip_norm = 1};
    append_optimizer(append_grad(loss), optimizer);
    output("loss", loss);
  });
}

Graph decode_step(const std::string& family) {
  const models::Config config = config_of(family);
  return trace([&] {
    models::GraphInputs inputs{.cache = {.capacity = 16}, .weights = DType::i4};
    inputs.tensors["ids"] = tensor_input("ids", {1, 4}, DType::i32);
    inputs.tensors["positions"] = tensor_input("positions", {1, 4}, DType::i32);
    inputs.tensors["lengths"] = tensor_input("lengths", {1}, DType::i32);
    output("logits", models::family_of(config).logits(config, inputs));
  });
}

struct Hashes {
  std::uint64_t trained, decoded;
};

const std::map<std::string, Hashes> known{
    // clang-format off
    {"apertus", {0x825530058548b47d, 0xc58ac97f1e61160b}},
    {"arcee", {0xeb3624dd593339c5, 0xa5b445919ab68b13}},
    {"bitnet", {0x04a24f57d070d597, 0x814309e9baf9ab36}},
    {"cohere", {0x3deca1be1f3b96b5, 0xcd0a7f1afefa2130}},
    {"cohere2", {0x35ab615310d3dbd4, 0x81359e53db3f3267}},
    {"deepseek_v3", {0x85d279561794035d, 0xf654d153544e48cb}},
    {"ernie4_5", {0xeb71b80d5c84a032, 0x17f7477fcc1fd4e9}},
    {"exaone4", {0xf9f6228bfd2556fd, 0x4ac1e91c6b6a5fb8}},
    {"falcon_h1", {0x7f28078d5e7977d3, 0xeae466acb47f210a}},
    {"gemma", {0xba38a5f66b2ae23b, 0x11e6cb44bdabb90f}},
    {"gemma2", {0x2482f9005201b0cb, 0x3c511d5496db0dae}},
    {"gemma3_text", {0xffc488e8cbcc09e6, 0xb26b2bb477a9a3fb}},
    {"gemma4_text", {0x6642d413f612f3ba, 0x0210cf7732963f75}},
    {"glm", {0x055f1b9b070c1542, 0xaea2759aad5ec2b8}},
    {"glm4", {0xd9263dba5b92f521, 0xd601c0c95157ed95}},
    {"glm4_moe", {0xb20908f7dfcc6bc2, 0x55183956ea796590}},
    {"gpt2", {0x0cbece5b024de90e, 0xcad8ce794d733092}},
    {"gpt_neox", {0x3863c084de3eb83b, 0x2e52d1d098acf1ed}},
    {"gpt_oss", {0x080af9da81eba805, 0xc07a0cf75cf95522}},
    {"gptj", {0x3a8915bc522ad014, 0xa9bdb2bf6a46594d}},
    {"granite", {0x3523f6bbcf2e9bff, 0x873813fa6d213f57}},
    {"granitemoehybrid", {0x7bf0e9b8a9d695fe, 0x07b8f2a157dbf46b}},
    {"hunyuan_v1_dense", {0xd71966ae767e4501, 0xe72d0c48e434e84f}},
    {"lfm2", {0x465f69fb1b23e5f2, 0x83d78740f36398ab}},
    {"lfm2_moe", {0x24d07aecc5a65cd8, 0xf749a08ad60339c6}},
    {"llama", {0xbc70378fd31dd07d, 0xf42e0a94df59aebf}},
    {"mamba2", {0x7c82789c53696d30, 0xb87febeaa81c58bf}},
    {"minimax_m2", {0xf5fc903a21f634ad, 0xf03813eef882c502}},
    {"ministral3", {0x9dcd92f2b3f7d3f3, 0x1cb8fe859ed41e65}},
    {"mistral", {0xb24b7a8e1f5f6835, 0x684cff33ea2a7a9f}},
    {"mixtral", {0x535d258eadc79e73, 0x89eeb648526eecfe}},
    {"nanochat", {0xd0f036366099d38c, 0xbdb34f6b75f358c4}},
    {"nemotron_h", {0x519bfdd7d461d47f, 0xb0632532a826dc0f}},
    {"olmo", {0x0810f7757577d74c, 0xd094baae000263a1}},
    {"olmo2", {0xc6bb016cda1d3f9e, 0xc6a4ac3bcd12334c}},
    {"olmo3", {0x9588b53d5a369ef1, 0x8140926d2aa977aa}},
    {"olmoe", {0xf8b131c36c66cf1e, 0x909db064ba5464be}},
    {"phi", {0x75f9595ba85dee8b, 0x44af5341c9bf137e}},
    {"phi3", {0xf25e8a9dbdf7b69d, 0xcf4db39f7e58bd13}},
    {"qwen2", {0x59c8d36a61a9dd7b, 0x555f83a378db739b}},
    {"qwen2_moe", {0x872573d34ec3a10d, 0xc4fd9b3639684d3b}},
    {"qwen3", {0x110ebda152fc60d6, 0xb0d073f4fdc955a3}},
    {"qwen3_5_moe_text", {0xacbb7a564862dcf5, 0x486d75d77340b26a}},
    {"qwen3_5_text", {0x7476dff20ee8e654, 0x575fbb7347229c0e}},
    {"qwen3_moe", {0x59a9608d4b94fabf, 0xa3b47c6186463529}},
    {"qwen3_next", {0xcd18925ad2f0b4da, 0x65bff7d2db5c9683}},
    {"seed_oss", {0xe1e420888e3e6cf0, 0x452caef27e83497e}},
    {"smollm3", {0xa5152e34a0c317b5, 0x575b6f18e05360a1}},
    {"stablelm", {0x8923871594205573, 0x736ddf2592c08856}},
    {"starcoder2", {0x40c46b75304231aa, 0x36dff0109340b476}},
    {"xlstm", {0x0848b47d2eed7ade, 0xa3f97c2b73781936}},
    // clang-format on
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

Graph encoder_training_step(const std::string& family) {
  const models::Config config = config_of(family);
  return trace([&] {
    models::GraphInputs inputs;
    inputs.tensors["ids"] = tensor_input("ids", {2, 4}, DType::i32);
    inputs.tensors["lengths"] = tensor_input("lengths", {2}, DType::i32);
    const Tensor hidden = models::family_of(config).encode(config, inputs).at("hidden");
    const Tensor loss = mean(models::unit_rows(models::pool(hidden, inputs.tensors["lengths"], models::Pooling::mean)));
    append_optimizer(append_grad(loss), AdamW{.lr = 1e-3});
    output("loss", loss);
  });
}

const std::map<std::string, std::uint64_t> known_encoders{
    {"bert", 0x4c15bd5ca849ba8b},        {"distilbert", 0x6149fdfc26376978}, {"modernbert", 0xbc0e3858e9606ef7},
    {"mpnet", 0xe17a93b0554dc0e9},       {"nomic_bert", 0xb70b49cea0cbb50e}, {"roberta", 0xc05b1cad5e0876f6},
    {"xlm_roberta", 0xc05b1cad5e0876f6},
};

class EncoderEvaluationOrder : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Encoders, EncoderEvaluationOrder, ::testing::ValuesIn(test::golden_encoders()), test::name_of);

TEST_P(EncoderEvaluationOrder, DoesNotDecideAGraph) {
  const std::uint64_t trained = hash_of(decompose(encoder_training_step(GetParam())));
  const std::string line = fmt::format("{{\"{}\", 0x{:016x}}},", GetParam(), trained);
  const auto found = known_encoders.find(GetParam());
  ASSERT_NE(found, known_encoders.end()) << line;
  EXPECT_EQ(found->second, trained) << line;
}

}  // namespace
}  // namespace jerboa
