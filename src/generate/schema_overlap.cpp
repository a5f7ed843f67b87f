#include "generate/schema_overlap.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <jerboa/generate/constraint.h>

#include "generate/schema_merge.h"

namespace jerboa {
namespace {

using Json = nlohmann::ordered_json;
using Overlap = std::optional<std::pair<std::size_t, std::size_t>>;

// Bits of disjoint types. A number is an integer or has a fraction.
constexpr unsigned object_bit = 1, all_bits = 127;
constexpr std::array<std::pair<std::string_view, unsigned>, 7> type_bits = {{{"object", object_bit},
                                                                             {"array", 2},
                                                                             {"string", 4},
                                                                             {"number", 8 | 16},
                                                                             {"integer", 8},
                                                                             {"boolean", 32},
                                                                             {"null", 64}}};

unsigned bits_of(std::string_view type) {
  for (const auto& [name, bits] : type_bits)
    if (name == type) return bits;
  return 0;
}

/// A canonical text, the same for values that are equal in JSON: 1 and 1.0, objects in any order.
std::string canonical(const Json& value) {
  if (value.is_number_float() && value.get<double>() == static_cast<double>(static_cast<std::int64_t>(
                                                            std::clamp(value.get<double>(), -9e15, 9e15))))
    return fmt::format("{}", static_cast<std::int64_t>(value.get<double>()));
  if (!value.is_structured()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::vector<std::string> parts;
  for (const auto& [key, item] : value.items())
    parts.push_back(value.is_object() ? canonical(Json(key)) + ":" + canonical(item) : canonical(item));
  if (value.is_object()) std::sort(parts.begin(), parts.end());
  std::string out = value.is_object() ? "{" : "[";
  for (const std::string& part : parts) out += part + ",";
  return out + (value.is_object() ? "}" : "]");
}

using Constants = std::set<std::string>;

/// Counts the parts that are compared.
using Spend = std::function<void(std::size_t)>;

const Json* constant_list(const Json& schema, Json& single) {
  if (!schema.is_object()) return nullptr;
  if (schema.contains("const")) return &(single = Json::array({schema["const"]}));
  return schema.contains("enum") && schema["enum"].is_array() ? &schema["enum"] : nullptr;
}

std::optional<Constants> constants_of(const Json& schema, const Spend& spend) {
  Json single;
  const Json* list = constant_list(schema, single);
  if (list == nullptr) return std::nullopt;
  spend(list->size());
  Constants out;
  for (const Json& value : *list) out.insert(canonical(value));
  return out;
}

/// The properties that distinguish a schema from others.
struct Facts {
  unsigned types = 0;
  std::optional<Constants> constants;
  std::map<std::string, Constants> tags;  // required constant properties, if the schema allows only objects
};

unsigned types_in(const Json& schema) {
  unsigned types = 0;
  for (const std::string& type : types_of(schema)) types |= bits_of(type);
  if (schema.contains("type")) return types;
  Json single;
  const Json* constants = constant_list(schema, single);
  if (constants == nullptr) return all_bits;
  for (const Json& value : *constants) types |= bits_of(type_of(value));
  return types;
}

Facts facts_of(const Json& schema, const std::function<Json(const Json&)>& resolve, const Spend& spend) {
  Facts facts;
  if (!schema.is_object()) {
    facts.types = schema == Json(false) ? 0 : all_bits;
    return facts;
  }
  facts.types = types_in(schema);
  facts.constants = constants_of(schema, spend);
  const bool named = schema.contains("required") && schema["required"].is_array() && schema.contains("properties") &&
                     schema["properties"].is_object();
  if (facts.types != object_bit || !named) return facts;
  for (const Json& name : schema["required"]) {
    if (!name.is_string() || !schema["properties"].contains(name.get<std::string>())) continue;
    auto constants = constants_of(resolve(schema["properties"][name.get<std::string>()]), spend);
    if (constants) facts.tags.emplace(name.get<std::string>(), std::move(*constants));
  }
  return facts;
}

class OverlapFinder {
 public:
  OverlapFinder(std::vector<Facts> facts, Spend spend) : facts_(std::move(facts)), spend_(std::move(spend)) {}

  Overlap run() {
    for (unsigned bit = 1; bit <= all_bits; bit <<= 1) {
      std::vector<std::size_t> having;
      for (std::size_t i = 0; i < facts_.size(); ++i)
        if ((facts_[i].types & bit) != 0) having.push_back(i);
      if (const Overlap found = among(having, bit == object_bit)) return found;
    }
    return std::nullopt;
  }

 private:
  using Members = std::vector<std::size_t>;

  // For schemas with a common type.
  Overlap among(const Members& members, bool objects) {
    Members constant, other;
    for (const std::size_t i : members) (facts_[i].constants ? constant : other).push_back(i);
    if (const Overlap found = by_values(
            constant, [&](std::size_t i) { return &*facts_[i].constants; }, nullptr))
      return found;
    if (other.empty() || members.size() == 1) return std::nullopt;
    if (!objects) return pair(other[0], other.size() > 1 ? other[1] : constant[0]);
    if (!constant.empty()) return pair(constant[0], other[0]);
    return by_tags(other, {});
  }

  // Schemas of objects that agree in the properties compared so far. Few are compared in pairs; many are divided by the
  // values of a property, which takes linear time if those tell most of them apart.
  Overlap by_tags(const Members& members, std::set<std::string> compared) {
    constexpr std::size_t few = 64;
    const std::optional<std::string> name = members.size() > few ? dividing_tag(members, compared) : std::nullopt;
    Members with, without;
    for (const std::size_t i : members) (name && facts_[i].tags.contains(*name) ? with : without).push_back(i);
    for (std::size_t k = 0; k < without.size(); ++k) {
      for (const std::size_t j : with)
        if (!are_distinguished(without[k], j)) return pair(without[k], j);
      for (std::size_t m = k + 1; m < without.size(); ++m)
        if (!are_distinguished(without[k], without[m])) return pair(without[k], without[m]);
    }
    if (!name) return std::nullopt;
    compared.insert(*name);
    const auto further = [&](const Members& alike) { return by_tags(alike, compared); };
    return by_values(
        with, [&](std::size_t i) { return &facts_[i].tags.at(*name); }, further);
  }

  // The property that most of the members have; among several, the one with the fewest values.
  std::optional<std::string> dividing_tag(const Members& members, const std::set<std::string>& compared) {
    struct Use {
      std::size_t members = 0, values = 0;
      auto rank() const { return std::pair(members, ~values); }
    };
    std::map<std::string_view, Use> uses;
    for (const std::size_t i : members) {
      spend_(facts_[i].tags.size() + 1);
      for (const auto& [name, constants] : facts_[i].tags) {
        if (compared.contains(name)) continue;
        ++uses[name].members;
        uses[name].values += constants.size();
      }
    }
    const auto best = std::max_element(uses.begin(), uses.end(),
                                       [](const auto& a, const auto& b) { return a.second.rank() < b.second.rank(); });
    if (best == uses.end() || best->second.members < 2) return std::nullopt;
    return std::string(best->first);
  }

  // Members that share a value overlap, unless `further` distinguishes them.
  template <class Values>
  Overlap by_values(const Members& members, Values values, const std::function<Overlap(const Members&)>& further) {
    std::map<std::string_view, Members> having;
    for (const std::size_t i : members) {
      spend_(values(i)->size());
      for (const std::string& value : *values(i)) having[value].push_back(i);
    }
    std::set<Members> compared;  // several values may be common to the same members
    for (const auto& [value, alike] : having) {
      if (alike.size() < 2 || !compared.insert(alike).second) continue;
      const Overlap found = further ? further(alike) : pair(alike[0], alike[1]);
      if (found) return found;
    }
    return std::nullopt;
  }

  bool are_distinguished(std::size_t i, std::size_t j) {
    spend_(1);
    return std::any_of(facts_[i].tags.begin(), facts_[i].tags.end(), [&](const auto& tag) {
      const auto other = facts_[j].tags.find(tag.first);
      spend_(1);
      return other != facts_[j].tags.end() && nothing_common(tag.second, other->second);
    });
  }

  bool nothing_common(const Constants& a, const Constants& b) {
    const auto& [fewer, more] = a.size() < b.size() ? std::tie(a, b) : std::tie(b, a);
    spend_(fewer.size());
    return std::none_of(fewer.begin(), fewer.end(),
                        [&, &set = more](const auto& value) { return set.contains(value); });
  }

  static Overlap pair(std::size_t a, std::size_t b) { return std::pair(std::min(a, b), std::max(a, b)); }

  std::vector<Facts> facts_;
  Spend spend_;
};

}  // namespace

Overlap find_overlap(const Json& schemas, const std::function<Json(const Json&)>& resolve, SchemaBudget& budget,
                     const std::string& path) {
  const Spend spend = [&](std::size_t parts) {
    budget.spend(parts, path,
                 "'oneOf' has too many alternatives without a common required constant that tells them apart; give "
                 "them one, such as \"kind\": {\"const\": \"circle\"}, or use anyOf");
  };
  std::vector<Facts> facts;
  for (const Json& schema : schemas) facts.push_back(facts_of(resolve(schema), resolve, spend));
  return OverlapFinder(std::move(facts), spend).run();
}

}  // namespace jerboa
