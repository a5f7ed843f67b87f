#include "c_api/text_files.h"

#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>

#include "base/parse_json.h"

namespace jerboa::c_api {
namespace {

constexpr const char* config_name = "tokenizer_config.json";

std::string text_of(const Files& files, const char* name) {
  const auto found = files.find(name);
  return found == files.end() ? "" : found->second;
}

}  // namespace

Tokenizer tokenizer_of(const Files& files) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer.bin"}) {
    const auto found = files.find(name);
    if (found == files.end()) continue;
    Tokenizer tokenizer = Tokenizer::from_file(found->second, name, text_of(files, config_name), config_name);
    tokenizer.set_truncation({});
    tokenizer.set_padding({});
    return tokenizer;
  }
  throw UsageError("the model has no tokenizer: neither tokenizer.json nor tokenizer.model");
}

std::optional<ChatTemplate> template_of(const Files& files) {
  const std::string config = text_of(files, config_name);
  const auto separate = files.find("chat_template.jinja");
  if (separate == files.end()) return config.empty() ? std::nullopt : ChatTemplate::from_config(config, config_name);
  // The configuration lists the special tokens even if a template file exists.
  nlohmann::ordered_json merged =
      config.empty() ? nlohmann::ordered_json::object() : parse_ordered_json(config, config_name);
  merged["chat_template"] = separate->second;
  return ChatTemplate::from_config(merged.dump(), separate->first);
}

}  // namespace jerboa::c_api
