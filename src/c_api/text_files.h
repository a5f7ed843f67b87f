#pragma once

#include <map>
#include <optional>
#include <string>

#include <jerboa/text/chat_template.h>
#include <jerboa/text/tokenizer.h>

namespace jerboa::c_api {

/// The files of a model's folder, by name.
using Files = std::map<std::string, std::string, std::less<>>;

/// tokenizer.json, tokenizer.model or tokenizer.bin, the first that there is. Truncation and padding, which a file may
/// ask for, are turned off. Throws UsageError if there is none.
Tokenizer tokenizer_of(const Files& files);

/// chat_template.jinja, or the template in tokenizer_config.json; none if there is neither.
std::optional<ChatTemplate> template_of(const Files& files);

}  // namespace jerboa::c_api
