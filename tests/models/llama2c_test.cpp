#include <fstream>
#include <gtest/gtest.h>
#include <limits>
#include <span>

#include <jerboa/base/error.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/models/config.h>
#include <jerboa/models/llama2c.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"

// A golden Llama, written in llama2.c's format and read back.
namespace jerboa::models {
namespace {

const std::filesystem::path golden = JERBOA_SOURCE_DIR "/tests/data/goldens/llama";

void append(std::string& file, const void* data, std::size_t bytes) {
  file.append(static_cast<const char*>(data), bytes);
}

// The same weights in llama2.c's order, rows of queries and keys in pairs.
std::string written(const SafeTensors& weights) {
  constexpr std::int32_t width = 64, inner = 112, layers = 2, heads = 4, kv_heads = 2, words = 256, context = 128;
  std::string file;
  for (const std::int32_t size : {width, inner, layers, heads, kv_heads, -words, context})
    append(file, &size, sizeof(size));
  const auto put = [&](const std::string& name, int turned = 0) {
    const std::vector<float> values = to_f32(weights.view(name + ".weight"));
    constexpr int size = width / heads;
    if (turned == 0) return append(file, values.data(), values.size() * sizeof(float));
    for (int head = 0; head < turned; ++head)
      for (int i = 0; i < size; ++i) {
        const int from = head * size + (i % 2 == 0 ? i / 2 : size / 2 + i / 2);
        append(file, values.data() + std::ptrdiff_t{from} * width, width * sizeof(float));
      }
  };
  const auto put_layers = [&](const std::string& name, int turned = 0) {
    for (int layer = 0; layer < layers; ++layer) put("model.layers." + std::to_string(layer) + "." + name, turned);
  };
  put("model.embed_tokens");
  put_layers("input_layernorm");
  put_layers("self_attn.q_proj", heads);
  put_layers("self_attn.k_proj", kv_heads);
  put_layers("self_attn.v_proj");
  put_layers("self_attn.o_proj");
  put_layers("post_attention_layernorm");
  put_layers("mlp.gate_proj");
  put_layers("mlp.down_proj");
  put_layers("mlp.up_proj");
  put("model.norm");
  file.append(static_cast<std::size_t>(context * (width / heads)) * sizeof(float), '\0');
  put("lm_head");
  return file;
}

TEST(Llama2c, BecomesTheFolderThatItCameFrom) {
  const test::TempFolder folder;
  const SafeTensors wanted = SafeTensors::open(golden);
  test::write_text(folder / "model.bin", written(wanted));
  import_llama2c(folder / "model.bin", folder / "model");
  const SafeTensors made = SafeTensors::open(folder / "model");
  ASSERT_EQ(made.names().size(), wanted.names().size());
  for (const std::string& name : wanted.names()) EXPECT_EQ(to_f32(made.view(name)), to_f32(wanted.view(name))) << name;
  const Config config = Config::open(folder / "model"), before = Config::open(golden);
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                          "num_key_value_heads", "vocab_size", "max_position_embeddings"})
    EXPECT_EQ(config.integer(key), before.integer(key)) << key;
  EXPECT_FALSE(config.flag("tie_word_embeddings"));
}

TEST(Llama2c, NeverReplacesAFolder) {
  const test::TempFolder folder;
  test::write_text(folder / "model.bin", written(SafeTensors::open(golden)));
  test::write_text(folder / "tokenizer.bin", "tokens");
  import_llama2c(folder / "model.bin", folder / "model", folder / "tokenizer.bin");
  EXPECT_EQ(test::read_text(folder / "model" / "tokenizer.bin"), "tokens");
  test::write_text(folder / "model" / "model.safetensors", "precious");
  test::expect_error<UsageError>([&] { import_llama2c(folder / "model.bin", folder / "model"); }, "already exists");
  EXPECT_EQ(test::read_text(folder / "model" / "model.safetensors"), "precious");
  // If the tokenizer is missing, no folder is created.
  test::expect_error<FileError>([&] { import_llama2c(folder / "model.bin", folder / "new", folder / "none"); }, "none");
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
}

std::string header(std::initializer_list<std::int32_t> sizes) {
  std::string file;
  for (const std::int32_t size : sizes) append(file, &size, sizeof(size));
  return file;
}

// None of these may take the memory or time that their headers ask for.
TEST(Llama2c, ChecksSizesBeforeItTakesMemory) {
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max(), least = -most - 1;
  const auto refuse = [](const std::string& file, const std::string& message) {
    test::expect_error<FileError>([&] { parse_llama2c(std::as_bytes(std::span(file)), "a.bin"); }, "a.bin: " + message);
  };
  refuse(header({most - 1, most, most, 1, 1, most, most}), "not a model of llama2.c's first version");
  refuse(header({1 << 20, 1 << 20, 1 << 20, 1, 1, -(1 << 20), 1 << 20}), "not a model of llama2.c's first version");
  refuse(header({2, 1, most, 1, 1, 1, 1}), "not a model of llama2.c's first version: its header (dim 2, hidden_dim 1");
  refuse(header({2, 1, 1, 1, 1, least, 1}), "not a model of llama2.c's first version");
  refuse(header({2, 1, 1, 1, -1, 1, 1}), "not a llama2.c model: its header says that n_kv_heads is -1");
  refuse(header({2, 1, 1, 1, 1, 0, 1}), "not a llama2.c model: its header says that vocab_size is 0");
  refuse(header({2, 1, 1, 2, 2, 1, 1}), "not a llama2.c model: 2 features cannot be split into 2");
  refuse(header({12, 1, 1, 3, 2, 1, 1}), "not a llama2.c model: 3 query heads cannot share 2");
}

TEST(Llama2c, RefusesOtherFiles) {
  const test::TempFolder folder;
  const std::string whole = written(SafeTensors::open(golden));
  const auto expect_refusal = [&](const std::string& content, const std::string& message) {
    test::write_text(folder / "model.bin", content);
    test::expect_error<FileError>([&] { import_llama2c(folder / "model.bin", folder / "model"); }, message);
    EXPECT_FALSE(std::filesystem::exists(folder / "model"));
  };
  expect_refusal("short", "model.bin: 5 bytes are too few for a llama2.c model");
  expect_refusal(std::string(64, '\0'), "not a llama2.c model: its header says that dim is 0");
  for (const std::size_t cut : {std::size_t{4}, std::size_t{1}, whole.size() - 28})
    expect_refusal(whole.substr(0, whole.size() - cut), "asks for");
  expect_refusal(whole + "more", "asks for");
}

}  // namespace
}  // namespace jerboa::models
