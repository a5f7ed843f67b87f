#pragma once

#include <optional>
#include <string_view>

#include "text/jinja_ast.h"

// Python's operators and lookups on values.
namespace jerboa::jinja {

Value arithmetic(Interpreter& interpreter, BinaryOp op, const Value& left, const Value& right);
bool compare_with(CompareOp op, const Value& left, const Value& right);
Value negate(const Value& value);

/// object.name: a method or attribute, else the key of that name, else undefined.
Value get_attribute(const Value& object, std::string_view name);
/// object[index]: an item or key, else the attribute of that name, else undefined.
Value get_item(const Value& object, const Value& index);
Value get_slice(const Value& object, std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                std::int64_t step);

/// "%s and %d" % values
std::string format_percent(Interpreter& interpreter, std::string_view format, const Value& values);
/// "{} and {name:>8}".format(…)
std::string format_braces(Interpreter& interpreter, std::string_view format, const Arguments& arguments);

/// A method of a string, list or dict; false if the value has none of that name.
bool has_method(const Value& object, std::string_view name);
Value call_method(Interpreter& interpreter, const Value& object, std::string_view name, Arguments arguments);

}  // namespace jerboa::jinja
