#include <algorithm>
#include <fmt/core.h>
#include <unordered_map>

#include "text/jinja_interpreter.h"
#include "text/jinja_objects.h"
#include "text/jinja_operators.h"
#include "text/jinja_text.h"

// The methods of Python's str, list, tuple and dict.
namespace jerboa::jinja {
namespace {

struct Self {
  Interpreter& interpreter;
  const Value& value;
  Arguments& arguments;
  std::string_view name;

  const std::string& text() const { return value.text(); }
  List& list() const { return *value.list(); }
  Dict& dict() const { return *value.dict(); }
  ArgumentReader args(std::initializer_list<std::string_view> names) const { return {name, arguments, names}; }
};
using Method = Value (*)(const Self&);
using Methods = std::unordered_map<std::string_view, Method>;

// ---- str

Value split_white_space(const Self& self, std::int64_t limit, bool from_right) {
  std::vector<Value> out;
  std::string_view rest = strip(self.text(), "", true, true);
  const std::u32string characters = decode_utf8(rest);
  std::u32string_view left = characters;
  while (!left.empty()) {
    if (limit == 0) {
      out.emplace_back(encode_utf8(left));
      break;
    }
    --limit;
    std::size_t at = 0;
    if (from_right) {
      at = left.size();
      while (at > 0 && !is_space(left[at - 1])) --at;
      out.emplace_back(encode_utf8(left.substr(at)));
      while (at > 0 && is_space(left[at - 1])) --at;
      left = left.substr(0, at);
    } else {
      while (at < left.size() && !is_space(left[at])) ++at;
      out.emplace_back(encode_utf8(left.substr(0, at)));
      while (at < left.size() && is_space(left[at])) ++at;
      left = left.substr(at);
    }
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

Value split_text(const Self& self, bool from_right) {
  const auto args = self.args({"sep", "maxsplit"});
  std::int64_t limit = args.integer(1, -1);
  if (args.find(0) == nullptr || args.find(0)->is_none()) return split_white_space(self, limit, from_right);
  const std::string& separator = args.text(0);
  if (separator.empty()) throw Fault(fmt::format("{}: the separator is empty", self.name));
  std::vector<Value> out;
  std::string_view rest = self.text();
  for (; limit != 0; --limit) {
    const std::size_t at = from_right ? rest.rfind(separator) : rest.find(separator);
    if (at == std::string_view::npos) break;
    const std::string_view after = rest.substr(at + separator.size());
    out.emplace_back(from_right ? after : rest.substr(0, at));
    rest = from_right ? rest.substr(0, at) : after;
  }
  out.emplace_back(rest);
  if (from_right) std::reverse(out.begin(), out.end());
  self.interpreter.charge(out.size() * sizeof(Value));
  return out;
}

Value split_lines(const Self& self) {
  const bool keep_ends = self.args({"keepends"}).flag(0, false);
  std::vector<Value> out;
  std::string_view rest = self.text();
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find_first_of("\n\r\v\f"), rest.size());
    std::size_t next = std::min(end + 1, rest.size());
    if (end + 1 < rest.size() && rest[end] == '\r' && rest[end + 1] == '\n') ++next;
    out.emplace_back(rest.substr(0, keep_ends ? next : end));
    rest.remove_prefix(next);
  }
  self.interpreter.charge(out.size() * sizeof(Value));
  return out;
}

Value strip_text(const Self& self, bool left, bool right) {
  const auto args = self.args({"chars"});
  const std::string characters = args.text(0, "");
  if (characters.empty() && args.find(0) != nullptr && args.find(0)->is_string()) return self.value;
  return strip(self.text(), characters, left, right);
}

// startswith and endswith take one text or a tuple of them.
template <typename Matches>
bool any_affix(const Self& self, Matches matches) {
  const auto args = self.args({"prefix", "start"});
  std::string_view text = self.text();
  const auto start = args.integer(1, 0);
  const std::string cut = start != 0 ? get_slice(self.value, start, std::nullopt, 1).text() : std::string();
  if (start != 0) text = cut;
  const Value& affix = args.required(0);
  if (affix.is_list() && affix.list()->tuple) {
    for (const Value& item : affix.list()->items)
      if (item.is_string() && matches(text, item.text())) return true;
    return false;
  }
  return matches(text, args.text(0));
}

// The text between two optional positions, for find and count; `offset` is where it starts, in characters.
std::string_view window(const Self& self, const ArgumentReader& args, std::string& storage, std::int64_t& offset) {
  offset = 0;
  if (args.find(1) == nullptr && args.find(2) == nullptr) return self.text();
  const auto size = static_cast<std::int64_t>(count_characters(self.text()));
  const auto clamp = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); };
  offset = clamp(args.integer(1, 0));
  const std::int64_t end = clamp(args.integer(2, size));
  storage = get_slice(self.value, offset, std::max(offset, end), 1).text();
  return storage;
}

