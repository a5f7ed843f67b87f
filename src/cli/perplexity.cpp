#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <jerboa/base/file.h>
#include <jerboa/language/language_model.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/language_options.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

struct PerplexityCommand {
  std::string model, file;
  std::int64_t most = 0;
  bool json = false;
  DecoderFlags flags;

  void run() const {
    flags.check();
    const std::string text = file == "-" ? read_input() : std::string(FileContent(file).text());
    if (text.empty()) throw BadArguments(fmt::format("--file: {} is empty", file == "-" ? "standard input" : file));
    LanguageModel opened = flags.open(model);
    std::vector<std::int32_t> tokens = opened.tokenizer().encode(text).ids;
    if (most > 0 && most < std::ssize(tokens)) tokens.resize(static_cast<std::size_t>(most));
    const bool person = is_terminal(STDERR_FILENO);
    const Perplexity result = opened.perplexity(tokens, [&](std::int64_t scored) {
      if (person) fmt::print(stderr, "\r{} of {} tokens", scored, tokens.size() - 1);
    });
    if (person) fmt::print(stderr, "\r\033[K");
    const double rate = result.seconds > 0 ? static_cast<double>(result.tokens) / result.seconds : 0;
    if (json) {
      const nlohmann::ordered_json report{{"model", model},
                                          {"file", file},
                                          {"weights", flags.weights.empty() ? "file" : flags.weights},
                                          {"precision", flags.precision.empty() ? "usual" : flags.precision},
                                          {"perplexity", result.value},
                                          {"tokens", result.tokens},
                                          {"context", opened.context()},
                                          {"tokens_per_second", rate}};
      write_text(report.dump() + "\n");
    } else {
      write_text(fmt::format("perplexity {:.4f} over {} tokens, context {}, {:.1f} tokens/s\n", result.value,
                             result.tokens, opened.context(), rate));
    }
  }
};

}  // namespace

void add_perplexity(CLI::App& app) {
  auto command = std::make_shared<PerplexityCommand>();
  auto* sub = app.add_subcommand("perplexity", "Measure how well a pretrained model predicts a text: lower is better");
  sub->add_option("model", command->model, model_help)->required();
  sub->add_option("-f,--file", command->file, "The text, or - for standard input")->required()->check(file_or_input());
  command->flags.add_to(*sub,
                        "Tokens that the model sees at once, in windows that overlap by half; by default its "
                        "limit, at most 4096");
  sub->add_option("--max-tokens", command->most, "Use only the beginning of the text")
      ->check(whole_number(2, std::int64_t{1} << 40));
  sub->add_flag("--json", command->json, "Print the result as JSON");
  add_examples(*sub, {"jerboa perplexity FOLDER --file text.txt --weights int4 --context 512"});
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
