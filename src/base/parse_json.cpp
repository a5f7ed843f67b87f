#include "base/parse_json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include <jerboa/base/error.h>

namespace jerboa {
namespace {

/// Builds the value from the parser's events. nlohmann's own builder keeps the last of duplicate keys, does not limit
/// nesting, and looks up the keys of an ordered object by linear search.
template <class Json>
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(std::string_view origin) : origin_(origin) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(typename Json::binary_t&) override { return false; }  // does not occur in JSON text

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    if (!open_.back().keys.insert(name).second) fail(fmt::format("the key {} occurs twice", in_quotes(name)));
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t bytes_read, const std::string&, const nlohmann::detail::exception& error) override {
    fail(fmt::format("not valid JSON, at byte {}: {}", bytes_read == 0 ? 0 : bytes_read - 1, json_reason(error)));
    return false;
  }

 private:
  struct Open {
    Json* value;
    std::set<std::string> keys;
  };

  [[noreturn]] void fail(std::string_view what) const { throw FileError(fmt::format("{}: {}", origin_, what)); }

  Json& put(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back().value;
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return parent.back();
    }
    auto& members = parent.template get_ref<typename Json::object_t&>();
    if constexpr (std::is_same_v<Json, nlohmann::ordered_json>) {
      members.push_back({std::move(key_), std::move(value)});
      return members.back().second;
    } else {
      return members.emplace(std::move(key_), std::move(value)).first->second;
    }
  }
  template <class Value>
  bool add(Value&& value) {
    put(Json(std::forward<Value>(value)));
    return true;
  }
  bool open(Json value) {
    if (open_.size() == max_json_depth) fail(fmt::format("nested more than {} deep", max_json_depth));
    Json& place = put(std::move(value));
    open_.push_back({&place, {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view origin_;
  Json root_;
  std::vector<Open> open_;  // a parent's address is stable while its children are open
  std::string key_;
};

template <class Json>
Json parse(std::string_view text, std::string_view origin) {
  // The parser treats a zero byte as the end of the text and would ignore the rest.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos)
    throw FileError(fmt::format("{}: not valid JSON, at byte {}: a zero byte", origin, zero));
  Builder<Json> builder(origin);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view origin) {
  return parse<nlohmann::json>(text, origin);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view origin) {
  return parse<nlohmann::ordered_json>(text, origin);
}

std::string with_json_infinities(std::string_view text) {
  constexpr std::string_view word = "Infinity";
  std::string result;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!quoted && text.substr(i).starts_with(word)) {
      const bool negative = result.ends_with('-');
      if (negative) result.pop_back();
      result += negative ? R"({"__float__": "-Infinity"})" : R"({"__float__": "Infinity"})";
      i += word.size() - 1;
      continue;
    }
    if (text[i] == '"') quoted = !quoted;
    result += text[i];
    if (quoted && text[i] == '\\' && i + 1 < text.size()) result += text[++i];
  }
  return result;
}

std::optional<std::int64_t> json_integer(const nlohmann::json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && !std::in_range<std::int64_t>(value.get<std::uint64_t>())) return std::nullopt;
  return value.get<std::int64_t>();
}

std::string shortened(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return std::string(text);
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
  return std::string(text.substr(0, limit)) + "…";
}

std::string in_quotes(std::string_view name) {
  return printable_line(
      nlohmann::json(shortened(name, 120)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string printable_line(std::string_view text) {
  std::string line;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    const bool is_pair = byte == 0xc2 && next >= 0x80 && next < 0xa0;  // U+0080 to U+009F
    line += byte < 0x20 || byte == 0x7f || is_pair ? ' ' : text[i];
    i += is_pair;
  }
  return line;
}

std::string json_reason(const std::exception& error) {
  std::string_view text = error.what();
  if (const auto end = text.find("] "); end != std::string_view::npos) text.remove_prefix(end + 2);
  if (text.starts_with("parse error"))
    if (const auto end = text.find(": "); end != std::string_view::npos) text.remove_prefix(end + 2);
  return shortened(text, 200);
}

}  // namespace jerboa