std::int64_t find_text(const Self& self, bool last) {
  const auto args = self.args({"sub", "start", "end"});
  std::string storage;
  std::int64_t offset = 0;
  const std::string_view text = window(self, args, storage, offset);
  const std::size_t at = last ? text.rfind(args.text(0)) : text.find(args.text(0));
  if (at == std::string_view::npos) return -1;
  return offset + static_cast<std::int64_t>(count_characters(text.substr(0, at)));
}

std::int64_t index_text(const Self& self, bool last) {
  const std::int64_t at = find_text(self, last);
  if (at < 0) throw Fault(fmt::format("{}: not found", self.name));
  return at;
}

Value count_text(const Self& self) {
  const auto args = self.args({"sub", "start", "end"});
  std::string storage;
  std::int64_t offset = 0;
  const std::string_view text = window(self, args, storage, offset);
  const std::string& sub = args.text(0);
  if (sub.empty()) return Value::size(count_characters(text) + 1);
  std::int64_t count = 0;
  for (std::size_t at = text.find(sub); at != std::string_view::npos; at = text.find(sub, at + sub.size())) ++count;
  return count;
}

Value partition(const Self& self, bool last) {
  const std::string& separator = self.args({"sep"}).text(0);
  if (separator.empty()) throw Fault(fmt::format("{}: the separator is empty", self.name));
  const std::string_view text = self.text();
  const std::size_t at = last ? text.rfind(separator) : text.find(separator);
  if (at == std::string_view::npos)
    return last ? Value::tuple({"", "", self.value}) : Value::tuple({self.value, "", ""});
  return Value::tuple({text.substr(0, at), separator, text.substr(at + separator.size())});
}

Value pad_text(const Self& self, bool left, bool right) {
  const auto args = self.args({"width", "fillchar"});
  const std::int64_t width = args.integer(0);
  const std::string fill = args.text(1, " ");
  const auto size = static_cast<std::int64_t>(count_characters(self.text()));
  if (width <= size) return self.value;
  const auto missing = static_cast<std::size_t>(width - size);
  self.interpreter.charge(missing);
  // Like CPython: the odd space goes left if the width is odd too.
  const std::size_t before = left && right ? missing / 2 + (missing & static_cast<std::size_t>(width) & 1)
                             : left        ? missing
                                           : 0;
  std::string out;
  for (std::size_t i = 0; i < before; ++i) out += fill;
  out += self.text();
  for (std::size_t i = before; i < missing; ++i) out += fill;
  return out;
}

Value zero_fill(const Self& self) {
  const std::int64_t width = self.args({"width"}).integer(0);
  const auto size = static_cast<std::int64_t>(count_characters(self.text()));
  if (width <= size) return self.value;
  self.interpreter.charge(static_cast<std::size_t>(width - size));
  const bool sign = !self.text().empty() && (self.text()[0] == '-' || self.text()[0] == '+');
  return self.text().substr(0, sign) + std::string(static_cast<std::size_t>(width - size), '0') +
         self.text().substr(sign);
}

Value join_text(const Self& self) {
  const auto args = self.args({"iterable"});
  std::string out;
  bool first = true;
  for (const Value& item : iterate(args.required(0))) {
    if (!item.is_string()) throw Fault(fmt::format("join: an item is '{}', not 'str'", item.type_name()));
    self.interpreter.charge(self.text().size() + item.text().size());
    if (!first) out += self.text();
    first = false;
    out += item.text();
  }
  return out;
}

Value replace_text(const Self& self) {
  const auto args = self.args({"old", "new", "count"});
  self.interpreter.charge(replaced_size(self.text(), args.text(0), args.text(1)));
  return replace_all(self.text(), args.text(0), args.text(1), args.integer(2, -1));
}

template <typename Predicate>
bool all_characters(const std::string& text, Predicate predicate) {
  const std::u32string characters = decode_utf8(text);
  return !characters.empty() && std::all_of(characters.begin(), characters.end(), predicate);
}

// isupper and islower: some cased letter, and none of the other case.
bool only_case(const std::string& text, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  const std::u32string characters = decode_utf8(text);
  return std::any_of(characters.begin(), characters.end(), wanted) &&
         std::none_of(characters.begin(), characters.end(), other);
}

bool starts(std::string_view text, std::string_view affix) { return text.substr(0, affix.size()) == affix; }
bool ends(std::string_view text, std::string_view affix) {
  return text.size() >= affix.size() && text.substr(text.size() - affix.size()) == affix;
}

