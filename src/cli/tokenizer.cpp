#include <CLI/CLI.hpp>
#include <charconv>
#include <fmt/format.h>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/text/bpe_trainer.h>
#include <jerboa/text/tokenizer.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

// Loads a tokenizer without the file's truncation and padding, which are meant for a model's batches.
Tokenizer load_plain(const std::string& path) {
  Tokenizer tokenizer = Tokenizer::load(model_path(path));
  tokenizer.set_truncation({});
  tokenizer.set_padding({});
  return tokenizer;
}

struct EncodeCommand {
  std::string tokenizer;
  bool special = false;
  bool null = false;
  bool offsets = false;
  bool json = false;

  void run() const {
    const Tokenizer loaded = load_plain(tokenizer);
    std::string input = read_input();
    if (null && input.ends_with('\0')) input.pop_back();
    std::string_view rest = input;
    std::string line;
    while (true) {
      const auto end = null ? rest.find('\0') : std::string_view::npos;
      const Encoding encoding = loaded.encode(rest.substr(0, end), {.add_special = special});
      line.clear();
      if (json) line = to_json(encoding).dump();
      for (std::size_t i = 0; !json && i < encoding.size(); ++i) {
        if (i > 0) line += ' ';
        fmt::format_to(std::back_inserter(line), "{}", encoding.ids[i]);
        if (offsets)
          fmt::format_to(std::back_inserter(line), ":{}-{}", encoding.offsets[i].begin, encoding.offsets[i].end);
      }
      line += '\n';
      write_text(line);
      if (end == std::string_view::npos) return;
      rest.remove_prefix(end + 1);
    }
  }

 private:
  nlohmann::ordered_json to_json(const Encoding& encoding) const {
    nlohmann::ordered_json out{{"ids", encoding.ids}};
    if (offsets) out["offsets"] = nlohmann::ordered_json::array();
    for (std::size_t i = 0; offsets && i < encoding.size(); ++i)
      out["offsets"].push_back({encoding.offsets[i].begin, encoding.offsets[i].end});
    return out;
  }
};

struct DecodeCommand {
  std::string tokenizer;
  bool special = false;
  bool null = false;

  void run() const {
    const Tokenizer loaded = load_plain(tokenizer);
    std::string line;
    std::size_t number = 0;
    while (std::getline(std::cin, line)) {
      std::string text = loaded.decode(ids_of(line, ++number), {.skip_special = !special});
      text += null ? '\0' : '\n';
      write_text(text);
    }
  }

  static std::vector<std::int32_t> ids_of(std::string_view line, std::size_t number) {
    std::vector<std::int32_t> ids;
    while (true) {
      line.remove_prefix(std::min(line.find_first_not_of(" \t\r,"), line.size()));
      if (line.empty()) return ids;
      const auto word = line.substr(0, line.find_first_of(" \t\r,"));
      std::int32_t id = 0;
      const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (error != std::errc() || stop != word.data() + word.size())
        throw UsageError(fmt::format("standard input, line {}: \"{}\" is not a token id", number, word));
      ids.push_back(id);
      line.remove_prefix(word.size());
    }
  }
};

struct InfoCommand {
  std::string tokenizer;
  bool json = false;

  void run() const {
    const Tokenizer loaded = Tokenizer::load(model_path(tokenizer));
    if (json) return write_text(to_json(loaded).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    std::string out = fmt::format("model       {}\nvocabulary  {}\n", loaded.model_type(), loaded.vocab_size());
    if (const auto& truncation = loaded.truncation())
      out += fmt::format("truncation  {} tokens\n", truncation->max_length);
    if (const auto& padding = loaded.padding()) {
      out += padding->length ? fmt::format("padding     to {} tokens\n", *padding->length)
                             : "padding     to the longest\n";
    }
    const auto special = loaded.special_tokens();
    out += fmt::format("special     {}\n", special.size());
    for (const auto& [text, id] : special) out += fmt::format("  {:>8}  {}\n", id, text);
    write_text(out);
  }

 private:
  static nlohmann::ordered_json to_json(const Tokenizer& loaded) {
    nlohmann::ordered_json out{{"model", loaded.model_type()}, {"vocabulary", loaded.vocab_size()}};
    if (const auto& truncation = loaded.truncation()) out["truncation"] = truncation->max_length;
    if (const auto& padding = loaded.padding())
      out["padding"] = padding->length ? nlohmann::ordered_json(*padding->length) : "longest";
    out["special"] = nlohmann::ordered_json::array();
    for (const auto& [text, id] : loaded.special_tokens()) out["special"].push_back({{"id", id}, {"text", text}});
    return out;
  }
};

struct TrainCommand {
  std::vector<std::string> files;
  std::string output;
  BpeTraining options;

