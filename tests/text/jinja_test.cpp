#include <fstream>
#include <gtest/gtest.h>
#include <string>

#include <jerboa/text/chat_template.h>

#include "base/json_value.h"

namespace jerboa {
namespace {

using Json = nlohmann::ordered_json;

std::string render(const std::string& source, const Json& variables = nullptr) {
  return ChatTemplate(source).render(std::vector<ChatMessage>{}, {.variables = make_json(variables)});
}

std::string error_of(const std::string& source, const ChatTemplateOptions& options = {}) {
  try {
    return "rendered: " + ChatTemplate(source).render(std::vector<ChatMessage>{}, options);
  } catch (const TemplateError& error) {
    return error.what();
  }
}

// The texts were rendered by Python's Jinja2 3.1.6, set up as transformers does.
TEST(Jinja, RendersAsPythonDoes) {
  std::ifstream file(JERBOA_SOURCE_DIR "/tests/text/jinja_cases.json");
  const Json data = Json::parse(file);
  ASSERT_GT(data["cases"].size(), 100u);
  for (const Json& one : data["cases"]) {
    const auto source = one["template"].get<std::string>();
    try {
      EXPECT_EQ(render(source, data["variables"]), one["text"].get<std::string>()) << source;
    } catch (const TemplateError& error) {
      ADD_FAILURE() << source << ": " << error.what();
    }
  }
}

TEST(Jinja, ChangesListsAndDictsInPlace) {
  EXPECT_EQ(render("{% set l = [1] %}{% set _ = l.append(2) %}{% do l.extend([3]) %}{% do l.insert(0, 0) %}{{ l }}"),
            "[0, 1, 2, 3]");
  EXPECT_EQ(render("{% set l = [1, 2, 3] %}{{ l.pop() }}{{ l.pop(0) }}{{ l }}"), "31[2]");
  EXPECT_EQ(render("{% set d = {'a': 1} %}{% do d.update({'b': 2}, c=3) %}{{ d.pop('a') }}{{ d }}"),
            "1{'b': 2, 'c': 3}");
  EXPECT_EQ(render("{% set d = {} %}{{ d.setdefault('a', 1) }}{{ d.setdefault('a', 2) }}"), "11");
}

TEST(Jinja, FindsKeysOfLargeDicts) {
  Json large = Json::object();
  for (int i = 0; i < 100; ++i) large["key" + std::to_string(i)] = i;
  EXPECT_EQ(render("{{ d.key7 }} {{ d['key99'] }} {{ d.key100 is defined }} {% do d.pop('key7') %}{{ d.key8 }}",
                   {{"d", large}}),
            "7 99 False 8");
}

TEST(Jinja, ErrorsNameTheLineAndTheThing) {
  EXPECT_EQ(error_of("a\nb\n{{ 1 | nope }}"), "chat template, line 3: unknown filter 'nope'");
  EXPECT_EQ(error_of("\n{{ 1 is nope }}"), "chat template, line 2: unknown test 'nope'");
  EXPECT_EQ(error_of("{% include 'x' %}"), "chat template, line 1: unknown tag 'include'");
  EXPECT_EQ(error_of("\n\n{{ x.y }}"), "chat template, line 3: 'x' is undefined");
  EXPECT_EQ(error_of("{{ x + 1 }}"), "chat template, line 1: 'x' is undefined");
  EXPECT_EQ(error_of("{{ {}.a.b }}"), "chat template, line 1: 'dict' has no attribute 'a'");
  EXPECT_EQ(error_of("{{ 'a'.frob() }}"), "chat template, line 1: 'str' has no method 'frob'");
  EXPECT_EQ(error_of("{{ 1 + 'a' }}"), "chat template, line 1: 'int' + 'str' is not possible");
  EXPECT_EQ(error_of("{% if x %}\n\n"), "chat template, line 2: expected 'endif', found the end of the template");
  EXPECT_EQ(error_of("{{ 1 "), "chat template, line 1: a tag is not closed: '}}' is missing");
  EXPECT_EQ(error_of("{{ (1] }}"), "chat template, line 1: unexpected ']', expected ')'");
  EXPECT_EQ(error_of("{{ 'abc }}"), "chat template, line 1: a string is not closed");
  EXPECT_EQ(error_of("\n{{ raise_exception('No ' ~ 1) }}"), "chat template, line 2: No 1");
  EXPECT_EQ(error_of("{{ 9223372036854775807 + 1 }}"),
            "chat template, line 1: the result is too large for a 64-bit integer");
  EXPECT_EQ(error_of("{{ 1 // 0 }}"), "chat template, line 1: division by zero");
  EXPECT_EQ(error_of("{% break %}"), "chat template, line 1: 'break' outside of a loop");
  EXPECT_EQ(error_of("{% macro m(a) %}{% endmacro %}\n{{ m(1, 2) }}"),
            "chat template, line 2: macro 'm' takes at most 1 arguments, not 2");
}

TEST(Jinja, KnowsTheLineOfAnError) {
  try {
    render("\n\n{{ nope() }}");
    FAIL();
  } catch (const TemplateError& error) {
    EXPECT_EQ(error.line(), 3);
  }
}

TEST(Jinja, StopsRunawayTemplates) {
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text.substr(0, 200);
  };
  has(error_of("{% for a in range(99999) %}{% for b in range(9) %}{% endfor %}{% endfor %}",
               {.limits = {.steps = 1000}}),
      "stopped after 1000 steps");
  has(error_of(
          "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"),
      "bytes");
  has(error_of("{{ 'x' * 999999999999 }}"), "bytes");
  has(error_of("{{ 'a'.center(9999999999) }}"), "bytes");
  has(error_of("{{ range(10000000) }}"), "range of 10000000 items");
  has(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "calls are nested");
  has(error_of("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"), "nested");
  has(error_of("{{ " + std::string(5000, '[') + std::string(5000, ']') + " }}"), "nested");
  has(error_of("{{ 1" + std::string(5000, '|') + " }}"), "expected");
  std::string chain = "{{ x";
  for (int i = 0; i < 5000; ++i) chain += ".x";
  has(error_of(chain + " }}"), "nested");
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if 1 %}";
  has(error_of(blocks), "blocks are nested");
  has(error_of("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"),
      "nested");
  has(error_of("{% set ns = namespace(x=[0]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
               "{{ ns.x }}"),
      "too large or too deep");
  has(error_of("{% set l = [] %}{% do l.append(l) %}{{ l }}"), "too large or too deep");
  has(error_of("{% set l = [] %}{% do l.append(l) %}{{ l | tojson }}"), "too large or too deep");
  has(error_of("{{ 'abcdef' }}", {.limits = {.bytes = 5}}), "stopped after building 5 bytes");
}

TEST(Jinja, FormatsTheTime) {
  const ChatTemplateOptions options{.now = std::int64_t{24 * 365} * 3600};
  const std::string text = ChatTemplate("{{ strftime_now('%Y-%m') }}").render(std::vector<ChatMessage>{}, options);
  EXPECT_TRUE(text == "1971-01" || text == "1970-12") << text;
  EXPECT_EQ(ChatTemplate("{{ strftime_now('') }}|").render(std::vector<ChatMessage>{}, options), "|");
}

}  // namespace
}  // namespace jerboa
