#include "memory/document_memory.h"

#include <cmath>
#include <csignal>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/sqlite.h"
#include "support/temp_folder.h"

namespace jerboa::test::document_memory_test {
namespace {

using memory::DocumentMemory;
using Access = DocumentMemory::Access;

// One dimension per word: texts are similar if they share words.
class WordEncoder final : public memory::Encoder {
 public:
  explicit WordEncoder(std::string name = "words", std::int64_t dimensions = 64, std::size_t salt = 0)
      : name_(std::move(name)), dimensions_(dimensions), salt_(salt) {}

  std::string name() const override { return name_; }
  std::int64_t dimensions() const override { return dimensions_; }
  std::int64_t context() const override { return 20; }
  std::int64_t count_tokens(std::string_view text) const override {
    std::istringstream in{std::string(text)};
    std::int64_t count = 0;
    for (std::string word; in >> word;) ++count;
    return count;
  }
  std::vector<float> encode_documents(std::span<const std::string> texts) override {
    std::vector<float> all;
    for (const std::string& text : texts) {
      const std::vector<float> vector = encode_query(text);
      all.insert(all.end(), vector.begin(), vector.end());
      ++encoded;
    }
    return all;
  }
  std::vector<float> encode_query(const std::string& text) override {
    std::vector<float> vector(static_cast<std::size_t>(dimensions_));
    std::istringstream in(text);
    for (std::string word; in >> word;) vector[(std::hash<std::string>()(word) + salt_) % vector.size()] += 1;
    float sum = 0;
    for (const float value : vector) sum += value * value;
    for (float& value : vector) value /= std::sqrt(sum);
    return vector;
  }

  int encoded = 0;

 private:
  std::string name_;
  std::int64_t dimensions_;
  std::size_t salt_;
};

class DocumentMemoryTest : public testing::Test {
 protected:
  // The message of the error that a call throws.
  static std::string error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::string message(const std::string& problem) const { return path.string() + ": " + problem; }

  TempFolder folder;
  std::filesystem::path path = folder / "memory.sqlite";
  WordEncoder encoder;
};

TEST_F(DocumentMemoryTest, FindsTheDocumentThatSaysIt) {
  {
    DocumentMemory memory(path, Access::create);
    EXPECT_EQ(memory.model(), "");
    EXPECT_TRUE(memory.search("anything", 3, encoder).empty());
    EXPECT_TRUE(memory.add("cats", "a cat sat on the mat", encoder));
    EXPECT_TRUE(memory.add("rivers", "  the river flows to the sea", encoder));
  }
  DocumentMemory memory(path);
  EXPECT_EQ(memory.model(), "words");
  const auto found = memory.search("river sea", 1, encoder);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].document, "rivers");
  EXPECT_EQ(found[0].text, "the river flows to the sea");
  EXPECT_EQ(found[0].begin, 2);
  EXPECT_GT(found[0].score, 0.3f);
  ASSERT_EQ(memory.documents().size(), 2u);
  EXPECT_EQ(memory.documents()[0].name, "cats");
  EXPECT_EQ(memory.documents()[1].bytes, 28);
  EXPECT_EQ(memory.documents()[1].chunks, 1);
}

TEST_F(DocumentMemoryTest, ReplacesChangedDocumentsAndSkipsUnchangedOnes) {
  DocumentMemory memory(path, Access::create);
  EXPECT_TRUE(memory.add("a", "one two three", encoder));
  EXPECT_FALSE(memory.add("a", "one two three", encoder));
  EXPECT_EQ(encoder.encoded, 1);
  EXPECT_EQ(memory.search("three", 9, encoder).size(), 1u);
  EXPECT_TRUE(memory.add("a", "four five", encoder));
  EXPECT_EQ(memory.documents().size(), 1u);
  const auto found = memory.search("four", 9, encoder);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].text, "four five");
}

TEST_F(DocumentMemoryTest, SeesChangesOfAnotherProcess) {
  DocumentMemory memory(path, Access::create), other(path, Access::create);
  memory.add("a", "one two", encoder);
  EXPECT_EQ(memory.search("one", 9, encoder).size(), 1u);
  other.add("b", "one three", encoder);
  EXPECT_EQ(memory.search("one", 9, encoder).size(), 2u);
  EXPECT_TRUE(other.remove("a"));
  EXPECT_FALSE(other.remove("a"));
  EXPECT_EQ(memory.search("one", 9, encoder).size(), 1u);
}

