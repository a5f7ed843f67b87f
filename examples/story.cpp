// Continues a text with a pretrained model, or answers a message.
//
//   story FOLDER TEXT           continues the text with the model of a Hugging Face folder
//   story FOLDER TEXT --chat    answers a message, using the model's chat template
#include <iostream>
#include <string>
#include <vector>

#include <jerboa/jerboa.h>

using namespace jerboa;

int main(int count, char** values) try {
  const std::vector<std::string> arguments(values + 1, values + count);
  if (arguments.size() < 2) {
    std::cerr << "usage: story FOLDER TEXT [--chat]\n";
    return 2;
  }
  auto model = LanguageModel::load(arguments[0]);
  const auto print = [](std::string_view piece) { std::cout << piece << std::flush; };
  if (arguments.size() > 2 && arguments[2] == "--chat")
    model.chat(arguments[1], {.max_tokens = 200}, print);
  else
    model.generate(arguments[1], {.max_tokens = 200}, print);
  std::cout << '\n';
  return 0;
} catch (const std::exception& error) {
  std::cerr << "story: " << error.what() << '\n';
  return 1;
}
