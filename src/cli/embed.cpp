#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/encoder_options.h"
#include "cli/vector_files.h"

namespace jerboa::cli {
namespace {

struct EmbedCommand {
  EncoderFlags flags;
  std::vector<std::string> texts;
  std::string file, search, output, format = "json", prompt, prompt_name;
  int dimensions = 0;
  std::int64_t top = 5;
  bool with_prompt = false, plain = false, similarities = false;

  void run() const {
    TextEncoder encoder = flags.open();
    if (!search.empty()) return find(encoder);
    const auto all = all_texts(texts, file);
    const Embeddings vectors = encoder.embed(all, options(""));
    if (similarities)
      print_similarities(encoder, vectors);
    else if (!output.empty())
      write_vectors(output, vectors);
    else
      print(all, vectors);
  }

  EmbedOptions options(const std::string& usual_prompt) const {
    EmbedOptions options{.prompt_name = prompt_name.empty() ? usual_prompt : prompt_name, .dimensions = dimensions};
    if (with_prompt) options.prompt = prompt;
    if (plain) options.normalise = false;
    return options;
  }

  // The lines of a file that are most like each text.
  void find(TextEncoder& encoder) const {
    const auto queries = all_texts(texts, file);
    const auto lines = read_lines(search);
    if (lines.empty()) throw UsageError(fmt::format("{}: there are no lines to search", search));
    const Embeddings known = encoder.embed(lines, {.prompt_name = encoder.document_prompt(), .dimensions = dimensions});
    const Embeddings wanted = encoder.embed(queries, options(encoder.query_prompt()));
    for (std::int64_t query = 0; query < wanted.count; ++query) {
      if (format == "text" && queries.size() > 1) fmt::print("{}\n", queries[static_cast<std::size_t>(query)]);
      for (const Match& match : nearest(known, wanted.row(query), top, encoder.similarity_kind()))
        print_match(queries[static_cast<std::size_t>(query)], lines[static_cast<std::size_t>(match.index)], match);
    }
  }

  void print_match(const std::string& query, const std::string& line, const Match& match) const {
    if (format == "text") return fmt::print("{:.4f}  {}\n", match.score, line);
    const nlohmann::ordered_json report{
        {"query", query}, {"line", match.index + 1}, {"score", match.score}, {"text", line}};
    fmt::print("{}\n", report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  static void print_similarities(const TextEncoder& encoder, const Embeddings& vectors) {
    for (std::int64_t i = 0; i < vectors.count; ++i) {
      std::vector<std::string> row;
      for (std::int64_t j = 0; j < vectors.count; ++j)
        row.push_back(fmt::format("{:7.4f}", similarity(vectors.row(i), vectors.row(j), encoder.similarity_kind())));
      fmt::print("{}\n", fmt::join(row, " "));
    }
  }

  void print(const std::vector<std::string>& all, const Embeddings& vectors) const {
    for (std::int64_t i = 0; i < vectors.count; ++i) {
      const auto row = vectors.row(i);
      if (format == "text") {
        fmt::print("{:.7g}\n", fmt::join(row, " "));
        continue;
      }
      const nlohmann::ordered_json report{{"text", all[static_cast<std::size_t>(i)]},
                                          {"embedding", std::vector<float>(row.begin(), row.end())}};
      fmt::print("{}\n", report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }
  }
};

}  // namespace

void add_embed(CLI::App& app) {
  auto command = std::make_shared<EmbedCommand>();
  auto* sub = app.add_subcommand("embed", "Turn texts into vectors, compare them, or search a file of texts");
  command->flags.add_to(*sub);
  sub->add_option("texts", command->texts, "The texts");
  sub->add_option("--file", command->file, "More texts, one per line; - reads standard input");
  auto* search = sub->add_option("--search", command->search, "Print the lines of this file that are most like a text");
  sub->add_option("--top", command->top, "How many lines to print")
      ->needs(search)
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
  auto* similarities =
      sub->add_flag("--similarities", command->similarities, "Print how alike each two of the texts are")
          ->excludes(search);
  sub->add_option("--output", command->output,
                  "Write the vectors to this file: .npy, .safetensors or, with any other name, plain f32 values")
      ->excludes(search)
      ->excludes(similarities);
  sub->add_option("--format", command->format, "Of what is printed: json (a line per text) or text")
      ->check(one_of({"json", "text"}))
      ->capture_default_str();
  sub->add_option("--dimensions", command->dimensions, "Keep only the first dimensions of each vector")
      ->check(whole_number(1, 1 << 20));
  auto* prompt = sub->add_option("--prompt", command->prompt, "A text to put before each text");
  sub->add_option("--prompt-name", command->prompt_name, "A prompt of the model's folder to put before each text")
      ->excludes(prompt);
  sub->add_flag("--plain", command->plain, "Do not normalise the vectors to a length of 1");
  sub->callback([command, prompt] {
    command->with_prompt = prompt->count() > 0;
    command->run();
  });
}

}  // namespace jerboa::cli
