#include "server/tool_format.h"

#include <gtest/gtest.h>

#include <jerboa/generate/constraint.h>

#include "base/json_value.h"
#include "server/api_error.h"

namespace jerboa::server::tool_format_test {
namespace {

const Tool weather{"get_weather", Json::parse(R"({"type": "object", "properties": {"city": {"type": "string"}}})")};
const Tool tree{"plant", Json::parse(R"({"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}},
    "required": ["root"], "$defs": {"node": {"type": "object", "properties": {"next": {"anyOf": [{"type": "null"},
    {"$ref": "#/$defs/node"}]}}, "required": ["next"]}}})")};

// Whether the grammar of a forced call takes a text as a whole.
bool accepts(const Json& schema, const std::string& text) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  bytes.emplace_back();
  const auto constraint = make_constraint(compile_json_schema(make_json(schema)),
                                          std::make_shared<Vocabulary>(std::move(bytes), std::vector<int>{256}));
  try {
    for (const char c : text) constraint->accept(static_cast<unsigned char>(c));
  } catch (const ConstraintError&) {
    return false;
  }
  return constraint->complete();
}

TEST(ToolFormat, IsRecognisedByTheTemplate) {
  EXPECT_EQ(tool_format_of("... <tool_call>\\n ...").name, "hermes");
  EXPECT_EQ(tool_format_of("{{ '[TOOL_CALLS]' }}").name, "mistral");
  EXPECT_EQ(tool_format_of("<|start_header_id|>").name, "llama3");
  EXPECT_EQ(tool_format_of("<|start|>assistant<|channel|>").name, "harmony");
  EXPECT_EQ(tool_format_of("<|im_start|>").name, "hermes");
  EXPECT_THROW(tool_format_named("none"), UsageError);
}

TEST(ToolFormat, ForcesCalls) {
  const std::vector<Tool> both = {weather, tree};
  const ForcedCall hermes = force_call(tool_format_named("hermes"), both, true, false);
  EXPECT_EQ(hermes.opening, "<tool_call>\n");
  EXPECT_TRUE(accepts(hermes.schema, R"({"name": "get_weather", "arguments": {"city": "Paris"}})"));
  EXPECT_TRUE(accepts(hermes.schema, R"({"name": "plant", "arguments": {"root": {"next": {"next": null}}}})"));
  EXPECT_FALSE(accepts(hermes.schema, R"({"name": "plant", "arguments": {"city": "Paris"}})"));
  EXPECT_FALSE(accepts(hermes.schema, R"({"name": "other", "arguments": {}})"));

  const ForcedCall one = force_call(tool_format_named("llama3"), {tree}, true, false);
  EXPECT_EQ(one.opening, "");
  EXPECT_TRUE(accepts(one.schema, R"({"name": "plant", "parameters": {"root": {"next": null}}})"));

  const ForcedCall list = force_call(tool_format_named("mistral"), both, true, false);
  EXPECT_EQ(list.opening, "[TOOL_CALLS]");
  const std::string call = R"({"name": "plant", "arguments": {"root": {"next": null}}})";
  EXPECT_TRUE(accepts(list.schema, "[" + call + ", " + call + "]"));
  EXPECT_FALSE(accepts(list.schema, "[]"));
  EXPECT_FALSE(
      accepts(force_call(tool_format_named("mistral"), both, false, false).schema, "[" + call + ", " + call + "]"));
}

TEST(ToolFormat, ForcesNamedCalls) {
  const ForcedCall harmony = force_call(tool_format_named("harmony"), {weather}, true, false);
  EXPECT_EQ(harmony.opening, "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>");
  EXPECT_TRUE(accepts(harmony.schema, R"({"city": "Paris"})"));
  EXPECT_EQ(force_call(tool_format_named("mistral"), {weather}, true, true).opening, "[TOOL_CALLS]get_weather[ARGS]");
  EXPECT_THROW(force_call(tool_format_named("harmony"), {weather, tree}, true, false), ApiError);
}

TEST(ToolFormat, DescribesTools) {
  const std::string text = describe_tools(Json::parse(R"([{"type": "function", "function": {"name": "f"}}])"));
  EXPECT_NE(text.find(R"({"type":"function","function":{"name":"f"}})"), std::string::npos);
}

}  // namespace
}  // namespace jerboa::server::tool_format_test
