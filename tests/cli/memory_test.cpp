#include <gtest/gtest.h>

#include "cli/command.h"
#include "language/model_folder.h"

// `jerboa memory`, with a tiny encoder whose vectors mean nothing but are those of the texts.
namespace jerboa::test::memory_command_test {
namespace {

class MemoryCommandTest : public testing::Test {
 protected:
  Outcome memory(std::vector<std::string> arguments, const RunSettings& settings = {}) const {
    arguments.insert(arguments.begin(), "memory");
    RunSettings all = settings;
    all.variables["JERBOA_HOME"] = (folder / "home").string();
    return run_command(arguments, all);
  }
  Outcome add(std::vector<std::string> arguments, const RunSettings& settings = {}) const {
    arguments.insert(arguments.begin(), "add");
    arguments.insert(arguments.end(), {"--model", model.path().string(), "--device", "cpu", "--threads", "1"});
    return memory(arguments, settings);
  }

  ModelFolder model{"bert"};
  TempFolder folder;
};

TEST_F(MemoryCommandTest, AddsFindsListsAndRemoves) {
  std::filesystem::create_directories(folder / "notes" / ".hidden");
  write_text(folder / "notes" / "a.txt", "abc");
  write_text(folder / "notes" / "b.txt", "hop hop");
  write_text(folder / "notes" / "c.bin", "\xff\xfe");
  write_text(folder / "notes" / ".hidden" / "d.txt", "secret");
  const std::string first = std::filesystem::canonical(folder / "notes" / "a.txt").string();

  const Outcome added = add({(folder / "notes").string()});
  EXPECT_EQ(added.code, 0) << added.err;
  EXPECT_EQ(added.err, "2 documents added\n1 file left out: not a text in UTF-8, or empty\n");
  const Outcome again = add({(folder / "notes").string(), first});
  EXPECT_EQ(again.err,
            "0 documents added, 3 documents there already\n1 file left out: not a text in UTF-8, or empty\n");
  EXPECT_EQ(add({"-", "--name", "typed"}, {.input = "xyz"}).code, 0);

  // The memory knows its model, and a text is most like itself.
  const Outcome found = memory({"search", "abc", "--top", "1", "--json"});
  ASSERT_EQ(found.code, 0) << found.err;
  const auto passage = nlohmann::json::parse(found.out);
  EXPECT_EQ(passage["document"], first);
  EXPECT_EQ(passage["text"], "abc");
  EXPECT_NEAR(passage["score"].get<double>(), 1, 1e-4);

  EXPECT_EQ(memory({"rm", "typed"}).code, 0);
  EXPECT_EQ(memory({"rm", "typed"}).err, "jerboa memory rm: there is no document typed; see jerboa memory list\n");
  const Outcome list = memory({"list"});
  EXPECT_NE(list.out.find("a.txt"), std::string::npos);
  EXPECT_EQ(list.out.find("typed"), std::string::npos);
  EXPECT_EQ(list.err, "the vectors are those of " + std::filesystem::canonical(model.path()).string() + "\n");
}

}  // namespace
}  // namespace jerboa::test::memory_command_test
