#include "cli/chat.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <unistd.h>

#include <jerboa/base/error.h>

#include "cli/arguments.h"
#include "cli/chat_template_check.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

struct ChatCommand {
  std::string model, system, thinking = "show";
  std::vector<std::string> messages;
  LanguageFlags flags;
  ToolFlags tool_flags;

  void run() {
    flags.check();
    tool_flags.check();
    if (tool_flags.has_tools() && !flags.tool_list().empty())
      throw BadArguments("--tools describes tools to the model; --mcp and --memory do that themselves");
    if (tool_flags.has_tools() && flags.is_constrained())
      throw BadArguments("--schema and --regex do not allow calls of tools; leave out --mcp and --memory");
    if (!has_chat_template(model_path(model))) refuse();  // before the weights are loaded
    std::vector<server::ServerTool> tools = tool_flags.open();
    tool_flags.check_choice(tools);
    LanguageModel opened = flags.open(model);
    if (!opened.has_chat_template()) refuse();
    Chat chat(opened, flags, thinking_from_name(thinking), tool_flags, std::move(tools));
    chat.conversation().set_system(system);
    const CatchInterrupts catching;
    for (const std::string& message : messages) chat.say_or_throw(message);
    if (messages.empty()) converse(chat);
    flags.write_trace(opened);
    // In a conversation the user has already been told.
    const bool is_conversation = messages.empty() && is_terminal(STDIN_FILENO);
    if (chat.was_cut() && !is_conversation) throw Exit{ExitCode::cut};
  }

 private:
  [[noreturn]] void refuse() const {
    throw UsageError(model + " has no chat template, so it does not support chat; use jerboa generate");
  }

  // Without a home folder, chats keep no history.
  static std::filesystem::path history_file() {
    try {
      return home_folder() / "history";
    } catch (const UsageError&) {
      return "";
    }
  }

  static void converse(Chat& chat) {
    LineEditor editor(history_file(), Chat::commands());
    if (editor.is_interactive())
      note(dim("/help lists the commands; Ctrl-C stops an answer; Ctrl-D or /bye ends the conversation",
               has_colours(STDERR_FILENO)));
    for (;;) {
      const LineEditor::Input input = editor.read(chat.take_draft());
      if (input.outcome == LineEditor::Outcome::end) return;
      if (input.outcome == LineEditor::Outcome::interrupted) {
        CatchInterrupts::take();
        chat.stop_editing();
        if (!editor.is_interactive()) throw Exit{ExitCode::interrupted};
        note(dim("Ctrl-D or /bye ends the conversation", has_colours(STDERR_FILENO)));
        continue;
      }
      if (input.text.find_first_not_of(" \t\r\n") == std::string::npos) {
        chat.stop_editing();
      } else if (Chat::is_command(input.text)) {
        chat.stop_editing();
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

Chat::Chat(LanguageModel& model, LanguageFlags flags, Thinking thinking, ToolFlags tool_flags,
           std::vector<server::ServerTool> tools)
    : model_(model),
      flags_(std::move(flags)),
      thinking_(thinking),
      tool_flags_(std::move(tool_flags)),
      tools_(std::move(tools)),
      asker_(model, tools_.empty() ? flags_.tool_list() : server::tools_json(tools_)),
      variables_(template_variables(thinking, asker_.template_source())),
      conversation_(model.context(), [this](const mcp::Json& messages) { return asker_.tokens(messages, variables_); }),
      is_interactive_(is_terminal(STDIN_FILENO) && is_terminal(STDOUT_FILENO)),
      colours_(has_colours(STDOUT_FILENO)) {}

void Chat::say_or_throw(const std::string& message) {
  const Conversation before = conversation_;
  if (std::exchange(replaces_last_, false)) conversation_.take_last_turn();
  try {
    conversation_.add("user", message);
    if (!answer()) conversation_.restore(before);
  } catch (...) {
    conversation_.restore(before);
    throw;
  }
  if (!is_interactive_ && CatchInterrupts::take()) throw Exit{ExitCode::interrupted};
}

void Chat::say(const std::string& message) {
  try {
    say_or_throw(message);
  } catch (const FileError&) {  // standard output was closed
    throw;
  } catch (const Error& error) {
    note(error.what());
  }
}

bool Chat::answer() {
  const ChatAnswer answer = answer_calling_tools();
  const Generation& result = answer.generation;
  if (result.reason == StopReason::cancelled && answer.is_empty()) {
    if (is_interactive_)
      note(dim("stopped before the answer began; the message is left out", has_colours(STDERR_FILENO)));
    return false;
  }
  note_cut(result);
  was_cut_ = was_cut_ || (flags_.is_constrained() && is_cut(result));
  if (flags_.stats) print_stats(model_, result);
  if (is_interactive_ && is_terminal(STDERR_FILENO)) print_status(result);
  return true;
}

int Chat::room_for_answer() const {
  return std::min(flags_.max_tokens.value_or(model_.context()), model_.context() / 4);
}

void Chat::make_room() {
  if (const int left = conversation_.make_room(room_for_answer()); left > 0)
    note(dim(fmt::format("the context is full: the oldest {} left it", counted(left, "message")),
             has_colours(STDERR_FILENO)));
}

ChatAnswer Chat::answer_calling_tools() {
  mcp::Json& messages = conversation_.messages();
  AgentParts parts;
  parts.ask = [this](const mcp::Json& so_far, Calls calls) { return ask(so_far, calls); };
  parts.on_call = [](const WrittenCall& call) { note(dim(shown_call(call), has_colours(STDERR_FILENO))); };
  parts.on_result = [](const server::ToolOutput& output) {
    note(dim(shown_result(output), has_colours(STDERR_FILENO)));
  };
  parts.add_results = [this](mcp::Json& so_far, mcp::Json results) {
    return asker_.add_results(so_far, std::move(results), variables_, room_for_answer(),
                              [this](const mcp::Json&) { return conversation_.last_turn_alone(); });
  };
  parts.is_cancelled = CatchInterrupts::is_set;
  ChatAnswer answer;
  if (!tools_.empty()) {
    answer = answer_with_tools(messages, tools_, tool_flags_.agent(), parts);
  } else {  // calls of tools given by --tools are left to the user
    answer = parts.ask(messages, Calls::allowed);
    messages.push_back(assistant_message(answer));
    for (const WrittenCall& call : answer.calls) parts.on_call(call);
  }
  if (is_interactive_) CatchInterrupts::take();
  return answer;
}

ChatAnswer Chat::ask(const mcp::Json& messages, Calls calls) {
  make_room();
  ThoughtView view(thinking_, colours_);
  bool is_shown = false;
  std::optional<Waiting> waiting(std::in_place, "reading");
  const auto show = [&](const std::string& text) {
    if (text.empty()) return;  // a hidden thought
    waiting.reset();
    is_shown = true;
    write_text(text);
  };
  ChatAnswer answer =
      asker_.ask({.messages = messages,
                  .calls = calls,
                  .required_tool = tool_flags_.required_tool(),
                  .variables = variables_,
                  .options = flags_.generation(model_),
                  .on_text = [&](std::string_view text, bool is_thought) { show(view.show(text, is_thought)); },
                  .is_cancelled = CatchInterrupts::is_set});
  show(view.finish());
  waiting.reset();
  if (is_shown || answer.calls.empty()) write_text("\n");
  return answer;
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
  auto* sub = app.add_subcommand("chat", "Chat with a pretrained model");
  sub->add_option("model", command->model, model_help)->required();
  sub->add_option("message", command->messages,
                  "Messages to answer, one after another; by default those typed, or the lines of standard input");
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
