#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "text/jinja_text.h"

namespace jerboa::jinja {
namespace {

constexpr std::size_t max_nodes = 10'000'000;  // a value may hold another many times over
constexpr std::size_t index_above = 12;        // dict entries from which a hash beats a scan

int deeper(int depth) {
  constexpr int max_container_depth = 500;
  if (depth >= max_container_depth)
    throw Fault(fmt::format("values are nested more than {} deep", max_container_depth));
  return depth + 1;
}

std::string quote(std::string_view text) {
  const char mark = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, mark);
  for (const char c : text) {
    if (c == mark || c == '\\')
      (out += '\\') += c;
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out += mark;
}

void append_repr(std::string& out, const Value& value, int depth) {
  if (depth > max_depth || out.size() > max_printed_bytes) throw Fault("a value is too large or too deep to print");
  if (value.is_string()) {
    out += quote(value.text());
  } else if (value.is_list()) {
    const List& list = *value.list();
    out += list.tuple ? '(' : '[';
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(out, list.items[i], depth + 1);
    }
    if (list.tuple && list.items.size() == 1) out += ',';
    out += list.tuple ? ')' : ']';
  } else if (value.is_dict()) {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : value.dict()->entries()) {
      if (!first) out += ", ";
      first = false;
      append_repr(out, key, depth + 1);
      out += ": ";
      append_repr(out, item, depth + 1);
    }
    out += '}';
  } else {
    out += value.is_undefined() ? "Undefined" : value.str();
  }
}

bool equal_at(const Value& a, const Value& b, int depth, std::size_t& nodes) {
  if (depth > max_depth || ++nodes > max_nodes) throw Fault("values are too large or too deep to compare");
  if (a.is_number() && b.is_number())
    return a.is_integral() && b.is_integral() ? a.integer() == b.integer() : a.number() == b.number();
  if (a.is_string() && b.is_string()) return a.text() == b.text();
  if (a.is_list() && b.is_list()) {
    const List& x = *a.list();
    const List& y = *b.list();
    if (x.tuple != y.tuple || x.items.size() != y.items.size()) return false;
    for (std::size_t i = 0; i < x.items.size(); ++i)
      if (!equal_at(x.items[i], y.items[i], depth + 1, nodes)) return false;
    return true;
  }
  if (a.is_dict() && b.is_dict()) {
    if (a.dict()->size() != b.dict()->size()) return false;
    for (const auto& [key, item] : a.dict()->entries()) {
      const Value* other = b.dict()->find(key);
      if (other == nullptr || !equal_at(item, *other, depth + 1, nodes)) return false;
    }
    return true;
  }
  if (a.is_object() && b.is_object()) return a.object() == b.object();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

int compare_at(const Value& a, const Value& b, int depth, std::size_t& nodes) {
  if (depth > max_depth || ++nodes > max_nodes) throw Fault("values are too large or too deep to compare");
  if (a.is_integral() && b.is_integral()) return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
  if (a.is_number() && b.is_number()) return a.number() < b.number() ? -1 : a.number() > b.number();
  if (a.is_string() && b.is_string()) {
    const int order = a.text().compare(b.text());  // the order of UTF-8 bytes is that of code points
    return order < 0 ? -1 : order > 0;
  }
  if (a.is_list() && b.is_list() && a.list()->tuple == b.list()->tuple) {
    const auto& x = a.list()->items;
    const auto& y = b.list()->items;
    for (std::size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!equal_at(x[i], y[i], depth + 1, nodes)) return compare_at(x[i], y[i], depth + 1, nodes);
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  for (const Value* side : {&a, &b})
    if (side->is_undefined()) throw Fault(*side->undefined().what);
  throw Fault(fmt::format("'{}' and '{}' have no order", a.type_name(), b.type_name()));
}

}  // namespace

List::List(std::vector<Value> values, bool is_tuple) : items(std::move(values)), tuple(is_tuple) {
  int below = 0;
  for (const Value& item : items) below = std::max(below, item.depth());
  depth = deeper(below);
}

void List::insert(std::size_t position, Value value) {
  depth = std::max(depth, deeper(value.depth()));
  items.insert(items.begin() + static_cast<std::ptrdiff_t>(position), std::move(value));
}

std::optional<std::size_t> Dict::position(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(std::string(key));
    return found == index_.end() ? std::nullopt : std::optional(found->second);
  }
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].first.is_string() && entries_[i].first.text() == key) return i;
  return std::nullopt;
}

std::optional<std::size_t> Dict::position(const Value& key) const {
  if (key.is_string()) return position(std::string_view(key.text()));
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (equal(entries_[i].first, key)) return i;
  return std::nullopt;
}

const Value* Dict::find(const Value& key) const {
  const auto at = position(key);
  return at ? &entries_[*at].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const auto at = position(key);
  return at ? &entries_[*at].second : nullptr;
}

