#include "server/tool_format.h"

#include <gtest/gtest.h>

#include <jerboa/generate/constraint.h>

#include "server/value_types.h"

namespace jerboa::server::tool_format_test {
namespace {

const Tool weather{"get_weather", Json::parse(R"({"type": "object", "properties": {"city": {"type": "string"}}})")};
const Tool tree{"plant", Json::parse(R"({"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}},
    "required": ["root"], "$defs": {"node": {"type": "object", "properties": {"next": {"anyOf": [{"type": "null"},
    {"$ref": "#/$defs/node"}]}}, "required": ["next"]}}})")};

// Whether the grammar of a forced call accepts the whole text.
bool accepts(const ForcedCall& call, const std::string& text) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  bytes.emplace_back();
  const auto constraint =
      make_constraint(call.grammar, std::make_shared<Vocabulary>(std::move(bytes), std::vector<int>{256}));
  try {
    for (const char c : text) constraint->accept(static_cast<unsigned char>(c));
  } catch (const ConstraintError&) {
    return false;
  }
  return constraint->complete();
}

TEST(ToolFormat, IsRecognisedByTheTemplate) {
  EXPECT_EQ(tool_format_of("... <tool_call>\\n ...").name, "hermes");
  EXPECT_EQ(tool_format_of("<tool_call>\\n<function=' + name + '>\\n<parameter=' ...").name, "qwen3_coder");
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
  EXPECT_TRUE(accepts(hermes, R"({"name": "get_weather", "arguments": {"city": "Paris"}})"));
  EXPECT_TRUE(accepts(hermes, R"({"name": "plant", "arguments": {"root": {"next": {"next": null}}}})"));
  EXPECT_FALSE(accepts(hermes, R"({"name": "plant", "arguments": {"city": "Paris"}})"));
  EXPECT_FALSE(accepts(hermes, R"({"name": "other", "arguments": {}})"));

  const ForcedCall one = force_call(tool_format_named("llama3"), {tree}, true, false);
  EXPECT_EQ(one.opening, "");
  EXPECT_TRUE(accepts(one, R"({"name": "plant", "parameters": {"root": {"next": null}}})"));

  const ForcedCall list = force_call(tool_format_named("mistral"), both, true, false);
  EXPECT_EQ(list.opening, "[TOOL_CALLS]");
  const std::string call = R"({"name": "plant", "arguments": {"root": {"next": null}}})";
  EXPECT_TRUE(accepts(list, "[" + call + ", " + call + "]"));
  EXPECT_FALSE(accepts(list, "[]"));
  EXPECT_FALSE(accepts(force_call(tool_format_named("mistral"), both, false, false), "[" + call + ", " + call + "]"));
}

TEST(ToolFormat, ForcesNamedCalls) {
  const ForcedCall harmony = force_call(tool_format_named("harmony"), {weather}, true, false);
  EXPECT_EQ(harmony.opening, "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>");
  EXPECT_TRUE(accepts(harmony, R"({"city": "Paris"})"));
  EXPECT_EQ(force_call(tool_format_named("mistral"), {weather}, true, true).opening, "[TOOL_CALLS]get_weather[ARGS]");
}

TEST(ToolFormat, LetsAModelChooseAmongNames) {
  const Tool other{"get", Json::object()};
  const ForcedCall harmony = force_call(tool_format_named("harmony"), {weather, other}, true, false);
  EXPECT_TRUE(harmony.chooses_tool);
  EXPECT_EQ(harmony.opening, "<|channel|>commentary to=functions.");
  EXPECT_TRUE(accepts(harmony, "get "));
  EXPECT_TRUE(accepts(harmony, "get_weather "));
  EXPECT_FALSE(accepts(harmony, "get_weath "));
  const ForcedCall mistral = force_call(tool_format_named("mistral"), {weather, tree}, true, true);
  EXPECT_TRUE(mistral.chooses_tool);
  EXPECT_EQ(mistral.opening, "[TOOL_CALLS]");
  EXPECT_TRUE(accepts(mistral, "plant"));
}

