// A main program for a fuzzer's function where libFuzzer is not available: runs it on each seed, and on simple,
// reproducible mutations of each. libFuzzer, which learns from coverage, finds far more; this notices in seconds, with
// any compiler, that a parser no longer accepts its seeds or that a damaged one crashes it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <iterator>
#include <vector>

#include <jerboa/base/file.h>
#include <jerboa/base/random.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);
// Only some fuzzers have one.
extern "C" [[gnu::weak]] std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                                             unsigned seed);

namespace {

constexpr int mutations_per_seed = 300;
constexpr std::size_t room = 1 << 20;  // for fuzzers whose seeds are generated

jerboa::SplitMix& random_numbers() {
  static jerboa::SplitMix random(1);
  return random;
}

std::size_t below(std::size_t limit) { return static_cast<std::size_t>(random_numbers().below(limit)); }

}  // namespace

/// Changes a bit, a byte or a run of bytes, or cuts the end off.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size) {
  if (size == 0) {
    if (max_size > 0) data[0] = static_cast<std::uint8_t>(below(256));
    return max_size > 0 ? 1 : 0;
  }
  const std::size_t at = below(size);
  switch (below(4)) {
    case 0: data[at] = static_cast<std::uint8_t>(data[at] ^ (1U << below(8))); return size;
    case 1: data[at] = static_cast<std::uint8_t>(below(256)); return size;
    case 2:
      for (std::size_t i = at; i < std::min(size, at + 1 + below(8)); ++i) data[i] = below(2) != 0 ? 0xff : 0;
      return size;
    default: return at;
  }
}

int main(int count, char** arguments) {
  if (count != 2) {
    fmt::print(stderr, "usage: {} FOLDER-OF-SEEDS\n", arguments[0]);
    return EXIT_FAILURE;
  }
  int seeds = 0;
  for (const auto& entry : std::filesystem::directory_iterator(arguments[1])) {
    const jerboa::FileContent content(entry.path());
    const auto* begin = reinterpret_cast<const std::uint8_t*>(content.text().data());
    const std::vector<std::uint8_t> seed(begin, std::next(begin, static_cast<std::ptrdiff_t>(content.text().size())));
    LLVMFuzzerTestOneInput(seed.data(), seed.size());
    for (int i = 0; i < mutations_per_seed; ++i) {
      std::vector<std::uint8_t> changed = seed;
      changed.resize(seed.size() + (LLVMFuzzerCustomMutator != nullptr ? room : 64));
      const auto mutate = LLVMFuzzerCustomMutator ? &LLVMFuzzerCustomMutator : nullptr;
      std::size_t size = mutate ? mutate(changed.data(), seed.size(), changed.size(), static_cast<unsigned>(i))
                                : LLVMFuzzerMutate(changed.data(), seed.size(), changed.size());
      changed.resize(size);
      changed.shrink_to_fit();  // so that a sanitizer sees its end
      LLVMFuzzerTestOneInput(changed.data(), changed.size());
    }
    ++seeds;
  }
  fmt::print("{} seeds, {} mutations of each\n", seeds, mutations_per_seed);
  return seeds > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
