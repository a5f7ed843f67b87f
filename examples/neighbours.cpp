// Finds the lines of a file that are most similar to a text.
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <jerboa/jerboa.h>

using namespace jerboa;

int main(int count, char** values) try {
  const std::vector<std::string> arguments(values + 1, values + count);
  if (arguments.size() != 3) {
    std::cerr << "usage: neighbours FOLDER FILE TEXT\n";
    return 2;
  }
  std::vector<std::string> lines;
  std::ifstream file(arguments[1]);
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) lines.push_back(line);

  auto encoder = TextEncoder::load(arguments[0]);
  const Embeddings known = encoder.embed(lines, {.prompt_name = encoder.document_prompt()});
  const Embeddings query = encoder.embed({arguments[2]}, {.prompt_name = encoder.query_prompt()});
  for (const Match& match : nearest(known, query.row(0), 5, encoder.similarity_kind()))
    std::cout << match.score << "  " << lines[static_cast<std::size_t>(match.index)] << '\n';
  return 0;
} catch (const std::exception& error) {
  std::cerr << "neighbours: " << error.what() << '\n';
  return 1;
}
