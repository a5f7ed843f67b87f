// The cost of constrained decoding per token for a vocabulary of 150,000: the mask, and a complete draw.
#include <benchmark/benchmark.h>
#include <bit>

#include <jerboa/generate/sampler.h>

namespace {

using namespace jerboa;

constexpr int tokens = 150'000;

// Words and pieces of words with the lengths and shared beginnings of a byte-level BPE vocabulary.
std::shared_ptr<const Vocabulary> vocabulary() {
  static const auto made = [] {
    std::vector<std::string> out;
    for (int i = 0; i < 256; ++i) out.emplace_back(1, static_cast<char>(i));
    CounterRandom random(1);
    const std::string letters = "etaoinshrdlucmfwypvbgkjqxz";
    while (out.size() < tokens - 1) {
      std::string piece = random.next() % 2 == 0 ? " " : "";
      const std::uint64_t kind = random.next() % 20;
      const std::uint64_t size = 2 + random.next() % 8;
      for (std::uint64_t i = 0; i < size; ++i) {
        if (kind == 0)
          piece += "{}[]\":,\n -_()=."[random.next() % 15];
        else if (kind == 1)
          piece += static_cast<char>('0' + random.next() % 10);
        else if (kind < 5)
          (piece += static_cast<char>(0xC3)) += static_cast<char>(0x80 + random.next() % 64);
        else
          piece += letters[random.next() % (random.next() % letters.size() + 1)];
      }
      out.push_back(piece);
    }
    out.emplace_back();
    return std::make_shared<const Vocabulary>(out, std::vector<int>{tokens - 1});
  }();
  return made;
}

const char* const schema =
    R"({"type": "object", "properties": {"name": {"type": "string"}, "bio": {"type": "string", "maxLength": 200},
    "scores": {"type": "array", "items": {"type": "number"}}}, "required": ["name", "bio", "scores"]})";

// Some token of the mask, starting from one of its words: cheap, so that the constraint dominates.
int pick(const TokenMask& mask, std::size_t word) {
  while (mask.words()[word] == 0) word = (word + 1) % mask.words().size();
  return static_cast<int>(word * 64) + std::countr_zero(mask.words()[word]);
}

void compile(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(compile_json_schema_text(schema));
}
BENCHMARK(compile)->Unit(benchmark::kMicrosecond);

void build_vocabulary(benchmark::State& state) {
  std::vector<std::string> bytes;
  for (int i = 0; i < tokens; ++i) bytes.push_back(vocabulary()->bytes(i));
  for (auto _ : state) benchmark::DoNotOptimize(Vocabulary(bytes, {}));
}
BENCHMARK(build_vocabulary)->Unit(benchmark::kMillisecond);

// The first mask inside a free string: nearly every token is allowed, and nothing is cached yet.
void first_mask(benchmark::State& state) {
  const auto grammar = compile_json_schema_text(schema);
  for (auto _ : state) {
    const auto constraint = make_constraint(grammar, vocabulary());
    for (const char c : std::string("{\"name\": \"")) constraint->accept(static_cast<unsigned char>(c));
    benchmark::DoNotOptimize(constraint->allowed());
  }
}
BENCHMARK(first_mask)->Unit(benchmark::kMicrosecond);

void known_mask(benchmark::State& state) {
  const auto constraint = make_constraint(compile_json_schema_text(schema), vocabulary());
  for (auto _ : state) benchmark::DoNotOptimize(constraint->allowed());
}
BENCHMARK(known_mask)->Unit(benchmark::kMicrosecond);

// A whole answer, token by token from random logits, with a warm or a cold cache.
void generate(benchmark::State& state) {
  const auto grammar = compile_json_schema_text(schema);
  const bool warm = state.range(0) != 0;
  auto constraint = make_constraint(grammar, vocabulary());
  CounterRandom random(5);
  std::int64_t count = 0;
  for (auto _ : state) {
    if (warm)
      constraint->reset();
    else
      constraint = make_constraint(grammar, vocabulary());
    for (int left = 200; left > 0 && !constraint->complete(); --left, ++count) {
      const TokenMask& mask = constraint->allowed(left);
      constraint->accept(pick(mask, random.next() % mask.words().size()));
    }
  }
  state.counters["s/token"] =
      benchmark::Counter(static_cast<double>(count), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(generate)->ArgName("warm")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void sample(benchmark::State& state) {
  Sampler sampler({.temperature = 0.7f, .top_k = static_cast<int>(state.range(0)), .top_p = 0.95f});
  CounterRandom random(2);
  std::vector<float> logits(tokens), copy;
  for (float& logit : logits) logit = static_cast<float>(random.uniform() * 20);
  for (auto _ : state) {
    copy = logits;
    benchmark::DoNotOptimize(sampler.sample(copy));
  }
}
BENCHMARK(sample)->ArgName("top_k")->Arg(0)->Arg(50)->Unit(benchmark::kMicrosecond);

}  // namespace
