#include <fstream>
#include <gtest/gtest.h>

#include "cli/chat_model.h"
#include "cli/command.h"

// bad_inputs.txt has a line for each mistake: the exit code, the arguments and the one line that the command prints,
// separated by " | ". {NAME} stands for a path that this file prepares.
namespace jerboa::test::bad_inputs_test {
namespace {

struct BadInput {
  int number = 0, code = 0;
  std::string arguments, message;
};

std::vector<BadInput> read_table() {
  std::ifstream file(JERBOA_SOURCE_DIR "/tests/cli/bad_inputs.txt");
  std::vector<BadInput> table;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const auto first = line.find(" | "), second = line.find(" | ", first + 3);
    table.push_back({number, std::stoi(line), line.substr(first + 3, second - first - 3), line.substr(second + 3)});
  }
  return table;
}

// Splits a line as a shell would: at spaces, with quotes around words that contain spaces.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool is_quoted = false, has_begun = false;
  for (const char c : line) {
    if (c == '"') {
      is_quoted = !is_quoted;
      has_begun = true;
    } else if (c == ' ' && !is_quoted) {
      if (has_begun) words.push_back(word);
      word.clear();
      has_begun = false;
    } else {
      word += c;
      has_begun = true;
    }
  }
  if (has_begun) words.push_back(word);
  return words;
}

class BadInputs : public testing::Test {
 protected:
  BadInputs() {
    const auto add = [&](const std::string& name, const std::string& content) {
      write_text(folder_ / name, content);
      places_["{" + name + "}"] = (folder_ / name).string();
    };
    places_["{model}"] = model_.name();
    places_["{folder}"] = folder_.path().string();
    add("empty.txt", "");
    add("no_servers.json", "{\"mcpServers\": {}}");
    add("text.txt", "some text");
    add("not.json", "{\"a\": ");
    add("object.json", "{}");
    add("messages.json", "[{\"role\": \"user\", \"content\": \"hi\"}]");
    add("empty_list.json", "[]");
    add("tools.json", "[{\"type\": \"function\", \"function\": {\"name\": \"weather\"}}]");
    add("schema.json", "{\"type\": \"integer\"}");
    add("bad_schema.json", "{\"type\": \"no such type\"}");
    add("no_prompt.jsonl", "{\"text\": \"a\"}\n");
    add("both.jsonl", "{\"prompt\": \"a\", \"messages\": []}\n");
    add("number.jsonl", "\"a\"\n7\n");
    add("empty_prompt.jsonl", "{\"prompt\": \"\"}\n");
    add("bad_tokens.jsonl", "{\"prompt\": \"a\", \"max_tokens\": 0}\n");
    add("broken.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \n");
    add("damaged.gguf", "GGUF and nothing else");
    add("damaged.safetensors", "too short");
    add("damaged.jerboa", "JERBOAPF and nothing else");
    add("model.bin", "not a model");
    std::filesystem::create_directories(folder_ / "no_config");
    places_["{no_config}"] = (folder_ / "no_config").string();
    std::filesystem::create_directories(folder_ / "no_template");
    for (const char* file : {"config.json", "tokenizer.json"})
      std::filesystem::copy(model_.path() / file, folder_ / "no_template" / file);
    write_text(folder_ / "no_template" / "model.safetensors", "never read");
    write_text(folder_ / "no_template" / "tokenizer_config.json", "{}");
    places_["{no_template}"] = (folder_ / "no_template").string();
    std::filesystem::create_directories(folder_ / "unknown_family");
    write_text(folder_ / "unknown_family" / "config.json", "{\"model_type\": \"abacus\"}");
    places_["{unknown_family}"] = (folder_ / "unknown_family").string();
  }

  std::string with_places(std::string text) const {
    for (const auto& [name, path] : places_)
      for (auto at = text.find(name); at != std::string::npos; at = text.find(name, at + path.size()))
        text.replace(at, name.size(), path);
    return text;
  }

  ChatModel model_{256};
  TempFolder folder_;
  std::map<std::string, std::string> places_;
};

TEST_F(BadInputs, EachHasItsOneLineErrorAndItsCode) {
  const std::vector<BadInput> table = read_table();
  EXPECT_GE(table.size(), 200u);
  const std::map<std::string, std::string> variables{{"JERBOA_HOME", (folder_ / "home").string()}, {"HF_ENDPOINT", ""}};
  for (const BadInput& input : table) {
    const Outcome outcome = run_command(words_of(with_places(input.arguments)), {.variables = variables});
    EXPECT_EQ(outcome.code, input.code) << "line " << input.number << ": " << input.arguments;
    EXPECT_EQ(outcome.err, with_places(input.message) + "\n") << "line " << input.number << ": " << input.arguments;
  }
}

}  // namespace
}  // namespace jerboa::test::bad_inputs_test
