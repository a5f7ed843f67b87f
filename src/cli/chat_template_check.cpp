#include "cli/chat_template_check.h"

#include <jerboa/io/gguf.h>
#include <jerboa/models/config.h>

namespace jerboa::cli {

namespace fs = std::filesystem;

bool has_chat_template(const fs::path& model) {
  if (model.extension() == ".gguf" && fs::is_regular_file(model))
    return Gguf::open(model).has("tokenizer.chat_template");
  if (!fs::is_directory(model) || !fs::exists(model / "config.json")) return true;
  if (fs::exists(model / "chat_template.jinja") || fs::exists(model / "chat_template.json")) return true;
  const fs::path config = model / "tokenizer_config.json";
  return fs::exists(config) && models::Config::open(config).has("chat_template");
}

}  // namespace jerboa::cli