  void run() const {
    BpeTrainer trainer(options);
    if (files.empty()) trainer.add(read_input());
    for (const std::string& path : files) trainer.add(FileContent(path).text());
    const std::string json = trainer.train();
    write_file_atomically(output, json);
    write_text(fmt::format("{}: {} tokens\n", output, Tokenizer::from_json(json, output).vocab_size()));
  }
};

}  // namespace

void add_tokenizer(CLI::App& app) {
  CLI::App* group = app.add_subcommand("tokenizer", "Convert text to tokens and back; train a tokenizer");
  group->require_subcommand(1);
  add_examples(*group, {"jerboa tokenizer info minimind2-small", "jerboa help tokenizer train"});
  constexpr const char* tokenizer_help =
      "tokenizer.json, sentencepiece .model, llama2.c tokenizer.bin, a folder with one, or the name of a pulled model";

  auto encode = std::make_shared<EncodeCommand>();
  CLI::App* command = group->add_subcommand("encode", "Print the ids of the text on standard input, on one line");
  command->add_option("tokenizer", encode->tokenizer, tokenizer_help)->required();
  command->add_flag("--special", encode->special, "Add the special tokens that a model expects around a text");
  command->add_flag("--null", encode->null, "The input is several texts, separated by NUL bytes; one line for each");
  command->add_flag("--offsets", encode->offsets, "Print each id with its bytes of the text, as ID:BEGIN-END");
  command->add_flag("--json", encode->json, "Print a line of JSON for each text");
  add_examples(*command, {"echo -n \"Hello\" | jerboa tokenizer encode minimind2-small",
                          "printf 'one\\0two' | jerboa tokenizer encode tokenizer.json --null --json"});
  command->callback([encode] { encode->run(); });

  auto decode = std::make_shared<DecodeCommand>();
  command = group->add_subcommand("decode", "Print the text of the ids on standard input, one text per line");
  command->add_option("tokenizer", decode->tokenizer, tokenizer_help)->required();
  command->add_flag("--special", decode->special, "Keep special tokens in the text");
  command->add_flag("--null", decode->null, "End each text with a NUL byte instead of a line break");
  add_examples(*command, {"echo \"1 22 333\" | jerboa tokenizer decode minimind2-small"});
  command->callback([decode] { decode->run(); });

  auto info = std::make_shared<InfoCommand>();
  command = group->add_subcommand("info", "Describe a tokenizer");
  command->add_option("tokenizer", info->tokenizer, tokenizer_help)->required();
  command->add_flag("--json", info->json, "Print JSON");
  add_examples(*command, {"jerboa tokenizer info minimind2-small"});
  command->callback([info] { info->run(); });

  auto train = std::make_shared<TrainCommand>();
  command = group->add_subcommand("train", "Train a byte-level BPE tokenizer");
  command->add_option("files", train->files, "Texts to train on; by default standard input")->check(existing_file());
  command->add_option("-o,--output", train->output, "The tokenizer.json to write")->required()->check(place_for_file());
  command->add_option("--vocab-size", train->options.vocab_size, "Vocabulary size, including special tokens")
      ->check(whole_number(256, 1 << 24))
      ->capture_default_str();
  command->add_option("--min-frequency", train->options.min_frequency, "How often a pair must occur to be merged")
      ->check(whole_number(1, std::int64_t{1} << 40))
      ->capture_default_str();
  one_value_each(command->add_option("--special-token", train->options.special_tokens,
                                     "A special token; may be given several times"))
      ->capture_default_str();
  add_examples(*command,
               {"jerboa tokenizer train -o tokenizer.json --vocab-size 4096 --special-token \"<end>\" text.txt"});
  command->callback([train] { train->run(); });
}

}  // namespace jerboa::cli
