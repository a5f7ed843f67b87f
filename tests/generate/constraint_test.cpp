#include <chrono>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include <jerboa/generate/sampler.h>
#include <jerboa/generate/text_form.h>

#include "base/json_value.h"
#include "generate/json_validator.h"
#include "generate/vocabularies.h"
#include "support/expect_error.h"

namespace jerboa {
namespace {

using Json = nlohmann::ordered_json;

// Generates under a constraint from random logits until the end token.
std::vector<int> random_tokens(const std::shared_ptr<const Grammar>& grammar, std::uint64_t seed, int budget,
                               std::span<const int> prefix = {}) {
  static const auto vocabulary = test_vocabulary();
  Sampler sampler({.temperature = 1.0f, .seed = seed});
  auto constraint = make_constraint(grammar, vocabulary);
  for (const int token : prefix) constraint->accept(token);
  sampler.constrain(std::move(constraint));
  CounterRandom random(seed * 7919 + 1);
  std::vector<float> logits(vocabulary->size());
  std::vector<int> out(prefix.begin(), prefix.end());
  for (int step = 0; step < 4000; ++step) {
    for (float& logit : logits) logit = static_cast<float>(random.uniform() * 6);
    const int token = sampler.sample(logits, std::max(budget - step, 1));
    if (token == end_token) return out;
    out.push_back(token);
    if (step > budget && sampler.constraint()->complete()) return out;
  }
  ADD_FAILURE() << "did not end";
  return out;
}

std::string text_of(std::span<const int> tokens) {
  static const auto vocabulary = test_vocabulary();
  std::string out;
  for (const int token : tokens) out += vocabulary->bytes(token);
  return out;
}

std::string error_of(const std::string& schema) {
  try {
    compile_json_schema_text(schema);
    return "compiled";
  } catch (const ConstraintError& error) {
    return error.what();
  }
}

const char* const schemas[] = {
    R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 1, "maxItems": 3}},
        "required": ["name", "age"], "additionalProperties": false})",
    R"({"type": "array", "items": {"type": "number", "minimum": -1.5, "exclusiveMaximum": 2.25}, "minItems": 2, "maxItems": 6})",
    R"({"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "null"}], "items": {"type": "integer", "multipleOf": 7},
        "maxItems": 5})",
    R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"value": {"type": "integer"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["value"]}}})",
    R"({"anyOf": [{"type": "string", "pattern": "^[a-z]+(-[0-9]{2,3})?$"}, {"type": "integer", "exclusiveMinimum": 10, "maximum": 99}]})",
    R"({"type": "string", "pattern": "b[0-9]"})",
    R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number", "exclusiveMinimum": 0}},
        "required": ["kind", "r"]}, {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "number"}},
        "required": ["kind", "side"]}]})",
    R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]},
        {"properties": {"a": {"maximum": 12}, "b": {"type": ["null", "boolean"]}}, "required": ["b"]}]})",
    R"({"enum": ["red", "gr\"een", 3, null, {"x": [1, {"y": "é"}]}]})",
    R"({"type": "object", "properties": {"na": {"type": "integer"}, "name": {"type": "null"}, "né": {"type": "boolean"}},
        "additionalProperties": {"type": "string", "minLength": 2, "maxLength": 4}})",
    R"({"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 1, "maxProperties": 4})",
    R"({"type": ["string", "number", "null"], "minLength": 1, "maxLength": 3})",
    R"({"type": "string", "format": "date-time"})",
    R"({"type": "object", "properties": {"x": true, "y": false}, "required": ["x", "z"]})",
    R"({"type": "integer", "minimum": -1205, "maximum": -37})",
    R"({})",
    R"({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]})",
};

TEST(JsonSchema, RandomLogitsAlwaysEndInValidJson) {
  for (const char* source : schemas) {
    const Json schema = Json::parse(source);
    const JsonValidator validator(schema);
    for (const auto style : {JsonWhitespace::none, JsonWhitespace::spaced, JsonWhitespace::any}) {
      const auto grammar = compile_json_schema(make_json(schema), {.whitespace = style});
      for (std::uint64_t seed = 0; seed < 25; ++seed) {
        const std::string text = text_of(random_tokens(grammar, seed, 20 + static_cast<int>(seed) * 5));
        const Json value = Json::parse(text, nullptr, false);
        ASSERT_FALSE(value.is_discarded()) << source << "\n" << text;
        ASSERT_TRUE(validator.valid(value)) << source << "\n" << text;
      }
    }
  }
}

