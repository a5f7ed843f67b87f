#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/language/text_encoder.h>

// Embeds the lines of a file once per line of standard input, and prints the time in seconds, so that another program
// can take turns with it. Writes the tokens of all texts to IDS (i32, 64 per text) and the embeddings to VECTORS (f32).
// usage: embeddings_bench MODEL TEXTS IDS VECTORS
namespace {

constexpr std::size_t tokens_per_text = 64;

std::vector<std::string> lines_of(const char* path) {
  std::ifstream stream(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void write_ids(const jerboa::TextEncoder& encoder, const std::vector<std::string>& texts, const char* path) {
  std::vector<std::int32_t> all;
  for (const jerboa::Encoding& text : encoder.tokenizer().encode_batch(texts)) {
    if (text.size() != tokens_per_text) throw jerboa::UsageError("a text does not have 64 tokens");
    all.insert(all.end(), text.ids.begin(), text.ids.end());
  }
  jerboa::write_file_atomically(path, {reinterpret_cast<const char*>(all.data()), all.size() * sizeof all[0]});
}

void run(char** arguments) {
  auto encoder =
      jerboa::TextEncoder::load(arguments[1], {.device = jerboa::Device::cpu(2), .weights = jerboa::DType::f32});
  const auto texts = lines_of(arguments[2]);
  write_ids(encoder, texts, arguments[3]);
  const auto vectors = encoder.embed(texts);  // also compiles
  jerboa::write_file_atomically(arguments[4], {reinterpret_cast<const char*>(vectors.values.data()),
                                               vectors.values.size() * sizeof vectors.values[0]});
  std::puts("ready");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const auto start = std::chrono::steady_clock::now();
    encoder.embed(texts);
    std::printf("%.6f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) {
    std::fputs("usage: embeddings_bench MODEL TEXTS IDS VECTORS\n", stderr);
    return 2;
  }
  try {
    run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "embeddings_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
