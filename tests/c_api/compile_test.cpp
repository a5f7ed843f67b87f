#include <gtest/gtest.h>
#include <string>
#include <tuple>

#include <jerboa/c_api/jerboa_c.h>

// Through the shared library, which exports only the C functions.
namespace jerboa::c_api_test::compile_test {
namespace {

constexpr const char* config_text = R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 64,
    "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 128})";

struct Answer {
  jerboa_status status = JERBOA_OK;
  std::string bytes, error;
};

template <class Function, class... Texts>
Answer call(Function function, const Texts&... texts) {
  jerboa_buffer* buffer = nullptr;
  Answer answer;
  answer.status = std::apply([&](auto... values) { return function(values..., &buffer); },
                             std::tuple_cat(std::tuple(texts.data(), texts.size())...));
  if (answer.status != JERBOA_OK) answer.error = jerboa_last_error();
  answer.bytes.assign(reinterpret_cast<const char*>(jerboa_buffer_data(buffer)), jerboa_buffer_size(buffer));
  jerboa_buffer_free(buffer);
  return answer;
}

Answer compile(const std::string& options, const std::string& config = config_text) {
  return call(jerboa_compile_model, config, options);
}

TEST(CApi, ReportsItsVersion) {
  EXPECT_EQ(jerboa_abi_version(), static_cast<unsigned>(JERBOA_ABI_VERSION));
  EXPECT_STREQ(jerboa_version(), JERBOA_VERSION);
}

TEST(CApi, CompilesAModelWithTheEntriesAskedFor) {
  const Answer answer = compile(R"({"weights": "int8", "blocks": 8, "entries": [
      {"table": 4}, {"time": 16, "table": 4, "is_prompt": true, "drawing": "greedy"}]})");
  ASSERT_EQ(answer.status, JERBOA_OK) << answer.error;
  for (const char* text :
       {"decode table=4 logits", "prompt table=4", "model.layers.1.self_attn.q_proj.weight.quantised"})
    EXPECT_NE(answer.bytes.find(text), std::string::npos) << text;
  EXPECT_EQ(answer.bytes, compile(R"({"weights": "int8", "blocks": 8, "device": {}, "entries": [
      {"table": 4}, {"time": 16, "table": 4, "is_prompt": true, "drawing": "greedy"}]})")
                              .bytes);
}

// Entries share one cache, so all must rotate keys by the same factors, whatever the size of their tables.
TEST(CApi, RotatesOneCacheByOneListOfFactors) {
  const std::string config = R"({"model_type": "phi3", "hidden_size": 32, "num_hidden_layers": 1,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 64,
      "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 256,
      "original_max_position_embeddings": 64, "rope_scaling": {"type": "longrope",
      "short_factor": [1, 1, 1, 1], "long_factor": [2, 3, 5, 7]}})";
  const auto alone = [&](const char* options) {
    const Answer answer = compile(options, config);
    EXPECT_EQ(answer.status, JERBOA_OK) << answer.error;
    return answer.bytes;
  };
  const std::string within = alone(R"({"blocks": 8, "entries": [{"table": 1}]})");
  const std::string beyond = alone(R"({"blocks": 8, "context": 256, "entries": [{"table": 1}]})");
  EXPECT_NE(within, beyond);
  // The kernels of the small table are those of the long context if a larger table is beside it.
  const std::string both = alone(R"({"blocks": 8, "entries": [{"table": 1}, {"table": 8}]})");
  EXPECT_EQ(both, alone(R"({"blocks": 8, "context": 256, "entries": [{"table": 1}, {"table": 8}]})"));
  EXPECT_NE(both, alone(R"({"blocks": 8, "context": 32, "entries": [{"table": 1}, {"table": 8}]})"));
}

TEST(CApi, CompilesEncoders) {
  const std::string config = R"({"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 1,
      "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 64, "type_vocab_size": 2,
      "hidden_act": "gelu", "layer_norm_eps": 1e-12, "max_position_embeddings": 128})";
  const Answer hidden = compile(R"({"entries": [{"encoder": true, "rows": 2, "time": 16}]})", config);
  ASSERT_EQ(hidden.status, JERBOA_OK) << hidden.error;
  EXPECT_NE(hidden.bytes.find("encode rows=2 time=16"), std::string::npos);
  EXPECT_EQ(hidden.bytes.find("pooled"), std::string::npos);
  const Answer pooled = compile(R"({"entries": [{"encoder": true, "time": 16, "pooling": "mean"}]})", config);
  ASSERT_EQ(pooled.status, JERBOA_OK) << pooled.error;
  EXPECT_NE(pooled.bytes.find("pooled"), std::string::npos);
  EXPECT_NE(compile(R"({"entries": [{"encoder": true, "table": 4}]})", config).error.find("\"table\" is unknown"),
            std::string::npos);
  EXPECT_EQ(compile(R"({"entries": [{"encoder": true, "time": 16, "pooling": "last"}]})").status, JERBOA_OK);
}