TEST(JsonSchema, EveryPrefixCanBeCompleted) {
  for (const char* source : schemas) {
    const Json schema = Json::parse(source);
    const JsonValidator validator(schema);
    const auto grammar = compile_json_schema(make_json(schema));
    for (std::uint64_t seed = 100; seed < 103; ++seed) {
      const std::vector<int> whole = random_tokens(grammar, seed, 60);
      for (std::size_t cut = 0; cut < whole.size(); ++cut) {
        const std::string text = text_of(random_tokens(grammar, seed, 0, std::span(whole).first(cut)));
        const Json value = Json::parse(text, nullptr, false);
        ASSERT_FALSE(value.is_discarded()) << source << "\n" << text;
        ASSERT_TRUE(validator.valid(value)) << source << "\n" << text;
      }
    }
  }
}

TEST(JsonSchema, AcceptsExactlyTheIntegersInRange) {
  for (const auto& [low, high] : {std::pair{0, 0}, {-5, 5}, {7, 1234}, {-1001, -99}, {-10, 100}, {99, 100}, {-1, 0}}) {
    const auto grammar = compile_json_schema(make_json({{"type", "integer"}, {"minimum", low}, {"maximum", high}}));
    for (int i = -1300; i <= 1300; ++i)
      EXPECT_EQ(matches(grammar, std::to_string(i)), i >= low && i <= high) << i << " in " << low << ".." << high;
    EXPECT_FALSE(matches(grammar, "-0"));
    EXPECT_FALSE(matches(grammar, "007"));
  }
  const auto sevens = compile_json_schema_text(R"({"type": "integer", "multipleOf": 7, "minimum": -50})");
  for (int i = -100; i <= 1000; ++i) EXPECT_EQ(matches(sevens, std::to_string(i)), i >= -50 && i % 7 == 0) << i;
}

TEST(JsonSchema, AcceptsExactlyTheNumbersInRange) {
  const auto grammar = compile_json_schema_text(R"({"type": "number", "exclusiveMinimum": -0.25, "maximum": 10.5})");
  for (const char* inside : {"-0.2", "-0.24999", "0", "0.0", "1", "10", "10.5", "10.50", "10.49", "9.99999"})
    EXPECT_TRUE(matches(grammar, inside)) << inside;
  for (const char* outside : {"-0.25", "-0.250", "-0.3", "-1", "10.51", "11", "100", "10.", "01", ".5", "+1", "1e1"})
    EXPECT_FALSE(matches(grammar, outside)) << outside;
}

TEST(JsonSchema, KeepsAdditionalKeysApartFromProperties) {
  const auto grammar = compile_json_schema_text(
      R"({"type": "object", "properties": {"name": {"type": "integer"}}, "additionalProperties": {"type": "null"}})");
  EXPECT_TRUE(matches(grammar, R"({"name": 1, "nam": null, "names": null, "": null})"));
  EXPECT_FALSE(matches(grammar, R"({"nam": null, "name": null})"));
  EXPECT_FALSE(matches(grammar, R"({"\u006eame": null})"));
  EXPECT_FALSE(matches(grammar, R"({"name": null})"));
}

TEST(JsonSchema, ReadsStringsAsJsonDoes) {
  const auto grammar = compile_json_schema_text(R"({"type": "string", "maxLength": 3})");
  for (const char* good : {R"("")", R"("abc")", R"("日本語")", R"("\n\"\\")", R"("\u00e9\ud83e\udd98x")", "\"\x7f\""})
    EXPECT_TRUE(matches(grammar, good)) << good;
  for (const char* bad :
       {R"("abcd")", "\"\n\"", R"("\x")", R"("\ud83e")", R"("\udd98")", "\"\xff\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\""})
    EXPECT_FALSE(matches(grammar, bad)) << bad;
}

TEST(JsonSchema, ClosesObjectsThatListTheirProperties) {
  const std::string schema = R"({"type": "object", "properties": {"a": {"type": "null"}}})";
  EXPECT_FALSE(matches(compile_json_schema_text(schema), R"({"b": 1})"));
  EXPECT_TRUE(matches(compile_json_schema_text(schema, {.open_objects = true}), R"({"b": 1})"));
}

