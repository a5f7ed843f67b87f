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
  TextFlags texts;
  std::string search, output, format = "json", prompt, prompt_name;
  int dimensions = 0;
  std::int64_t top = 5;
  bool with_prompt = false, plain = false, similarities = false, asks_for_json = false;

  void run() const {
    flags.check();
    const auto all = texts.read();
    if (!search.empty()) return find(all);
    TextEncoder encoder = flags.open();
    const Embeddings vectors = encoder.embed(all, options(""));
    if (similarities)
      print_similarities(all, encoder, vectors);
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

  // Prints the lines of a file that are most similar to each text.
  void find(const std::vector<std::string>& queries) const {
    const auto lines = read_lines(search);
    if (lines.empty()) throw BadArguments(fmt::format("--search: {} has no lines", search));
    TextEncoder encoder = flags.open();
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
    print_json({{"query", query}, {"line", match.index + 1}, {"score", match.score}, {"text", line}});
  }

  void print_similarities(const std::vector<std::string>& all, const TextEncoder& encoder,
                          const Embeddings& vectors) const {
    for (std::int64_t i = 0; i < vectors.count; ++i) {
      std::vector<float> row;
      for (std::int64_t j = 0; j < vectors.count; ++j)
        row.push_back(similarity(vectors.row(i), vectors.row(j), encoder.similarity_kind()));
      if (asks_for_json)
        print_json({{"text", all[static_cast<std::size_t>(i)]}, {"similarities", row}});
      else
        fmt::print("{:7.4f}\n", fmt::join(row, " "));
    }
  }

  static void print_json(const nlohmann::ordered_json& report) {
    fmt::print("{}\n", report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  void print(const std::vector<std::string>& all, const Embeddings& vectors) const {
    for (std::int64_t i = 0; i < vectors.count; ++i) {
      const auto row = vectors.row(i);
      if (format == "text") {
        fmt::print("{:.7g}\n", fmt::join(row, " "));
        continue;
      }
      print_json(
          {{"text", all[static_cast<std::size_t>(i)]}, {"embedding", std::vector<float>(row.begin(), row.end())}});
    }
  }
};

}  // namespace

void add_embed(CLI::App& app) {
  auto command = std::make_shared<EmbedCommand>();
  auto* sub = app.add_subcommand("embed", "Turn texts into vectors, compare them, or search a file of texts");
  command->flags.add_to(*sub);
  command->texts.add_to(*sub, "texts");
  auto* search =
      sub->add_option("--search", command->search, "Print the lines of this file that are most similar to a text")
          ->check(existing_file());
  sub->add_option("--top", command->top, "How many lines to print")
      ->needs(search)
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
  auto* similarities = sub->add_flag("--similarities", command->similarities,
                                     "Print the similarity of each pair of texts: a table, or with --json a line each")
                           ->excludes(search);
  sub->add_option("--output", command->output,
                  "Write the vectors to this file: .npy, .safetensors or, with any other extension, raw f32 values")
      ->check(place_for_file())
      ->excludes(search)
      ->excludes(similarities);
  add_format_to(*sub, command->format);
  sub->add_option("--dimensions", command->dimensions, "Keep only the first dimensions of each vector")
      ->check(whole_number(1, 1 << 20));
  auto* prompt = sub->add_option("--prompt", command->prompt, "A text to insert before each text");
  sub->add_option("--prompt-name", command->prompt_name, "A prompt from the model's folder to insert before each text")
      ->excludes(prompt);
  sub->add_flag("--plain", command->plain, "Do not normalise the vectors to a length of 1");
  add_examples(*sub, {"jerboa embed minilm \"a small desert rodent\" \"a jerboa\" --similarities",
                      "jerboa embed minilm \"how do I undo a commit?\" --search notes.txt --top 3 --format text",
                      "jerboa embed minilm -f texts.txt --output vectors.npy"});
  sub->callback([command, prompt, sub] {
    command->with_prompt = prompt->count() > 0;
    command->asks_for_json = sub->count("--json") > 0 || (sub->count("--format") > 0 && command->format == "json");
    command->run();
  });
}

}  // namespace jerboa::cli
