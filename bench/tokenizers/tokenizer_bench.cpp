// tokenizer_bench TOKENIZER TEXT…: how long loading takes, and how many bytes of each text per second encode processes
// on one core. CPU time, the best of several rounds: other load on the machine only slows them down.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include <jerboa/text/tokenizer.h>

namespace {

template <typename Work>
double best_seconds(int rounds, Work work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < rounds; ++i) {
    const std::clock_t begin = std::clock();
    work();
    best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return best;
}

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: tokenizer_bench TOKENIZER TEXT…\n");
    return EXIT_FAILURE;
  }
  try {
    const double load = best_seconds(5, [&] { jerboa::Tokenizer::load(argv[1]); });
    fmt::print("load {:.4f}\n", load);
    for (int i = 2; i < argc; ++i) {
      const std::string text = read(argv[i]);
      // First with a cold word cache, as in a program that encodes once; then with a warm one.
      double cold = std::numeric_limits<double>::infinity();
      for (int round = 0; round < 3; ++round) {
        const auto fresh = jerboa::Tokenizer::load(argv[1]);
        cold = std::min(cold, best_seconds(1, [&] { fresh.encode(text, {.add_special = false}); }));
      }
      const auto tokenizer = jerboa::Tokenizer::load(argv[1]);
      std::size_t tokens = 0;
      const double warm = best_seconds(7, [&] { tokens = tokenizer.encode(text, {.add_special = false}).size(); });
      const auto ids = tokenizer.encode(text, {.add_special = false}).ids;
      const double decode = best_seconds(5, [&] { tokenizer.decode(ids); });
      fmt::print("encode {} {} {} {:.4f} {:.4f} {:.4f}\n", argv[i], text.size(), tokens, cold, warm, decode);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "tokenizer_bench: {}\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
