#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>
#include <unistd.h>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>

#include "cli/answers.h"
#include "cli/arguments.h"
#include "cli/batch.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/language_options.h"
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
    if (tool_flags.has_tools()) return run_with_tools(text);
    LanguageModel model = flags.open(path);
    const std::vector<std::int32_t> tokens = prompt_tokens(model, text, flags.tool_list());
    if (echo) write_text(text);
    const CatchInterrupts catching;
    const auto answers = count == 1 ? generate_one(model, tokens) : generate_several(model, tokens);
    if (CatchInterrupts::take()) throw Exit{ExitCode::interrupted};
    flags.write_trace(model);
    bool is_cut = false;
    for (const Generation& answer : answers) {
      note_cut(answer);
      if (flags.stats) print_stats(model, answer);
      is_cut = is_cut || answer.reason == StopReason::length || answer.reason == StopReason::context;
    }
    if (is_cut && flags.is_constrained()) throw Exit{ExitCode::cut};
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
    if (!flags.tool_list().is_null())
      throw BadArguments("--tools describes tools to the model; --mcp and --memory do that themselves");
    if (flags.is_constrained())
      throw BadArguments("--schema and --regex do not allow calls of tools; leave out --mcp and --memory");
    if (!batch.empty() || count > 1) throw BadArguments("--mcp and --memory are for a single answer");
    if (echo || log_probabilities)
      throw BadArguments("--echo and --logprobs cannot be combined with --mcp or --memory");
  }

  // The prompt is a user's message, and the answer what the model says after its calls.
  void run_with_tools(const std::string& text) const {
    const std::vector<mcp::Tool> tools = tool_flags.open();
    tool_flags.check_choice(tools);
    LanguageModel model = flags.open(path);
    const CatchInterrupts catching;
    ToolModel asked(model, tools);
    mcp::Json messages = mcp::Json::array({{{"role", "user"}, {"content", text}}});
    AgentParts parts;
    parts.context.is_cancelled = CatchInterrupts::is_set;
    parts.ask = [&](const mcp::Json& so_far, Calls calls) {
      return asked.ask({.messages = so_far,
                        .calls = calls,
                        .required_tool = tool_flags.required_tool(),
                        .options = flags.generation(model),
                        .is_cancelled = CatchInterrupts::is_set});
    };
    parts.on_call = [](const WrittenCall& call) { note(shown_call(call)); };
    parts.on_result = [&](mcp::ToolResult& result) {
      note(shown_result(result));
      result.text = asked.shortened_to(result.text, model.context() / 4);
    };
    const ToolAnswer answer = answer_with_tools(messages, tools, tool_flags.agent(), parts);
    if (CatchInterrupts::take()) throw Exit{ExitCode::interrupted};
    write_text((json ? to_line(messages, answer) : answer.text) + "\n");
    note_cut(answer.generation);
    if (flags.stats) print_stats(model, answer.generation);
  }

  static std::string to_line(const mcp::Json& messages, const ToolAnswer& answer) {
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

  std::vector<Generation> generate_one(LanguageModel& model, const std::vector<std::int32_t>& tokens) const {
    Answers answers(model, tokens, flags.generation(model), 1);
    if (json) {
      answers.wait();
      write_text(answer_json(model, tokens, answers.results()[0], {.log_probabilities = log_probabilities}).dump() +
                 "\n");
    } else {
      answers.wait(write_text);
      write_text("\n");
    }
    return answers.results();
  }

  std::vector<Generation> generate_several(LanguageModel& model, const std::vector<std::int32_t>& tokens) const {
    Answers answers(model, tokens, flags.generation(model), count);
    answers.wait();
    const std::vector<Generation> results = answers.results();
    for (int i = 0; i < count; ++i) {
      const Generation& result = results[static_cast<std::size_t>(i)];
      if (json)
        write_text(answer_json(model, tokens, result, {.index = i, .log_probabilities = log_probabilities}).dump() +
                   "\n");
      else
        write_text(fmt::format("{}{}\n", i > 0 ? "---\n" : "", result.text));
    }
    return results;
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
          ->check([](std::string path) { return path == "-" ? std::string() : existing_file()(path); })
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
