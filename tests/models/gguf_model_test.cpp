#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/models/config.h>
#include <jerboa/models/family.h>
#include <jerboa/models/gguf_model.h>
#include <jerboa/ops/ops.h>

#include "support/expect_error.h"
#include "support/gguf_models.h"

// Golden models, written as GGUF and read back in Hugging Face's form.
namespace jerboa::models::gguf_model_test {
namespace {

using test::GgufWriter;

const std::filesystem::path goldens = JERBOA_SOURCE_DIR "/tests/data/goldens";

GgufModel parsed(const std::string& file) {
  return read_gguf_model(Gguf::from_bytes(std::as_bytes(std::span(file)), "a.gguf"));
}

class GoldenInGguf : public testing::TestWithParam<std::string> {};

TEST_P(GoldenInGguf, HasTheTensorsOfItsFolder) {
  const SafeTensors wanted = SafeTensors::open(goldens / GetParam());
  const std::string file = test::GoldenGguf(goldens / GetParam()).file();
  const GgufModel model = parsed(file);
  EXPECT_EQ(model.weights->names(), wanted.names());
  for (const std::string& name : wanted.names()) {
    const TensorEntry &entry = model.weights->entry(name), &expected = wanted.entry(name);
    ASSERT_EQ(entry.shape, expected.shape) << name;
    const bool is_norm = expected.shape.size() == 1;  // which GGUF always holds in f32
    EXPECT_EQ(entry.type, is_norm ? StoredType::F32 : expected.type) << name;
    std::vector<float> values(entry.elements());
    model.weights->read_f32(name, values);
    EXPECT_EQ(values, to_f32(wanted.view(name))) << name;
    std::vector<std::byte> bytes(entry.bytes);
    model.weights->read(name, bytes);
    EXPECT_EQ(to_f32({name, entry.type, entry.shape, bytes}), values) << name;
  }
}

TEST_P(GoldenInGguf, HasTheConfigOfItsFolder) {
  const auto wanted = nlohmann::json::parse(test::read_text(goldens / GetParam() / "config.json"));
  const std::string file = test::GoldenGguf(goldens / GetParam()).file();
  const auto config = nlohmann::json::parse(parsed(file).config);
  for (const char* key : {"model_type",
                          "architectures",
                          "hidden_size",
                          "intermediate_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "num_key_value_heads",
                          "head_dim",
                          "max_position_embeddings",
                          "rms_norm_eps",
                          "hidden_act",
                          "hidden_activation",
                          "vocab_size",
                          "tie_word_embeddings",
                          "sliding_window",
                          "query_pre_attn_scalar",
                          "attn_logit_softcapping",
                          "final_logit_softcapping",
                          "moe_intermediate_size",
                          "num_experts_per_tok",
                          "norm_topk_prob",
                          "n_embd",
                          "n_head",
                          "n_layer",
                          "n_positions",
                          "layer_norm_epsilon",
                          "activation_function",
                          "bos_token_id",
                          "eos_token_id"})
    if (wanted.contains(key) && !wanted[key].is_null()) {
      EXPECT_EQ(config.value(key, nlohmann::json()), wanted[key]) << key;
    }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenInGguf,
                         testing::Values("llama", "llama3_scaled", "qwen2", "qwen3", "qwen3_moe", "gemma2",
                                         "gemma3_text", "phi3", "gpt2"),
                         [](const auto& test) { return test.param; });

// The values of a matrix that is kept in its blocks; none if it is not.
std::optional<std::vector<float>> kept(const TensorSource& source, const std::string& name, DType dtype) {
  const std::size_t elements = source.entry(name).elements();
  std::vector<std::byte> weights(elements * static_cast<std::size_t>(bits(dtype)) / 8);
  std::vector<std::uint16_t> scales(elements / 32), mins(dtype == DType::i4 ? elements / 32 : 0);
  if (!source.read_quantised(name, dtype, weights, scales, mins)) return std::nullopt;
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    const float scale = f16_to_f32(scales[i / 32]);
    if (dtype == DType::i8) {
      values[i] = static_cast<float>(static_cast<std::int8_t>(weights[i])) * scale;
      continue;
    }
    const int byte = std::to_integer<int>(weights[i / 32 * 16 + i % 16]);  // as DType describes
    const int weight = (i % 32 < 16 ? byte & 15 : byte >> 4) - 8;
    values[i] = static_cast<float>(weight) * scale + f16_to_f32(mins[i / 32]);
  }
  return values;
}

std::vector<float> values_of(const TensorSource& source, const std::string& name) {
  std::vector<float> values(source.entry(name).elements());
  source.read_f32(name, values);
  return values;
}

// Q8_0 blocks are int8 weights with their scales, and the rows of queries and keys move as wholes.
TEST(GgufModel, KeepsBlocksThatFit) {
  const std::string file = test::GoldenGguf(goldens / "llama", true).file();
  const GgufModel model = parsed(file);
  EXPECT_EQ(model.usual_weights, DType::i8);
  for (const std::string name : {"model.layers.1.self_attn.q_proj.weight", "lm_head.weight"}) {
    EXPECT_EQ(kept(*model.weights, name, DType::i8), values_of(*model.weights, name)) << name;
    EXPECT_EQ(kept(*model.weights, name, DType::i4), std::nullopt) << name;
  }
  EXPECT_EQ(kept(*model.weights, "model.layers.0.mlp.down_proj.weight", DType::i8), std::nullopt)
      << "rows of 112 values are not in blocks of 32";
}

// Four blocks of a type with all of its integers, whose minimums, if any, are exact in f16 beside other integers too.
std::string four_blocks(GgmlType type) {
  std::string blocks;
  for (int i = 0; i < 4; ++i) {
    const float scale = 0.375F * static_cast<float>(i - 1);
    blocks += test::bytes_of(f32_to_f16(scale));
    if (type == GgmlType::Q4_1) blocks += test::bytes_of(f32_to_f16(-7.5F * scale));
    const std::size_t head = type == GgmlType::Q4_1 ? 4 : 2;
    for (std::size_t at = head; at < block_bytes(type); ++at)
      blocks.push_back(static_cast<char>(at * 29 + static_cast<std::size_t>(i) * 7 + 16));
  }
  return blocks;
}

TEST(GgufModel, KeepsEveryTypeOfBlockThatFitsBitForBit) {
  const std::string name = "model.layers.2.self_attn.v_proj.weight";
  for (const GgmlType type : {GgmlType::Q4_0, GgmlType::Q4_1, GgmlType::Q5_0, GgmlType::Q5_1, GgmlType::Q8_0}) {
    test::GoldenGguf golden(goldens / "llama");
    golden.writer().tensor("blk.2.attn_v.weight", {2, 64}, type, four_blocks(type));
    const std::string file = golden.file();
    const GgufModel model = parsed(file);
    for (const DType dtype : {DType::i8, DType::i4}) {
      const bool has_min = type == GgmlType::Q4_1 || type == GgmlType::Q5_1;
      const bool fits = dtype == DType::i8 ? !has_min : type == GgmlType::Q4_0 || type == GgmlType::Q4_1;
      const auto found = kept(*model.weights, name, dtype);
      ASSERT_EQ(found.has_value(), fits) << to_string(type) << " as " << jerboa::name(dtype);
      if (fits) {
        EXPECT_EQ(*found, values_of(*model.weights, name)) << to_string(type) << " as " << jerboa::name(dtype);
      }
    }
  }
}

// Experts are one tensor in GGUF, one tensor each in Hugging Face's files, and one again in the graph.
TEST(GgufModel, KeepsBlocksOfExperts) {
  const std::string file = test::GoldenGguf(goldens / "qwen3_moe", true).file();
  const GgufModel model = parsed(file);
  const Config config = Config::parse(model.config);
  const Family& family = family_of(config);
  const Graph graph = trace([&] {
    const Tensor ids = tensor_input("ids", {1, 1}, DType::i32);
    output("logits", family.logits(config, {.tensors = {{"ids", ids}}, .weights = DType::i8}));
  });
  const auto params = read_params(*model.weights, graph, family);
  const std::string stacked = "model.layers.1.mlp.experts.gate_up_proj";
  const HostTensor &weights = params.at(stacked + ".quantised"), &scales = params.at(stacked + ".scales");
  std::size_t at = 0;
  for (std::int64_t expert = 0; expert < weights.shape()[0]; ++expert)
    for (const char* part : {"gate_proj", "up_proj"})
      for (const float value :
           values_of(*model.weights, fmt::format("model.layers.1.mlp.experts.{}.{}.weight", expert, part))) {
        const auto i = static_cast<std::int64_t>(at++);
        ASSERT_EQ(static_cast<float>(weights.number(i)) * static_cast<float>(scales.number(i / 32)), value) << i;
      }
  EXPECT_EQ(static_cast<std::int64_t>(at), weights.size());
}

TEST(GgufModel, RefusesUnknownSettings) {
  const auto refuse = [](const std::string& file, const std::string& message) {
    test::expect_error<FileError>([&] { parsed(file); }, message);
  };
  GgufWriter other;
  other.text("general.architecture", "mamba");
  refuse(other.file(), "a.gguf: the architecture \"mamba\" is not supported in GGUF files; supported: llama, qwen2");
  refuse(GgufWriter().file(), "a.gguf: the metadata has no \"general.architecture\"");
  const auto changed = [&](const std::string& golden, auto change) {
    test::GoldenGguf file(goldens / golden);
    change(file.writer());
    return file.file();
  };
  refuse(changed("llama", [](GgufWriter& to) { to.u32("split.count", 3); }),
         "one of 3 parts of a model; join them first");
  refuse(changed("llama", [](GgufWriter& to) { to.tensor("blk.0.odd.weight", {1}, GgmlType::F32, "abcd"); }),
         "the tensor \"blk.0.odd.weight\" has no known counterpart in a Hugging Face model of type llama");
  refuse(changed("llama", [](GgufWriter& to) { to.tensor("blk.3.attn_q.weight", {3}, GgmlType::F32, "abcdefghijkl"); }),
         "tensor \"blk.3.attn_q.weight\": 3 rows are not 4 heads of an even size 16");
  refuse(changed("llama",
                 [](GgufWriter& to) { to.tensor("rope_freqs.weight", {8}, GgmlType::F32, std::string(32, 'a')); }),
         "tensor \"rope_freqs.weight\" does not follow from Llama 3's scaling of rotary positions");
  refuse(changed("phi3", [](GgufWriter& to) { to.tensor("rope_factors_long.weight", {1}, GgmlType::F32, "abcd"); }),
         "means LongRoPE, which is not supported");
}

TEST(GgufModel, RefusesImpossibleSizes) {
  const auto refuse = [](const std::string& golden, const std::string& key, std::uint32_t value,
                         const std::string& message) {
    std::string file = test::GoldenGguf(goldens / golden).file();
    file.replace(file.find(key) + key.size() + 4, 4, test::bytes_of(value));
    test::expect_error<FileError>([&] { parsed(file); }, message);
  };
  refuse("llama", "llama.attention.head_count", 0, "\"llama.attention.head_count\" is 0, which is out of range");
  refuse("llama", "llama.attention.head_count", 1u << 31, "is 2147483648, which is out of range");
  refuse("phi3", "phi3.attention.head_count", 65, "65 heads are more than \"phi3.embedding_length\"");
  test::GoldenGguf moe(goldens / "qwen3_moe");
  moe.writer().tensor("blk.2.ffn_up_exps.weight", {4096, 0, 32}, GgmlType::F32, "");
  const std::string file = moe.file();
  test::expect_error<FileError>([&] { parsed(file); }, "tensor \"blk.2.ffn_up_exps.weight\": it is not [experts");
  test::GoldenGguf other(goldens / "qwen2");
  other.writer().text("qwen2.rope.scaling.type", "longrope");
  const std::string scaled = other.file();
  test::expect_error<FileError>([&] { parsed(scaled); },
                                "\"longrope\" (\"qwen2.rope.scaling.type\") is not supported, only linear and yarn");
}

GgufWriter tokens_of(const std::string& model, const std::vector<std::string>& tokens,
                     const std::vector<std::int32_t>& kinds) {
  GgufWriter writer;
  writer.text("general.architecture", "qwen2");
  writer.u32("qwen2.context_length", 8);
  writer.u32("qwen2.embedding_length", 8);
  writer.u32("qwen2.block_count", 1);
  writer.u32("qwen2.feed_forward_length", 8);
  writer.u32("qwen2.attention.head_count", 1);
  writer.f32("qwen2.attention.layer_norm_rms_epsilon", 1e-6F);
  writer.tensor("token_embd.weight", {1, 8}, GgmlType::F32, std::string(32, '\0'));
  writer.text("tokenizer.ggml.model", model);
  writer.texts("tokenizer.ggml.tokens", tokens);
  writer.list("tokenizer.ggml.token_type", 5, kinds);
  return writer;
}

TEST(GgufTokenizer, BecomesATokenizerJson) {
  GgufWriter writer = tokens_of("gpt2", {"a", "b", "ab", "<|im_end|>", "<pad>"}, {1, 1, 1, 3, 4});
  writer.texts("tokenizer.ggml.merges", {"a b"});
  writer.text("tokenizer.ggml.pre", "qwen2");
  writer.u32("tokenizer.ggml.eos_token_id", 2);
  writer.text("tokenizer.chat_template", "{{ messages }}");
  writer.f32("general.sampling.temp", 0.7F);
  const std::string file = writer.file();
  const GgufModel model = parsed(file);
  EXPECT_EQ(model.tokenizer_name, "tokenizer.json");
  const auto made = nlohmann::json::parse(model.tokenizer);
  EXPECT_EQ(made["model"]["vocab"], (nlohmann::json{{"a", 0}, {"b", 1}, {"ab", 2}}));
  EXPECT_EQ(made["model"]["merges"], nlohmann::json::array({"a b"}));
  EXPECT_EQ(made["added_tokens"][0]["content"], "<|im_end|>");
  EXPECT_TRUE(made["added_tokens"][0]["special"]);
  EXPECT_FALSE(made["added_tokens"][1]["special"]);
  EXPECT_EQ(made["normalizer"]["type"], "NFC");
  const auto generation = nlohmann::json::parse(model.generation_config);
  EXPECT_EQ(generation["eos_token_id"], nlohmann::json::array({2, 3})) << "the end of a turn ends the text too";
  EXPECT_EQ(generation["temperature"], 0.7);
  const auto config = nlohmann::json::parse(model.tokenizer_config);
  EXPECT_EQ(config["eos_token"], "ab");
  EXPECT_EQ(config["chat_template"], "{{ messages }}");
  EXPECT_FALSE(config["add_bos_token"]);
}

TEST(GgufTokenizer, RefusesMalformedTokenizers) {
  const auto refuse = [](GgufWriter writer, const std::string& message) {
    test::expect_error<FileError>([&] { parsed(writer.file()); }, message);
  };
  refuse(tokens_of("bert", {"a"}, {1}), "a tokenizer of type \"bert\" (\"tokenizer.ggml.model\") is not supported");
  refuse(tokens_of("llama", {"a"}, {1}), "\"tokenizer.ggml.scores\" is missing");
  refuse(tokens_of("llama", {"a"}, {1, 1}), "1 tokens have 2 types and 0 scores");
  refuse(tokens_of("gpt2", {"a"}, {1}), "the metadata has no \"tokenizer.ggml.pre\"");
  const auto with = [](const std::vector<std::string>& tokens, const std::string& pre) {
    GgufWriter writer = tokens_of("gpt2", tokens, std::vector<std::int32_t>(tokens.size(), 1));
    writer.text("tokenizer.ggml.pre", pre);
    writer.texts("tokenizer.ggml.merges", {});
    return writer;
  };
  refuse(with({"a"}, "tekken"),
         "cuts texts into words as \"tekken\" does (\"tokenizer.ggml.pre\"), which is not known");
  refuse(with({"a", "a"}, "qwen2"), "the token \"a\" occurs twice");
  refuse(with({"\xff"}, "qwen2"), "a.gguf: the tokenizer: invalid UTF-8");
  GgufWriter writer = with({"a"}, "qwen2");
  writer.u32("tokenizer.ggml.eos_token_id", 1);
  refuse(writer, "\"tokenizer.ggml.eos_token_id\" is 1, but there are 1 tokens");
}

}  // namespace
}  // namespace jerboa::models::gguf_model_test
