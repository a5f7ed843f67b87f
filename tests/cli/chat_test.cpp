#include <gtest/gtest.h>
#include <thread>

#include "cli/chat_model.h"
#include "cli/command.h"

// `jerboa chat` as a user sees it, in a pseudo-terminal and in pipes.
namespace jerboa::test::chat_test {
namespace {

class ChatTest : public testing::Test {
 protected:
  std::vector<std::string> chat(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments{"chat", model_.name(), "--device", "cpu", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::map<std::string, std::string> variables() const { return {{"JERBOA_HOME", home_.path().string()}}; }
  nlohmann::json saved(const std::string& name) const { return nlohmann::json::parse(read_text(home_ / name)); }
  std::string save_to(const std::string& name) const { return "/save " + (home_ / name).string() + "\r"; }

  // Keys that are typed before the prompt is there belong to the terminal, not to the editor.
  static void enter(PseudoTerminal& terminal, const std::string& keys) {
    EXPECT_TRUE(terminal.expect("\033[?2004h> ")) << terminal.shown();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the editor takes the terminal over after the prompt
    terminal.type(keys);
  }

  ChatModel model_;
  TempFolder home_;
};

TEST_F(ChatTest, KeepsTheConversation) {
  PseudoTerminal terminal(chat({"--max-tokens", "4"}), variables());
  ASSERT_TRUE(terminal.expect("/help lists")) << terminal.shown();
  enter(terminal, "one\r");
  ASSERT_TRUE(terminal.expect("tokens of the context")) << terminal.shown();
  enter(terminal, "two\r");
  ASSERT_TRUE(terminal.expect("tokens of the context")) << terminal.shown();
  enter(terminal, save_to("saved.json"));
  ASSERT_TRUE(terminal.expect("4 messages saved")) << terminal.shown();
  enter(terminal, "/bye\r");
  EXPECT_EQ(terminal.wait(), 0) << terminal.shown();
  const auto messages = saved("saved.json");
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0]["content"], "one");
  EXPECT_EQ(messages[2]["content"], "two");
  EXPECT_EQ(messages[3]["role"], "assistant");
}

TEST_F(ChatTest, CtrlCStopsTheAnswerAlone) {
  PseudoTerminal terminal(chat({"--context", "60000"}), variables());
  enter(terminal, "go on for long\r");
  ASSERT_TRUE(terminal.expect("go on for long\r\n"));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  terminal.type("\x03");
  ASSERT_TRUE(terminal.expect("stopped")) << terminal.shown();
  enter(terminal, save_to("saved.json"));
  ASSERT_TRUE(terminal.expect("2 messages saved")) << terminal.shown();
  enter(terminal, "\x03");  // at the prompt it only clears the line
  ASSERT_TRUE(terminal.expect("ends the conversation")) << terminal.shown();
  enter(terminal, "\x04");
  EXPECT_EQ(terminal.wait(), 0) << terminal.shown();
  EXPECT_EQ(saved("saved.json")[0]["content"], "go on for long");
}

TEST_F(ChatTest, WhatIsPastedIsOneMessage) {
  PseudoTerminal terminal(chat({"--max-tokens", "2"}), variables());
  enter(terminal, "\033[200~first\r\r\rläßt 日本語\033[201~ end\r");
  ASSERT_TRUE(terminal.expect("tokens of the context")) << terminal.shown();
  enter(terminal, save_to("saved.json"));
  ASSERT_TRUE(terminal.expect("2 messages saved")) << terminal.shown();
  EXPECT_EQ(saved("saved.json")[0]["content"], "first\n\n\nläßt 日本語 end");
}

TEST_F(ChatTest, ABackslashContinuesTheLine) {
  PseudoTerminal terminal(chat({"--max-tokens", "2"}), variables());
  enter(terminal, "first \\\r");
  ASSERT_TRUE(terminal.expect(". ")) << terminal.shown();
  terminal.type("second\r");
  ASSERT_TRUE(terminal.expect("tokens of the context")) << terminal.shown();
  enter(terminal, save_to("saved.json"));
  ASSERT_TRUE(terminal.expect("2 messages saved")) << terminal.shown();
  EXPECT_EQ(saved("saved.json")[0]["content"], "first \nsecond");
}

TEST_F(ChatTest, TheHistoryLasts) {
  {
    PseudoTerminal terminal(chat({"--max-tokens", "2"}), variables());
    enter(terminal, "remember me\r");
    ASSERT_TRUE(terminal.expect("tokens of the context")) << terminal.shown();
    enter(terminal, "/bye\r");
    EXPECT_EQ(terminal.wait(), 0);
  }
  PseudoTerminal terminal(chat({"--max-tokens", "2"}), variables());
  enter(terminal, "\033[A\033[A\r");  // past /bye
  ASSERT_TRUE(terminal.expect("remember me")) << terminal.shown();
  ASSERT_TRUE(terminal.expect("tokens of the context")) << terminal.shown();
}

TEST_F(ChatTest, CommandsChangeTheConversation) {
  PseudoTerminal terminal(chat({"--max-tokens", "2"}), variables());
  enter(terminal, "/system Be brief.\r");
  ASSERT_TRUE(terminal.expect("system: Be brief.")) << terminal.shown();
  enter(terminal, "first\r");
  ASSERT_TRUE(terminal.expect("tokens of the context")) << terminal.shown();
  enter(terminal, "/regen\r");
  ASSERT_TRUE(terminal.expect("tokens of the context")) << terminal.shown();
  enter(terminal, "/edit\r");
  ASSERT_TRUE(terminal.expect("first")) << terminal.shown();
  terminal.type(" and more\r");
  ASSERT_TRUE(terminal.expect("tokens of the context")) << terminal.shown();
  enter(terminal, "/tokens\r");
  ASSERT_TRUE(terminal.expect("by 3 messages")) << terminal.shown();
  enter(terminal, "/params temperature 0.5 top_k=7\r");
  ASSERT_TRUE(terminal.expect("temperature 0.5 · top-k 7")) << terminal.shown();
  enter(terminal, "/params temperature nan\r");
  ASSERT_TRUE(terminal.expect("/params: --temperature: must be from 0 to 1000, not nan")) << terminal.shown();
  enter(terminal, "/sav\r");
  ASSERT_TRUE(terminal.expect("did you mean /save?")) << terminal.shown();
  enter(terminal, save_to("saved.json"));
  ASSERT_TRUE(terminal.expect("3 messages saved")) << terminal.shown();
  enter(terminal, "/reset\r");
  ASSERT_TRUE(terminal.expect("forgotten")) << terminal.shown();
  enter(terminal, "/load " + (home_ / "saved.json").string() + "\r");
  ASSERT_TRUE(terminal.expect("now has 3 messages")) << terminal.shown();
  enter(terminal, "/load /nowhere\r");
  ASSERT_TRUE(terminal.expect("/nowhere: cannot open")) << terminal.shown();
  enter(terminal, "/save /dev/full/x\r");
  ASSERT_TRUE(terminal.expect("/dev/full/x: cannot write")) << terminal.shown();
  enter(terminal, "\x04");
  EXPECT_EQ(terminal.wait(), 0) << terminal.shown();
  const auto messages = saved("saved.json");
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_EQ(messages[1]["content"], "first and more");
}

TEST_F(ChatTest, TheOldestTurnsLeaveAFullContext) {
  std::string input;
  for (int i = 0; i < 6; ++i) input += "message number " + std::to_string(i) + "\n";
  const Outcome outcome = run_command(chat({"--context", "96", "--max-tokens", "8", "--system", "stay", "--stats"}),
                                      {.input = input, .variables = variables()});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("the context is full: the oldest 2 messages left it"), std::string::npos) << outcome.err;
}

TEST_F(ChatTest, RefusesAMessageThatDoesNotFit) {
  const Outcome outcome = run_command(chat({"--context", "32", std::string(100, 'x')}), {.variables = variables()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("exceed the context of 32"), std::string::npos) << outcome.err;
}

TEST_F(ChatTest, IsPlainInAPipe) {
  const Outcome outcome = run_command(chat({"--max-tokens", "3"}), {.input = "one\n\ntwo\n", .variables = variables()});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find('\033'), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.err,
            "the answer was cut after 3 tokens; raise --max-tokens for more\n"
            "the answer was cut after 3 tokens; raise --max-tokens for more\n");
}

TEST_F(ChatTest, NoColorMeansNoColours) {
  auto plain = variables();
  plain["NO_COLOR"] = "1";
  PseudoTerminal terminal(chat({"--max-tokens", "2"}), plain);
  enter(terminal, "x\r");
  ASSERT_TRUE(terminal.expect("tokens of the context")) << terminal.shown();
  EXPECT_EQ(terminal.shown().find("\033[2m"), std::string::npos) << terminal.shown();
}

// The template's text tells whether it was asked to think: its length is the prompt's.
TEST_F(ChatTest, TellsTheTemplateWhetherToThink) {
  const auto prompt_tokens = [&](const std::string& thinking) {
    const Outcome outcome =
        run_command(chat({"x", "--max-tokens", "1", "--stats", "--think", thinking}), {.variables = variables()});
    return outcome.err.substr(outcome.err.find("prompt:"), 20);
  };
  EXPECT_NE(prompt_tokens("show").find("15 tokens"), std::string::npos) << prompt_tokens("show");
  EXPECT_NE(prompt_tokens("off").find("7 tokens"), std::string::npos) << prompt_tokens("off");
}

TEST_F(ChatTest, AnOptionTakesOneValue) {
  const Outcome outcome = run_command(chat({"--max-tokens", "1", "--stop", "X", "Hello"}), {.variables = variables()});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "the answer was cut after 1 token; raise --max-tokens for more\n");
}

}  // namespace
}  // namespace jerboa::test::chat_test
