#include <cmath>
#include <fmt/format.h>
#include <limits>

#include <jerboa/base/error.h>
#include <jerboa/ir/attrs.h>
#include <jerboa/ir/graph.h>

#include "base/parse_json.h"
#include "ir/attr_json.h"

namespace jerboa {
namespace detail {

Json number_json(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

std::optional<double> number_from(const Json& json) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (json.is_number()) return json.get<double>();
  if (json == "inf") return infinity;
  if (json == "-inf") return -infinity;
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

namespace {

Json write(bool value) { return value; }
Json write(int value) { return value; }
Json write(std::int64_t value) { return value; }
Json write(double value) { return number_json(value); }
Json write(DType value) { return name(value); }
Json write(const Dim& dim) { return dim.is_constant() ? Json(dim.value()) : Json(dim.str()); }
template <class T>
Json write(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(write(value));
  return list;
}
template <class E>
requires std::is_enum_v<E> Json write(E value) { return enum_names(value)[static_cast<std::size_t>(value)]; }

// Reads one field; `what` names it in errors.
struct Reader {
  const Bounds& bounds;
  std::string what;

  [[noreturn]] void fail(const char* wanted, const Json& json) const {
    throw GraphError(fmt::format("{} must be {}, not {}", what, wanted, json.dump()));
  }
  void read(const Json& json, bool& value) const {
    if (!json.is_boolean()) fail("true or false", json);
    value = json.get<bool>();
  }
  template <class T>
  requires(std::is_same_v<T, int> || std::is_same_v<T, std::int64_t>) void read(const Json& json, T& value) const {
    const bool whole = json.is_number_integer() ||
                       (json.is_number_float() && std::nearbyint(json.get<double>()) == json.get<double>());
    if (!whole || std::abs(json.get<double>()) > 1e15 ||
        static_cast<std::int64_t>(json.get<T>()) != json.get<std::int64_t>())
      fail("a whole number", json);
    value = json.get<T>();
  }
  void read(const Json& json, double& value) const {
    const auto number = number_from(json);
    if (!number) fail("a number", json);
    value = *number;
  }
  void read(const Json& json, DType& value) const {
    const auto dtype = json.is_string() ? dtype_from_name(json.get<std::string>()) : std::nullopt;
    if (!dtype) fail("a type such as f32", json);
    value = *dtype;
  }
  void read(const Json& json, Dim& value) const {
    if (json.is_string()) {
      const auto dim = Dim::parse(json.get<std::string>(), bounds);
      if (!dim) fail("a size over known symbols", json);
      value = *dim;
      return;
    }
    std::int64_t number = 0;
    read(json, number);
    value = Dim(number);
  }
  template <class T>
  void read(const Json& json, std::vector<T>& values) const {
    if (!json.is_array()) fail("a list", json);
    values.clear();
    for (const Json& item : json) {
      T value{};
      read(item, value);
      values.push_back(std::move(value));
    }
  }
  template <class E>
  requires std::is_enum_v<E>
  void read(const Json& json, E& value) const {
    const auto names = enum_names(E{});
    for (std::size_t i = 0; i < names.size(); ++i)
      if (json == names[i]) {
        value = static_cast<E>(i);
        return;
      }
    fail(fmt::format("one of {}", fmt::join(names, ", ")).c_str(), json);
  }
};

}  // namespace

Json attrs_json(const Attrs& attrs, bool all) {
  return std::visit(
      [all]<class A>(const A& a) {
        Json json = Json::object();
        a.for_each_field([&](const char* name, const auto& field) { json[name] = write(field); });
        if (!all)
          A{}.for_each_field([&](const char* name, const auto& field) {
            if (json[name] == write(field)) json.erase(name);
          });
        return json;
      },
      attrs);
}

Attrs attrs_from(Op op, const Json& json, const Bounds& bounds) {
  if (!json.is_object()) throw GraphError(fmt::format("{}: its attributes must be an object", name(op)));
  Attrs attrs = info(op).default_attrs;
  std::visit(
      [&](auto& defaults) {
        std::size_t known = 0;
        defaults.for_each_field([&](const char* field_name, auto& field) {
          const auto found = json.find(field_name);
          if (found == json.end()) return;
          ++known;
          Reader{bounds, fmt::format("{}: {}", name(op), field_name)}.read(*found, field);
        });
        if (known == json.size()) return;
        for (const auto& item : json.items()) {
          const std::string& key = item.key();
          bool found = false;
          defaults.for_each_field([&](const char* field_name, auto&) { found |= key == field_name; });
          if (!found) throw GraphError(fmt::format("{} has no attribute {}", name(op), key));
        }
      },
      attrs);
  return attrs;
}

Json shape_json(const Shape& shape) { return write(shape); }

Shape shape_from(const Json& json, const Bounds& bounds, const std::string& what) {
  Shape shape;
  Reader{bounds, what}.read(json, shape);
  return shape;
}

}  // namespace detail

bool same_attrs(const Attrs& a, const Attrs& b) {
  return a.index() == b.index() && detail::attrs_json(a, true) == detail::attrs_json(b, true);
}

std::string attrs_to_json(const Attrs& attrs, bool all) { return detail::attrs_json(attrs, all).dump(); }

Attrs attrs_from_json(Op op, std::string_view text) {
  try {
    return detail::attrs_from(op, parse_ordered_json(text, fmt::format("{}: its attributes", name(op))), {});
  } catch (const FileError& error) {
    throw GraphError(error.what());
  }
}

}  // namespace jerboa
