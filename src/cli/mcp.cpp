#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <unistd.h>

#include <jerboa/language/text_encoder.h>

#include "base/json_value.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/encoder_options.h"
#include "cli/store.h"
#include "cli/tool_options.h"
#include "mcp/server.h"

namespace jerboa::cli {
namespace {

using mcp::Json;

// A text argument; throws UsageError if it is missing.
std::string required_text(const Json& arguments, const char* name) {
  const Json value = arguments.value(name, Json());
  if (!value.is_string() || value.get<std::string>().empty())
    throw UsageError(fmt::format("\"{}\" must be a string that is not empty", name));
  return value.get<std::string>();
}

std::optional<double> optional_number(const Json& arguments, const char* name, double least, double most) {
  const Json value = arguments.value(name, Json());
  if (value.is_null()) return std::nullopt;
  if (!value.is_number() || value.get<double>() < least || value.get<double>() > most)
    throw UsageError(fmt::format("\"{}\" must be a number from {} to {}", name, least, most));
  return value.get<double>();
}

// Models are loaded by the first call that needs them, because clients wait only briefly for a server to start.
struct McpCommand {
  std::string model, encoder, memory;
  LanguageFlags flags;

  void run() {
    flags.check();
    if (model.empty() && encoder.empty() && memory.empty())
      throw BadArguments("there is nothing to serve; name a model, or give --encoder or --memory");
    if (!model.empty()) model_path(model);
    if (!encoder.empty()) model_path(encoder);
    std::vector<mcp::Tool> tools;
    if (!model.empty()) tools.push_back(generate_tool());
    if (!encoder.empty()) tools.push_back(embed_tool());
    if (!memory.empty()) tools.push_back(memory_tool(memory));
    mcp::serve(tools, JERBOA_VERSION, STDIN_FILENO, STDOUT_FILENO);
  }

 private:
  mcp::Tool generate_tool() {
    return {"generate", fmt::format("Lets the language model {} answer a prompt, or continue a text.", model),
            Json::parse(R"({"type": "object", "properties": {
              "prompt": {"type": "string", "description": "What the model answers, or the text that it continues"},
              "system": {"type": "string", "description": "A system message, for models that chat"},
              "continue": {"type": "boolean", "description": "Continue the prompt as it is, without the chat template"},
              "max_tokens": {"type": "integer", "minimum": 1},
              "temperature": {"type": "number", "minimum": 0, "maximum": 1000},
              "seed": {"type": "integer", "minimum": 0}
            }, "required": ["prompt"], "additionalProperties": false})"),
            [this](const Json& arguments, const mcp::CallContext& context) { return generate(arguments, context); }};
  }

  mcp::ToolResult generate(const Json& arguments, const mcp::CallContext& context) {
    const std::string prompt = required_text(arguments, "prompt");
    LanguageFlags changed = flags;
    if (const auto tokens = optional_number(arguments, "max_tokens", 1, 1 << 24))
      changed.max_tokens = static_cast<int>(*tokens);
    if (const auto value = optional_number(arguments, "temperature", 0, 1000)) {
      changed.temperature = static_cast<float>(*value);
      changed.greedy = false;
    }
    if (const auto seed = optional_number(arguments, "seed", 0, 9e15)) changed.seed = static_cast<std::uint64_t>(*seed);
    if (!language_) language_ = flags.open(model);
    const GenerateOptions options = changed.generation(*language_);
    if (arguments.value("continue", Json(false)) == Json(true) || !language_->has_chat_template())
      return continued(prompt, options, context);
    Json messages = Json::array();
    if (arguments.contains("system"))
      messages.push_back({{"role", "system"}, {"content", required_text(arguments, "system")}});
    messages.push_back({{"role", "user"}, {"content", prompt}});
    std::int64_t pieces = 0;
    const auto count = [&](std::string_view, bool) { context.on_progress(static_cast<double>(++pieces), 0); };
    ChatAsker chat(*language_);
    return {chat.ask({.messages = messages,
                      .calls = Calls::forbidden,
                      .options = options,
                      .on_text = count,
                      .is_cancelled = context.is_cancelled})
                .text};
  }

  mcp::ToolResult continued(const std::string& prompt, const GenerateOptions& options,
                            const mcp::CallContext& context) {
    language::Stream stream = language_->submit(prompt, options);
    std::int64_t tokens = 0;
    while (!stream.ended()) {
      if (context.is_cancelled()) stream.cancel();
      language_->poll(0.05);
      while (stream.take()) context.on_progress(static_cast<double>(++tokens), 0);
    }
    const Generation result = stream.result();
    if (result.reason == StopReason::failed) throw Error(result.error);
    return {result.text};
  }

  mcp::Tool embed_tool() {
    return {"embed", fmt::format("Turns texts into vectors with {}: a JSON list of numbers for each text.", encoder),
            Json::parse(R"({"type": "object", "properties": {
              "texts": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2048}
            }, "required": ["texts"], "additionalProperties": false})"),
            [this](const Json& arguments, const mcp::CallContext&) { return embed(arguments); }};
  }

  mcp::ToolResult embed(const Json& arguments) {
    std::vector<std::string> texts;
    const Json given = arguments.value("texts", Json());
    for (const Json& text : given.is_array() ? given : Json::array())
      if (text.is_string()) texts.push_back(text);
    if (!given.is_array() || texts.empty() || texts.size() != given.size() || texts.size() > 2048)
      throw UsageError("\"texts\" must be a list of 1 to 2048 texts");
    if (!text_encoder_) {
      EncoderFlags loading{.model = encoder, .loading = flags};
      loading.loading.context = 0;  // --context applies to the language model
      text_encoder_ = loading.open();
    }
    const Embeddings vectors = text_encoder_->embed(texts);
    Json rows = Json::array();
    for (std::int64_t i = 0; i < vectors.count; ++i)
      rows.push_back(std::vector<float>(vectors.row(i).begin(), vectors.row(i).end()));
    return {rows.dump()};
  }

  std::optional<LanguageModel> language_;
  std::optional<TextEncoder> text_encoder_;
};

}  // namespace

void add_mcp(CLI::App& app) {
  auto command = std::make_shared<McpCommand>();
  auto* sub = app.add_subcommand("mcp", "Offer models to other programs as tools, over the Model Context Protocol");
  sub->add_option("model", command->model, "A language model, for the tool generate: its name, folder or .gguf file");
  sub->add_option("--encoder", command->encoder, "An encoder, for the tool embed");
  sub->add_option("--memory", command->memory,
                  "A memory, for the tool search_memory: a file, or default for the one of jerboa memory");
  command->flags.add_to(*sub);
  add_examples(*sub, {"jerboa mcp minimind2-small --encoder minilm --memory default"});
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