TEST(CApi, CompilesForTheDevice) {
  const std::string plain = compile("").bytes;
  const Answer half = compile(R"({"weights": "f16", "device": {"features": ["shader-f16", "unheard-of"],
      "limits": {"maxBufferSize": 4294967296, "maxStorageBufferBindingSize": 4294967292, "maxNewLimit": 3},
      "info": {"vendor": "some", "subgroupMinSize": 4, "subgroupMaxSize": 64}}})");
  ASSERT_EQ(half.status, JERBOA_OK) << half.error;
  EXPECT_EQ(plain.find("enable f16"), std::string::npos);
  EXPECT_NE(half.bytes.find("enable f16"), std::string::npos);
  EXPECT_NE(compile(R"({"device": {"info": {"architecture": "swiftshader"}}})").bytes, plain);
}

TEST(CApi, CompilesGraphs) {
  const std::string graph = R"({"version": 1, "training": false, "symbols": {}, "tensors": [
      {"name": "x", "dtype": "f32", "shape": [4], "storage": "input"}, {"name": "y", "dtype": "f32", "shape": [4]}],
      "nodes": [{"op": "tensor_input", "inputs": [], "outputs": [0]}, {"op": "exp", "inputs": [0], "outputs": [1]}],
      "outputs": {"y": 1}, "captures": {}, "updates": [], "constants": []})";
  const Answer answer = call(jerboa_compile_graphs, R"({"entries": {"run": )" + graph + "}}");
  ASSERT_EQ(answer.status, JERBOA_OK) << answer.error;
  EXPECT_NE(answer.bytes.find("exp_f32("), std::string::npos);
  EXPECT_EQ(call(jerboa_compile_graphs, std::string(R"({"entries": {"run": {"version": 1}}})")).status,
            JERBOA_GRAPH_ERROR);
}

struct Wrong {
  const char* options;
  jerboa_status status;
  const char* message;
};

TEST(CApi, ReportsErrors) {
  for (const Wrong& wrong : {
           Wrong{"{", JERBOA_USAGE_ERROR, "options"},
           Wrong{"[]", JERBOA_USAGE_ERROR, "options must be a JSON object"},
           Wrong{R"({"wieghts": "f16"})", JERBOA_USAGE_ERROR, "the key \"wieghts\" is unknown; known are"},
           Wrong{R"({"weights": "q4"})", JERBOA_USAGE_ERROR, "weights is \"q4\", but must be one of f32, f16"},
           Wrong{R"({"blocks": 0})", JERBOA_USAGE_ERROR, "blocks is 0, but must be a whole number from 1"},
           Wrong{R"({"blocks": 1.5})", JERBOA_USAGE_ERROR, "blocks is 1.5"},
           Wrong{R"({"device": {"limits": {"maxBufferSize": -1}}})", JERBOA_USAGE_ERROR, "maxBufferSize is -1"},
           Wrong{R"({"device": {"features": 3}})", JERBOA_USAGE_ERROR, "features must be a list"},
           Wrong{R"({"cache": "int4"})", JERBOA_USAGE_ERROR, "cache is \"int4\", but must be one of f32, f16, int8"},
           Wrong{R"({"entries": [{"rows": 0}]})", JERBOA_USAGE_ERROR, "rows is 0"},
           Wrong{R"({"entries": [{}, {}]})", JERBOA_USAGE_ERROR, "two entries are named"},
       }) {
    const Answer answer = compile(wrong.options);
    EXPECT_EQ(answer.status, wrong.status) << wrong.options;
    EXPECT_NE(answer.error.find(wrong.message), std::string::npos) << wrong.options << ": " << answer.error;
    EXPECT_TRUE(answer.bytes.empty());
  }
  EXPECT_EQ(compile("", "{not JSON").status, JERBOA_FILE_ERROR);
  EXPECT_EQ(compile("", R"({"model_type": "unheard-of"})").status, JERBOA_USAGE_ERROR);
  EXPECT_EQ(jerboa_compile_model(nullptr, 3, nullptr, 0, nullptr), JERBOA_USAGE_ERROR);
  EXPECT_EQ(jerboa_compile_model(config_text, std::string(config_text).size(), nullptr, 0, nullptr),
            JERBOA_USAGE_ERROR);
}

}  // namespace
}  // namespace jerboa::c_api_test::compile_test
