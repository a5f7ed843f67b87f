#include "generate/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>
#include <map>
#include <set>

#include "base/json_value.h"
#include "base/parse_json.h"
#include "generate/json_number.h"
#include "generate/regex.h"
#include "generate/schema_error.h"
#include "generate/schema_merge.h"
#include "generate/schema_overlap.h"

namespace jerboa {
namespace {

using Json = nlohmann::ordered_json;
using Rule = Grammar::Rule;

constexpr std::int64_t max_count = 10'000;
constexpr int max_depth = 100;
constexpr int max_schemas = 20'000;

const std::set<std::string, std::less<>> annotations = {
    "$schema",  "$id",      "$comment", "$defs",      "definitions", "title",     "description",
    "default",  "examples", "example",  "deprecated", "readOnly",    "writeOnly", "contentMediaType",
    "nullable", "$anchor"};
const std::map<std::string, std::set<std::string, std::less<>>, std::less<>> keywords = {
    {"object", {"properties", "required", "additionalProperties", "minProperties", "maxProperties"}},
    {"array", {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}},
    {"string", {"minLength", "maxLength", "pattern", "format"}},
    {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
};
const std::set<std::string, std::less<>> combining = {"$ref", "allOf", "anyOf", "oneOf", "enum", "const", "type"};
constexpr std::array<std::string_view, 7> all_types = {"object",  "array",   "string", "number",
                                                       "integer", "boolean", "null"};

// Each is a subset of the format: every text that matches is valid.
const std::map<std::string, const char*, std::less<>> formats = {
    {"date", "[12]\\d{3}-((0[1-9]|1[0-2])-(0[1-9]|1\\d|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"},
    {"time", "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"},
    {"date-time",
     "[12]\\d{3}-((0[1-9]|1[0-2])-(0[1-9]|1\\d|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
     "T([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"ipv4", "((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)\\.){3}(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"},
    {"email",
     "[A-Za-z0-9]{1,20}([._+-][A-Za-z0-9]{1,20}){0,3}@[A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20}){0,2}(\\.[A-Za-z]{2,10}){1,"
     "3}"},
    {"hostname", "[A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20}){0,2}(\\.[A-Za-z0-9]{1,20}){0,4}"},
    {"uri", "https?://[A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20}){0,2}(\\.[A-Za-z]{2,10}){1,3}(/[A-Za-z0-9_.~-]*)*"},
};

class Compiler {
 public:
  Compiler(Grammar& grammar, const Json& root, const JsonSchemaOptions& options)
      : root_(root), options_(options), grammar_(&grammar) {}

  Rule run(const std::string& place) { return value(root_.at(Json::json_pointer(place)), "#" + place, 0); }

 private:
  [[noreturn]] static void fail(const std::string& path, const std::string& what) { refuse_schema(path, what); }

  // ---- schemas

  Rule value(const Json& schema, const std::string& path, int depth) {
    const Rule rule = grammar_->add_rule();
    add_value(rule, schema, path, depth);
    return rule;
  }

  void add_value(Rule rule, const Json& schema, const std::string& path, int depth) {
    if (depth > max_depth || ++schemas_ > max_schemas)
      fail(path,
           fmt::format("the schema is nested more than {} deep, or has more than {} parts", max_depth, max_schemas));
    if (schema.is_boolean()) {
      if (schema.get<bool>()) grammar_->add_call(rule.start, rule.end, any_value());
      return;
    }
    if (!schema.is_object()) fail(path, "a schema must be an object or a boolean");
    check_keywords(schema, path);
    if (schema.contains("$ref")) return add_reference(rule, schema, path, depth);
    if (schema.contains("allOf")) return add_value(rule, merge_all(schema, path, depth), path, depth + 1);
    if (schema.contains("anyOf")) return add_alternatives(rule, schema, "anyOf", path, depth);
    if (schema.contains("oneOf")) return add_alternatives(rule, schema, "oneOf", path, depth);
    if (schema.contains("const") || schema.contains("enum")) return add_constants(rule, schema, path);
    add_types(rule, schema, path, depth);
  }

  static void check_keywords(const Json& schema, const std::string& path) {
    for (const auto& [key, item] : schema.items()) {
      if (annotations.contains(key) || combining.contains(key) || key.rfind("x-", 0) == 0) continue;
      const bool known = std::any_of(keywords.begin(), keywords.end(),
                                     [&, name = key](const auto& type) { return type.second.contains(name); });
      if (!known) fail(path, fmt::format("'{}' is not supported", shown(key)));
    }
    if (schema.contains("nullable") && schema["nullable"] != Json(false))
      fail(path, "'nullable' is not supported: use \"type\": [..., \"null\"]");
  }

  const Json& find_reference(const Json& schema, const std::string& path) const {
    if (!schema["$ref"].is_string()) fail(path, "'$ref' must be a string");
    const auto& target = schema["$ref"].get_ref<const std::string&>();
    if (target.empty() || target[0] != '#' || (target.size() > 1 && target[1] != '/'))
      fail(path, fmt::format("'$ref' to '{}' is not supported: it must point into the same schema, as in #/$defs/name",
                             shown(target)));
    try {
      return root_.at(Json::json_pointer(target.substr(1)));
    } catch (const Json::exception&) {
      fail(path, fmt::format("'$ref' to '{}', which does not exist", shown(target)));
    }
  }

  static Json without(const Json& schema, std::string_view keyword) {
    Json out = schema;
    out.erase(std::string(keyword));
    return out;
  }
  static bool asks_nothing(const Json& schema) {
    return std::all_of(schema.items().begin(), schema.items().end(), [](const auto& item) {
      return annotations.contains(item.key()) || item.key().rfind("x-", 0) == 0;
    });
  }

  void add_reference(Rule rule, const Json& schema, const std::string& path, int depth) {
    const Json& target = find_reference(schema, path);
    const Json rest = without(schema, "$ref");
    if (!asks_nothing(rest)) return add_value(rule, merged(resolved(target, path), rest, path), path, depth + 1);
    const auto& name = schema["$ref"].get_ref<const std::string&>();
    const auto [found, added] = references_.try_emplace(name, Rule{});
    if (added) {
      // Registered before it is filled in, so that it may refer to itself.
      found->second = grammar_->add_rule();
      const Rule made = found->second;
      add_value(made, target, name, depth + 1);
    }
    grammar_->add_call(rule.start, rule.end, references_.at(name));
  }

  void spend(std::size_t parts, const std::string& path) {
    budget_.spend(parts, path,
                  "the schema has too many parts once 'allOf', 'anyOf' and '$ref' are resolved: refer to large schemas "
                  "from fewer places");
  }

  static std::size_t parts(const Json& schema) {
    if (schema.is_string()) return 1 + schema.get_ref<const std::string&>().size() / 64;
    std::size_t total = 1;
    if (schema.is_structured())
      for (const Json& item : schema) total += parts(item);
    return total;
  }

  Json merged(const Json& a, const Json& b, const std::string& path) {
    std::size_t work = parts(a) + parts(b);
    for (const char* key : {"properties", "required", "enum"}) {  // each item is compared with all others
      const auto count = [&](const Json& schema) {
        return schema.is_object() && schema.contains(key) ? schema[key].size() : 0;
      };
      const std::size_t items = count(a) + count(b);
      work += items * items / 16;
    }
    spend(work, path);
    return merge_schemas(a, b, path);
  }

  // The schema at the end of a chain of $ref.
  Json resolved(const Json& schema, const std::string& path) {
    Json out = schema;
    for (int hops = 0; out.is_object() && out.contains("$ref"); ++hops) {
      if (hops > max_depth) fail(path, "'$ref' refers to itself");
      const Json rest = without(out, "$ref");
      const Json& target = find_reference(out, path);
      spend(parts(target), path);
      out = asks_nothing(rest) ? target : merged(target, rest, path);
    }
    return out;
  }

  Json merge_all(const Json& schema, const std::string& path, int depth) {
    if (!schema["allOf"].is_array()) fail(path, "'allOf' must be a list");
    Json out = without(schema, "allOf");
    for (const Json& part : schema["allOf"]) {
      if (++merged_ > max_schemas) fail(path, fmt::format("'allOf' merges more than {} schemas", max_schemas));
      Json next = resolved(part, path);
      if (next.is_object() && next.contains("allOf")) {
        if (depth > max_depth) fail(path, "the schema is too deep");
        next = merge_all(next, path, depth + 1);
      }
      if (!next.is_object() && !next.is_boolean()) fail(path, "a schema must be an object or a boolean");
      if (next.is_object()) check_keywords(next, path);
      out = merged(out, next, path);
    }
    return out;
  }

  void add_alternatives(Rule rule, const Json& schema, const std::string& keyword, const std::string& path, int depth) {
    const Json& branches = schema[keyword];
    if (!branches.is_array() || branches.empty()) fail(path, fmt::format("'{}' must be a list", keyword));
    if (keyword == "oneOf") {
      const auto resolve = [&](const Json& branch) { return resolved(branch, path); };
      if (const auto both = find_overlap(branches, resolve, budget_, path))
        fail(path,
             fmt::format("'oneOf': a value may be valid under both {} and {}; use anyOf, or a constant that tells "
                         "them apart",
                         both->first, both->second));
    }
    const Json rest = without(schema, keyword);
    for (std::size_t i = 0; i < branches.size(); ++i) {
      const std::string place = fmt::format("{}/{}/{}", path, keyword, i);
      const Rule one = asks_nothing(rest) ? value(branches[i], place, depth + 1)
                                          : value(merged(rest, resolved(branches[i], place), place), place, depth + 1);
      grammar_->add_call(rule.start, rule.end, one);
    }
  }

  void add_constants(Rule rule, const Json& schema, const std::string& path) {
    Json values = schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
    if (!values.is_array()) fail(path, "'enum' must be a list");
    const std::vector<std::string> types = types_of(schema);
    for (const auto& [key, item] : schema.items())
      if (key != "const" && key != "enum" && key != "type" && !annotations.contains(key) && key.rfind("x-", 0) != 0)
        fail(path, fmt::format("'{}' beside 'const' or 'enum' is not supported", key));
    for (const Json& constant : values) {
      if (schema.contains("const") && schema.contains("enum") &&
          std::find(schema["enum"].begin(), schema["enum"].end(), constant) == schema["enum"].end())
        continue;
      const std::string type = type_of(constant);
      const bool whole = constant.is_number_float() && constant.get<double>() == std::floor(constant.get<double>());
      const bool fits =
          types.empty() || std::any_of(types.begin(), types.end(), [&](const std::string& wanted) {
            return wanted == type || (wanted == "number" && type == "integer") || (wanted == "integer" && whole);
          });
      if (fits) grammar_->add_empty(add_literal(rule.start, constant, 0), rule.end);
    }
  }

  State add_literal(State from, const Json& constant, int depth) {
    if (depth > max_depth) throw ConstraintError("a constant is nested too deeply");
    if (!constant.is_structured())
      return grammar_->add_text(from, constant.dump(-1, ' ', false, Json::error_handler_t::replace));
    from = add_space(grammar_->add_text(from, constant.is_array() ? "[" : "{"), Gap::bracket);
    bool first = true;
    for (const auto& [key, item] : constant.items()) {
      if (!first) from = comma(from);
      first = false;
      if (constant.is_object()) from = add_key(from, key);
      from = add_space(add_literal(from, item, depth + 1), Gap::bracket);
    }
    return grammar_->add_text(from, constant.is_array() ? "]" : "}");
  }

  void add_types(Rule rule, const Json& schema, const std::string& path, int depth) {
    std::vector<std::string> types = types_of(schema);
    if (schema.contains("type") && types.empty() && !(schema["type"].is_array() && schema["type"].empty()))
      fail(path, "'type' must be a string or a list of strings");
    if (types.empty() && !schema.contains("type")) {
      for (const auto& [type, words] : keywords)
        if (std::any_of(words.begin(), words.end(), [&](const std::string& word) { return schema.contains(word); }))
          types.push_back(type);
      if (types.empty()) return grammar_->add_call(rule.start, rule.end, any_value());
    }
    for (const std::string& type : types) {
      if (std::find(all_types.begin(), all_types.end(), type) == all_types.end())
        fail(path, fmt::format("'type' is '{}', which is not a JSON type", shown(type)));
      if (type == "object") {
        add_object(rule, schema, path, depth);
      } else if (type == "array") {
        add_array(rule, schema, path, depth);
      } else if (type == "string") {
        add_string(rule, schema, path);
      } else if (type == "number" || type == "integer") {
        add_number(rule, schema, path, type == "integer");
      } else if (type == "boolean") {
        grammar_->add_text(rule.start, rule.end, "true");
        grammar_->add_text(rule.start, rule.end, "false");
      } else {
        grammar_->add_text(rule.start, rule.end, "null");
      }
    }
  }

  static std::optional<std::int64_t> count(const Json& schema, const std::string& key, const std::string& path) {
    if (!schema.contains(key)) return std::nullopt;
    const Json& item = schema[key];
    if (!item.is_number() || item.get<double>() < 0 || item.get<double>() != std::floor(item.get<double>()))
      fail(path, fmt::format("'{}' must be a whole number", key));
    if (item.get<double>() > static_cast<double>(max_count))
      fail(path, fmt::format("'{}' is above {}", key, max_count));
    return static_cast<std::int64_t>(item.get<double>());
  }

  // ---- white space

  enum class Gap { bracket, separator };

  State add_space(State from, Gap gap) {
    const JsonWhitespace style = options_.whitespace;
    if (style == JsonWhitespace::none || (style == JsonWhitespace::spaced && gap == Gap::bracket)) return from;
    const State to = grammar_->add_state();
    grammar_->add_empty(from, to);
    if (style == JsonWhitespace::spaced) {
      grammar_->add_bytes(from, to, ' ', ' ');
    } else {
      if (!space_) {
        space_ = grammar_->add_rule();
        add_regex(*grammar_, space_->start, space_->end, "[ \\n\\t]{1,40}", Encoding::plain, false);
      }
      grammar_->add_call(from, to, *space_);
    }
    return to;
  }
  State comma(State from) { return add_space(grammar_->add_text(from, ","), Gap::separator); }

  State add_key(State from, const std::string& key) {
    const State named = grammar_->add_text(from, Json(key).dump(-1, ' ', false, Json::error_handler_t::replace));
    return add_space(grammar_->add_text(named, ":"), Gap::separator);
  }

  State add_rule_call(State from, Rule rule) {
    const State to = grammar_->add_state();
    grammar_->add_call(from, to, rule);
    return to;
  }

  // ---- any value

  Rule any_value() {
    if (any_) return *any_;
    any_ = grammar_->add_rule();
    const Rule rule = *any_;
    add_types(rule, {{"type", {"object", "array", "string", "number", "boolean", "null"}}}, "#", 0);
    return rule;
  }

  // ---- objects

  void add_object(Rule rule, const Json& schema, const std::string& path, int depth) {
    const Json none = Json::object();
    const Json& properties = schema.contains("properties") ? schema["properties"] : none;
    if (!properties.is_object()) fail(path, "'properties' must be an object");
    std::vector<std::string> required;
    std::set<std::string> is_required;
    if (schema.contains("required")) {
      if (!schema["required"].is_array()) fail(path, "'required' must be a list");
      for (const Json& name : schema["required"]) {
        if (!name.is_string()) fail(path, "'required' must be a list of strings");
        if (is_required.insert(name.get<std::string>()).second) required.push_back(name.get<std::string>());
      }
    }
    const bool open = options_.open_objects || properties.empty();
    const Json additional = schema.contains("additionalProperties") ? schema["additionalProperties"] : Json(open);

    struct Member {
      Rule pair;
      bool required;
    };
    std::vector<Member> members;
    std::vector<std::string> names;
    std::set<std::string> is_named;
    const auto add_member = [&](const std::string& name, const Json& member, const std::string& place, bool needed) {
      const Rule pair = grammar_->add_rule();
      const Rule item = value(member, place, depth + 1);
      grammar_->add_call(add_key(pair.start, name), pair.end, item);
      members.push_back({pair, needed});
      names.push_back(name);
      is_named.insert(name);
    };
    for (const auto& [name, member] : properties.items())
      add_member(name, member, fmt::format("{}/properties/{}", path, name), is_required.contains(name));
    for (const std::string& name : required)
      if (!is_named.contains(name))
        add_member(name, schema.contains("additionalProperties") ? additional : Json(true), path, true);

    std::optional<Rule> other;
    if (additional != Json(false)) {
      other = grammar_->add_rule();
      const State key = grammar_->add_state();
      add_other_key(other->start, key, names);
      const Rule item = value(additional, path + "/additionalProperties", depth + 1);
      grammar_->add_call(add_space(grammar_->add_text(key, ":"), Gap::separator), other->end, item);
    }
    const std::int64_t min = count(schema, "minProperties", path).value_or(0);
    const auto max = count(schema, "maxProperties", path);
    if ((min > 0 || max) && !members.empty())
      fail(path, "'minProperties' and 'maxProperties' beside named properties are not supported");
    if (min > 1) fail(path, "'minProperties' above 1 is not supported: a repeated key would count only once");

    // Two rows of states: before the first member, and after one, where a comma is needed.
    State empty = add_space(grammar_->add_text(rule.start, "{"), Gap::bracket);
    State filled = grammar_->add_state();
    const State close = grammar_->add_state();
    for (const Member& member : members) {
      const State next_empty = grammar_->add_state(), next_filled = grammar_->add_state();
      grammar_->add_call(empty, next_filled, member.pair);
      grammar_->add_call(comma(filled), next_filled, member.pair);
      if (!member.required) {
        grammar_->add_empty(empty, next_empty);
        grammar_->add_empty(filled, next_filled);
      }
      empty = next_empty;
      filled = next_filled;
    }
    if (min == 0) grammar_->add_empty(empty, close);
    if (members.empty() && other) {
      add_repeats(empty, close, *other, min, max, [](std::int64_t) { return std::optional<Rule>(); });
    } else {
      grammar_->add_empty(filled, close);
      if (other) {
        grammar_->add_call(empty, filled, *other);
        grammar_->add_call(comma(filled), filled, *other);
      }
    }
    grammar_->add_text(add_space(close, Gap::bracket), rule.end, "}");
  }

  // A key that is not in `names`: it leaves the trie of their bytes before its closing quote. Each key has one spelling
  // (no \u where the character itself is allowed), so that no escape can hide a name.
  void add_other_key(State from, State to, const std::vector<std::string>& names) {
    const State inside = grammar_->add_text(from, "\"");
    if (!key_character_) {
      key_character_ = grammar_->add_rule();
      grammar_->add_characters(key_character_->start, key_character_->end, complement({}), Encoding::json_string);
    }
    const State free = grammar_->add_state();
    grammar_->add_call(free, free, *key_character_);
    grammar_->add_text(free, to, "\"");
    std::vector<std::u32string> keys;
    for (const std::string& name : names) keys.push_back(decode(name));
    add_other_key_after(inside, to, free, keys, 0, 0);
  }

  static std::u32string decode(const std::string& text) {
    std::u32string out;
    for (std::size_t i = 0; i < text.size();) {
      const auto lead = static_cast<unsigned char>(text[i]);
      const std::size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
      char32_t c = size == 1 ? lead : lead & (0xFFu >> (size + 1));
      for (std::size_t k = 1; k < size && i + k < text.size(); ++k)
        c = c << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3F);
      out += c;
      i += size;
    }
    return out;
  }

  void add_other_key_after(State at, State to, State free, const std::vector<std::u32string>& keys, std::size_t length,
                           int depth) {
    if (depth > 200) throw ConstraintError("a property's name is too long beside additionalProperties");
    std::map<char32_t, std::vector<std::u32string>> following;
    bool is_name = false;
    for (const std::u32string& key : keys) {
      if (key.size() == length)
        is_name = true;
      else
        following[key[length]].push_back(key);
    }
    if (!is_name) grammar_->add_text(at, to, "\"");
    CodePoints taken;
    for (const auto& [c, rest] : following) {
      taken.emplace_back(c, c);
      const State next = grammar_->add_state();
      grammar_->add_characters(at, next, {{c, c}}, Encoding::json_string);
      add_other_key_after(next, to, free, rest, length + 1, depth + 1);
    }
    grammar_->add_characters(at, free, complement(taken), Encoding::json_string);
  }

  // ---- arrays

  // Adds min to max items between `from`, before the first, and `close`; `special` returns the rule of the i-th item if
  // it is not the common one.
  template <typename Special>
  void add_repeats(State from, State close, std::optional<Rule> common, std::int64_t min,
                   std::optional<std::int64_t> max, Special special) {
    const auto rule_of = [&](std::int64_t i) {
      const std::optional<Rule> particular = special(i);
      return particular ? particular : common;
    };
    if (min == 0) grammar_->add_empty(from, close);
    State filled = from;
    for (std::int64_t i = 0;; ++i) {
      if (max && i >= *max) return;
      const std::optional<Rule> item = rule_of(i);
      if (!item) return;
      filled = add_rule_call(i == 0 ? filled : comma(filled), *item);
      if (i + 1 >= min) grammar_->add_empty(filled, close);
      if (!max && i + 1 >= min && !special(i + 1)) {
        if (common) grammar_->add_call(comma(filled), filled, *common);
        return;
      }
    }
  }

  void add_array(Rule rule, const Json& schema, const std::string& path, int depth) {
    if (schema.contains("uniqueItems") && schema["uniqueItems"] != Json(false))
      fail(path, "'uniqueItems' is not supported");
    std::vector<Rule> first;
    if (schema.contains("prefixItems")) {
      if (!schema["prefixItems"].is_array()) fail(path, "'prefixItems' must be a list");
      for (std::size_t i = 0; i < schema["prefixItems"].size(); ++i)
        first.push_back(value(schema["prefixItems"][i], fmt::format("{}/prefixItems/{}", path, i), depth + 1));
    }
    std::optional<Rule> common;
    if (!schema.contains("items"))
      common = any_value();
    else if (schema["items"] != Json(false))
      common = value(schema["items"], path + "/items", depth + 1);
    const std::int64_t min = count(schema, "minItems", path).value_or(0);
    const auto max = count(schema, "maxItems", path);
    if (max && *max < min) return;
    const State open = add_space(grammar_->add_text(rule.start, "["), Gap::bracket);
    const State close = grammar_->add_state();
    add_repeats(open, close, common, min, max, [&](std::int64_t i) {
      return i < static_cast<std::int64_t>(first.size()) ? std::optional(first[static_cast<std::size_t>(i)])
                                                         : std::nullopt;
    });
    grammar_->add_text(add_space(close, Gap::bracket), rule.end, "]");
  }

  // ---- strings

  // A character in an unconstrained string: literal, or with any escape that JSON allows.
  Rule string_character() {
    if (character_) return *character_;
    character_ = grammar_->add_rule();
    const Rule rule = *character_;
    grammar_->add_characters(rule.start, rule.end, complement({{0, 0x1F}, {U'"', U'"'}, {U'\\', U'\\'}}),
                             Encoding::plain);
    add_regex(*grammar_, rule.start, rule.end,
              "\\\\([\"\\\\/bfnrt]|u([0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}|"
              "[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}))",
              Encoding::plain, false);
    return rule;
  }

  void add_string(Rule rule, const Json& schema, const std::string& path) {
    const auto min = count(schema, "minLength", path), max = count(schema, "maxLength", path);
    const bool has_pattern = schema.contains("pattern"), has_format = schema.contains("format");
    State at = grammar_->add_text(rule.start, "\"");
    const State end = grammar_->add_state();
    grammar_->add_text(end, rule.end, "\"");
    if (has_pattern || has_format) {
      if (min || max || (has_pattern && has_format))
        fail(path, "'pattern', 'format' and a length together are not supported");
      const std::string key = has_pattern ? "pattern" : "format";
      if (!schema[key].is_string()) fail(path, fmt::format("'{}' must be a string", key));
      const auto& text = schema[key].get_ref<const std::string&>();
      const auto known = formats.find(text);
      if (has_format && known == formats.end()) fail(path, fmt::format("'format': '{}' is not supported", shown(text)));
      try {
        add_regex(*grammar_, at, end, has_pattern ? std::string_view(text) : known->second, Encoding::json_string,
                  has_pattern);
      } catch (const ConstraintError& error) {
        fail(path, error.what());
      }
      return;
    }
    const Rule character = string_character();
    for (std::int64_t i = 0; i < min.value_or(0); ++i) at = add_rule_call(at, character);
    if (!max) {
      const State loop = grammar_->add_state();
      grammar_->add_empty(at, loop);
      grammar_->add_call(loop, loop, character);
      grammar_->add_empty(loop, end);
      return;
    }
    if (*max < min.value_or(0)) return;
    for (std::int64_t i = min.value_or(0); i < *max; ++i) {
      grammar_->add_empty(at, end);
      at = add_rule_call(at, character);
    }
    grammar_->add_empty(at, end);
  }

  // ---- numbers

  static Decimal decimal(const Json& number, const std::string& key, const std::string& path) {
    if (!number.is_number()) fail(path, fmt::format("'{}' must be a number", key));
    std::string text = number.is_number_float() ? fmt::format("{}", number.get<double>()) : number.dump();
    Decimal out;
    if (text[0] == '-') {
      out.negative = true;
      text.erase(0, 1);
    }
    const std::size_t point = std::min(text.find('.'), text.size());
    if (text.find_first_not_of("0123456789.") != std::string::npos || point > 18 || text.size() - point > 17)
      fail(path, fmt::format("'{}' has too many digits", key));
    out.whole = std::stoull(text.substr(0, point));
    if (point < text.size()) out.fraction = text.substr(point + 1);
    return out;
  }

  static bool less(const Decimal& a, const Decimal& b) {
    const auto value_of = [](const Decimal& d) {
      const long double magnitude = static_cast<long double>(d.whole) + std::stold("0." + d.fraction + "0");
      return d.negative ? -magnitude : magnitude;
    };
    return value_of(a) < value_of(b);
  }

  void add_number(Rule rule, const Json& schema, const std::string& path, bool integer) {
    NumberRange range;
    range.integer = integer;
    const auto bound = [&](const char* key, std::optional<Decimal>& into, bool& exclusive, bool is_exclusive,
                           bool is_low) {
      if (!schema.contains(key)) return;
      const Decimal given = decimal(schema[key], key, path);
      const bool tighter = !into || (is_low ? less(*into, given) : less(given, *into)) ||
                           (is_exclusive && !less(*into, given) && !less(given, *into));
      if (!tighter) return;
      into = given;
      exclusive = is_exclusive;
    };
    bound("minimum", range.low, range.low_exclusive, false, true);
    bound("exclusiveMinimum", range.low, range.low_exclusive, true, true);
    bound("maximum", range.high, range.high_exclusive, false, false);
    bound("exclusiveMaximum", range.high, range.high_exclusive, true, false);
    if (schema.contains("multipleOf")) {
      const Json& step = schema["multipleOf"];
      if (!integer || !step.is_number_integer() || step.get<std::int64_t>() < 1 || step.get<std::int64_t>() > 200)
        fail(path, "'multipleOf' is supported for integers and steps from 1 to 200 only");
      range.multiple_of = static_cast<std::uint64_t>(step.get<std::int64_t>());
    }
    if (range.low && range.high && less(*range.high, *range.low)) return;
    if (!range.low && !range.high && range.multiple_of == 1) {
      add_regex(*grammar_, rule.start, rule.end,
                integer ? "-?(0|[1-9]\\d{0,17})" : "-?(0|[1-9]\\d{0,17})(\\.\\d{1,17})?([eE][+-]?\\d{1,2})?",
                Encoding::plain, false);
      return;
    }
    add_number_range(*grammar_, rule.start, rule.end, range);
  }

  const Json& root_;
  JsonSchemaOptions options_;
  Grammar* grammar_;
  std::map<std::string, Rule> references_;
  std::optional<Rule> any_, space_, character_, key_character_;
  int schemas_ = 0, merged_ = 0;
  SchemaBudget budget_;
};

}  // namespace

Grammar::Rule add_json_schema(Grammar& grammar, const JsonValue& schema, const JsonSchemaOptions& options,
                              const std::string& place) {
  try {
    return Compiler(grammar, json_value(schema), options).run(place);
  } catch (const nlohmann::ordered_json::exception& error) {  // a keyword's value has the wrong type
    throw ConstraintError(fmt::format("the schema is malformed: {}", json_reason(error)));
  }
}

std::shared_ptr<const Grammar> compile_json_schema(const JsonValue& schema, const JsonSchemaOptions& options) {
  auto grammar = std::make_shared<Grammar>();
  grammar->finish(add_json_schema(*grammar, schema, options));
  return grammar;
}

std::shared_ptr<const Grammar> compile_json_schema_text(std::string_view schema, const JsonSchemaOptions& options) {
  JsonValue parsed;
  try {
    parsed = JsonValue::parse(schema, "the schema");
  } catch (const UsageError& error) {
    throw ConstraintError(error.what());
  }
  return compile_json_schema(parsed, options);
}

}  // namespace jerboa
