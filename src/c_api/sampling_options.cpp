#include "c_api/sampling_options.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "base/parse_json.h"

namespace jerboa::c_api {

namespace {

// [[token, bias], …]
std::vector<std::pair<int, float>> biases_of(const nlohmann::json& json) {
  const auto is_pair = [](const nlohmann::json& item) {
    return item.is_array() && item.size() == 2 && json_integer(item[0]) && item[1].is_number();
  };
  std::vector<std::pair<int, float>> biases;
  if (!json.is_array() || !std::all_of(json.begin(), json.end(), is_pair))
    throw UsageError("logit_bias must be a list of tokens with a number each");
  for (const auto& item : json)
    biases.emplace_back(tokens_of(nlohmann::json::array({item[0]}), "logit_bias")[0], item[1].get<float>());
  return biases;
}

}  // namespace

SamplerOptions sampling_of(const nlohmann::json& json, SamplerOptions otherwise) {
  Fields fields(json, "sampling");
  const auto read = [&](const char* key, float& value) { value = static_cast<float>(fields.number(key, value)); };
  SamplerOptions out = std::move(otherwise);
  read("temperature", out.temperature);
  out.top_k = fields.count("top_k", out.top_k);
  read("top_p", out.top_p);
  read("min_p", out.min_p);
  read("typical_p", out.typical_p);
  read("repetition_penalty", out.repetition_penalty);
  read("presence_penalty", out.presence_penalty);
  read("frequency_penalty", out.frequency_penalty);
  out.penalty_window = fields.count("penalty_window", out.penalty_window);
  const nlohmann::json &biases = fields.value("logit_bias"), &banned = fields.value("banned_tokens");
  if (!biases.is_null()) out.logit_bias = biases_of(biases);
  if (!banned.is_null()) out.banned_tokens = tokens_of(banned, "banned_tokens");
  constexpr std::int64_t largest_seed = std::int64_t{1} << 53;  // exact in a JavaScript number
  out.seed = static_cast<std::uint64_t>(fields.integer("seed", static_cast<std::int64_t>(out.seed), 0, largest_seed));
  fields.finish();
  return out;
}

std::shared_ptr<const Grammar> grammar_of(Fields& fields) {
  const nlohmann::json& schema = fields.value("schema");
  const std::string regex = fields.text("regex", "");
  if (!schema.is_null() && !regex.empty())
    throw UsageError(fmt::format("{}: a text is restricted by schema or by regex, not by both", fields.what()));
  if (!schema.is_null()) return compile_json_schema_text(schema.dump());
  return regex.empty() ? nullptr : compile_regex(regex);
}

std::vector<std::int32_t> tokens_of(const nlohmann::json& json, const std::string& what) {
  if (!json.is_array()) throw UsageError(fmt::format("{} must be a list of tokens", what));
  std::vector<std::int32_t> tokens;
  for (const auto& item : json) {
    const auto token = json_integer(item);
    if (!token || *token < 0 || *token > std::numeric_limits<std::int32_t>::max())
      throw UsageError(fmt::format("{}: {} is not a token", what, shortened(item.dump(), 40)));
    tokens.push_back(static_cast<std::int32_t>(*token));
  }
  return tokens;
}

std::vector<std::string> texts_of(const nlohmann::json& json, const std::string& what) {
  std::vector<std::string> texts;
  if (json.is_null()) return texts;
  if (!json.is_array()) throw UsageError(fmt::format("{} must be a list of strings", what));
  for (const auto& item : json) {
    if (!item.is_string()) throw UsageError(fmt::format("{}: {} is not a text", what, shortened(item.dump(), 40)));
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

}  // namespace jerboa::c_api
