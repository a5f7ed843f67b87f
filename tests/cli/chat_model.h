#pragma once

#include <string>

#include "language/model_folder.h"

namespace jerboa::test {

/// A tiny model that chats, in tokens that are bytes; its answers make no sense, and do not end.
class ChatModel : public ModelFolder {
 public:
  explicit ChatModel(int context = 1 << 16) : ModelFolder("llama") {
    auto config = nlohmann::json::parse(read_text(goldens / "llama" / "config.json"));
    config["max_position_embeddings"] = context;
    config["eos_token_id"] = nullptr;
    write("config.json", config.dump());
    write("generation_config.json", R"({"do_sample": false})");
    write("chat_template.jinja",
          "{% for message in messages %}<{{ message.role[0] }}>{{ message.content }}{% endfor %}"
          "{% if tools %}[{{ tools | length }} tools]{% endif %}{% if enable_thinking %}[thinks]{% endif %}<a>");
  }
  std::string name() const { return path().string(); }
};

}  // namespace jerboa::test