TEST(ToolFormat, ForcesCallsInElements) {
  const Tool search{"search", Json::parse(R"({"type": "object", "properties": {"query": {"type": "string"},
      "kind": {"enum": ["web", "news"]}, "count": {"type": "integer", "maximum": 9, "minimum": 0},
      "tree": {"$ref": "#/$defs/node"}}, "required": ["query"],
      "$defs": {"node": {"type": "object", "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
      "required": ["next"]}}})")};
  const ForcedCall call = force_call(tool_format_named("qwen3_coder"), {search, weather}, true, false);
  EXPECT_EQ(call.opening, "<tool_call>\n");
  const std::string query = "<function=search>\n<parameter=query>\n", end = "\n</parameter>\n",
                    close = "</function>\n</tool_call>";
  EXPECT_TRUE(accepts(call, query + "a <b> </param \n\n</parameters> é\n</parameter" + end + close));
  // Readers would end the value there.
  EXPECT_FALSE(accepts(call, query + "a </parameter> b" + end + close));
  EXPECT_TRUE(accepts(call, query + "x" + end + "<parameter=kind>\nnews" + end + "<parameter=count>\n7" + end + close));
  EXPECT_TRUE(accepts(call, query + "x" + end + "<parameter=tree>\n{\"next\": {\"next\": null}}" + end + close));
  EXPECT_TRUE(accepts(call, "<function=get_weather>\n" + close));
  EXPECT_FALSE(accepts(call, "<function=search>\n" + close));  // the query is missing
  EXPECT_FALSE(accepts(call, query + "x" + end + "<parameter=kind>\nold" + end + close));
  EXPECT_FALSE(accepts(call, query + "x" + end + "<parameter=count>\n77" + end + close));
  EXPECT_FALSE(accepts(call, query + "x" + end + "<parameter=tree>\n{}" + end + close));
}

// Both would take forever if every path through the references were followed, or if the schema were copied for each
// parameter.
TEST(ToolFormat, ReadsSchemasOnce) {
  Tool twice{"f", Json::parse(R"({"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["x"],
      "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}, {"type": "null"}]}}})")};
  const ForcedCall call = force_call(tool_format_named("qwen3_coder"), {twice}, true, false);
  const std::string head = "<function=f>\n<parameter=x>\n", end = "\n</parameter>\n</function>\n</tool_call>";
  EXPECT_TRUE(accepts(call, head + "null" + end));
  EXPECT_FALSE(accepts(call, head + "1" + end));

  Tool wide{"g", {{"type", "object"}}};
  for (int i = 0; i < 1000; ++i) {
    const std::string name = "p" + std::to_string(i);
    wide.parameters["$defs"][name] = {{"description", std::string(2000, 'x')}, {"type", "boolean"}};
    wide.parameters["properties"][name] = {{"$ref", "#/$defs/" + name}};
  }
  EXPECT_TRUE(accepts(force_call(tool_format_named("qwen3_coder"), {wide}, true, false),
                      "<function=g>\n<parameter=p7>\ntrue" + end));
}

TEST(ValueTypes, AreThoseOfAllBranches) {
  const Json root = Json::parse(R"({"$defs": {
      "list": {"oneOf": [{"type": "array"}, {"$ref": "#/$defs/list"}, {"$ref": "#/$defs/one"}]},
      "one": {"enum": [1, "a"]}, "lost": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/none"}]}}})");
  const auto types = [&](const char* schema) { return value_types(Json::parse(schema), root); };
  EXPECT_EQ(types(R"({"$ref": "#/$defs/list"})"), (ValueTypes{"array", "integer", "string"}));
  EXPECT_EQ(types(R"({"anyOf": [{"$ref": "#/$defs/one"}, {"$ref": "#/$defs/one"}]})"),
            (ValueTypes{"integer", "string"}));
  EXPECT_EQ(types(R"({"type": ["null", "boolean"]})"), (ValueTypes{"boolean", "null"}));
  for (const char* any : {"true", "{}", R"({"$ref": "#/$defs/lost"})", R"({"$ref": "other.json"})", R"({"$ref": 1})"})
    EXPECT_EQ(types(any), ValueTypes()) << any;
  Json many = {{"anyOf", Json::array()}};
  for (int i = 0; i < 10'000; ++i) many["anyOf"].push_back({{"type", "null"}});
  EXPECT_EQ(value_types(many, root), ValueTypes());  // more than it looks at
}

TEST(ToolFormat, DescribesTools) {
  const std::string text = describe_tools(Json::parse(R"([{"type": "function", "function": {"name": "f"}}])"));
  EXPECT_NE(text.find(R"({"type":"function","function":{"name":"f"}})"), std::string::npos);
}

}  // namespace
}  // namespace jerboa::server::tool_format_test