TEST(JsonSchema, RefusesUnsupportedKeywords) {
  EXPECT_EQ(error_of(R"({"type": "object", "properties": {"x": {"not": {"type": "null"}}}})"),
            "#/properties/x: 'not' is not supported");
  EXPECT_EQ(error_of(R"({"type": "array", "items": {"minimun": 3}})"), "#/items: 'minimun' is not supported");
  EXPECT_EQ(error_of(R"({"type": "array", "uniqueItems": true})"), "#: 'uniqueItems' is not supported");
  EXPECT_EQ(error_of(R"({"type": "string", "format": "regex"})"), "#: 'format': 'regex' is not supported");
  EXPECT_EQ(error_of(R"({"type": "strnig"})"), "#: 'type' is 'strnig', which is not a JSON type");
  EXPECT_EQ(error_of(R"({"$ref": "#/$defs/x"})"), "#: '$ref' to '#/$defs/x', which does not exist");
  EXPECT_EQ(error_of(R"x({"type": "string", "pattern": "(?=a)"})x"),
            "#: the pattern /(?=a)/ has a look-around, which is not supported");
  EXPECT_EQ(error_of(R"({"oneOf": [{"type": "number"}, {"type": "integer"}]})").substr(0, 59),
            "#: 'oneOf': a value may be valid under both 0 and 1; use an");
  EXPECT_EQ(error_of(R"({"type": "number", "multipleOf": 0.1})").substr(0, 30), "#: 'multipleOf' is supported f");
  EXPECT_EQ(error_of("[1]"), "#: a schema must be an object or a boolean");
  EXPECT_EQ(error_of("{").substr(0, 26), "the schema: not valid JSON");
  const std::string nothing = "nothing can match: the pattern or schema contradicts itself";
  EXPECT_EQ(error_of("false"), nothing);
  EXPECT_EQ(error_of(R"({"$ref": "#"})"), nothing);
  EXPECT_EQ(error_of(R"({"type": "integer", "minimum": 3, "maximum": 2})"), nothing);
  EXPECT_EQ(error_of(R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})"), nothing);
  EXPECT_EQ(error_of(R"({"const": 1, "type": "string"})"), nothing);
}

// Every text over a small alphabet, against the standard library's engine.
TEST(Regex, MatchesLikeTheStandardLibrary) {
  const std::string alphabet = "ab1-";
  std::vector<std::string> texts = {""};
  for (std::size_t begin = 0, size = 0; size < 5; ++size) {
    const std::size_t end = texts.size();
    for (; begin < end; ++begin)
      for (const char c : alphabet) texts.push_back(texts[begin] + c);
  }
  for (const char* pattern :
       {"a*b", "(a|b)*1", "a{2,3}", "(ab?){1,2}-?", "[a-b]+1?", "[^a]*", "\\w+-\\d", "(a*)*b", "(a|)b{0,2}",
        "^a.b$|^1+$", "((a|b){2}){2}", "\\D{3}", "(?:a|b)+?1", "a|b|", "[\\d-]{2}", "(a*|b*){2,}"}) {
    const auto grammar = compile_regex(pattern);
    const std::regex expected(pattern);
    for (const std::string& text : texts)
      ASSERT_EQ(matches(grammar, text), std::regex_match(text, expected)) << pattern << " on " << text;
  }
}

TEST(TextForm, JoinsTextsSchemasAndAlternatives) {
  using Form = TextForm;
  const auto grammar = compile_form(Form::any_of(
      {Form::sequence({Form::text("a="), Form::json(JsonValue::parse(R"({"type": "integer"})", "")), Form::text(";")}),
       Form::text("none")}));
  for (const char* text : {"a=12;", "a=-1;", "none"}) EXPECT_TRUE(matches(grammar, text)) << text;
  for (const char* text : {"a=;", "a=12", "nonea=1;", ""}) EXPECT_FALSE(matches(grammar, text)) << text;
}

TEST(TextForm, EndsAtTheFirstMark) {
  const auto grammar = compile_form(TextForm::until("aab"));
  for (const char* text : {"aab", "aaab", "xaaxaab", "éaab", "\naab"}) EXPECT_TRUE(matches(grammar, text)) << text;
  for (const char* text : {"", "aa", "aaba", "aabaab", "ab"}) EXPECT_FALSE(matches(grammar, text)) << text;
}

// DeepSeek's marks, for example, are not ASCII.
TEST(TextForm, EndsAtAMarkOfAnyCharacters) {
  const auto grammar = compile_form(TextForm::until("▁ê▁"));
  for (const char* text : {"▁ê▁", "x▁ê▁", "▁▁ê▁", "▁ê▂▁ê▁", "é▁é▁ê▁"}) EXPECT_TRUE(matches(grammar, text)) << text;
  for (const char* text : {"", "▁ê", "▁e▁", "▁ê▁x", "ê▁"}) EXPECT_FALSE(matches(grammar, text)) << text;
  EXPECT_THROW(compile_form(TextForm::until("\xe2\x96")), ConstraintError);
  EXPECT_THROW(compile_form(TextForm::until("")), ConstraintError);
}

TEST(Regex, KnowsUnicode) {
  EXPECT_TRUE(matches(compile_regex("é+[а-я]{2}."), "ééжя🦘"));
  EXPECT_FALSE(matches(compile_regex("."), "\xff"));
  EXPECT_FALSE(matches(compile_regex("."), "\n"));
  EXPECT_TRUE(matches(compile_regex("[^a]"), "日"));
  EXPECT_TRUE(matches(compile_regex("\\p{Lu}\\p{L}+\\u{1F998}"), "Äpfel🦘"));
  EXPECT_FALSE(matches(compile_regex("\\p{Lu}"), "ä"));
  EXPECT_TRUE(matches(compile_regex("\\P{L}"), "1"));
  for (char32_t c : {U'\x7f', U'\x80', U'߿', U'ࠀ', U'\uffff', U'\U00010000', U'\U0010ffff'}) {
    std::string text;
    if (c < 0x80)
      text = static_cast<char>(c);
    else if (c < 0x800)
      text = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    else if (c < 0x10000)
      text = {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
              static_cast<char>(0x80 | (c & 63))};
    else
      text = {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
              static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    EXPECT_TRUE(matches(compile_regex("[^a]"), text)) << static_cast<unsigned>(c);
  }
}

TEST(Regex, RandomLogitsEndInAMatch) {
  for (const char* pattern :
       {"(\\d{3}-){2}\\d{4}", "[A-Z][a-z]*( [a-z]+)*\\.", "(yes|no|maybe)", "\\{\"a\": \\[(1|2)(, (1|2))*\\]\\}"}) {
    const auto grammar = compile_regex(pattern);
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      const std::string text = text_of(random_tokens(grammar, seed, 40));
      EXPECT_TRUE(std::regex_match(text, std::regex(pattern))) << text;
    }
  }
}

TEST(Regex, RefusesUnknownSyntax) {
  for (const char* pattern :
       {"(", ")", "a{3,2}", "[b-a]", "*a", "\\1", "\\b", "(?!a)", "a^b", "a$b", "\\q", "[a", "\\u{110000}", "\\p{Zz}",
        "(?i)a", "a{99999}", "((((a{999}){999}){999}){999})b\\", "\xff"})
    EXPECT_THROW(compile_regex(pattern), ConstraintError) << pattern;
  EXPECT_THROW(compile_regex(std::string(5000, '(')), ConstraintError);
}

TEST(Constraint, AllowsATokenOnlyWhereItsBytesFit) {
  const auto vocabulary = test_vocabulary();
  const auto constraint = make_constraint(compile_regex("true|tr1"), vocabulary);
  const auto count = [&] {
    int allowed = 0;
    for (std::size_t i = 0; i < vocabulary->size(); ++i) allowed += constraint->allowed().allows(i);
    return allowed;
  };
  EXPECT_EQ(count(), 2);  // "t", "true"
  EXPECT_THROW(constraint->accept('x'), ConstraintError);
  EXPECT_THROW(constraint->accept(end_token), ConstraintError);
  constraint->accept('t');
  constraint->accept('r');
  EXPECT_EQ(count(), 2);  // "u", "1"
  constraint->accept('1');
  EXPECT_TRUE(constraint->complete());
  EXPECT_EQ(count(), 1);
  EXPECT_TRUE(constraint->allowed().allows(end_token));
  constraint->accept(end_token);
  EXPECT_THROW(constraint->accept('t'), ConstraintError);
  constraint->reset();
  EXPECT_EQ(count(), 2);
}

TEST(Constraint, EndsInTimeWhereTokensRunOut) {
  const auto grammar = compile_json_schema_text(R"({"type": "array"})");
  for (std::uint64_t seed = 0; seed < 20; ++seed) EXPECT_LE(random_tokens(grammar, seed, 30).size(), 30u);
}

TEST(Constraint, SurvivesAClearedCache) {
  // A counted string has a new position at each character, far more than the cache holds.
  const auto vocabulary = test_vocabulary();
  const auto constraint = make_constraint(
      compile_json_schema_text(R"({"type": "array", "items": {"type": "string", "maxLength": 9000}})"), vocabulary);
  const auto accept = [&](const std::string& text) {
    for (const char c : text) constraint->accept(static_cast<unsigned char>(c));
  };
  accept("[\"");
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 8999; ++i) constraint->accept('a');
    accept("é\", \"");
  }
  accept("\"]");
  EXPECT_TRUE(constraint->complete());
}

// Runs the work, and expects it to finish within a number of seconds, even under a sanitizer.
template <class Work>
void expect_within(double seconds, Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), seconds);
}

