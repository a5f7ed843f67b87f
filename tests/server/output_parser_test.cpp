#include "server/output_parser.h"

#include <gtest/gtest.h>

// Answers in models' formats, with the output that clients should receive. Each is fed whole, split in two at every
// position, and byte by byte.
namespace jerboa::server::output_parser_test {
namespace {

struct Call {
  std::string name, arguments;
  bool operator==(const Call&) const = default;
};
struct Parsed {
  std::string reasoning, content;
  std::vector<Call> calls;
  bool operator==(const Parsed&) const = default;
};
void PrintTo(const Parsed& parsed, std::ostream* out) {
  *out << "reasoning: " << parsed.reasoning << "\ncontent: " << parsed.content << "\n";
  for (const Call& call : parsed.calls) *out << "call: " << call.name << " " << call.arguments << "\n";
}

void collect(const OutputEvents& events, Parsed& out) {
  for (const OutputEvent& event : events) {
    EXPECT_FALSE(event.text.empty());
    switch (event.kind) {
      case OutputEvent::Kind::reasoning: out.reasoning += event.text; break;
      case OutputEvent::Kind::content: out.content += event.text; break;
      case OutputEvent::Kind::call: out.calls.push_back({event.text, ""}); break;
      case OutputEvent::Kind::arguments:
        ASSERT_FALSE(out.calls.empty());
        out.calls.back().arguments += event.text;
        break;
    }
  }
}

Parsed parse(const char* format, const OutputParserOptions& options, const std::vector<std::string>& pieces) {
  const auto parser = make_output_parser(tool_format_named(format), options);
  Parsed out;
  for (const std::string& piece : pieces) collect(parser->feed(piece), out);
  collect(parser->finish(), out);
  return out;
}

void expect_parsed(const char* format, const std::string& text, const Parsed& expected,
                   const OutputParserOptions& options = {.has_tools = true}) {
  EXPECT_EQ(parse(format, options, {text}), expected) << text;
  for (std::size_t cut = 1; cut < text.size(); ++cut)
    EXPECT_EQ(parse(format, options, {text.substr(0, cut), text.substr(cut)}), expected) << text << "\ncut at " << cut;
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(parse(format, options, bytes), expected) << text;
}

TEST(OutputParser, LeavesTextAlone) {
  expect_parsed("hermes", "Hello <b>there</b>, a < b {x} <tool", {"", "Hello <b>there</b>, a < b {x} <tool", {}});
  expect_parsed("hermes", "", {});
  expect_parsed("mistral", "[1, 2] and [TOOL", {"", "[1, 2] and [TOOL", {}});
  expect_parsed("llama3", "The answer is {\"a\": 1}.", {"", "The answer is {\"a\": 1}.", {}});
}

TEST(OutputParser, SeparatesThoughts) {
  expect_parsed("hermes", "<think>\nHm, 2 < 3.\n</think>\n\nYes.", {"Hm, 2 < 3.\n", "Yes.", {}});
  expect_parsed("hermes", "Hm.</think>Yes.", {"Hm.", "Yes.", {}}, {.has_tools = false, .is_in_thoughts = true});
  expect_parsed("hermes", "<think>\n\n</think>\n\nYes.", {"", "Yes.", {}});
  expect_parsed("hermes", "<think>cut of", {"cut of", "", {}});
  expect_parsed("hermes", "I write <think> here", {"", "I write <think> here", {}});
}

TEST(OutputParser, ReadsHermes) {
  const std::string call =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
  const Call weather{"get_weather", "{\"city\": \"Paris\"}"};
  expect_parsed("hermes", call, {"", "", {weather}});
  expect_parsed("hermes", call + "\n" + call, {"", "", {weather, weather}});
  expect_parsed("hermes", "I look it up.\n\n" + call + "\n", {"", "I look it up.", {weather}});
  expect_parsed("hermes", "<think>\nA tool?\n</think>\n\n" + call, {"A tool?\n", "", {weather}});
  // Qwen3 without a closing mark, because the answer was cut off or ended by a grammar.
  expect_parsed("hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}", {"", "", {{"f", "{}"}}});
  expect_parsed("hermes", "<tool_call>{\"arguments\": {\"a\": [1, {\"b\": \"}\\\"\"}]}, \"name\": \"f\"}</tool_call>",
                {"", "", {{"f", "{\"a\": [1, {\"b\": \"}\\\"\"}]}"}}});
  expect_parsed("hermes", "<tool_call>{\"name\": \"f\"}</tool_call>", {"", "", {{"f", "{}"}}});
  expect_parsed("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
                {"", "", {{"f", "{\"a\": 1}"}}});
  expect_parsed("hermes", call + "Done.", {"", "Done.", {weather}});
}

TEST(OutputParser, KeepsTextThatIsNotACall) {
  expect_parsed("hermes", "<tool_call>\nnonsense</tool_call>", {"", "<tool_call>\nnonsense</tool_call>", {}});
  expect_parsed("hermes", "<tool_call>{\"nam", {"", "<tool_call>{\"nam", {}});
  expect_parsed("hermes", "<tool_call>", {"", "<tool_call>", {}});
  expect_parsed("llama3", "{\"a\": 1}", {"", "{\"a\": 1}", {}});
  expect_parsed("llama3", "{1, 2}", {"", "{1, 2}", {}});
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  expect_parsed("hermes", call, {"", call, {}}, {.has_tools = false});
}

// In the form in which Qwen3-Coder's template writes calls, and in the form that it asks for.
TEST(OutputParser, ReadsElements) {
  const Tool weather{"get_weather", Json::parse(R"({"type": "object", "properties": {"city": {"type": "string"},
      "days": {"type": "integer"}, "exact": {"type": "boolean"}, "scale": {"type": "number"},
      "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "tags": {"$ref": "#/$defs/tags"}},
      "$defs": {"tags": {"type": "array", "items": {"type": "string"}}}})")};
  const OutputParserOptions options{.has_tools = true, .tools = {weather}};
  const auto parameter = [](const std::string& key, const std::string& value) {
    return "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  };
  const auto call = [](const std::string& parameters) {
    return "<tool_call>\n<function=get_weather>\n" + parameters + "</function>\n</tool_call>";
  };
  expect_parsed("qwen3_coder",
                call(parameter("city", "Paris") + parameter("days", "2") + parameter("exact", "True") +
                     parameter("scale", "1.5")),
                {"", "", {{"get_weather", R"({"city": "Paris", "days": 2, "exact": true, "scale": 1.5})"}}}, options);
  expect_parsed("qwen3_coder",
                "I will look.\n" + call(parameter("city", "\"Saint-\n</param\n\nÉtienne\"\n\t2")) + "\n" +
                    call(parameter("tags", "[\"a\"]") + parameter("note", "None") + parameter("city", "12")),
                {"",
                 "I will look.",
                 {{"get_weather", R"({"city": "\"Saint-\n</param\n\nÉtienne\"\n\t2"})"},
                  {"get_weather", R"({"tags": ["a"], "note": null, "city": "12"})"}}},
                options);
  expect_parsed("qwen3_coder",
                call(parameter("note", "12") + parameter("days", "many") + parameter("new", "{\"a\": 1}")),
                {"", "", {{"get_weather", R"({"note": "12", "days": "many", "new": {"a":1}})"}}}, options);
  expect_parsed("qwen3_coder", call(""), {"", "", {{"get_weather", "{}"}}}, options);
  expect_parsed("qwen3_coder", "<function=f>\n</function>\n</tool_call>", {"", "", {{"f", "{}"}}}, options);
  expect_parsed("qwen3_coder", "<think>\nHm.\n</think>\n\n" + call(parameter("city", "")),
                {"Hm.\n", "", {{"get_weather", R"({"city": ""})"}}}, options);
  for (const std::string text : {"<tool_call>\nnonsense</tool_call>", "<tool_call>", "<func", "a <function of x>"})
    expect_parsed("qwen3_coder", text, {"", text, {}}, options);
}

TEST(OutputParser, StreamsTextInElements) {
  const Tool say{"say", Json::parse(R"({"properties": {"text": {"type": "string"}}})")};
  const auto parser = make_output_parser(tool_format_named("qwen3_coder"), {.has_tools = true, .tools = {say}});
  EXPECT_TRUE(parser->feed("<tool_call>\n<function=sa").empty());
  EXPECT_EQ(parser->feed("y>\n<parameter=text>\n"),
            (OutputEvents{{OutputEvent::Kind::call, "say"}, {OutputEvent::Kind::arguments, "{\"text\": \""}}));
  EXPECT_EQ(parser->feed("one \"two\"\n"), (OutputEvents{{OutputEvent::Kind::arguments, "one \\\"two\\\""}}));
  EXPECT_EQ(parser->feed("three\n</para"), (OutputEvents{{OutputEvent::Kind::arguments, "\\nthree"}}));
  EXPECT_EQ(parser->feed("meter>\n</function>\n</tool_call>"), (OutputEvents{{OutputEvent::Kind::arguments, "\"}"}}));
}

TEST(OutputParser, ReadsLlama3) {
  const Call weather{"get_weather", "{\"city\": \"Paris\"}"};
  const std::string call = "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}";
  expect_parsed("llama3", call, {"", "", {weather}});
  expect_parsed("llama3", "<|python_tag|>" + call, {"", "", {weather}});
  expect_parsed("llama3", call + "; " + call, {"", "", {weather, weather}});
  expect_parsed("llama3", "{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}",
                {"", "", {weather}});
}

TEST(OutputParser, ReadsMistral) {
  const Call weather{"get_weather", "{\"city\": \"Paris\"}"};
  expect_parsed("mistral", "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}]",
                {"", "", {weather}});
  expect_parsed(
      "mistral",
      "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}, \"id\": \"VvvODy9mT\"}, "
      "{\"name\": \"f\", \"arguments\": {}}]",
      {"", "", {weather, {"f", "{}"}}});
  expect_parsed("mistral", "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\"}", {"", "", {weather}});
  expect_parsed("mistral", "[TOOL_CALLS]get_weather{\"city\": \"Paris\"}[TOOL_CALLS]f{}",
                {"", "", {weather, {"f", "{}"}}});
  expect_parsed("mistral", "Let me see.[TOOL_CALLS]get_weather[CALL_ID]123[ARGS]{\"city\": \"Paris\"}",
                {"", "Let me see.", {weather}});
}

TEST(OutputParser, TreatsEmptyMistralCallsAsText) {
  const std::string text = "[TOOL_CALLS]{\"a\": 1}";
  expect_parsed("mistral", text, {"", text, {}});
  expect_parsed("mistral", text + "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]", {"", text, {{"f", "{}"}}});
}

TEST(OutputParser, ReadsHarmony) {
  expect_parsed("harmony",
                "<|channel|>analysis<|message|>Need the weather.<|end|><|start|>assistant<|channel|>commentary "
                "to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Paris\"}",
                {"Need the weather.", "", {{"get_weather", "{\"city\":\"Paris\"}"}}});
  expect_parsed("harmony",
                "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>2 + 2 < 5",
                {"Easy.", "2 + 2 < 5", {}});
  expect_parsed(
      "harmony",
      "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant to=functions.f<|channel|>commentary "
      "json<|message|>{}<|call|>",
      {"", "I will look.", {{"f", "{}"}}});
  expect_parsed("harmony", "plain text", {"", "plain text", {}});
}

TEST(OutputParser, TreatsHarmonyMessagesWithoutRecipientAsText) {
  const std::string text = "<|channel|>commentary to=functions.<|message|>x";
  expect_parsed("harmony", text, {"", "x", {}});
  expect_parsed("harmony", text + "<|end|>" + text, {"", "xx", {}}, {.has_tools = false});
  const std::string call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>";
  expect_parsed("harmony", call, {"", "", {{"f", "{}"}}});
  expect_parsed("harmony", call, {"", "{}", {}}, {.has_tools = false});
  expect_parsed("harmony", "<|channel|>analysis to=f<|message|>Hm.", {"Hm.", "", {}}, {.has_tools = false});
}

TEST(OutputParser, AppendsCallsWithoutANameToo) {
  OutputEvents events = {{OutputEvent::Kind::content, "a"}};
  append(events, {{OutputEvent::Kind::content, ""}, {OutputEvent::Kind::content, "b"}});
  append(events, {{OutputEvent::Kind::call, ""}, {OutputEvent::Kind::arguments, "{}"}});
  EXPECT_EQ(events, (OutputEvents{{OutputEvent::Kind::content, "ab"},
                                  {OutputEvent::Kind::call, ""},
                                  {OutputEvent::Kind::arguments, "{}"}}));
}

TEST(OutputParser, StreamsArguments) {
  const auto parser = make_output_parser(tool_format_named("hermes"), {.has_tools = true});
  EXPECT_TRUE(parser->feed("<tool_call>\n{\"name\": \"f").empty());
  EXPECT_EQ(parser->feed("\", \"arguments\": {\"a\""),
            (OutputEvents{{OutputEvent::Kind::call, "f"}, {OutputEvent::Kind::arguments, "{\"a\""}}));
  EXPECT_EQ(parser->feed(": 12"), (OutputEvents{{OutputEvent::Kind::arguments, ": 12"}}));
  EXPECT_EQ(parser->feed("}}\n</tool_call>"), (OutputEvents{{OutputEvent::Kind::arguments, "}"}}));
}

TEST(OutputParser, StreamsTextThatCannotBeAMark) {
  const auto parser = make_output_parser(tool_format_named("hermes"), {.has_tools = true});
  EXPECT_EQ(parser->feed("a <to"), (OutputEvents{{OutputEvent::Kind::content, "a"}}));
  EXPECT_EQ(parser->feed("wn>"), (OutputEvents{{OutputEvent::Kind::content, " <town>"}}));
}

TEST(OutputParser, SeesWhetherAPromptEndsInThoughts) {
  EXPECT_TRUE(ends_in_thoughts("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(ends_in_thoughts("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(ends_in_thoughts("think>"));
  EXPECT_FALSE(ends_in_thoughts(""));
}

}  // namespace
}  // namespace jerboa::server::output_parser_test