TEST_F(DocumentMemoryTest, NamesTheModelThatDoesNotFit) {
  DocumentMemory memory(path, Access::create);
  memory.add("a", "one two", encoder);
  WordEncoder larger("larger", 128), different("different", 64, 1), same("words on a GPU");
  EXPECT_EQ(
      error_of([&] { memory.search("one", 1, larger); }),
      message("made with words, whose vectors have 64 dimensions, but those of larger have 128; use the same model"));
  EXPECT_EQ(error_of([&] { memory.add("b", "x", different); }),
            message("made with words, whose vectors are not those of different; use the same model"));
  EXPECT_EQ(memory.search("one", 1, same).size(), 1u);
  // Without documents, a memory has no model.
  memory.remove("a");
  EXPECT_TRUE(memory.add("b", "x", different));
}

TEST_F(DocumentMemoryTest, NamesWrongFiles) {
  const auto open = [&](Access access = Access::existing) { return error_of([&] { DocumentMemory(path, access); }); };
  EXPECT_EQ(open(), message("there is no such memory; `jerboa memory add` creates it"));
  EXPECT_FALSE(std::filesystem::exists(path));
  std::ofstream(path) << std::string(5000, 'x');
  EXPECT_EQ(open(), message("not a memory: it is not an SQLite database"));
  EXPECT_EQ(open(Access::create), open());
  std::filesystem::remove(path);
  memory::Database(path, memory::Database::Access::create).run("CREATE TABLE other (a)");
  EXPECT_EQ(open(Access::create), message("an SQLite database, but not a memory"));
  std::filesystem::remove(path);
  { DocumentMemory(path, Access::create); }
  memory::Database(path, memory::Database::Access::existing).run("PRAGMA user_version = 9");
  EXPECT_EQ(open(), message("a memory of version 9, but this jerboa reads version 1"));
  path = folder.path();
  EXPECT_EQ(open(), message("a folder, not a memory"));
  path = "/dev/null/memory.sqlite";
  EXPECT_EQ(open(Access::create), message("cannot be opened; does its folder exist?"));
}

TEST_F(DocumentMemoryTest, NamesADamagedFile) {
  {
    DocumentMemory memory(path, Access::create);
    for (int i = 0; i < 100; ++i) memory.add(std::to_string(i), "one two " + std::to_string(i), encoder);
  }
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - std::uintmax_t{3} * 16384);
  EXPECT_EQ(error_of([&] { DocumentMemory(path).search("one", 100, encoder); }),
            message("the memory is damaged; remove the file and add the documents again"));
}

TEST_F(DocumentMemoryTest, RefusesDocumentsThatAreNotText) {
  DocumentMemory memory(path, Access::create);
  EXPECT_THROW(memory.add("a", "\xff\xfe", encoder), memory::NotTextError);
  EXPECT_THROW(memory.add("a", std::string("a\0b", 3), encoder), memory::NotTextError);
  EXPECT_THROW(memory.add("a", " \n", encoder), memory::NotTextError);
  EXPECT_THROW(memory.add("", "a", encoder), UsageError);
  EXPECT_TRUE(memory.documents().empty());
}

// A process that adds documents is killed at a random moment: the documents in the file are complete.
TEST_F(DocumentMemoryTest, SurvivesAKill) {
  const auto text = [](int number) {
    std::string words;
    for (int i = 0; i < 400; ++i)
      words += "w" + std::to_string(number) + "x" + std::to_string(i) + (i % 9 ? " " : ". ");
    return words;
  };
  for (const int milliseconds : {15, 30, 60}) {
    const pid_t child = fork();
    if (child == 0) {
      DocumentMemory memory(path, Access::create);
      for (int i = 0;; ++i) memory.add(std::to_string(i), text(i), encoder);
    }
    usleep(static_cast<useconds_t>(milliseconds) * 1000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    DocumentMemory memory(path, Access::create);
    for (const memory::Document& document : memory.documents()) {
      if (document.name == "after") continue;
      EXPECT_FALSE(memory.add(document.name, text(std::stoi(document.name)), encoder)) << document.name;
    }
    memory.add("after", "one two", encoder);
    EXPECT_EQ(memory.search("one two", 1, encoder)[0].document, "after");
    memory::Database database(path, memory::Database::Access::existing);
    memory::Statement check(database, "PRAGMA integrity_check");
    ASSERT_TRUE(check.next());
    EXPECT_EQ(check.text(0), "ok");
    EXPECT_EQ(database.number("SELECT count(*) FROM chunks"), database.number("SELECT count(*) FROM vectors"));
  }
}

}  // namespace
}  // namespace jerboa::test::document_memory_test
