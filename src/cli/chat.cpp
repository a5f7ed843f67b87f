#include "cli/chat.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <unistd.h>

#include <jerboa/base/error.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

// How long to compute before looking whether Ctrl-C was pressed; a step that is running is always completed.
constexpr double slice_seconds = 0.02;

struct ChatCommand {
  std::string model, system, thinking = "show";
  std::vector<std::string> messages;
  LanguageFlags flags;
  ToolFlags tool_flags;

  void run() {
    flags.check();
    tool_flags.check();
    if (tool_flags.has_tools() && !flags.tool_list().is_null())
      throw BadArguments("--tools describes tools to the model; --mcp and --memory do that themselves");
    if (tool_flags.has_tools() && flags.is_constrained())
      throw BadArguments("--schema and --regex do not allow calls of tools; leave out --mcp and --memory");
    check_template();
    std::vector<mcp::Tool> tools = tool_flags.open();
    tool_flags.check_choice(tools);
    LanguageModel opened = flags.open(model);
    if (!opened.has_chat_template()) refuse();
    Chat chat(opened, flags, thinking_from_name(thinking));
    chat.conversation().set_system(system);
    if (tool_flags.has_tools()) chat.use_tools(tool_flags, std::move(tools));
    const CatchInterrupts catching;
    for (const std::string& message : messages) chat.say_or_throw(message);
    if (messages.empty()) converse(chat);
    flags.write_trace(opened);
  }

 private:
  [[noreturn]] void refuse() const {
    throw UsageError(model + " has no chat template, so it does not support chat; use jerboa generate");
  }

  // Before the weights are loaded.
  void check_template() const {
    namespace fs = std::filesystem;
    const fs::path folder = model_path(model);
    if (!fs::is_directory(folder) || !fs::exists(folder / "config.json")) return;
    if (!fs::exists(folder / "chat_template.jinja") && !fs::exists(folder / "chat_template.json") &&
        !fs::exists(folder / "tokenizer_config.json"))
      refuse();
  }

  static void converse(Chat& chat) {
    LineEditor editor(home_folder() / "history");
    if (editor.is_interactive())
      note(dim("/help lists the commands; Ctrl-C stops an answer; Ctrl-D or /bye ends the conversation",
               has_colours(STDERR_FILENO)));
    for (;;) {
      const LineEditor::Input input = editor.read(chat.take_draft());
      if (input.outcome == LineEditor::Outcome::end) return;
      if (input.outcome == LineEditor::Outcome::interrupted) {
        CatchInterrupts::take();
        if (!editor.is_interactive()) throw Exit{ExitCode::interrupted};
        note(dim("Ctrl-D or /bye ends the conversation", has_colours(STDERR_FILENO)));
        continue;
      }
      if (input.text.find_first_not_of(" \t\r\n") == std::string::npos) continue;
      if (Chat::is_command(input.text)) {
        if (!chat.command(input.text)) return;
      } else if (editor.is_interactive()) {
        chat.say(input.text);
      } else {
        chat.say_or_throw(input.text);
      }
    }
  }
};

}  // namespace

Chat::Chat(LanguageModel& model, LanguageFlags flags, Thinking thinking)
    : model_(model),
      flags_(std::move(flags)),
      thinking_(thinking),
      conversation_(model, {.tools = flags_.tool_list(), .variables = template_variables(thinking)}),
      is_interactive_(is_terminal(STDIN_FILENO) && is_terminal(STDOUT_FILENO)),
      colours_(has_colours(STDOUT_FILENO)) {}

void Chat::say_or_throw(const std::string& message) {
  conversation_.add("user", message);
  answer();
  if (!is_interactive_ && CatchInterrupts::take()) throw Exit{ExitCode::interrupted};
}

void Chat::say(const std::string& message) {
  const Conversation before = conversation_;
  try {
    say_or_throw(message);
  } catch (const FileError&) {  // standard output is gone
    throw;
  } catch (const Error& error) {
    conversation_.restore(before);
    note(error.what());
  }
}

void Chat::use_tools(const ToolFlags& flags, std::vector<mcp::Tool> tools) {
  tool_flags_ = flags;
  tools_ = std::move(tools);
  tool_model_.emplace(model_, tools_);
  conversation_.count_with(
      [this](const mcp::Json& messages) { return tool_model_->tokens(messages, template_variables(thinking_)); });
}

void Chat::answer() {
  const Generation result = tool_model_ ? answer_calling_tools() : answer_in_words();
  note_cut(result);
  if (flags_.stats) print_stats(model_, result);
  if (is_interactive_ && is_terminal(STDERR_FILENO)) print_status(result);
}