// Tokens of sixteen letters each: for one of them, a pattern needs a state for each of its prefixes.
std::shared_ptr<const Vocabulary> long_tokens() {
  std::vector<std::string> tokens(1);
  for (unsigned bits = 0; bits < 1u << 16; ++bits) {
    std::string& token = tokens.emplace_back();
    for (unsigned i = 0; i < 16; ++i) token += (bits >> i & 1) != 0 ? 'a' : 'b';
  }
  tokens.emplace_back("\"");
  return std::make_shared<const Vocabulary>(tokens, std::vector<int>{0});
}

TEST(Budget, BoundsTheStatesOfAMask) {
  const auto vocabulary = long_tokens();
  const auto refuse = [](Constraint& constraint) {
    expect_within(60, [&] {
      try {
        constraint.allowed();
        ADD_FAILURE() << "no error";
      } catch (const ConstraintError& error) {
        EXPECT_NE(std::string(error.what()).find("reduce the count"), std::string::npos) << error.what();
      }
    });
  };
  refuse(*make_constraint(compile_regex("(a|b)*a(a|b){20}"), vocabulary));
  // The pattern of a schema may begin anywhere in the string.
  const auto string =
      make_constraint(compile_json_schema_text(R"({"type": "string", "pattern": "[^a]*a.{20}"})"), vocabulary);
  string->accept(1 + (1 << 16));
  refuse(*string);
  // One letter at a time, it works like any other pattern.
  const auto letters = make_constraint(compile_regex("(a|b)*a(a|b){20}"), test_vocabulary());
  for (int i = 0; i < 100'000; ++i) letters->accept((i % 7) * (i % 7) % 7 < 3 ? 'a' : 'b');
}

TEST(Budget, BoundsTheStepsOfAToken) {
  // Few states, but with a thousand open alternatives in each.
  std::string pattern = "(a|b";
  for (int i = 0; i < 1000; ++i) pattern += "|y?z";
  pattern += ")*a(a|b){12}";
  const auto grammar = compile_regex(pattern);
  expect_within(60, [&] {
    try {
      const auto constraint = make_constraint(grammar, long_tokens());
      constraint->allowed();
      ADD_FAILURE() << "no error";
    } catch (const ConstraintError& error) {
      EXPECT_NE(std::string(error.what()).find("is too ambiguous"), std::string::npos) << error.what();
    }
  });
}

TEST(Budget, RefusesNestedCountsBeforeTheirStatesAreBuilt) {
  for (const std::string pattern : {"(\\p{L}{0,500}){0,500}", "((a{0,100}){0,100}){3,100}",
                                    "(a{2,500}b?|c*){0,500}{1,500}", "((\\d{1,500})?-?){0,500}"}) {
    expect_within(3, [&] {
      EXPECT_EQ(
          test::message_of<ConstraintError>([&] { compile_regex(pattern); }),
          "the pattern /" + pattern + "/ has nested counts of more than 200000 repetitions in all; make them smaller");
    });
  }
  // Counts of what has a fixed length, or begins with something, are not ambiguous, whatever their product is.
  for (const char* pattern : {"([0-9a-f]{64}){0,10000}", "(,\\d{0,1000}){0,1000}", "(\\w{1,1000} ?){1,1000}"})
    EXPECT_NO_THROW(compile_regex(pattern)) << pattern;
}

// A repetition of a repetition is one of all their products, which the matcher follows without trying out divisions.
TEST(Regex, JoinsNestedCounts) {
  constexpr int longest = 24;
  const auto lengths_of = [](const std::string& pattern) {
    std::set<int> lengths;
    const auto grammar = compile_regex(pattern);
    for (int length = 0; length <= longest; ++length)
      if (matches(grammar, std::string(static_cast<std::size_t>(length), 'a'))) lengths.insert(length);
    return lengths;
  };
  struct Range {
    int min, max;
    std::string text() const { return fmt::format("{{{},{}}}", min, max < 0 ? "" : std::to_string(max)); }
    int end() const { return max < 0 ? longest : max; }
  };
  const std::vector<Range> ranges = {{0, 0}, {0, 1}, {1, 1},  {0, 3},  {1, 3}, {2, 3},
                                     {3, 3}, {4, 5}, {0, -1}, {1, -1}, {2, -1}};
  for (const Range& inner : ranges)
    for (const Range& outer : ranges) {
      std::set<int> wanted;
      for (int count = outer.min; count <= outer.end(); ++count)
        for (int length = count * inner.min; length <= std::min(longest, count * inner.end()); ++length)
          wanted.insert(length);
      const std::string pattern = "(a" + inner.text() + ")" + outer.text();
      EXPECT_EQ(lengths_of(pattern), wanted) << pattern;
    }
  const auto letters = make_constraint(compile_regex("(\\p{L}{0,400}){0,400}"), test_vocabulary());
  expect_within(20, [&] {
    for (int i = 0; i < 1000; ++i) {
      letters->allowed();
      letters->accept('a');
    }
  });
}

TEST(Budget, BoundsTheStepsOfAText) {
  // Each token takes a tenth of what one token may, and a text of them takes minutes.
  const auto constraint = make_constraint(compile_regex("(\\p{L}{0,400}y?){0,400}"), test_vocabulary());
  int tokens = 0;
  const auto refusal = [&] {
    try {
      for (; tokens < 1000; ++tokens) {
        constraint->allowed();
        constraint->accept('a');
      }
    } catch (const ConstraintError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  expect_within(60, [&] {
    EXPECT_EQ(refusal().find("the pattern or schema is too ambiguous: the text so far takes more than "), 0U);
  });
  EXPECT_LT(tokens, 60);
  // Ambiguous, but in proportion.
  const auto words = make_constraint(compile_regex("(\\w{1,30}[ ,.]?){1,100}"), test_vocabulary());
  for (int i = 0; i < 200; ++i) {
    words->allowed();
    words->accept(i % 9 == 8 ? ' ' : 'a');
  }
}

TEST(Budget, BoundsTheStatesOfAGrammar) {
  std::string pattern;
  for (int i = 0; i < 50; ++i) pattern += "a{10000}";
  EXPECT_THROW(compile_regex(pattern), ConstraintError);
  std::string classes;
  for (int i = 0; i < 100'000; ++i) classes += "\\p{L}";
  expect_within(60, [&] { EXPECT_THROW(compile_regex(classes), ConstraintError); });
}

TEST(Budget, LimitsProductsOfAlternatives) {
  const auto any_of = [](int first) {
    std::string out = R"({"anyOf": [)";
    for (int i = 0; i < 1000; ++i) out += (i == 0 ? "" : ",") + fmt::format(R"({{"const": {}}})", first + i);
    return out + "]}";
  };
  EXPECT_EQ(error_of(R"({"allOf": [)" + any_of(0) + "," + any_of(1) + "]}"),
            "#: two 'anyOf' of 1000 and 1000 alternatives that both hold make more than 10000");
  // Each definition refers to the next one twice.
  std::string doubled = R"({"allOf": [{"$ref": "#/$defs/0"}], "$defs": {)";
  for (int i = 0; i < 60; ++i)
    doubled +=
        fmt::format(R"("{}": {{"allOf": [{{"$ref": "#/$defs/{}"}}, {{"$ref": "#/$defs/{}"}}]}},)", i, i + 1, i + 1);
  doubled += R"("60": {"type": "null"}}})";
  expect_within(60, [&] { EXPECT_NE(error_of(doubled).find("'allOf' merges more than"), std::string::npos); });
}

TEST(Budget, LimitsCopiesByReferences) {
  std::string references, fields, values;
  for (int i = 0; i < 600; ++i) references += fmt::format(R"({}{{"$ref": "#/$defs/large"}})", i == 0 ? "" : ",");
  for (int i = 0; i < 3000; ++i) {
    fields += fmt::format(R"({}"p{}": true)", i == 0 ? "" : ",", i);
    values += fmt::format("{}{}", i == 0 ? "" : ",", i);
  }
  const auto refuse = [&](const std::string& keyword, const std::string& large, const std::string& message) {
    expect_within(20, [&] {
      const std::string error =
          error_of(fmt::format(R"({{"{}": [{}], "$defs": {{"large": {}}}}})", keyword, references, large));
      EXPECT_EQ(error.substr(0, message.size()), message);
    });
  };
  refuse("allOf", R"({"type": "object", "properties": {)" + fields + "}}",
         "#: the schema has too many parts once 'allOf', 'anyOf' and '$ref' are resolved");
  refuse("allOf", R"({"enum": [)" + values + "]}",
         "#: the schema has too many parts once 'allOf', 'anyOf' and '$ref' are resolved");
  refuse("oneOf", R"({"enum": [)" + values + "]}", "#: 'oneOf'");
}

TEST(Budget, MeasuresChainsOfRulesInOnePass) {
  std::string schema = R"({"prefixItems": [)";
  for (int i = 0; i < 3000; ++i) schema += (i == 0 ? "" : ",") + fmt::format(R"({{"$ref": "#/$defs/{}"}})", i);
  schema += R"(], "items": false, "$defs": {"0": {"type": "null"})";
  for (int i = 1; i < 3000; ++i)
    schema += fmt::format(R"(,"{}": {{"type": "array", "prefixItems": [{{"$ref": "#/$defs/{}"}}], "items": false}})", i,
                          i - 1);
  expect_within(60, [&] { EXPECT_EQ(error_of(schema + "}}"), "compiled"); });
}

TEST(Budget, FindsCategoriesOnce) {
  compile_regex("\\p{L}");
  expect_within(60, [] {
    for (int i = 0; i < 1000; ++i) compile_regex("\\p{Lu}\\P{Nd}[\\p{P}x]");
  });
}

std::string one_of(int count, const std::function<std::string(int)>& alternative) {
  std::string out = R"({"oneOf": [)";
  for (int i = 0; i < count; ++i) out += (i == 0 ? "" : ",") + alternative(i);
  return out + "]}";
}

TEST(Budget, ComparesAlternativesInProportion) {
  const auto tagged = [](int i) {
    return fmt::format(R"({{"type": "object", "properties": {{"kind": {{"const": "k{}"}}, "x": {{"type": "integer"}}}},
                           "required": ["kind", "x"]}})",
                       i);
  };
  expect_within(60, [&] { EXPECT_EQ(error_of(one_of(1000, tagged)), "compiled"); });
  expect_within(60, [&] {
    EXPECT_EQ(error_of(one_of(3000, [](int i) { return fmt::format(R"({{"const": {}}})", i); })), "compiled");
  });
  const auto same = [&](int i) { return tagged(i == 999 ? 4 : i); };
  EXPECT_EQ(error_of(one_of(1000, same)).substr(0, 51), "#: 'oneOf': a value may be valid under both 4 and 9");
}

// An alternative of objects with required properties of six values each, the same in all alternatives.
std::string with_shared_values(int properties, const std::string& distinct_fields) {
  std::string fields = distinct_fields, names = R"("zone")";
  for (int i = 0; i < properties; ++i) {
    fields += fmt::format(R"(,"p{}": {{"enum": [0, 1, 2, 3, 4, 5]}})", i);
    names += fmt::format(R"(,"p{}")", i);
  }
  return R"({"type": "object", "properties": {)" + fields + R"(}, "required": [)" + names + "]}";
}

TEST(Budget, DoesNotMultiplyTheValuesThatAlternativesShare) {
  const auto distinct_fields = [](int i) { return fmt::format(R"("zone": {{"const": {}}})", i); };
  for (const int alternatives : {2, 40})
    expect_within(5, [&] {
      EXPECT_EQ(error_of(one_of(alternatives, [&](int i) { return with_shared_values(12, distinct_fields(i)); })),
                "compiled");
      EXPECT_EQ(error_of(one_of(alternatives, [&](int i) { return with_shared_values(12, distinct_fields(i / 2)); })),
                "#: 'oneOf': a value may be valid under both 0 and 1; use anyOf, or a constant that tells them apart");
    });
}

TEST(Budget, RefusesAlternativesWhoseCombinationsMultiply) {
  // Three groups, which differ in pairs: no property that tells them apart is common to all. What is common has values
  // that nearly all alternatives allow.
  const auto alternative = [](int i) {
    static const char* const differences[] = {R"("ab":1,"ac":1)", R"("ab":2,"bc":1)", R"("ac":2,"bc":2)"};
    Json values = Json::parse("{" + std::string(differences[i % 3]) + "}");
    values[fmt::format("zone{}", i % 3)] = i;
    Json schema = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
    for (const auto& [name, value] : values.items()) {
      schema["properties"][name] = {{"const", value}};
      schema["required"].push_back(name);
    }
    for (int k = 0; k < 12; ++k) {
      Json& shared = schema["properties"][fmt::format("p{}", k)]["enum"] = Json::array();
      for (int v = 0; v < 6; ++v)
        if ((i + k) % 6 != v) shared.push_back(v);
      schema["required"].push_back(fmt::format("p{}", k));
    }
    return schema.dump();
  };
  expect_within(30, [&] {
    EXPECT_EQ(error_of(one_of(600, alternative)).substr(0, 48), "#: 'oneOf' has too many alternatives without a c");
  });
}

TEST(Budget, TellsAlternativesApartByAnyOfTheirProperties) {
  const auto object = [](const std::string& properties, const std::string& required) {
    return R"({"type": "object", "properties": {)" + properties + R"(}, "required": [)" + required + "]}";
  };
  const std::string a = R"("a": {"enum": [1, 2]})", b = R"("b": {"const": "x"})", other = R"("b": {"const": "y"})";
  const auto of = [](const std::vector<std::string>& list) {
    return one_of(static_cast<int>(list.size()), [&](int i) { return list[static_cast<std::size_t>(i)]; });
  };
  // Equal in one property, distinguished by the other.
  EXPECT_EQ(error_of(of({object(a + "," + b, R"("a", "b")"), object(a + "," + other, R"("a", "b")")})), "compiled");
  // The property that distinguishes them is optional.
  EXPECT_NE(error_of(of({object(a + "," + b, R"("a")"), object(a + "," + other, R"("a", "b")")})), "compiled");
  // One is distinguished from the others by a property that those share.
  EXPECT_EQ(error_of(of({object(R"("a": {"const": 1},)" + b, R"("a", "b")"),
                         object(R"("a": {"const": 2},)" + b, R"("a", "b")"), object(other, R"("b")")})),
            "compiled");
  EXPECT_NE(error_of(of({object(R"("a": {"const": 1.0})", R"("a")"), object(R"("a": {"const": 1})", R"("a")")})),
            "compiled");
  EXPECT_NE(error_of(R"({"oneOf": [{"const": {"x": 1, "y": 2}}, {"const": {"y": 2, "x": 1}}]})"), "compiled");
  EXPECT_NE(error_of(R"({"oneOf": [{"const": "x"}, {"type": "string"}]})"), "compiled");
  EXPECT_EQ(error_of(R"({"oneOf": [{"const": "x"}, {"type": "integer"}, false, {"type": ["null", "array"]}]})"),
            "compiled");
}

TEST(JsonSchema, ErrorsQuoteBrieflyAndInOneLine) {
  const std::string text = "\\u001b[2J\\n" + std::string(1'000'000, 'k');  // clears a terminal
  for (const std::string& schema : {
           R"({"type": "string", ")" + text + R"(": 1})",
           R"({"$ref": ")" + text + R"("})",
           R"({"$ref": "#/)" + text + R"("})",
           R"({"type": ")" + text + R"("})",
           R"({"type": "string", "format": ")" + text + R"("})",
           R"({"type": "string", "pattern": "()" + text + R"("})",
           R"({"properties": {")" + text + R"(": {"not": {}}}})",
           R"({"properties": {")" + text + R"(": {"allOf": [{"const": 1}, {"oneOf": [true, true]}, {"oneOf": [1]}]}}})",
       }) {
    const std::string error = error_of(schema);
    EXPECT_LT(error.size(), 800U) << schema.substr(0, 60);
    EXPECT_EQ(error.find_first_of("\033\n"), std::string::npos) << error;
    EXPECT_NE(error.find("k…"), std::string::npos) << error;
  }
}

TEST(Constraint, SaysWhereTheVocabularyCannotGoOn) {
  const auto vocabulary = std::make_shared<const Vocabulary>(std::vector<std::string>{"a", ""}, std::vector<int>{1});
  const auto constraint = make_constraint(compile_regex("ab"), vocabulary);
  constraint->accept(0);
  EXPECT_THROW(constraint->allowed(), ConstraintError);
}

}  // namespace
}  // namespace jerboa
