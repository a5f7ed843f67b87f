#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/stable_sort.h"
#include "text/jinja_text.h"
#include "text/jinja_value.h"

namespace jerboa::jinja {
namespace {

Value from_json_at(const nlohmann::ordered_json& json, int depth) {
  if (depth > max_depth) throw Fault("the data is nested too deeply");
  switch (json.type()) {
    case nlohmann::json::value_t::boolean: return json.get<bool>();
    case nlohmann::json::value_t::number_integer: return json.get<std::int64_t>();
    case nlohmann::json::value_t::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      if (number > static_cast<std::uint64_t>(INT64_MAX)) return static_cast<double>(number);
      return static_cast<std::int64_t>(number);
    }
    case nlohmann::json::value_t::number_float: return json.get<double>();
    case nlohmann::json::value_t::string: return json.get_ref<const std::string&>();
    case nlohmann::json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json_at(item, depth + 1));
      return items;
    }
    case nlohmann::json::value_t::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, item] : json.items()) dict->set(key, from_json_at(item, depth + 1));
      return dict;
    }
    case nlohmann::json::value_t::null:
    case nlohmann::json::value_t::binary:
    case nlohmann::json::value_t::discarded: break;
  }
  return None{};
}

class Writer {
 public:
  explicit Writer(const JsonFormat& format) : format_(format) {}

  void write(const Value& value, int depth) {
    if (depth > max_depth || out_.size() > max_printed_bytes) throw Fault("tojson: the value is too large or too deep");
    if (value.is_none())
      out_ += "null";
    else if (value.is_bool())
      out_ += value.integer() != 0 ? "true" : "false";
    else if (value.is_float())
      write_float(value.number());
    else if (value.is_integral())
      out_ += value.str();
    else if (value.is_string())
      write_string(value.text());
    else if (value.is_list())
      write_list(*value.list(), depth);
    else if (value.is_dict())
      write_dict(*value.dict(), depth);
    else if (value.is_undefined())
      throw Fault("tojson: " + *value.undefined().what);
    else
      throw Fault(fmt::format("tojson: a '{}' cannot be written as JSON", value.type_name()));
  }

  std::string take() { return std::move(out_); }

 private:
  void write_float(double number) {
    if (std::isnan(number))
      out_ += "NaN";
    else if (std::isinf(number))
      out_ += number > 0 ? "Infinity" : "-Infinity";
    else
      out_ += format_float(number);
  }

  void write_list(const List& list, int depth) {
    if (list.items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      separate(i, depth + 1);
      write(list.items[i], depth + 1);
    }
    close(']', depth);
  }

  void write_dict(const Dict& dict, int depth) {
    if (dict.size() == 0) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (format_.sort_keys)
      detail::stable_sort(entries, [](const auto* a, const auto* b) { return compare(a->first, b->first) < 0; });
    out_ += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      separate(i, depth + 1);
      write_key(entries[i]->first);
      out_ += format_.key_separator;
      write(entries[i]->second, depth + 1);
    }
    close('}', depth);
  }

  void write_key(const Value& key) {
    if (key.is_string()) {
      write_string(key.text());
      return;
    }
    if (!key.is_number() && !key.is_none()) throw Fault(fmt::format("tojson: a '{}' cannot be a key", key.type_name()));
    out_ += '"';
    write(key, 0);
    out_ += '"';
  }

  void separate(std::size_t index, int depth) {
    if (index > 0) out_ += format_.item_separator;
    if (format_.indent) new_line(depth);
  }

  void close(char bracket, int depth) {
    if (format_.indent) new_line(depth);
    out_ += bracket;
  }

  void new_line(int depth) {
    out_ += '\n';
    for (int i = 0; i < depth; ++i) out_ += *format_.indent;
  }

  void write_string(std::string_view text) {
    out_ += '"';
    if (format_.ensure_ascii && !is_ascii(text)) {
      for (const char32_t c : decode_utf8(text)) {
        if (c < 0x80)
          write_byte(static_cast<char>(c));
        else if (c < 0x10000)
          out_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else
          out_ +=
              fmt::format("\\u{:04x}\\u{:04x}", 0xD800u + ((c - 0x10000u) >> 10), 0xDC00u + ((c - 0x10000u) & 0x3FFu));
      }
    } else {
      for (const char c : text) write_byte(c);
    }
    out_ += '"';
  }

  void write_byte(char c) {
    switch (c) {
      case '"': out_ += "\\\""; break;
      case '\\': out_ += "\\\\"; break;
      case '\n': out_ += "\\n"; break;
      case '\r': out_ += "\\r"; break;
      case '\t': out_ += "\\t"; break;
      case '\b': out_ += "\\b"; break;
      case '\f': out_ += "\\f"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          out_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else
          out_ += c;
    }
  }

  const JsonFormat& format_;
  std::string out_;
};

}  // namespace

Value from_json(const nlohmann::ordered_json& json) { return from_json_at(json, 0); }

std::string to_json(const Value& value, const JsonFormat& format) {
  Writer writer(format);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace jerboa::jinja
