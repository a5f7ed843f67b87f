#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include <jerboa/ir/attrs.h>
#include <jerboa/ir/op.h>

namespace jerboa::detail {

using Json = nlohmann::ordered_json;

/// Bounds of the symbols that a dim's text may name.
using Bounds = std::map<std::string, std::int64_t>;

/// A number; infinities and NaN, which JSON lacks, become "inf", "-inf" and "nan".
Json number_json(double value);
std::optional<double> number_from(const Json& json);

Json attrs_json(const Attrs& attrs, bool all);
Attrs attrs_from(Op op, const Json& json, const Bounds& bounds);
Json shape_json(const Shape& shape);
Shape shape_from(const Json& json, const Bounds& bounds, const std::string& what);

}  // namespace jerboa::detail
