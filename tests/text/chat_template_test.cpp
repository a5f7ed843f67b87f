#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <unistd.h>

#include <jerboa/text/chat_template.h>

#include "base/json_value.h"

namespace jerboa {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

const std::vector<ChatMessage> hello = {{"user", "Hello"}};

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(fs::temp_directory_path() / ("jerboa_template_" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }

 private:
  fs::path path_;
};

// Every template of the npm packages, every conversation of cases.json: compared with @huggingface/jinja in the same
// run. jinja2.json holds the output of Python's Jinja2 3.1.6 (which transformers uses) where the JavaScript is wrong:
// it joins a string and a list with "+", which is a TypeError (null in the file); it does not support trim of a list,
// selectattr of a string, reject of a list or a loop over a string; it prints a list as JSON.
TEST(ChatTemplate, RendersRealTemplatesAsTheReferenceDoes) {
  const std::string folder = JERBOA_SOURCE_DIR "/tests/text/templates";
  ASSERT_TRUE(fs::exists(folder + "/node_modules/@huggingface/jinja")) << "run npm ci in tests/text/templates";
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  const TemporaryFolder out;
  const std::string rendered = (out.path() / "rendered.json").string();
  ASSERT_EQ(std::system(("node '" + folder + "/render.mjs' > '" + rendered + "'").c_str()), 0);

  std::ifstream rendered_file(rendered), python_file(folder + "/jinja2.json");
  const Json reference = Json::parse(rendered_file);
  const Json python = Json::parse(python_file);
  std::set<std::string> models, overridden;
  for (const Json& one : reference["results"]) {
    const std::string name = one["model"].get<std::string>() + ": " + one["case"].get<std::string>();
    models.insert(one["model"].get<std::string>());
    Json expected = one.value("text", Json());
    if (python.contains(name)) {
      EXPECT_NE(expected, python[name]) << name << ": the reference is right by now; remove it from jinja2.json";
      expected = python[name];
      overridden.insert(name);
    }
    Json variables = one.value("tokens", Json::object());
    variables.update(one.value("variables", Json::object()));
    const ChatTemplateOptions options{.add_generation_prompt = one["add_generation_prompt"].get<bool>(),
                                      .tools = make_json(one.value("tools", Json())),
                                      .variables = make_json(variables),
                                      .now = reference["now"].get<std::int64_t>() / 1000};
    try {
      const ChatTemplate chat = one.contains("folder") ? ChatTemplate::load(one["folder"].get<std::string>())
                                                       : ChatTemplate(one["source"].get<std::string>());
      EXPECT_EQ(Json(chat.render(make_json(one["messages"]), options)), expected) << name;
    } catch (const TemplateError& error) {
      EXPECT_TRUE(expected.is_null()) << name << ": " << error.what();
    }
  }
  EXPECT_GE(models.size(), 100u);
  EXPECT_EQ(overridden.size(), python.size()) << "jinja2.json names a template or case that is not there";
}

TEST(ChatTemplate, LoadsTheTemplateAndTheTokensOfAFolder) {
  const TemporaryFolder folder;
  folder.write("tokenizer_config.json",
               R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null,
                   "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}"})");
  EXPECT_EQ(ChatTemplate::load(folder.path()).render(hello), "<s>Hello</s>");
  folder.write("chat_template.jinja", "file:{{ bos_token }}");
  EXPECT_EQ(ChatTemplate::load(folder.path()).render(hello), "file:<s>");
}

TEST(ChatTemplate, ComesFromTheTextOfAConfig) {
  const auto chat =
      ChatTemplate::from_config(R"({"bos_token": "<s>", "chat_template": "{{ bos_token }}{{ messages[0].content }}"})");
  ASSERT_TRUE(chat);
  EXPECT_EQ(chat->render(hello), "<s>Hello");
  EXPECT_FALSE(ChatTemplate::from_config(R"({"bos_token": "<s>"})"));
  EXPECT_FALSE(ChatTemplate::from_config(R"({"chat_template": [{"name": "rag", "template": "rag"}]})"));
  const auto named = ChatTemplate::from_config(R"({"chat_template": [{"name": "default", "template": "plain"},
                                                   {"name": "tool_use", "template": "{{ tools[0].name }}"}]})");
  EXPECT_EQ(named->render(hello), "plain");
  EXPECT_EQ(named->render(hello, {.tools = make_json({{{"name", "search"}}})}), "search");
  EXPECT_THROW(ChatTemplate::from_config("{"), FileError);
}

TEST(ChatTemplate, PicksAmongNamedTemplates) {
  const TemporaryFolder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"},
               {"name": "tool_use", "template": "{{ tools[0].name }}"}, {"name": "rag", "template": "rag"}]})");
  const ChatTemplate chat = ChatTemplate::load(folder.path());
  EXPECT_EQ(chat.render(hello), "plain");
  EXPECT_EQ(chat.render(hello, {.tools = make_json({{{"name", "search"}}})}), "search");
  EXPECT_EQ(ChatTemplate::load(folder.path(), "rag").render(hello), "rag");
  EXPECT_THROW(ChatTemplate::load(folder.path(), "nope"), UsageError);
}

TEST(ChatTemplate, NamesMissingFiles) {
  const TemporaryFolder folder;
  EXPECT_THROW(ChatTemplate::load(folder.path()), FileError);
  folder.write("tokenizer_config.json", "{");
  EXPECT_THROW(ChatTemplate::load(folder.path()), FileError);
  folder.write("tokenizer_config.json", R"({"chat_template": "{% if %}"})");
  EXPECT_THROW(ChatTemplate::load(folder.path()), TemplateError);
}

TEST(ChatTemplate, MarksTheAssistantsText) {
  const ChatTemplate chat(
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
      "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}");
  const RenderedChat out =
      chat.render_with_spans(to_json({{"user", "Hi"}, {"assistant", "Hello"}, {"assistant", "Bye"}}));
  ASSERT_EQ(out.generated.size(), 2u);
  EXPECT_EQ(out.text.substr(out.generated[0].first, out.generated[0].second - out.generated[0].first), "Hello");
  EXPECT_EQ(out.text.substr(out.generated[1].first, out.generated[1].second - out.generated[1].first), "Bye");
}

TEST(ChatTemplate, PassesToolsDocumentsAndVariables) {
  const ChatTemplate chat("{{ tools | tojson }}{{ documents | tojson }}{{ x }}{{ add_generation_prompt }}");
  EXPECT_EQ(chat.render(hello, {.add_generation_prompt = false,
                                .tools = jerboa::JsonValue::parse(R"([{"b": 1, "a": 2}])"),
                                .documents = jerboa::JsonValue::parse(R"([{"title": "T"}])"),
                                .variables = jerboa::JsonValue::parse(R"({"x": "y"})")}),
            R"([{"b": 1, "a": 2}][{"title": "T"}]yFalse)");
  EXPECT_THROW(chat.render(make_json(Json::object())), UsageError);
}

}  // namespace
}  // namespace jerboa