const Methods string_methods = {
    {"capitalize", [](const Self& s) -> Value { return capitalize(s.text()); }},
    {"center", [](const Self& s) -> Value { return pad_text(s, true, true); }},
    {"count", count_text},
    {"endswith", [](const Self& s) -> Value { return any_affix(s, ends); }},
    {"find", [](const Self& s) -> Value { return find_text(s, false); }},
    {"format", [](const Self& s) -> Value { return format_braces(s.interpreter, s.text(), s.arguments); }},
    {"index", [](const Self& s) -> Value { return index_text(s, false); }},
    {"isalnum",
     [](const Self& s) -> Value {
       return all_characters(s.text(), [](char32_t c) { return is_letter(c) || is_digit(c); });
     }},
    {"isalpha", [](const Self& s) -> Value { return all_characters(s.text(), is_letter); }},
    {"isdecimal", [](const Self& s) -> Value { return all_characters(s.text(), is_digit); }},
    {"isdigit", [](const Self& s) -> Value { return all_characters(s.text(), is_digit); }},
    {"islower", [](const Self& s) -> Value { return only_case(s.text(), is_lower, is_upper); }},
    {"isnumeric", [](const Self& s) -> Value { return all_characters(s.text(), is_digit); }},
    {"isspace", [](const Self& s) -> Value { return all_characters(s.text(), is_space); }},
    {"isupper", [](const Self& s) -> Value { return only_case(s.text(), is_upper, is_lower); }},
    {"join", join_text},
    {"ljust", [](const Self& s) -> Value { return pad_text(s, false, true); }},
    {"lower", [](const Self& s) -> Value { return to_lower(s.text()); }},
    {"lstrip", [](const Self& s) -> Value { return strip_text(s, true, false); }},
    {"partition", [](const Self& s) -> Value { return partition(s, false); }},
    {"removeprefix",
     [](const Self& s) -> Value {
       const std::string prefix = s.args({"prefix"}).text(0);
       return starts(s.text(), prefix) ? s.text().substr(prefix.size()) : s.text();
     }},
    {"removesuffix",
     [](const Self& s) -> Value {
       const std::string suffix = s.args({"suffix"}).text(0);
       return ends(s.text(), suffix) ? s.text().substr(0, s.text().size() - suffix.size()) : s.text();
     }},
    {"replace", replace_text},
    {"rfind", [](const Self& s) -> Value { return find_text(s, true); }},
    {"rindex", [](const Self& s) -> Value { return index_text(s, true); }},
    {"rjust", [](const Self& s) -> Value { return pad_text(s, true, false); }},
    {"rpartition", [](const Self& s) -> Value { return partition(s, true); }},
    {"rsplit", [](const Self& s) -> Value { return split_text(s, true); }},
    {"rstrip", [](const Self& s) -> Value { return strip_text(s, false, true); }},
    {"split", [](const Self& s) -> Value { return split_text(s, false); }},
    {"splitlines", split_lines},
    {"startswith", [](const Self& s) -> Value { return any_affix(s, starts); }},
    {"strip", [](const Self& s) -> Value { return strip_text(s, true, true); }},
    {"swapcase", [](const Self& s) -> Value { return swap_case(s.text()); }},
    {"title", [](const Self& s) -> Value { return title(s.text()); }},
    {"upper", [](const Self& s) -> Value { return to_upper(s.text()); }},
    {"zfill", zero_fill},
};

// ---- list

std::size_t position_of(const Self& self) {
  const auto args = self.args({"value"});
  for (std::size_t i = 0; i < self.list().items.size(); ++i)
    if (equal(self.list().items[i], args.required(0))) return i;
  throw Fault(fmt::format("{}: not in the list", self.name));
}

Value pop_item(const Self& self) {
  auto& items = self.list().items;
  std::int64_t at = self.args({"index"}).integer(0, -1);
  if (at < 0) at += static_cast<std::int64_t>(items.size());
  if (at < 0 || at >= static_cast<std::int64_t>(items.size())) throw Fault("pop: the index is out of range");
  Value out = items[static_cast<std::size_t>(at)];
  items.erase(items.begin() + at);
  return out;
}

Value insert_items(const Self& self, const std::vector<Value>& added, std::size_t position) {
  self.interpreter.charge(added.size() * sizeof(Value));
  self.interpreter.changed(self.value);
  for (const Value& item : added) self.list().insert(position++, item);
  return None{};
}

const Methods tuple_methods = {
    {"count",
     [](const Self& s) -> Value {
       const auto args = s.args({"value"});
       const auto& items = s.list().items;
       return static_cast<std::int64_t>(
           std::count_if(items.begin(), items.end(), [&](const Value& item) { return equal(item, args.required(0)); }));
     }},
    {"index", [](const Self& s) -> Value { return Value::size(position_of(s)); }},
};

