#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>
#include <unistd.h>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>

#include "cli/answers.h"
#include "cli/arguments.h"
#include "cli/batch.h"
#include "cli/chat_template_check.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/language_options.h"
#include "cli/store.h"
#include "cli/terminal.h"
#include "cli/tool_options.h"

namespace jerboa::cli {
namespace {

struct GenerateCommand {
  std::string path, prompt, file, batch;
  LanguageFlags flags;
  ToolFlags tool_flags;
  int count = 1;
  bool echo = false, json = false, log_probabilities = false, has_prompt = false;

  void run() {
    check();
    if (!batch.empty()) return run_batch(path, batch, flags, log_probabilities);
    const std::string text = read_prompt();
    if ((tool_flags.has_tools() || !flags.tool_list().empty()) && !has_chat_template(model_path(path)))
      throw no_tools_without_template(path, tool_flags.has_tools() ? tool_flags.typed() : "--tools");
    if (tool_flags.has_tools()) return run_with_tools(text);
    LanguageModel model = flags.open(path);
    if (echo) write_text(text);
    const CatchInterrupts catching;
    const auto answers = flags.tool_list().empty() ? continue_text(model, text) : answer_message(model, text);
    end_if_interrupted();
    flags.write_trace(model);
    bool has_cut = false;
    for (const Generation& answer : answers) {
      note_cut(answer);
      if (flags.stats) print_stats(model, answer);
      has_cut = has_cut || is_cut(answer);
    }
    if (has_cut && flags.is_constrained()) throw Exit{ExitCode::cut};
  }

 private:
  void check() {
    flags.check();
    tool_flags.check();
    if (tool_flags.has_tools()) check_tools();
    if (has_prompt && prompt.empty()) throw BadArguments("the prompt is empty; give some text");
    if (count > 1 && (flags.greedy || flags.temperature == 0.0f))
      throw BadArguments("-n asks for several answers, but without sampling they are all the same");
    if (log_probabilities && !json && batch.empty()) throw BadArguments("--logprobs needs --json");
    if (echo && json) throw BadArguments("--echo and --json contradict each other; give one of them");
  }

  void check_tools() const {
    if (!flags.tool_list().empty())
      throw BadArguments("--tools describes tools to the model; --mcp and --memory do that themselves");
    if (flags.is_constrained())
      throw BadArguments("--schema and --regex do not allow calls of tools; leave out --mcp and --memory");
    if (!batch.empty() || count > 1) throw BadArguments("--mcp and --memory are for a single answer");
    if (echo || log_probabilities)
      throw BadArguments("--echo and --logprobs cannot be combined with --mcp or --memory");
  }

  // The prompt is a user's message; the answer is the model's last message, after its calls.
  void run_with_tools(const std::string& text) const {
    const std::vector<server::ServerTool> tools = tool_flags.open();
    tool_flags.check_choice(tools);
    LanguageModel model = flags.open(path);
    const CatchInterrupts catching;
    ChatAsker asked(model, server::tools_json(tools));
    mcp::Json messages = mcp::Json::array({{{"role", "user"}, {"content", text}}});
    AgentParts parts;
    parts.is_cancelled = CatchInterrupts::is_set;
    parts.ask = [&](const mcp::Json& so_far, Calls calls) {
      return asked.ask({.messages = so_far,
                        .calls = calls,
                        .required_tool = tool_flags.required_tool(),
                        .options = flags.generation(model),
                        .is_cancelled = CatchInterrupts::is_set});
    };
    parts.on_call = [](const WrittenCall& call) { note(shown_call(call)); };
    parts.on_result = [](const server::ToolOutput& output) { note(shown_result(output)); };
    parts.add_results = [&](mcp::Json& so_far, mcp::Json results) {
      return asked.add_results(so_far, std::move(results), {}, flags.max_tokens.value_or(model.context()),
                               [](const mcp::Json& all) { return all; });
    };
    const ChatAnswer answer = answer_with_tools(messages, tools, tool_flags.agent(), parts);
    end_if_interrupted();
    flags.write_trace(model);
    write_text((json ? to_line(messages, answer) : answer.text) + "\n");
    note_cut(answer.generation);
    if (flags.stats) print_stats(model, answer.generation);
  }

  static std::string to_line(const mcp::Json& messages, const ChatAnswer& answer) {
    const mcp::Json line{{"text", answer.text},
                         {"stopped_by", name(answer.generation.reason)},
                         {"prompt_tokens", answer.generation.prompt_tokens},
                         {"messages", messages}};
    return line.dump(-1, ' ', false, mcp::Json::error_handler_t::replace);
  }

  std::string read_prompt() const {
    std::string text = prompt;
    if (!file.empty()) {
      text = FileContent(file).text();
    } else if (!has_prompt || prompt == "-") {
      if (is_terminal(STDIN_FILENO)) note("reading the prompt from the terminal; Ctrl-D ends it");
      text = read_input();
    }
    if (text.empty()) throw BadArguments(fmt::format("{} is empty", file.empty() ? "standard input" : file));
    return text;
  }