void Chat::make_room() {
  const int room = std::min(flags_.max_tokens.value_or(model_.context()), model_.context() / 4);
  if (const int left = conversation_.make_room(room); left > 0)
    note(dim(fmt::format("the context is full: the oldest {} left it", counted(left, "message")),
             has_colours(STDERR_FILENO)));
}

Generation Chat::answer_in_words() {
  make_room();
  ThoughtFilter filter(thinking_, colours_, ends_inside_thought(conversation_.text()));
  const Generation result = stream(conversation_.tokens(), filter);
  if (result.reason == StopReason::failed) throw Error(result.error);
  conversation_.add("assistant", result.text);
  return result;
}

Generation Chat::answer_calling_tools() {
  AgentParts parts;
  parts.ask = [this](const mcp::Json& messages, Calls calls) { return ask(messages, calls); };
  parts.on_call = [](const WrittenCall& call) { note(dim(shown_call(call), has_colours(STDERR_FILENO))); };
  parts.on_result = [this](mcp::ToolResult& result) {
    note(dim(shown_result(result), has_colours(STDERR_FILENO)));
    result.text = tool_model_->shortened_to(result.text, model_.context() / 4);
  };
  parts.context.is_cancelled = CatchInterrupts::is_set;
  const ToolAnswer answer = answer_with_tools(conversation_.messages(), tools_, tool_flags_.agent(), parts);
  if (is_interactive_) CatchInterrupts::take();
  return answer.generation;
}

ToolAnswer Chat::ask(const mcp::Json& messages, Calls calls) {
  make_room();
  ThoughtFilter filter(thinking_, colours_, false);
  bool is_shown = false;
  const auto show = [&](const std::string& text) {
    is_shown = is_shown || !text.empty();
    write_text(text);
  };
  ToolAnswer answer = tool_model_->ask({.messages = messages,
                                        .calls = calls,
                                        .required_tool = tool_flags_.required_tool(),
                                        .variables = template_variables(thinking_),
                                        .options = flags_.generation(model_),
                                        .on_text = [&](std::string_view piece) { show(filter.push(piece)); },
                                        .is_cancelled = CatchInterrupts::is_set});
  show(filter.finish());
  if (is_shown || answer.calls.empty()) write_text("\n");
  return answer;
}

Generation Chat::stream(const std::vector<std::int32_t>& prompt, ThoughtFilter& filter) {
  language::Stream stream = model_.submit(prompt, flags_.generation(model_));
  for (bool is_over = false; !is_over;) {
    is_over = stream.ended();
    if (CatchInterrupts::is_set()) stream.cancel();
    if (is_interactive_) CatchInterrupts::take();
    while (const auto piece = stream.take()) write_text(filter.push(piece->text));
    if (!is_over) model_.poll(slice_seconds);
  }
  write_text(filter.finish() + "\n");
  return stream.result();
}

void Chat::print_status(const Generation& result) const {
  const std::int64_t used = result.prompt_tokens + std::ssize(result.tokens);
  note(dim(fmt::format(
               "{}{} · {:.1f} tokens/s · {} of {} tokens of the context", counted(std::ssize(result.tokens), "token"),
               result.reason == StopReason::cancelled ? ", stopped" : "", token_rate(result), used, model_.context()),
           has_colours(STDERR_FILENO)));
}

void add_chat(CLI::App& app) {
  auto command = std::make_shared<ChatCommand>();
  auto* sub = app.add_subcommand("chat", "Talk with a pretrained model");
  sub->add_option("model", command->model, model_help)->required();
  sub->add_option("message", command->messages,
                  "Messages to answer, one after another; by default what is typed, or the lines of standard input");
  sub->add_option("--system", command->system, "The system message");
  sub->add_option("--think", command->thinking, "Thoughts of thinking models: show, hide, or off for no thinking")
      ->check(one_of({"show", "hide", "off"}))
      ->capture_default_str();
  command->flags.add_to(*sub);
  command->tool_flags.add_to(*sub);
  add_examples(*sub, {"jerboa chat minimind2-small", "jerboa chat FOLDER --system \"Answer in one sentence.\"",
                      "jerboa chat model.gguf \"What is the capital of France?\" --max-tokens 100",
                      "jerboa chat Qwen3-0.6B --think hide --weights int8",
                      "jerboa chat Qwen3-0.6B --mcp mcp.json --memory default"});
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