const Methods list_methods = {
    {"append", [](const Self& s) { return insert_items(s, {s.args({"object"}).required(0)}, s.list().items.size()); }},
    {"clear",
     [](const Self& s) -> Value {
       s.list().items.clear();
       return None{};
     }},
    {"copy", [](const Self& s) -> Value { return s.list().items; }},
    {"count", tuple_methods.at("count")},
    {"extend",
     [](const Self& s) { return insert_items(s, iterate(s.args({"iterable"}).required(0)), s.list().items.size()); }},
    {"index", tuple_methods.at("index")},
    {"insert",
     [](const Self& s) {
       const auto args = s.args({"index", "object"});
       const auto size = static_cast<std::int64_t>(s.list().items.size());
       std::int64_t at = args.integer(0);
       at = std::clamp<std::int64_t>(at < 0 ? std::max(at, -size) + size : at, 0, size);
       return insert_items(s, {args.required(1)}, static_cast<std::size_t>(at));
     }},
    {"pop", pop_item},
    {"remove",
     [](const Self& s) -> Value {
       s.list().items.erase(s.list().items.begin() + static_cast<std::ptrdiff_t>(position_of(s)));
       return None{};
     }},
    {"reverse",
     [](const Self& s) -> Value {
       std::reverse(s.list().items.begin(), s.list().items.end());
       return None{};
     }},
};

// ---- dict

Value update_dict(const Self& self) {
  self.interpreter.changed(self.value);
  std::vector<std::pair<Value, Value>> added;
  for (const Value& source : self.arguments.positional) {
    if (!source.is_dict()) throw Fault(fmt::format("update: a dict is needed, not '{}'", source.type_name()));
    added.insert(added.end(), source.dict()->entries().begin(), source.dict()->entries().end());
  }
  for (const auto& [name, value] : self.arguments.named) added.emplace_back(Value(name), value);
  self.interpreter.charge(added.size() * 2 * sizeof(Value));
  for (auto& [key, value] : added) self.dict().set(std::move(key), std::move(value));
  return None{};
}

Value dict_items(const Self& self) {
  std::vector<Value> out;
  self.interpreter.charge(self.dict().size() * 3 * sizeof(Value));
  for (const auto& [key, value] : self.dict().entries()) out.push_back(Value::tuple({key, value}));
  return out;
}

const Methods dict_methods = {
    {"copy", [](const Self& s) -> Value { return std::make_shared<Dict>(s.dict()); }},
    {"clear",
     [](const Self& s) -> Value {
       s.dict().clear();
       return None{};
     }},
    {"get",
     [](const Self& s) -> Value {
       const auto args = s.args({"key", "default"});
       const Value* value = s.dict().find(args.required(0));
       return value != nullptr ? *value : args.value(1, None{});
     }},
    {"items", dict_items},
    {"keys", [](const Self& s) -> Value { return iterate(s.value); }},
    {"pop",
     [](const Self& s) -> Value {
       const auto args = s.args({"key", "default"});
       const Value* value = s.dict().find(args.required(0));
       if (value == nullptr && args.find(1) == nullptr)
         throw Fault(fmt::format("pop: no key {}", args.required(0).repr()));
       Value out = value != nullptr ? *value : args.value(1, None{});
       s.dict().erase(args.required(0));
       return out;
     }},
    {"setdefault",
     [](const Self& s) -> Value {
       const auto args = s.args({"key", "default"});
       if (const Value* value = s.dict().find(args.required(0))) return *value;
       s.interpreter.changed(s.value);
       s.interpreter.charge(2 * sizeof(Value));
       s.dict().set(args.required(0), args.value(1, None{}));
       return args.value(1, None{});
     }},
    {"update", update_dict},
    {"values",
     [](const Self& s) -> Value {
       std::vector<Value> out;
       s.interpreter.charge(s.dict().size() * sizeof(Value));
       for (const auto& entry : s.dict().entries()) out.push_back(entry.second);
       return out;
     }},
};

const Methods* methods_of(const Value& object) {
  if (object.is_string()) return &string_methods;
  if (object.is_dict()) return &dict_methods;
  if (object.is_list()) return object.list()->tuple ? &tuple_methods : &list_methods;
  return nullptr;
}

}  // namespace

bool has_method(const Value& object, std::string_view name) {
  const Methods* methods = methods_of(object);
  return methods != nullptr && methods->find(name) != methods->end();
}

Value call_method(Interpreter& interpreter, const Value& object, std::string_view name, Arguments arguments) {
  return methods_of(object)->at(name)({interpreter, object, arguments, name});
}

}  // namespace jerboa::jinja
