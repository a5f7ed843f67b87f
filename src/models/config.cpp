#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/models/config.h>
#include <jerboa/models/family.h>

#include "base/parse_json.h"

namespace jerboa::models {

struct Config::Json {
  nlohmann::json value;
};

Config Config::open(const std::filesystem::path& path) {
  const auto file = std::filesystem::is_directory(path) ? path / "config.json" : path;
  return parse(FileContent(file).text(), file.string());
}

namespace {

// Text models that have a type of their own, but are the same as a known family: only their vision parts differ.
nlohmann::json with_known_type(nlohmann::json config) {
  const auto type = config.find("model_type");
  if (type != config.end() && *type == "qwen3_vl_text") *type = "qwen3";
  return config;
}

bool is_family(const nlohmann::json& config) {
  const auto type = config.find("model_type");
  const std::span<const Family> known = families();
  return type != config.end() &&
         std::any_of(known.begin(), known.end(), [&](const Family& family) { return *type == family.model_type; });
}

// The text model of a multimodal one whose vision or audio parts are not supported: text passes through it unchanged.
nlohmann::json text_model(nlohmann::json config) {
  const auto text = config.find("text_config");
  if (text == config.end() || !text->is_object() || is_family(config)) return config;
  nlohmann::json result = with_known_type(*text);
  if (!is_family(result)) return config;
  for (const char* shared : {"bos_token_id", "eos_token_id", "pad_token_id", "quantization_config"})
    if (config.contains(shared) && !result.contains(shared)) result[shared] = config[shared];
  // The setting of the whole model decides whether the head is tied.
  if (config.contains("tie_word_embeddings")) result["tie_word_embeddings"] = config["tie_word_embeddings"];
  return result;
}

}  // namespace

Config Config::parse(std::string_view text, std::string origin) {
  auto value = parse_json(with_json_infinities(text), origin);
  if (!value.is_object()) throw FileError(fmt::format("{}: not a JSON object", origin));
  return {std::make_shared<const Json>(Json{text_model(std::move(value))}), std::move(origin)};
}

namespace {

// A number, or one of the names by which transformers writes an infinity, which JSON cannot express.
std::optional<double> number_or_infinity(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_object() || value.size() != 1) return std::nullopt;
  const auto text = value.find("__float__");
  if (text == value.end()) return std::nullopt;
  if (*text == "Infinity") return std::numeric_limits<double>::infinity();
  if (*text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

}  // namespace

bool Config::has(const std::string& key) const {
  const auto found = json_->value.find(key);
  return found != json_->value.end() && !found->is_null();
}

std::vector<std::string> Config::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json_->value.items()) keys.push_back(key);
  return keys;
}

template <class T>
T Config::get(const std::string& key, const char* kind) const {
  if (!has(key)) throw FileError(fmt::format("{}: {} is missing", origin_, key));
  const nlohmann::json& value = json_->value.at(key);
  const bool fits = [&] {
    if constexpr (std::is_same_v<T, bool>) return value.is_boolean();
    if constexpr (std::is_same_v<T, std::int64_t>) return json_integer(value).has_value();
    if constexpr (std::is_same_v<T, double>) return value.is_number();
    if constexpr (std::is_same_v<T, std::string>) return value.is_string();
    if constexpr (std::is_same_v<T, std::vector<std::string>>)
      return value.is_array() &&
             std::all_of(value.begin(), value.end(), [](const auto& item) { return item.is_string(); });
    if constexpr (std::is_same_v<T, std::vector<std::int64_t>>)
      return value.is_array() &&
             std::all_of(value.begin(), value.end(), [](const auto& item) { return json_integer(item).has_value(); });
  }();
  if (!fits) fail(key, fmt::format("is not {}", kind));
  return value.get<T>();
}

void Config::fail(const std::string& key, std::string_view reason) const {
  const std::string value = has(key) ? printable_line(shortened(json_->value.at(key).dump(), 80)) : "missing";
  throw FileError(fmt::format("{}: {} is {}, which {}", origin_, key, value, reason));
}

std::string Config::text(const std::string& key) const { return get<std::string>(key, "a text"); }
double Config::number(const std::string& key) const { return get<double>(key, "a number"); }
bool Config::flag(const std::string& key) const { return get<bool>(key, "true or false"); }
std::vector<std::string> Config::texts(const std::string& key) const {
  return get<std::vector<std::string>>(key, "a list of strings");
}

std::vector<double> Config::numbers(const std::string& key) const {
  if (!has(key)) throw FileError(fmt::format("{}: {} is missing", origin_, key));
  const nlohmann::json& list = json_->value.at(key);
  if (!list.is_array()) fail(key, "is not a list of numbers");
  std::vector<double> values;
  for (const nlohmann::json& item : list) {
    const auto value = number_or_infinity(item);
    if (!value) fail(key, "is not a list of numbers");
    values.push_back(*value);
  }
  return values;
}

bool Config::is_text(const std::string& key) const { return has(key) && json_->value.at(key).is_string(); }

int Config::within(const std::string& key, int least, int most) const {
  const auto value = get<std::int64_t>(key, "a whole number");
  if (value < least || value > most) fail(key, fmt::format("is not from {} to {}", least, most));
  return static_cast<int>(value);
}

int Config::integer(const std::string& key) const {
  return within(key, std::numeric_limits<int>::min(), std::numeric_limits<int>::max());
}

std::vector<int> Config::integers(const std::string& key) const {
  if (has(key) && json_->value.at(key).is_number()) return {integer(key)};
  std::vector<int> list;
  for (const auto value : get<std::vector<std::int64_t>>(key, "a whole number or a list of them")) {
    if (!std::in_range<int>(value)) fail(key, fmt::format("has {}, which is out of range", value));
    list.push_back(static_cast<int>(value));
  }
  return list;
}

int Config::size(const std::string& key) const { return within(key, 1, largest_size); }
int Config::count(const std::string& key) const { return within(key, 1, largest_count); }

double Config::positive(const std::string& key) const {
  const double value = number(key);
  if (!(value > 0)) fail(key, "is not above zero");
  return value;
}

double Config::limit(const std::string& key) const {
  if (!has(key)) return 0;
  const auto value = number_or_infinity(json_->value.at(key));
  return value == std::numeric_limits<double>::infinity() ? 0 : positive(key);
}

std::string Config::text(const std::string& key, std::string otherwise) const {
  return has(key) ? text(key) : std::move(otherwise);
}
int Config::integer(const std::string& key, int otherwise) const { return has(key) ? integer(key) : otherwise; }
double Config::number(const std::string& key, double otherwise) const { return has(key) ? number(key) : otherwise; }
bool Config::flag(const std::string& key, bool otherwise) const { return has(key) ? flag(key) : otherwise; }
int Config::size(const std::string& key, int otherwise) const { return has(key) ? size(key) : otherwise; }
double Config::positive(const std::string& key, double otherwise) const { return has(key) ? positive(key) : otherwise; }

Config Config::with_defaults(std::string_view json) const {
  auto value = nlohmann::json::parse(json);
  value.update(json_->value);
  return {std::make_shared<const Json>(Json{std::move(value)}), origin_};
}

std::string Config::to_json() const { return json_->value.dump(); }

std::optional<Config> Config::section(const std::string& key) const {
  if (!has(key)) return std::nullopt;
  nlohmann::json value = json_->value.at(key);
  if (!value.is_object()) fail(key, "is not an object");
  return Config(std::make_shared<const Json>(Json{std::move(value)}), fmt::format("{}: {}", origin_, key));
}

}  // namespace jerboa::models
