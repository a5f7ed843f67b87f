#include <gtest/gtest.h>
#include <string>

#include <jerboa/generate/constraint.h>
#include <jerboa/lower/lower.h>
#include <jerboa/lower/program_file.h>
#include <jerboa/models/config.h>
#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>
#include <jerboa/wgsl/emit_wgsl.h>

// The compiler library alone: it links nothing else of Jerboa, takes text and bytes, and returns bytes.
namespace jerboa {
namespace {

constexpr const char* config_text = R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 64,
    "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 32})";

TEST(CompilerLibrary, TurnsAConfigIntoAProgramFile) {
  const auto config = models::Config::parse(config_text);
  const Graph graph = trace([&] {
    output("logits",
           models::family_of(config).logits(config, {.tensors = {{"ids", tensor_input("ids", {1, 8}, DType::i32)}}}));
  });
  const Target target = Target::webgpu_default();
  Program program = lower(graph, target);
  emit_wgsl(program, target);
  ProgramFile file;
  file.target = "webgpu";
  for (const TensorInfo& tensor : graph.tensors)
    if (tensor.storage == Storage::param)
      file.storage.push_back({tensor.name, tensor.type.dtype, tensor.type.shape, true, tensor.init});
  file.entries.push_back({"run", {{"ids", DType::i32, {1, 8}}}, {}, std::move(program)});
  const std::string bytes = encode_program(file);
  const ProgramFile back = decode_program(bytes, "memory");
  EXPECT_EQ(encode_program(back), bytes);
  EXPECT_FALSE(back.entries.at(0).program.gpu.shaders.empty());
}

TEST(CompilerLibrary, CompilesGrammars) {
  EXPECT_NE(compile_json_schema_text(R"({"type": "object", "properties": {"a": {"type": "integer"}}})"), nullptr);
  EXPECT_THROW(models::Config::parse("{not JSON"), FileError);
}

}  // namespace
}  // namespace jerboa