  GenerateOptions generation(const LanguageModel& model) const {
    GenerateOptions options = flags.generation(model);
    if (log_probabilities) options.logprobs = 0;  // no alternatives
    return options;
  }

  std::vector<Generation> continue_text(LanguageModel& model, const std::string& text) const {
    const std::vector<std::int32_t> tokens = model.encode_prompt(text);
    Answers answers(model, tokens, generation(model), count);
    const bool is_streamed = count == 1 && !json;
    answers.wait(is_streamed ? OnText(write_text) : OnText());
    std::vector<Generation> results = answers.results();
    if (is_streamed) write_text("\n");
    for (int i = 0; !is_streamed && i < count; ++i) {
      const Generation& result = results[static_cast<std::size_t>(i)];
      print(i, result.text, json ? answer_json(result, details(i)) : mcp::Json());
    }
    return results;
  }

  // The prompt is a user's message, which the model may answer with calls of the tools given by --tools.
  std::vector<Generation> answer_message(LanguageModel& model, const std::string& text) const {
    ChatAsker asked(model, flags.tool_list());
    const mcp::Json messages = mcp::Json::array({{{"role", "user"}, {"content", text}}});
    ChatAsker::Question message{.messages = messages,
                                .calls = flags.is_constrained() ? Calls::forbidden : Calls::allowed,
                                .options = generation(model)};
    if (count == 1 && !json) return {stream_answer(asked, std::move(message))};
    const ChatAsker::Prepared question = asked.prepare(message);
    Answers answers(model, question.tokens, question.options, count);
    answers.wait();
    std::vector<Generation> results = answers.results();
    for (int i = 0; i < count; ++i) {
      const Generation& result = results[static_cast<std::size_t>(i)];
      const ChatAnswer answer = asked.read(question, result);
      AnswerDetails all = details(i);
      all.read = &answer;
      print(i, answer.text + shown_calls(answer), json ? answer_json(result, all) : mcp::Json());
    }
    return results;
  }

  static Generation stream_answer(ChatAsker& asked, ChatAsker::Question message) {
    message.on_text = [](std::string_view part, bool is_thought) {
      if (!is_thought) write_text(part);
    };
    message.is_cancelled = CatchInterrupts::is_set;
    const ChatAnswer answer = asked.ask(message);
    write_text(shown_calls(answer) + "\n");
    return answer.generation;
  }

  // The calls that are printed after the text.
  static std::string shown_calls(const ChatAnswer& answer) {
    std::string shown;
    for (const WrittenCall& call : answer.calls)
      shown += fmt::format("{}{}", answer.text.empty() && shown.empty() ? "" : "\n", shown_call(call));
    return shown;
  }

  AnswerDetails details(int i) const {
    return {.index = count > 1 ? std::optional(i) : std::nullopt, .log_probabilities = log_probabilities};
  }

  void print(int i, const std::string& text, const mcp::Json& line) const {
    write_text(json ? line.dump(-1, ' ', false, mcp::Json::error_handler_t::replace) + "\n"
                    : fmt::format("{}{}\n", i > 0 ? "---\n" : "", text));
  }
};

}  // namespace

void add_generate(CLI::App& app) {
  auto command = std::make_shared<GenerateCommand>();
  auto* sub = app.add_subcommand("generate", "Continue a text with a pretrained model");
  sub->add_option("model", command->path, model_help)->required();
  auto* prompt =
      sub->add_option("prompt", command->prompt, "The text to continue; by default standard input, as with -");
  auto* file = sub->add_option("-f,--file", command->file, "A file with the text to continue")
                   ->check(existing_file())
                   ->excludes(prompt);
  auto* batch =
      sub->add_option("--batch", command->batch,
                      "A file with a JSON object per line ({\"prompt\": …} or {\"messages\": […]}), or - for standard "
                      "input; they are computed together, and answers are printed as JSON, in the same order")
          ->check(file_or_input())
          ->excludes(prompt)
          ->excludes(file);
  sub->add_option("-n,--count", command->count, "How many answers to generate, at once")
      ->check(whole_number(1, 1024))
      ->capture_default_str()
      ->excludes(batch);
  command->flags.add_to(*sub);
  command->tool_flags.add_to(*sub);
  sub->add_flag("--echo", command->echo, "Print the prompt as well")->excludes(batch);
  sub->add_flag("--json", command->json, "Print each answer as a line of JSON: text, tokens, times");
  sub->add_flag("--logprobs", command->log_probabilities, "Add the log-probability of each token to the JSON");
  add_examples(*sub, {"jerboa generate stories15m \"Once upon a time\" --max-tokens 100 --stats",
                      "jerboa generate FOLDER -f prompt.txt --temperature 0.8 --seed 1 -n 4",
                      "echo \"Once upon a time\" | jerboa generate FOLDER --json",
                      "jerboa generate FOLDER \"Here is Lily as JSON: \" --schema schema.json",
                      "jerboa generate FOLDER --batch prompts.jsonl --max-tokens 50 >answers.jsonl"});
  sub->callback([command, prompt] {
    command->has_prompt = prompt->count() > 0;
    command->run();
  });
}

}  // namespace jerboa::cli
