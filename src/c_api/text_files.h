#pragma once

#include <map>
#include <optional>
#include <string>

#include <jerboa/text/chat_template.h>
#include <jerboa/text/tokenizer.h>

namespace jerboa::c_api {

/// The files of a model's folder, by name.
using Files = std::map<std::string, std::string, std::less<>>;

/// Loads the first that exists of tokenizer.json, tokenizer.model and tokenizer.bin. Turns off truncation and padding,
/// which a file may ask for. Throws UsageError if there is none.
Tokenizer tokenizer_of(const Files& files);

/// chat_template.jinja, or else the template in tokenizer_config.json; empty if there is neither.
std::optional<ChatTemplate> template_of(const Files& files);

}  // namespace jerboa::c_api
