#include <cmath>
#include <gtest/gtest.h>
#include <thread>

#include "cli/chat_model.h"
#include "cli/command.h"

// `jerboa generate` in pipes.
namespace jerboa::test::generate_test {
namespace {

class GenerateCommandTest : public testing::Test {
 protected:
  Outcome generate(std::vector<std::string> more, const RunSettings& settings = {}) const {
    std::vector<std::string> arguments{"generate", model_.name(), "--device", "cpu", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_command(arguments, settings);
  }

  ChatModel model_{256};
  TempFolder folder_;
};

std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(nlohmann::json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

TEST_F(GenerateCommandTest, ReadsThePromptFromAnywhere) {
  write_text(folder_ / "prompt.txt", "Once upon");
  const Outcome given = generate({"Once upon", "--max-tokens", "8", "--greedy"});
  EXPECT_EQ(given.code, 0) << given.err;
  EXPECT_EQ(given.err, "the answer was cut after 8 tokens; raise --max-tokens for more\n");
  for (const Outcome& other : {generate({"-f", (folder_ / "prompt.txt").string(), "--max-tokens", "8", "--greedy"}),
                               generate({"--max-tokens", "8", "--greedy"}, {.input = "Once upon"}),
                               generate({"-", "--max-tokens", "8", "--greedy"}, {.input = "Once upon"})}) {
    EXPECT_EQ(other.code, 0) << other.err;
    EXPECT_EQ(other.out, given.out);
  }
}

// The draft model's context is its own.
TEST_F(GenerateCommandTest, ADraftModelMakesGuesses) {
  const ChatModel draft(64);
  const Outcome plain = generate({"Once", "--max-tokens", "20", "--greedy", "--context", "200"});
  const Outcome outcome = generate(
      {"Once", "--max-tokens", "20", "--greedy", "--context", "200", "--draft-model", draft.name(), "--stats"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, plain.out);
  int right = 0, all = 0;
  const std::size_t line = outcome.err.rfind('\n', outcome.err.find(" guesses were right")) + 1;
  ASSERT_EQ(std::sscanf(outcome.err.c_str() + line, "%d of %d guesses were right", &right, &all), 2) << outcome.err;
  EXPECT_GT(right, 0);
  EXPECT_LE(right, all);
}

TEST_F(GenerateCommandTest, PrintsJsonWithLogProbabilities) {
  const Outcome outcome = generate({"Once", "--max-tokens", "5", "--greedy", "--json", "--logprobs"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto answer = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(answer["tokens"].size(), 5u);
  EXPECT_EQ(answer["stopped_by"], "length");
  EXPECT_EQ(answer["prompt_tokens"], 4);
  ASSERT_EQ(answer["logprobs"].size(), 5u);
  // The most likely of 256 tokens has at least the mean probability.
  for (const double value : answer["logprobs"]) {
    EXPECT_LE(value, 0);
    EXPECT_GE(value, -std::log(256.0));
  }
}

TEST_F(GenerateCommandTest, TheLengthIsThatOfTheContext) {
  const Outcome outcome = generate({"Once", "--json", "--greedy"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["stopped_by"], "context");
  EXPECT_NE(outcome.err.find("the answer was cut: "), std::string::npos) << outcome.err;
}

TEST_F(GenerateCommandTest, GeneratesSeveralAnswersAtOnce) {
  const std::vector<std::string> flags{"Once", "--max-tokens", "6", "--temperature", "2", "--seed", "5", "--json"};
  auto several = flags;
  several.insert(several.end(), {"-n", "3"});
  const auto answers = json_lines(generate(several).out);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_NE(answers[0]["tokens"], answers[1]["tokens"]);
  EXPECT_EQ(answers[2]["index"], 2);
  // The first answer uses the seed, the second the next one.
  EXPECT_EQ(json_lines(generate(flags).out)[0]["tokens"], answers[0]["tokens"]);
  auto next = flags;
  next[6] = "6";
  EXPECT_EQ(json_lines(generate(next).out)[0]["tokens"], answers[1]["tokens"]);
}

TEST_F(GenerateCommandTest, AnswersABatchInOrder) {
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines +=
        nlohmann::json{
            {"id", i}, {"prompt", std::string(static_cast<std::size_t>(i % 7 + 1), 'a')}, {"max_tokens", 1 + i % 5}}
            .dump() +
        "\n";
  lines += R"({"messages": [{"role": "user", "content": "hi"}], "id": "chat"})"
           "\n\n\"just a text\"\n";
  write_text(folder_ / "prompts.jsonl", lines);
  const Outcome outcome = generate({"--batch", (folder_ / "prompts.jsonl").string(), "--max-tokens", "3", "--greedy"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto answers = json_lines(outcome.out);
  ASSERT_EQ(answers.size(), 42u);
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(answers[static_cast<std::size_t>(i)]["id"], i);
    EXPECT_EQ(answers[static_cast<std::size_t>(i)]["tokens"].size(), static_cast<std::size_t>(1 + i % 5));
  }
  EXPECT_EQ(answers[40]["id"], "chat");
  EXPECT_EQ(answers[41]["id"], 43);  // the number of its line
  const Outcome alone = generate({"aaa", "--max-tokens", "3", "--greedy", "--json"});
  EXPECT_EQ(nlohmann::json::parse(alone.out)["text"], answers[2]["text"]);
}

TEST_F(GenerateCommandTest, ABatchReportsTheLinesThatFail) {
  const std::string lines = "\"fits\"\n\"" + std::string(400, 'x') + "\"\n\"fits too\"\n";
  const Outcome outcome = generate({"--batch", "-", "--max-tokens", "2"}, {.input = lines});
  EXPECT_EQ(outcome.code, 1);
  const auto answers = json_lines(outcome.out);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_NE(answers[1]["error"].get<std::string>().find("exceed the context"), std::string::npos);
  EXPECT_EQ(answers[2]["tokens"].size(), 2u);
}

TEST_F(GenerateCommandTest, ABatchOfMessagesNeedsAChatTemplate) {
  std::filesystem::remove(model_.path() / "chat_template.jinja");
  std::filesystem::remove(model_.path() / "model.safetensors");  // it is refused before the weights are read
  const Outcome outcome = generate({"--batch", "-"}, {.input = R"({"messages": [{"role": "user", "content": "hi"}]})"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("has no chat template, so it cannot answer messages, which standard input holds"),
            std::string::npos)
      << outcome.err;
}

TEST_F(GenerateCommandTest, ABatchSaysThatAnswersWereCut) {
  const std::string lines = "{\"prompt\": \"a\", \"seed\": 5000000000}\n\"b\"\n";
  const Outcome outcome = generate({"--batch", "-", "--max-tokens", "2"}, {.input = lines});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err,
            "2 of 2 answers were cut (\"stopped_by\" says why); raise --max-tokens or --context for more\n");
  EXPECT_EQ(generate({"--batch", "-", "--max-tokens", "2", "--regex", "[a-c]{3}"}, {.input = lines}).code, 3);
  const Outcome whole = generate({"--batch", "-", "--max-tokens", "4", "--regex", "[a-c]{3}"}, {.input = lines});
  EXPECT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(whole.err, "");
}

TEST_F(GenerateCommandTest, WritesATraceWithToolsToo) {
  write_text(folder_ / "mcp.json", R"({"mcpServers": {}})");
  const Outcome outcome = generate({"x", "--max-tokens", "2", "--mcp", (folder_ / "mcp.json").string(), "--trace",
                                    (folder_ / "trace.json").string()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(nlohmann::json::accept(read_text(folder_ / "trace.json")));
}

TEST_F(GenerateCommandTest, PassesToolsToTheTemplate) {
  write_text(folder_ / "tools.json", R"([{"type": "function", "function": {"name": "weather"}}])");
  const Outcome outcome = generate({"x", "--max-tokens", "1", "--json", "--tools", (folder_ / "tools.json").string()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["prompt_tokens"], std::string("<u>x[1 tools]<a>").size());
}

TEST_F(GenerateCommandTest, StreamsAnswersWithTools) {
  write_text(folder_ / "tools.json", R"([{"type": "function", "function": {"name": "weather"}}])");
  const ChatModel endless;
  PseudoTerminal terminal({"generate", endless.name(), "x", "--device", "cpu", "--context", "60000", "--tools",
                           (folder_ / "tools.json").string(), "--regex", "ready[a-c]*"});
  EXPECT_TRUE(terminal.expect("ready")) << terminal.shown();
  terminal.type("\003");
  EXPECT_EQ(terminal.wait(), 130);
}

TEST_F(GenerateCommandTest, AnAnswerCutInsideAGrammarHasItsOwnCode) {
  const Outcome whole = generate({"x", "--regex", "[a-c]{3}", "--max-tokens", "8"});
  EXPECT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(whole.out.size(), 4u) << whole.out;
  const Outcome cut = generate({"x", "--regex", "[a-c]{300,}"});
  EXPECT_EQ(cut.code, 3) << cut.err;
}

// A full disk, in effect.
TEST_F(GenerateCommandTest, WriteErrorsAreErrors) {
  const Outcome outcome = generate({"Once", "--max-tokens", "4"}, {.output = "/dev/full"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err, "jerboa: cannot write to standard output: No space left on device\n");
}

TEST_F(GenerateCommandTest, AHugePromptIsRefusedBeforeItIsTokenised) {
  const Outcome outcome = generate({}, {.input = std::string(64 << 20, '0')});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("67108864 bytes, far more than the 256 tokens"), std::string::npos) << outcome.err;
}

TEST_F(GenerateCommandTest, AnIgnoredCtrlCStaysIgnored) {
  const ChatModel endless(1 << 16);
  PseudoTerminal terminal(
      {"generate", endless.name(), "Once", "--echo", "--device", "cpu", "--threads", "1", "--max-tokens", "1000"}, {},
      PseudoTerminal::CtrlC::is_ignored);
  ASSERT_TRUE(terminal.expect("Once")) << terminal.shown();
  terminal.type("\x03");
  EXPECT_EQ(terminal.wait(), 0) << terminal.shown();
}

TEST_F(GenerateCommandTest, CtrlCEndsItWith130) {
  ChatModel endless(1 << 16);
  PseudoTerminal terminal(
      {"generate", endless.name(), "Once", "--echo", "--device", "cpu", "--threads", "1", "--context", "60000"});
  ASSERT_TRUE(terminal.expect("Once")) << terminal.shown();
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  terminal.type("\x03");
  EXPECT_EQ(terminal.wait(), 130) << terminal.shown();
}

}  // namespace
}  // namespace jerboa::test::generate_test
