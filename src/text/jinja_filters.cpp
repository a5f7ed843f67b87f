#include "text/jinja_filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fmt/core.h>
#include <unordered_map>

#include "base/stable_sort.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_objects.h"
#include "text/jinja_operators.h"
#include "text/jinja_text.h"

// `x | …`: one function per filter, in the order of the table at the end.
namespace jerboa::jinja {
namespace {

using Items = std::vector<Value>;

// Resolves an `attribute` argument: "a.b.0" walks attributes and indices.
Value dotted_attribute(const Value& item, const Value& path) {
  if (!path.is_string()) return get_item(item, path);
  Value value = item;
  std::string_view rest = path.text();
  for (;;) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    std::int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = error == std::errc{} && end == part.data() + part.size();
    value = get_item(value, number ? Value(index) : Value(part));
    if (dot == rest.size()) return value;
    rest.remove_prefix(dot + 1);
  }
}

// Strings sort case-insensitively unless asked otherwise.
Value sort_key(const Value& item, const Value* attribute, bool case_sensitive) {
  Value key = attribute != nullptr && !attribute->is_none() ? dotted_attribute(item, *attribute) : item;
  return !case_sensitive && key.is_string() ? Value(to_lower(key.text())) : key;
}

std::string text_of(const Value& value) { return value.is_string() ? value.text() : value.str(); }

Value absolute(Interpreter&, const Value& input, Arguments&) {
  if (!input.is_number()) throw Fault(fmt::format("abs: a '{}' is not a number", input.type_name()));
  return input.number() < 0 ? negate(input) : input.is_bool() ? Value(input.integer()) : input;
}

// Attributes only: unlike the dot, never a key.
Value attr(Interpreter&, const Value& input, Arguments& arguments) {
  const std::string& name = ArgumentReader("attr", arguments, {"name"}).text(0);
  if (has_method(input, name) || input.is_object()) return get_attribute(input, name);
  return undefined(fmt::format("'{}' has no attribute '{}'", input.type_name(), name));
}

Value batch(Interpreter&, const Value& input, Arguments& arguments) {
  const ArgumentReader args("batch", arguments, {"linecount", "fill_with"});
  const std::int64_t size = args.integer(0);
  if (size < 1) throw Fault("batch: the size must be positive");
  if (size > 100'000) throw Fault("batch: the size is too large");
  Items rows, row;
  for (Value& item : iterate(input)) {
    row.push_back(std::move(item));
    if (static_cast<std::int64_t>(row.size()) == size) rows.emplace_back(std::exchange(row, {}));
  }
  if (!row.empty()) {
    if (args.find(1) != nullptr) row.resize(static_cast<std::size_t>(size), args.required(1));
    rows.emplace_back(std::move(row));
  }
  return rows;
}

Value center(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const std::int64_t width = ArgumentReader("center", arguments, {"width"}).integer(0, 80);
  return call_method(interpreter, text_of(input), "center", {{Value(width)}, {}});
}

Value default_value(Interpreter&, const Value& input, Arguments& arguments) {
  const ArgumentReader args("default", arguments, {"default_value", "boolean"});
  return input.is_undefined() || (args.flag(1, false) && !input.truthy()) ? args.value(0, "") : input;
}

Value dict_sort(Interpreter&, const Value& input, Arguments& arguments) {
  const ArgumentReader args("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!input.is_dict()) throw Fault(fmt::format("dictsort: a dict is needed, not '{}'", input.type_name()));
  const std::string by = args.text(1, "key");
  if (by != "key" && by != "value") throw Fault("dictsort: 'by' must be 'key' or 'value'");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : input.dict()->entries())
    keyed.emplace_back(sort_key(by == "key" ? key : value, nullptr, args.flag(0, false)), Value::tuple({key, value}));
  const bool reverse = args.flag(2, false);
  detail::stable_sort(keyed, [&](const auto& a, const auto& b) {
    return reverse ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
  });
  Items out;
  for (auto& entry : keyed) out.push_back(std::move(entry.second));
  return out;
}

Value escape(Interpreter&, const Value& input, Arguments&) {
  std::string out;
  for (const char c : text_of(input)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

Value first(Interpreter&, const Value& input, Arguments&) {
  Items items = iterate(input);
  return items.empty() ? undefined("no first item: the sequence is empty") : items.front();
}

Value last(Interpreter&, const Value& input, Arguments&) {
  Items items = iterate(input);
  return items.empty() ? undefined("no last item: the sequence is empty") : items.back();
}

Value to_float(Interpreter&, const Value& input, Arguments& arguments) {
  const ArgumentReader args("float", arguments, {"default"});
  if (input.is_number()) return input.number();
  if (input.is_string()) {
    const std::string text(strip(input.text(), "", true, true));
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && text.find_first_of("xX") == std::string::npos) return value;
  }
  return args.value(0, 0.0);
}

Value format(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  if (arguments.named.empty())
    return format_percent(interpreter, text_of(input), Value::tuple(std::move(arguments.positional)));
  auto values = std::make_shared<Dict>();
  for (auto& [name, value] : arguments.named) values->set(name, std::move(value));
  return format_percent(interpreter, text_of(input), values);
}

Value group_by(Interpreter&, const Value& input, Arguments& arguments) {
  const ArgumentReader args("groupby", arguments, {"attribute", "default", "case_sensitive"});
  std::vector<std::pair<Value, Value>> keyed;  // the key that sorts, and the item
  for (Value& item : iterate(input)) {
    Value key = sort_key(item, &args.required(0), args.flag(2, false));
    if (key.is_undefined()) key = args.value(1, key);
    keyed.emplace_back(std::move(key), std::move(item));
  }
  detail::stable_sort(keyed, [](const auto& a, const auto& b) { return compare(a.first, b.first) < 0; });
  Items groups;
  for (std::size_t i = 0; i < keyed.size();) {
    Items members;
    const std::size_t start = i;
    for (; i < keyed.size() && equal(keyed[i].first, keyed[start].first); ++i) members.push_back(keyed[i].second);
    Value key = dotted_attribute(members.front(), args.required(0));
    if (key.is_undefined()) key = keyed[start].first;
    groups.push_back(Value::tuple({std::move(key), std::move(members)}));
  }
  return groups;
}

Value indent(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const ArgumentReader args("indent", arguments, {"width", "first", "blank"});
  std::string margin;
  if (const Value* width = args.find(0); width != nullptr && width->is_string()) {
    margin = width->text();
  } else {
    const std::int64_t count = std::max<std::int64_t>(args.integer(0, 4), 0);
    interpreter.charge(static_cast<std::size_t>(count));
    margin.assign(static_cast<std::size_t>(count), ' ');
  }
  const bool indent_first = args.flag(1, false), indent_blank = args.flag(2, false);
  const std::string text = text_of(input);
  std::string out;
  bool first_line = true;
  for (std::size_t position = 0; position <= text.size();) {
    const std::size_t end = std::min(text.find('\n', position), text.size());
    const bool blank = end == position;
    if (first_line ? indent_first : !blank || indent_blank) {
      interpreter.charge(margin.size());
      out += margin;
    }
    first_line = false;
    out.append(text, position, end - position);
    if (end < text.size()) out += '\n';
    position = end + 1;
  }
  return out;
}

Value to_integer(Interpreter&, const Value& input, Arguments& arguments) {
  const ArgumentReader args("int", arguments, {"default", "base"});
  if (input.is_integral()) return input.integer();
  if (input.is_float() && std::fabs(input.number()) < 9.2e18) return static_cast<std::int64_t>(input.number());
  if (input.is_string()) {
    std::string text(strip(input.text(), "", true, true));
    std::erase(text, '_');
    const std::int64_t base = args.integer(1, 10);
    if (base < 2 || base > 36) throw Fault("int: the base must be from 2 to 36");
    std::string_view digits = text;
    if (!digits.empty() && digits[0] == '+') digits.remove_prefix(1);
    if (base == 16 && (digits.substr(0, 2) == "0x" || digits.substr(0, 2) == "0X")) digits.remove_prefix(2);
    std::int64_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
    if (error == std::errc{} && end == digits.data() + digits.size()) return value;
    char* float_end = nullptr;
    const double number = std::strtod(text.c_str(), &float_end);
    if (base == 10 && !text.empty() && *float_end == '\0' && std::fabs(number) < 9.2e18)
      return static_cast<std::int64_t>(number);
  }
  return args.value(0, std::int64_t{0});
}

Value items(Interpreter& interpreter, const Value& input, Arguments&) {
  if (input.is_undefined()) return Items{};
  if (!input.is_dict()) throw Fault(fmt::format("items: a dict is needed, not '{}'", input.type_name()));
  return call_method(interpreter, input, "items", {});
}

Value join(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const ArgumentReader args("join", arguments, {"d", "attribute"});
  const std::string separator = args.find(0) != nullptr ? text_of(*args.find(0)) : "";
  std::string out;
  bool first_item = true;
  for (const Value& item : iterate(input)) {
    if (!first_item) out += separator;
    first_item = false;
    const std::string text = text_of(args.find(1) != nullptr ? dotted_attribute(item, *args.find(1)) : item);
    interpreter.charge(separator.size() + text.size());
    out += text;
  }
  return out;
}

// map('filter', …) or map(attribute='name', default=…)
Value map(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  Items out;
  if (arguments.positional.empty()) {
    const ArgumentReader args("map", arguments, {"attribute", "default"});
    for (const Value& item : iterate(input)) {
      Value value = dotted_attribute(item, args.required(0));
      out.push_back(value.is_undefined() ? args.value(1, value) : value);
    }
    return out;
  }
  if (!arguments.positional.front().is_string()) throw Fault("map: the first argument must name a filter");
  const std::string name = arguments.positional.front().text();
  const FilterFunction filter = find_filter(name);
  if (filter == nullptr) throw Fault(fmt::format("map: unknown filter '{}'", name));
  arguments.positional.erase(arguments.positional.begin());
  for (const Value& item : iterate(input)) {
    interpreter.step();
    Arguments copy = arguments;
    out.push_back(filter(interpreter, item, copy));
    if (out.back().is_string()) interpreter.charge(out.back().text().size());
  }
  return out;
}

template <int sign>
Value extreme(Interpreter&, const Value& input, Arguments& arguments) {
  const ArgumentReader args(sign > 0 ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const Items all = iterate(input);
  if (all.empty()) return undefined("the sequence is empty");
  std::size_t best = 0;
  Value best_key = sort_key(all[0], args.find(1), args.flag(0, false));
  for (std::size_t i = 1; i < all.size(); ++i) {
    Value key = sort_key(all[i], args.find(1), args.flag(0, false));
    if (sign * compare(key, best_key) <= 0) continue;
    best = i;
    best_key = std::move(key);
  }
  return all[best];
}

// select, reject, selectattr and rejectattr: by a test, or by truth.
template <bool keep, bool by_attribute>
Value choose(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  Arguments rest = arguments;
  Value attribute;
  if (by_attribute) {
    if (rest.positional.empty()) throw Fault("selectattr and rejectattr need an attribute");
    attribute = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
  }
  TestFunction test = nullptr;
  if (!rest.positional.empty()) {
    const std::string name = rest.positional.front().str();
    test = find_test(name);
    if (test == nullptr) throw Fault(fmt::format("unknown test '{}'", name));
    rest.positional.erase(rest.positional.begin());
  }
  Items out;
  for (Value& item : iterate(input)) {
    interpreter.step();
    const Value subject = by_attribute ? dotted_attribute(item, attribute) : item;
    Arguments copy = rest;
    if ((test != nullptr ? test(interpreter, subject, copy) : subject.truthy()) == keep) out.push_back(std::move(item));
  }
  return out;
}

Value replace(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const ArgumentReader args("replace", arguments, {"old", "new", "count"});
  const std::string text = text_of(input), from = text_of(args.required(0)), to = text_of(args.required(1));
  interpreter.charge(replaced_size(text, from, to));
  return replace_all(text, from, to, args.integer(2, -1));
}

Value reverse(Interpreter&, const Value& input, Arguments&) {
  if (input.is_string()) return get_slice(input, std::nullopt, std::nullopt, -1);
  Items out = iterate(input);
  std::reverse(out.begin(), out.end());
  return out;
}

Value round_number(Interpreter&, const Value& input, Arguments& arguments) {
  const ArgumentReader args("round", arguments, {"precision", "method"});
  if (!input.is_number()) throw Fault(fmt::format("round: a '{}' is not a number", input.type_name()));
  const std::int64_t precision = args.integer(0, 0);
  if (precision < -300 || precision > 300) throw Fault("round: the precision is out of range");
  const std::string method = args.text(1, "common");
  if (input.is_integral() && method == "common" && precision >= 0) return input.integer();
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.number() * scale;
  if (!std::isfinite(scaled)) return input.number();
  if (method == "ceil") return std::ceil(scaled) / scale;
  if (method == "floor") return std::floor(scaled) / scale;
  if (method != "common") throw Fault("round: the method must be 'common', 'ceil' or 'floor'");
  // Python rounds the exact decimal value, half to even, which is what printing to that precision does.
  if (precision >= 0) return std::strtod(fmt::format("{:.{}f}", input.number(), precision).c_str(), nullptr);
  const double rounded = std::nearbyint(scaled) / scale;
  if (input.is_integral() && std::fabs(rounded) < 9.2e18) return static_cast<std::int64_t>(rounded);
  return rounded;
}

// slice(3): the items in that many columns.
Value slice(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const ArgumentReader args("slice", arguments, {"slices", "fill_with"});
  const std::int64_t count = args.integer(0);
  if (count < 1) throw Fault("slice: the count must be positive");
  if (count > 100'000) throw Fault("slice: the count is too large");
  interpreter.charge(static_cast<std::size_t>(count) * sizeof(Value));
  const Items all = iterate(input);
  const auto columns = static_cast<std::size_t>(count);
  const std::size_t each = all.size() / columns, longer = all.size() % columns;
  Items out;
  for (std::size_t i = 0, position = 0; i < columns; ++i) {
    const std::size_t size = each + (i < longer);
    Items column(all.begin() + static_cast<std::ptrdiff_t>(position),
                 all.begin() + static_cast<std::ptrdiff_t>(position + size));
    if (args.find(1) != nullptr && i >= longer && longer > 0) column.push_back(args.required(1));
    position += size;
    out.emplace_back(std::move(column));
  }
  return out;
}

Value sort(Interpreter&, const Value& input, Arguments& arguments) {
  const ArgumentReader args("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<std::pair<Items, Value>> keyed;
  for (Value& item : iterate(input)) {
    Items keys;
    if (const Value* attribute = args.find(2); attribute != nullptr && attribute->is_string()) {
      std::string_view rest = attribute->text();  // "a,b" sorts by a, then by b
      for (std::size_t comma = 0; comma != std::string_view::npos;
           rest.remove_prefix(std::min(comma + 1, rest.size()))) {
        comma = rest.find(',');
        const Value part(strip(rest.substr(0, comma), "", true, true));
        keys.push_back(sort_key(item, &part, args.flag(1, false)));
        if (comma == std::string_view::npos) break;
      }
    } else {
      keys.push_back(sort_key(item, args.find(2), args.flag(1, false)));
    }
    keyed.emplace_back(std::move(keys), std::move(item));
  }
  const bool descending = args.flag(0, false);
  detail::stable_sort(keyed, [&](const auto& a, const auto& b) {
    for (std::size_t i = 0; i < a.first.size(); ++i)
      if (const int order = compare(a.first[i], b.first[i]); order != 0) return descending ? order > 0 : order < 0;
    return false;
  });
  Items out;
  for (auto& entry : keyed) out.push_back(std::move(entry.second));
  return out;
}

Value sum(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const ArgumentReader args("sum", arguments, {"attribute", "start"});
  Value total = args.value(1, std::int64_t{0});
  for (const Value& item : iterate(input))
    total =
        arithmetic(interpreter, BinaryOp::add, total,
                   args.find(0) != nullptr && !args.find(0)->is_none() ? dotted_attribute(item, *args.find(0)) : item);
  return total;
}

// Jinja's title, unlike str.title(): only white space, brackets and dashes begin a word.
Value title_words(Interpreter&, const Value& input, Arguments&) {
  constexpr std::string_view breaks = "-({[<";
  std::string out;
  std::u32string word;
  const auto flush = [&] { out += capitalize(encode_utf8(std::exchange(word, {}))); };
  for (const char32_t c : decode_utf8(text_of(input))) {
    if (is_space(c) || (c < 0x80 && breaks.find(static_cast<char>(c)) != std::string_view::npos)) {
      flush();
      append_utf8(out, c);
    } else {
      word += c;
    }
  }
  flush();
  return out;
}

Value tojson(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  // The names and their order are those of transformers' filter.
  const ArgumentReader args("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonFormat json;
  json.ensure_ascii = args.flag(0, false);
  json.sort_keys = args.flag(3, false);
  if (const Value* indent_by = args.find(1); indent_by != nullptr && !indent_by->is_none()) {
    json.item_separator = ",";
    if (indent_by->is_string()) {
      json.indent = indent_by->text();
    } else {
      const std::int64_t width = args.integer(1);
      if (width > 100) throw Fault("tojson: the indent is too large");
      json.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
  }
  if (const Value* separators = args.find(2); separators != nullptr && !separators->is_none()) {
    const Items pair = iterate(*separators);
    if (pair.size() != 2) throw Fault("tojson: separators must be a pair");
    json.item_separator = pair[0].str();
    json.key_separator = pair[1].str();
  }
  std::string text = to_json(input, json);
  interpreter.charge(text.size());
  return text;
}

Value trim(Interpreter&, const Value& input, Arguments& arguments) {
  const ArgumentReader args("trim", arguments, {"chars"});
  return strip(text_of(input), args.text(0, ""), true, true);
}

Value truncate(Interpreter&, const Value& input, Arguments& arguments) {
  const ArgumentReader args("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const std::u32string text = decode_utf8(text_of(input));
  const std::u32string end = decode_utf8(args.text(2, "..."));
  const std::int64_t limit = args.integer(0, 255), leeway = args.integer(3, 5);
  if (limit < static_cast<std::int64_t>(end.size()) || leeway < 0) throw Fault("truncate: the length is too small");
  if (static_cast<std::int64_t>(text.size()) - leeway <= limit) return encode_utf8(text);
  std::u32string kept = text.substr(0, static_cast<std::size_t>(limit) - end.size());
  if (!args.flag(1, false))
    if (const std::size_t space = kept.rfind(U' '); space != std::u32string::npos) kept.resize(space);
  return encode_utf8(kept + end);
}

Value unique(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const ArgumentReader args("unique", arguments, {"case_sensitive", "attribute"});
  Dict seen;
  Items out;
  for (Value& item : iterate(input)) {
    interpreter.step();
    Value key = sort_key(item, args.find(1), args.flag(0, false));
    if (seen.find(key) != nullptr) continue;
    seen.set(std::move(key), None{});
    out.push_back(std::move(item));
  }
  return out;
}

Value urlencode(Interpreter&, const Value& input, Arguments&) {
  std::string out;
  for (const char c : text_of(input)) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Value word_count(Interpreter&, const Value& input, Arguments&) {
  std::int64_t count = 0;
  bool inside = false;
  for (const char32_t c : decode_utf8(text_of(input))) {
    const bool word = is_letter(c) || is_digit(c) || c == U'_';
    count += word && !inside;
    inside = word;
  }
  return count;
}

}  // namespace

FilterFunction find_filter(std::string_view name) {
  using Input = const Value&;
  static constexpr FilterFunction count = [](Interpreter&, Input v, Arguments&) { return Value::size(length(v)); };
  static constexpr FilterFunction same = [](Interpreter&, Input v, Arguments&) { return v; };
  static const std::unordered_map<std::string_view, FilterFunction> table = {
      {"abs", absolute},
      {"attr", attr},
      {"batch", batch},
      {"capitalize", [](Interpreter&, Input v, Arguments&) { return Value(capitalize(text_of(v))); }},
      {"center", center},
      {"count", count},
      {"d", default_value},
      {"default", default_value},
      {"dictsort", dict_sort},
      {"e", escape},
      {"escape", escape},
      {"first", first},
      {"float", to_float},
      {"forceescape", escape},
      {"format", format},
      {"groupby", group_by},
      {"indent", indent},
      {"int", to_integer},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", count},
      {"list", [](Interpreter&, Input v, Arguments&) { return Value(iterate(v)); }},
      {"lower", [](Interpreter&, Input v, Arguments&) { return Value(to_lower(text_of(v))); }},
      {"map", map},
      {"max", extreme<1>},
      {"min", extreme<-1>},
      {"reject", choose<false, false>},
      {"rejectattr", choose<false, true>},
      {"replace", replace},
      {"reverse", reverse},
      {"round", round_number},
      {"safe", same},
      {"select", choose<true, false>},
      {"selectattr", choose<true, true>},
      {"slice", slice},
      {"sort", sort},
      {"string", [](Interpreter&, Input v, Arguments&) { return Value(v.str()); }},
      {"sum", sum},
      {"title", title_words},
      {"tojson", tojson},
      {"trim", trim},
      {"truncate", truncate},
      {"unique", unique},
      {"upper", [](Interpreter&, Input v, Arguments&) { return Value(to_upper(text_of(v))); }},
      {"urlencode", urlencode},
      {"wordcount", word_count},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace jerboa::jinja
