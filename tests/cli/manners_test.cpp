#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "cli/command.h"
#include "support/temp_folder.h"

// What every command has in common.
namespace jerboa::test::manners_test {
namespace {

const std::vector<std::string> commands{"chat",     "generate",   "pull",    "list",     "show",       "rm",
                                        "inspect",  "perplexity", "convert", "quantise", "import",     "tokenizer",
                                        "template", "devices",    "bench",   "verify",   "completion", "help"};

TEST(Manners, SaysItsVersion) {
  const Outcome outcome = run_command({"--version"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out.find("jerboa "), 0u) << outcome.out;
}

TEST(Manners, HelpsWithEveryCommand) {
  for (const std::string& command : commands) {
    const Outcome flag = run_command({command, "--help"}), word = run_command({"help", command});
    EXPECT_EQ(flag.code, 0) << command;
    EXPECT_EQ(word.code, 0) << command << word.err;
    EXPECT_NE(flag.out.find("Usage: jerboa " + command), std::string::npos) << flag.out;
    EXPECT_EQ(flag.out, word.out);
  }
  for (const char* command : {"chat", "generate", "pull"})
    EXPECT_NE(run_command({command, "--help"}).out.find("Examples:\n  jerboa "), std::string::npos) << command;
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

// The script itself, in the shell that it is for.
TEST(Manners, BashCompletes) {
  const TempFolder folder;
  write_text(folder / "jerboa.bash", run_command({"completion", "bash"}).out);
  const auto complete = [&](const std::string& words) {
    const std::string out = (folder / "out").string();
    const std::string script = "source " + (folder / "jerboa.bash").string() + "; COMP_WORDS=(" + words +
                               "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _jerboa; echo \"${COMPREPLY[*]}\" >" + out;
    EXPECT_EQ(std::system(("bash -c '" + script + "'").c_str()), 0);
    return read_text(out);
  };
  EXPECT_EQ(complete("jerboa gen"), "generate\n");
  EXPECT_EQ(complete("jerboa generate x --weights int"), "int8 int4\n");
  EXPECT_EQ(complete("jerboa tokenizer tr"), "train\n");
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
  // A folder that cannot be written to: the output is beside a file that is in its way.
  const Outcome second = run_command({"tokenizer", "train", "-o", output + "/x.json", text});
  EXPECT_EQ(second.code, 1);
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
