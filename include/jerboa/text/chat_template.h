#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <jerboa/base/json.h>
#include <jerboa/text/template_limits.h>

namespace jerboa {

struct ChatTemplateOptions {
  bool add_generation_prompt = true;
  JsonValue tools = {};  ///< a list of function schemas, as in the OpenAI API
  JsonValue documents = {};
  JsonValue variables = {};              ///< any further names the template reads, e.g. {"enable_thinking": false}
  std::optional<std::int64_t> now = {};  ///< the time for strftime_now, in seconds since 1970; by default the clock
  TemplateLimits limits = {};
};

/// One message of a conversation.
struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant" or any other role the template supports
  std::string content;
};

struct RenderedChat {
  std::string text;
  /// Byte ranges [begin, end) of `text` inside {% generation %} blocks: the assistant's words, for training on them.
  std::vector<std::pair<std::size_t, std::size_t>> generated;
};

/// The messages as the list of objects that templates read.
JsonValue to_json(const std::vector<ChatMessage>& messages);

namespace jinja {
struct Program;
}

/// Formats a conversation as the model was trained to see it, using the Jinja template that comes with the model.
///
///     auto chat = ChatTemplate::load("Qwen3-0.6B");
///     std::string prompt = chat.render({{"user", "Name three rivers."}});
///
/// Immutable, so that several threads may render with one.
class ChatTemplate {
 public:
  /// Parses the template; throws TemplateError.
  explicit ChatTemplate(std::string source);

  /// The template of a Hugging Face folder: chat_template.jinja, chat_template.json, or `chat_template` in
  /// tokenizer_config.json, and from the last the special tokens (bos_token …). A folder may hold several named
  /// templates; `name` picks one. By default that is "default", or "tool_use" if there is one and tools are given.
  static ChatTemplate load(const std::filesystem::path& folder, const std::string& name = "");
  /// The same from the text of a tokenizer_config.json, or nothing if it has no template; errors call the file `name`.
  static std::optional<ChatTemplate> from_config(std::string_view text,
                                                 const std::string& name = "tokenizer_config.json");
  /// Whether a folder has a template, in any of the files that load() reads.
  static bool is_in(const std::filesystem::path& folder);

  std::string render(const std::vector<ChatMessage>& messages, const ChatTemplateOptions& options = {}) const;
  /// `messages` is a list of objects with "role", "content" and whatever else the template reads.
  std::string render(const JsonValue& messages, const ChatTemplateOptions& options = {}) const;
  RenderedChat render_with_spans(const JsonValue& messages, const ChatTemplateOptions& options = {}) const;

  const std::string& source() const { return source_; }

 private:
  std::string source_;
  std::shared_ptr<const jinja::Program> program_;
  std::shared_ptr<const jinja::Program> tool_program_;  // for "tool_use"
  JsonValue tokens_;                                    // bos_token and the like
};

}  // namespace jerboa