void Dict::set(Value key, Value value) {
  if (key.is_dict() || (key.is_list() && !key.list()->tuple))
    throw Fault(fmt::format("a {} cannot be a dict key", key.type_name()));
  depth_ = std::max(depth_, deeper(std::max(key.depth(), value.depth())));
  if (const auto at = position(key)) {
    entries_[*at].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() == index_above || (index_.empty() && entries_.size() > index_above))
    index_strings();
  else if (!index_.empty() && entries_.back().first.is_string())
    index_.emplace(entries_.back().first.text(), entries_.size() - 1);
}

void Dict::index_strings() {
  index_.clear();
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].first.is_string()) index_.emplace(entries_[i].first.text(), i);
}

bool Dict::erase(const Value& key) {
  const auto at = position(key);
  if (!at) return false;
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(*at));
  index_.clear();
  if (entries_.size() >= index_above) index_strings();
  return true;
}

void Dict::clear() {
  entries_.clear();
  index_.clear();
}

std::optional<Value> Object::attribute(std::string_view) { return std::nullopt; }
Value Object::call(Interpreter&, Arguments&) { throw Fault(fmt::format("'{}' cannot be called", type_name())); }
void Object::set_attribute(const std::string&, const Value&) {
  throw Fault(fmt::format("cannot assign an attribute of '{}': only a namespace has those", type_name()));
}

std::int64_t Value::integer() const {
  if (is_bool()) return std::get<bool>(data_) ? 1 : 0;
  return std::get<std::int64_t>(data_);
}

double Value::number() const { return is_float() ? std::get<double>(data_) : static_cast<double>(integer()); }

bool Value::truthy() const {
  if (is_integral()) return integer() != 0;
  if (is_float()) return number() != 0;
  if (is_string()) return !text().empty();
  if (is_list()) return !list()->items.empty();
  if (is_dict()) return dict()->size() > 0;
  return is_object();
}

int Value::depth() const {
  if (is_list()) return list()->depth;
  if (is_dict()) return dict()->depth();
  return is_object() ? object()->depth() : 0;
}

std::string Value::str() const {
  if (is_undefined()) return {};
  if (is_none()) return "None";
  if (is_bool()) return integer() != 0 ? "True" : "False";
  if (is_integral()) return std::to_string(integer());
  if (is_float()) return format_float(number());
  if (is_string()) return text();
  if (is_object()) return fmt::format("<{}>", object()->type_name());
  return repr();
}

std::string Value::repr() const {
  std::string out;
  append_repr(out, *this, 0);
  return out;
}

std::string Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_integral()) return "int";
  if (is_float()) return "float";
  if (is_string()) return "str";
  if (is_list()) return list()->tuple ? "tuple" : "list";
  if (is_dict()) return "dict";
  return object()->type_name();
}

bool equal(const Value& a, const Value& b) {
  std::size_t nodes = 0;
  return equal_at(a, b, 0, nodes);
}

int compare(const Value& a, const Value& b) {
  std::size_t nodes = 0;
  return compare_at(a, b, 0, nodes);
}

bool contains(const Value& haystack, const Value& needle) {
  if (haystack.is_string()) {
    if (!needle.is_string()) throw Fault(fmt::format("'in <str>' needs a str, not '{}'", needle.type_name()));
    return haystack.text().find(needle.text()) != std::string::npos;
  }
  if (haystack.is_dict()) return haystack.dict()->find(needle) != nullptr;
  if (haystack.is_list()) {
    for (const Value& item : haystack.list()->items)
      if (equal(item, needle)) return true;
    return false;
  }
  if (haystack.is_undefined()) return false;
  throw Fault(fmt::format("'{}' is not a container", haystack.type_name()));
}

std::vector<Value> iterate(const Value& value) {
  if (value.is_list()) return value.list()->items;
  std::vector<Value> out;
  if (value.is_dict()) {
    out.reserve(value.dict()->size());
    for (const auto& entry : value.dict()->entries()) out.push_back(entry.first);
  } else if (value.is_string()) {
    for (const char32_t c : decode_utf8(value.text())) {
      std::string character;
      append_utf8(character, c);
      out.emplace_back(std::move(character));
    }
  } else if (!value.is_undefined()) {
    throw Fault(fmt::format("'{}' cannot be iterated over", value.type_name()));
  }
  return out;
}

std::size_t length(const Value& value) {
  if (value.is_string()) return count_characters(value.text());
  if (value.is_list()) return value.list()->items.size();
  if (value.is_dict()) return value.dict()->size();
  if (value.is_undefined()) return 0;
  throw Fault(fmt::format("'{}' has no length", value.type_name()));
}

std::string format_float(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  std::string out = fmt::format("{}", number);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

}  // namespace jerboa::jinja
