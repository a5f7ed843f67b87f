#include <algorithm>
#include <cstdlib>
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
    EXPECT_TRUE(terminal.wait_for_editor()) << terminal.shown();  // it takes the terminal over after the prompt
    terminal.type(keys);
  }

  // Without a long message before it.
  static std::string last_shown(const PseudoTerminal& terminal) {
    const std::string& shown = terminal.shown();
    return shown.substr(shown.size() - std::min<std::size_t>(shown.size(), 2000));
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

TEST_F(ChatTest, CtrlCStopsOnlyTheAnswer) {
  PseudoTerminal terminal(chat({"--context", "60000", "--regex", "ready[a-c]*"}), variables());
  enter(terminal, "go on for long\r");
  ASSERT_TRUE(terminal.expect("go on for long\r\n"));
  ASSERT_TRUE(terminal.expect("ready")) << terminal.shown();
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

TEST_F(ChatTest, PastedTextIsOneMessage) {
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

TEST_F(ChatTest, TheSystemMessageStaysInAFullContext) {
  PseudoTerminal terminal(chat({"--context", "96", "--max-tokens", "8", "--system", "stay"}), variables());
  for (int i = 0; i < 5; ++i) {
    enter(terminal, "message number " + std::to_string(i) + "\r");
    ASSERT_TRUE(terminal.expect("tokens of the context")) << terminal.shown();
  }
  enter(terminal, save_to("saved.json"));
  ASSERT_TRUE(terminal.expect("messages saved")) << terminal.shown();
  const auto messages = saved("saved.json");
  EXPECT_LT(messages.size(), 11u);
  EXPECT_EQ(messages[0]["content"], "stay");
  EXPECT_EQ(messages[messages.size() - 2]["content"], "message number 4");
}

TEST_F(ChatTest, HelpsAndRegeneratesWithAnotherSeed) {
  PseudoTerminal terminal(chat({"--max-tokens", "12", "--temperature", "5", "--seed", "1"}), variables());
  enter(terminal, "/help\r");
  for (const char* command : {"/system", "/reset", "/regen", "/edit", "/save", "/load", "/params", "/tokens", "/bye"})
    EXPECT_TRUE(terminal.expect(command)) << terminal.shown();
  enter(terminal, "hello\r");
  ASSERT_TRUE(terminal.expect("tokens of the context")) << terminal.shown();
  enter(terminal, save_to("first.json"));
  ASSERT_TRUE(terminal.expect("2 messages saved")) << terminal.shown();
  enter(terminal, "/regen\r");
  ASSERT_TRUE(terminal.expect("tokens of the context")) << terminal.shown();
  enter(terminal, save_to("second.json"));
  ASSERT_TRUE(terminal.expect("2 messages saved")) << terminal.shown();
  EXPECT_EQ(saved("first.json")[0], saved("second.json")[0]);
  EXPECT_NE(saved("first.json")[1], saved("second.json")[1]);
}

TEST_F(ChatTest, TabCompletesCommands) {
  PseudoTerminal terminal(chat({"--max-tokens", "2"}), variables());
  enter(terminal, "/to\t\r");
  ASSERT_TRUE(terminal.expect("by 0 messages")) << terminal.shown();
  enter(terminal, "/re\tset\r");  // /reset or /regen
  ASSERT_TRUE(terminal.expect("forgotten")) << terminal.shown();
}

TEST_F(ChatTest, UnfinishedAnswersLoseNothing) {
  PseudoTerminal terminal(chat({"--max-tokens", "2", "--context", "200"}), variables());
  enter(terminal, "hello\r");
  ASSERT_TRUE(terminal.expect("tokens of the context")) << terminal.shown();
  enter(terminal, "/edit\r");
  ASSERT_TRUE(terminal.expect("> hello")) << terminal.shown();
  terminal.type("\x03");
  ASSERT_TRUE(terminal.expect("ends the conversation")) << terminal.shown();
  enter(terminal, "/edit\r");
  ASSERT_TRUE(terminal.expect("> hello")) << terminal.shown();
  terminal.type(std::string(300, 'x') + "\r");
  ASSERT_TRUE(terminal.expect("exceed")) << terminal.shown();
  enter(terminal, save_to("saved.json"));
  ASSERT_TRUE(terminal.expect("2 messages saved")) << terminal.shown();
  EXPECT_EQ(saved("saved.json")[0]["content"], "hello");
}

TEST_F(ChatTest, AMessageWithoutAnyAnswerIsLeftOut) {
  PseudoTerminal terminal(chat({"--context", "60000", "--max-tokens", "3"}), variables());
  enter(terminal, "\033[200~" + std::string(30000, 'x') + "\033[201~\r");
  ASSERT_TRUE(terminal.expect("reading …")) << last_shown(terminal);
  terminal.type("\x03");
  ASSERT_TRUE(terminal.expect("stopped before the answer began")) << last_shown(terminal);
  enter(terminal, "/tokens\r");
  ASSERT_TRUE(terminal.expect("by 0 messages")) << last_shown(terminal);
}

TEST_F(ChatTest, NeedsNoHome) {
  PseudoTerminal terminal(chat({"--max-tokens", "2"}), {{"HOME", ""}, {"JERBOA_HOME", ""}, {"XDG_DATA_HOME", ""}});
  enter(terminal, "hello\r");
  ASSERT_TRUE(terminal.expect("tokens of the context")) << terminal.shown();
  enter(terminal, "\x04");
  EXPECT_EQ(terminal.wait(), 0) << terminal.shown();
}

TEST_F(ChatTest, TwoChatsShareTheHistory) {
  PseudoTerminal first(chat({"--max-tokens", "2"}), variables()), second(chat({"--max-tokens", "2"}), variables());
  const auto say = [](PseudoTerminal& terminal, const std::string& message) {
    enter(terminal, message + "\r");
    return terminal.expect("tokens of the context");
  };
  ASSERT_TRUE(say(first, "of-the-first")) << first.shown();
  ASSERT_TRUE(say(second, "of-the-second")) << second.shown();
  ASSERT_TRUE(say(first, "again-first")) << first.shown();
  ASSERT_TRUE(say(second, "again-second")) << second.shown();
  EXPECT_EQ(read_text(home_ / "history"), "_HiStOrY_V2_\nof-the-first\nof-the-second\nagain-first\nagain-second\n");
  PseudoTerminal third(chat({"--max-tokens", "2"}), variables());
  enter(third, "\033[A\033[A\033[A\033[A\r");
  ASSERT_TRUE(third.expect("tokens of the context")) << third.shown();
  enter(third, save_to("saved.json"));
  ASSERT_TRUE(third.expect("2 messages saved")) << third.shown();
  EXPECT_EQ(saved("saved.json")[0]["content"], "of-the-first");
}

TEST_F(ChatTest, ThoughtsAreHidden) {
  model_.write("chat_template.jinja", "{{ messages[-1].content }}<think>\n");
  const Outcome hidden = run_command(chat({"x", "--max-tokens", "6", "--think", "hide"}), {.variables = variables()});
  EXPECT_EQ(hidden.out, "\n");
  const Outcome shown = run_command(chat({"x", "--max-tokens", "6"}), {.variables = variables()});
  EXPECT_TRUE(shown.out.starts_with("<think>\n")) << shown.out;
}

TEST_F(ChatTest, AnAnswerCutInsideAGrammarHasItsOwnCode) {
  const auto code = [&](const std::string& tokens) {
    return run_command(chat({"x", "--regex", "[a-c]{3}", "--max-tokens", tokens}), {.variables = variables()}).code;
  };
  EXPECT_EQ(code("2"), 3);
  EXPECT_EQ(code("4"), 0);
  PseudoTerminal terminal(chat({"x", "--regex", "[a-c]{3}", "--max-tokens", "2"}), variables());
  EXPECT_EQ(terminal.wait(), 3);
}

// The screen itself, as tmux draws it.
TEST_F(ChatTest, WideCharactersAreInTheirPlaces) {
  ASSERT_EQ(std::system("tmux -V >/dev/null"), 0) << "there is no tmux: run ./dev setup";
  const std::string tmux = "tmux -f /dev/null -S " + (home_ / "tmux").string() + " ";
  const auto screen = [&] {
    EXPECT_EQ(std::system((tmux + "capture-pane -p >" + (home_ / "screen").string()).c_str()), 0);
    return read_text(home_ / "screen");
  };
  const auto wait_for = [&](const std::string& text) {
    for (int i = 0; i < 600; ++i) {
      if (screen().find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  };
  const auto keys = [&](const std::string& text) { EXPECT_EQ(std::system((tmux + "send-keys " + text).c_str()), 0); };
  const std::string command = "env LC_ALL=C.UTF-8 JERBOA_HOME=" + home_.path().string() + " " JERBOA_COMMAND " chat " +
                              model_.name() + " --device cpu --threads 1 --max-tokens 2";
  ASSERT_EQ(std::system(("LC_ALL=C.UTF-8 " + tmux + "new-session -d -x 40 -y 20 '" + command + "'").c_str()), 0);
  ASSERT_TRUE(wait_for("\n>")) << screen();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  keys("-l 日本語日本語");
  keys("BSpace BSpace");
  EXPECT_TRUE(wait_for("> 日本語日\n")) << screen();
  keys("Left Left");
  keys("-l é");
  EXPECT_TRUE(wait_for("> 日本é語日\n")) << screen();
  keys("End");
  keys("-l 一二三四五六七八九十一二三四五六七八九十");  // 2 + 9 + 40 columns: more than a line of 40
  EXPECT_TRUE(wait_for("> 日本é語日一二三四五六七八九十一二三四")) << screen();
  EXPECT_TRUE(wait_for("\n五六七八九十")) << screen();
  for (int i = 0; i < 8; ++i) keys("BSpace");
  EXPECT_TRUE(wait_for("> 日本é語日一二三四五六七八九十一二\n")) << screen();
  EXPECT_EQ(screen().find("五六七八九十\n"), std::string::npos) << screen();
  std::system((tmux + "kill-server").c_str());
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
