#include <algorithm>
#include <fmt/core.h>
#include <unordered_map>

#include "text/jinja_filters.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_objects.h"
#include "text/jinja_operators.h"
#include "text/jinja_text.h"

// `x is …`
namespace jerboa::jinja {
namespace {

bool is_iterable(const Value& value) {
  return value.is_string() || value.is_list() || value.is_dict() || value.is_undefined();
}

std::int64_t integer_of(const Value& value) {
  if (value.is_undefined()) throw Fault(*value.undefined().what);
  if (!value.is_integral()) throw Fault(fmt::format("an int is needed, not '{}'", value.type_name()));
  return value.integer();
}

template <CompareOp op>
bool compares(Interpreter&, const Value& input, Arguments& arguments) {
  const ArgumentReader args("this test", arguments, {"other"});
  return compare_with(op, input, args.required(0));
}

bool divisible_by(Interpreter&, const Value& input, Arguments& arguments) {
  const std::int64_t divisor = ArgumentReader("divisibleby", arguments, {"num"}).integer(0);
  if (divisor == 0) throw Fault("division by zero");
  return divisor == -1 || integer_of(input) % divisor == 0;
}

bool one_case(const Value& input, std::string (*convert)(std::string_view), std::string (*other)(std::string_view)) {
  const std::string text = input.str();
  return convert(text) == text && other(text) != text;
}

bool names_filter(Interpreter&, const Value& input, Arguments&) {
  return input.is_string() && find_filter(input.text()) != nullptr;
}
bool names_test(Interpreter&, const Value& input, Arguments&) {
  return input.is_string() && find_test(input.text()) != nullptr;
}

}  // namespace

TestFunction find_test(std::string_view name) {
  using Input = const Value&;
  static const std::unordered_map<std::string_view, TestFunction> table = {
      {"!=", compares<CompareOp::not_equal>},
      {"<", compares<CompareOp::less>},
      {"<=", compares<CompareOp::less_equal>},
      {"==", compares<CompareOp::equal>},
      {">", compares<CompareOp::greater>},
      {">=", compares<CompareOp::greater_equal>},
      {"boolean", [](Interpreter&, Input v, Arguments&) { return v.is_bool(); }},
      {"callable", [](Interpreter&, Input v, Arguments&) { return v.callable(); }},
      {"defined", [](Interpreter&, Input v, Arguments&) { return !v.is_undefined(); }},
      {"divisibleby", divisible_by},
      {"eq", compares<CompareOp::equal>},
      {"equalto", compares<CompareOp::equal>},
      {"escaped", [](Interpreter&, Input, Arguments&) { return false; }},
      {"even", [](Interpreter&, Input v, Arguments&) { return integer_of(v) % 2 == 0; }},
      {"false", [](Interpreter&, Input v, Arguments&) { return v.is_bool() && !v.truthy(); }},
      {"filter", names_filter},
      {"float", [](Interpreter&, Input v, Arguments&) { return v.is_float(); }},
      {"ge", compares<CompareOp::greater_equal>},
      {"greaterthan", compares<CompareOp::greater>},
      {"gt", compares<CompareOp::greater>},
      {"in", compares<CompareOp::in>},
      {"integer", [](Interpreter&, Input v, Arguments&) { return v.is_integral() && !v.is_bool(); }},
      {"iterable", [](Interpreter&, Input v, Arguments&) { return is_iterable(v); }},
      {"le", compares<CompareOp::less_equal>},
      {"lessthan", compares<CompareOp::less>},
      {"lower", [](Interpreter&, Input v, Arguments&) { return one_case(v, to_lower, to_upper); }},
      {"lt", compares<CompareOp::less>},
      {"mapping", [](Interpreter&, Input v, Arguments&) { return v.is_dict(); }},
      {"ne", compares<CompareOp::not_equal>},
      {"none", [](Interpreter&, Input v, Arguments&) { return v.is_none(); }},
      {"number", [](Interpreter&, Input v, Arguments&) { return v.is_number(); }},
      {"odd", [](Interpreter&, Input v, Arguments&) { return integer_of(v) % 2 != 0; }},
      {"sameas",
       [](Interpreter&, Input v, Arguments& arguments) {
         const ArgumentReader args("sameas", arguments, {"other"});
         const Value& other = args.required(0);
         if (v.is_list() && other.is_list()) return v.list() == other.list();
         if (v.is_dict() && other.is_dict()) return v.dict() == other.dict();
         return v.type_name() == other.type_name() && equal(v, other);
       }},
      {"sequence", [](Interpreter&, Input v, Arguments&) { return is_iterable(v); }},
      {"string", [](Interpreter&, Input v, Arguments&) { return v.is_string(); }},
      {"test", names_test},
      {"true", [](Interpreter&, Input v, Arguments&) { return v.is_bool() && v.truthy(); }},
      {"undefined", [](Interpreter&, Input v, Arguments&) { return v.is_undefined(); }},
      {"upper", [](Interpreter&, Input v, Arguments&) { return one_case(v, to_upper, to_lower); }},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace jerboa::jinja
