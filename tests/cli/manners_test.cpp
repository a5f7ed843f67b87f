#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>

#include "cli/command.h"
#include "support/temp_folder.h"

// Properties that every command has.
namespace jerboa::test::manners_test {
namespace {

const std::vector<std::string> commands{
    "chat",      "generate", "serve",   "pull",  "list",  "show",       "rm",         "inspect",  "embed",
    "classify",  "rerank",   "memory",  "mcp",   "tools", "perplexity", "convert",    "quantise", "import",
    "tokenizer", "template", "devices", "bench", "tune",  "verify",     "completion", "help"};

TEST(Manners, SaysItsVersion) {
  const Outcome outcome = run_command({"--version"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out.find("jerboa "), 0u) << outcome.out;
}

TEST(Manners, PrintsNothingFromFilesThatATerminalWouldObey) {
  const TempFolder folder;
  write_text(folder / "config.json", "{\"model_type\": \"\\u001b[2J" + std::string(100'000, 'z') + "\"}");
  std::filesystem::copy(std::filesystem::path(JERBOA_SOURCE_DIR) / "tests/data/goldens/llama/model.safetensors",
                        folder / "model.safetensors");
  const Outcome outcome = run_command({"inspect", folder.path().string()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_LT(outcome.err.size(), 2000U);
  EXPECT_EQ(outcome.err.find('\033'), std::string::npos) << outcome.err;
  const Outcome argument = run_command({"inspect", "no\033[2J" + std::string(20'000, 'z')});
  EXPECT_EQ(argument.code, 2);
  EXPECT_LT(argument.err.size(), 10'000U);
  EXPECT_EQ(argument.err.find('\033'), std::string::npos) << argument.err;
}

TEST(Manners, NeedsNoTemporaryFolderUntilSomethingIsWrittenThere) {
  const RunSettings settings{.variables = {{"TMPDIR", "/nonexistent"}}};
  EXPECT_EQ(run_command({"--version"}, settings).code, 0);
  const Outcome outcome = run_command({"bench", "load", "--model", "llama8x512"}, settings);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("no folder for temporary files: /nonexistent; name another one with --folder"),
            std::string::npos)
      << outcome.err;
}

TEST(Manners, HelpsWithEveryCommand) {
  for (const std::string& command : commands) {
    const Outcome flag = run_command({command, "--help"}), word = run_command({"help", command});
    EXPECT_EQ(flag.code, 0) << command;
    EXPECT_EQ(word.code, 0) << command << word.err;
    EXPECT_NE(flag.out.find("Usage: jerboa " + command), std::string::npos) << flag.out;
    EXPECT_EQ(flag.out, word.out);
  }
}

// The --help of every command, as listed in the completion script, which is generated from the commands.
std::map<std::string, std::string> help_of_all() {
  const std::string script = run_command({"completion", "bash"}).out;
  const std::string mark = "\") words=";
  std::map<std::string, std::string> all;
  for (auto end = script.find(mark); end != std::string::npos; end = script.find(mark, end + 1)) {
    const auto begin = script.rfind('"', end - 1) + 1;
    std::istringstream path(script.substr(begin, end - begin));
    std::vector<std::string> arguments{std::istream_iterator<std::string>(path), {}};
    std::string command;
    for (const std::string& word : arguments) command += (command.empty() ? "" : " ") + word;
    arguments.emplace_back("--help");
    const Outcome help = run_command(arguments);
    EXPECT_EQ(help.code, 0) << command;
    all[command] = help.out;
  }
  return all;
}

// The words of an example from "jerboa" to the end of the command, without those that are quoted.
std::vector<std::string> words_of(const std::string& example) {
  static const std::regex quoted(R"("[^"]*"|'[^']*')"), end(R"( \||;|\)| >.*)");
  std::smatch found;
  std::string text = std::regex_replace(example.substr(example.find("jerboa ") + 7), quoted, "TEXT");
  if (std::regex_search(text, found, end)) text = found.prefix();
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

// The line of a help that describes a flag: "  -f,--file TEXT:a|b …".
std::string description_of(const std::string& flag, const std::string& help) {
  std::smatch found;
  const std::regex line("\n  (?:[^\n ]*,)?" + flag + "(?:,[^\n ]*)?(?: [^\n]*)?(?=\n)");
  return std::regex_search(help, found, line) ? found.str() : "";
}

void check_example(const std::string& example, const std::map<std::string, std::string>& help_of) {
  const std::vector<std::string> words = words_of(example);
  std::string command;
  std::size_t at = 0;
  for (; at < words.size(); ++at) {
    const std::string longer = command.empty() ? words[at] : command + " " + words[at];
    if (!help_of.contains(longer)) break;
    command = longer;
  }
  ASSERT_FALSE(command.empty()) << example;
  for (; at < words.size(); ++at) {
    if (!words[at].starts_with('-') || words[at] == "-") continue;
    const std::string line = description_of(words[at], help_of.at(command));
    EXPECT_NE(line, "") << example << ": there is no " << words[at];
    std::smatch choices;
    if (!std::regex_search(line, choices, std::regex("TEXT:([^ =\n]+)"))) continue;
    ASSERT_LT(at + 1, words.size()) << example;
    EXPECT_NE(("|" + choices[1].str() + "|").find("|" + words[at + 1] + "|"), std::string::npos)
        << example << ": " << words[at + 1] << " is not one of " << choices[1];
  }
}

TEST(Manners, EveryCommandHasExamplesOfWhatItTakes) {
  const std::map<std::string, std::string> help_of = help_of_all();
  EXPECT_GE(help_of.size(), commands.size() + 8);
  for (const auto& [command, help] : help_of) {
    const std::size_t begin = help.find("Examples:\n  ");
    ASSERT_NE(begin, std::string::npos) << command << ": " << help;
    std::istringstream lines(help.substr(begin + 10));
    for (std::string line; std::getline(lines, line);)
      if (line.find("jerboa ") != std::string::npos) check_example(line, help_of);
  }
}

TEST(Manners, WithoutACommandItHelpsAndFails) {
  const Outcome outcome = run_command({});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("Usage: jerboa"), std::string::npos) << outcome.err;
}

TEST(Manners, WritesCompletions) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome outcome = run_command({"completion", shell});
    EXPECT_EQ(outcome.code, 0);
    for (const std::string& command : commands)
      EXPECT_NE(outcome.out.find(command), std::string::npos) << shell << " " << command;
    EXPECT_NE(outcome.out.find(shell == std::string("fish") ? "-l temperature" : "--temperature"), std::string::npos);
  }
}

// Runs the script itself in its shell.
TEST(Manners, BashCompletes) {
  const TempFolder folder;
  write_text(folder / "jerboa.bash", run_command({"completion", "bash"}).out);
  const auto complete = [&](const std::string& words, const std::string& before = "") {
    const std::string out = (folder / "out").string();
    const std::string script = before + "source " + (folder / "jerboa.bash").string() + "; COMP_WORDS=(" + words +
                               "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _jerboa; echo \"${COMPREPLY[*]}\" >" + out;
    EXPECT_EQ(std::system(("bash -c '" + script + "'").c_str()), 0);
    return read_text(out);
  };
  EXPECT_EQ(complete("jerboa gen"), "generate\n");
  EXPECT_EQ(complete("jerboa generate x --weights int"), "int8 int4\n");
  EXPECT_EQ(complete("jerboa tokenizer tr"), "train\n");
  EXPECT_EQ(complete("jerboa tu"), "tune\n");
  EXPECT_EQ(complete("jerboa tune --sh"), "--shapes\n");
  // The names of models are completed wherever one is expected.
  const std::string home = (folder / "home").string();
  std::filesystem::create_directories(folder / "home" / "models" / "tiny-one");
  write_text(folder / "home" / "models" / "tiny-one" / "jerboa.json", R"({"source": "", "time": "", "files": []})");
  std::filesystem::create_symlink(JERBOA_COMMAND, folder / "jerboa");
  const std::string with_models = "export JERBOA_HOME=" + home + " PATH=" + folder.path().string() + ":$PATH; ";
  for (const char* command : {"chat", "serve", "tokenizer info", "template render", "embed"})
    EXPECT_EQ(complete("jerboa " + std::string(command) + " tiny", with_models), "tiny-one\n") << command;
  EXPECT_NE(complete("jerboa chat x --t").find("--temperature"), std::string::npos);
}

TEST(Manners, WriteErrorsAreErrorsEverywhere) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"--version"},
                                                    {"help", "chat"},
                                                    {"completion", "bash"},
                                                    {"list", "--json"},
                                                    {"list", "--available"}}) {
    const Outcome outcome = run_command(arguments, {.output = "/dev/full"});
    EXPECT_EQ(outcome.code, 1) << arguments[0];
    EXPECT_EQ(outcome.err, "jerboa: cannot write to standard output: No space left on device\n");
  }
}

TEST(Manners, AFailedTrainingKeepsTheOldTokenizer) {
  const TempFolder folder;
  write_text(folder / "text.txt", "the cat and the dog and the cat");
  const std::string text = (folder / "text.txt").string(), output = (folder / "tokenizer.json").string();
  const Outcome first = run_command({"tokenizer", "train", "-o", output, "--vocab-size", "300", text});
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string before = read_text(output);
  const Outcome second =
      run_command({"tokenizer", "train", "-o", output, "--vocab-size", "290", text}, {.max_file_bytes = 100});
  EXPECT_EQ(second.code, 1);
  EXPECT_NE(second.err.find(output + ": cannot write"), std::string::npos) << second.err;
  EXPECT_EQ(read_text(output), before);
}

TEST(Manners, ASpecialTokenTakesOneValue) {
  const TempFolder folder;
  write_text(folder / "text.txt", "the cat and the dog and the cat");
  const std::string text = (folder / "text.txt").string(), output = (folder / "tokenizer.json").string();
  const Outcome outcome =
      run_command({"tokenizer", "train", "-o", output, "--vocab-size", "300", "--special-token", "<a>", text});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(run_command({"tokenizer", "info", output}).out.find("text.txt"), std::string::npos);
}

}  // namespace
}  // namespace jerboa::test::manners_test
