#include "cli/chat_template_check.h"

#include <fmt/format.h>

#include <jerboa/io/gguf.h>
#include <jerboa/text/chat_template.h>

namespace jerboa::cli {

namespace fs = std::filesystem;

bool has_chat_template(const fs::path& model) {
  if (model.extension() == ".gguf" && fs::is_regular_file(model))
    return Gguf::open(model).has("tokenizer.chat_template");
  if (!fs::is_directory(model) || !fs::exists(model / "config.json")) return true;
  return ChatTemplate::is_in(model);
}

UsageError no_tools_without_template(const std::string& model, const std::string& flags) {
  return UsageError(fmt::format("{} has no chat template, so it cannot call tools; leave out {}", model, flags));
}

}  // namespace jerboa::cli
