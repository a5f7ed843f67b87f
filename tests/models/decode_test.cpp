#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

#include <jerboa/base/error.h>
#include <jerboa/base/random.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

#include "models/golden_families.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

// Decoding through key/value caches, in ragged batches and chunks of any size, compared with computing every sequence
// at once.
namespace jerboa::decode_test {
namespace {

using models::CacheOptions;
using models::Config;
using models::Family;
using models::GraphInputs;

const std::filesystem::path goldens = JERBOA_SOURCE_DIR "/tests/data/goldens";

using Tokens = std::vector<std::int32_t>;
using Logits = std::vector<float>;  // of one position

/// One of the golden models, possibly with a changed config.
struct Model {
  Model(const std::string& folder, const char* device_name)
      : Model(folder, device_name, test::read_text(goldens / folder / "config.json")) {}
  Model(const std::string& folder, const char* device_name, const std::string& config_text)
      : device(Device::by_name(device_name)),
        config(Config::parse(config_text)),
        family(models::family_of(config)),
        weights(SafeTensors::open(goldens / folder)) {}

  Session session(const Graph& graph) const {
    Session made = create_session({{"run", graph}}, {.device = device});
    made.upload_params(models::read_params(weights, graph, family));
    return made;
  }

  Device device;
  Config config;
  const Family& family;
  SafeTensors weights;
};

std::vector<Logits> rows_of(const HostTensor& logits) {
  const auto width = static_cast<std::size_t>(logits.shape().back());
  const auto values = logits.f32();
  std::vector<Logits> rows;
  for (std::size_t at = 0; at < values.size(); at += width)
    rows.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(at),
                      values.begin() + static_cast<std::ptrdiff_t>(at + width));
  return rows;
}

/// The logits of every position of one sequence, computed at once and without a cache.
class Whole {
 public:
  explicit Whole(const Model& model)
      : session_(model.session(forward_graph({{"ids", {1, Dim::symbol("T", 64)}, DType::i32}}, [&](const Inputs& in) {
          return model.family.logits(model.config, {.tensors = {{"ids", in["ids"]}}});
        }))) {}

  std::vector<Logits> operator()(const Tokens& tokens) {
    const HostTensor ids({1, static_cast<std::int64_t>(tokens.size())}, std::span<const std::int32_t>(tokens));
    return rows_of(session_.run("run", {{"ids", ids}}).get("output"));
  }

 private:
  Session session_;
};

/// Sequences that grow through a cache: one graph for every size of chunk.
class Decoding {
 public:
  /// With a paged cache, `table` is its table.
  Decoding(const Model& model, std::int64_t batch, const CacheOptions& cache, const Tokens& table = {})
      : batch_(batch), done_(static_cast<std::size_t>(batch)), session_(model.session(graph(model, batch, cache))) {
    if (cache.block > 0)
      table_.emplace("table", HostTensor({batch, cache.capacity / cache.block}, std::span<const std::int32_t>(table)));
  }

  Session& session() { return session_; }

  /// Appends tokens (possibly none) to each sequence in one run; returns the logits of the appended tokens.
  std::vector<std::vector<Logits>> append(const std::vector<Tokens>& more) {
    std::size_t time = 1;
    for (const Tokens& tokens : more) time = std::max(time, tokens.size());
    HostTensor ids(DType::i32, {batch_, static_cast<std::int64_t>(time)}), positions = ids,
                                                                           lengths(DType::i32, {batch_});
    const auto position = positions.as<std::int32_t>();
    std::fill(position.begin(), position.end(), -1);
    for (std::size_t row = 0; row < more.size(); ++row) {
      const std::size_t begin = row * time + time - more[row].size();  // rows are aligned at the end
      for (std::size_t t = 0; t < more[row].size(); ++t) {
        ids.as<std::int32_t>()[begin + t] = more[row][t];
        position[begin + t] = static_cast<std::int32_t>(done_[row]++);
      }
      lengths.as<std::int32_t>()[row] = static_cast<std::int32_t>(done_[row]);
    }
    TensorMap inputs{{"ids", ids}, {"positions", positions}, {"lengths", lengths}};
    inputs.insert(table_.begin(), table_.end());
    const auto all = rows_of(session_.run("run", inputs).get("output"));
    std::vector<std::vector<Logits>> logits(more.size());
    for (std::size_t row = 0; row < more.size(); ++row)
      for (std::size_t t = time - more[row].size(); t < time; ++t) logits[row].push_back(all[row * time + t]);
    return logits;
  }

  /// Starts new sequences in place of the old ones; the old entries stay in the cache and must be ignored.
  void start_again() { std::fill(done_.begin(), done_.end(), 0); }
  /// A sequence continues where another one is, in shared blocks.
  void continue_from(std::size_t row, std::size_t other) { done_[row] = done_[other]; }

 private:
  static Graph graph(const Model& model, std::int64_t batch, const CacheOptions& cache) {
    const Dim time = Dim::symbol("T", 32);
    InputSpecs specs{
        {"ids", {batch, time}, DType::i32}, {"positions", {batch, time}, DType::i32}, {"lengths", {batch}, DType::i32}};
    if (cache.block > 0) specs.push_back({"table", {batch, cache.capacity / cache.block}, DType::i32});
    return forward_graph(specs, [&](const Inputs& in) {
      return model.family.logits(model.config, {.tensors = in.all(), .cache = cache});
    });
  }

  std::int64_t batch_;
  std::vector<std::size_t> done_;
  TensorMap table_;  // no entry without a paged cache
  Session session_;
};

std::int32_t most_likely(const Logits& logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Greedy continuations of prompts of different lengths, in chunks and then token by token.
std::vector<Tokens> continuations(Decoding decoding, std::vector<Tokens> written, std::size_t count) {
  std::vector<Tokens> next = written;
  for (std::size_t step = 0; step < count; ++step) {
    const auto logits = decoding.append(next);
    for (std::size_t row = 0; row < written.size(); ++row) {
      next[row] = {most_likely(logits[row].back())};
      written[row].push_back(next[row][0]);
    }
  }
  return written;
}

std::vector<Tokens> random_sequences(const std::vector<std::size_t>& lengths, std::uint64_t seed,
                                     int vocabulary = 256) {
  SplitMix random(seed);
  std::vector<Tokens> sequences;
  for (const std::size_t length : lengths) {
    sequences.emplace_back(length);
    for (auto& token : sequences.back())
      token = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary)));
  }
  return sequences;
}

void expect_near(const Logits& computed, const Logits& wanted, const std::string& what, double bound = 1e-5) {
  ASSERT_EQ(computed.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(computed[i], wanted[i], bound) << what << ", token " << i;
}

// Feeds the sequences in chunks of these sizes, repeating the last size, and compares every position.
void expect_same_in_chunks(Decoding& decoding, Whole& whole, const std::vector<Tokens>& sequences,
                           const std::vector<std::size_t>& chunks, double bound = 1e-5) {
  std::vector<std::vector<Logits>> wanted;
  std::size_t longest = 0;
  for (const Tokens& sequence : sequences) {
    wanted.push_back(whole(sequence));
    longest = std::max(longest, sequence.size());
  }
  decoding.start_again();
  for (std::size_t start = 0, number = 0; start < longest; ++number) {
    const std::size_t chunk = chunks[std::min(number, chunks.size() - 1)];
    std::vector<Tokens> more;
    for (const Tokens& sequence : sequences) {
      const auto at = [&](std::size_t place) {
        return sequence.begin() + static_cast<std::ptrdiff_t>(std::min(place, sequence.size()));
      };
      more.emplace_back(at(start), at(start + chunk));
    }
    const auto computed = decoding.append(more);
    for (std::size_t row = 0; row < sequences.size(); ++row)
      for (std::size_t t = 0; t < computed[row].size(); ++t)
        expect_near(computed[row][t], wanted[row][start + t],
                    "chunk " + std::to_string(chunk) + ", sequence " + std::to_string(row) + ", position " +
                        std::to_string(start + t),
                    bound);
    if (testing::Test::HasFatalFailure()) return;
    start += chunk;
  }
}

class Decode : public testing::TestWithParam<const char*> {};  // the device

TEST_P(Decode, ARaggedBatchInChunksEqualsComputingItWhole) {
  const Model model("train_llama", GetParam());
  Whole whole(model);
  Decoding decoding(model, 3, {.capacity = 24});
  std::uint64_t seed = 1;
  for (const auto& chunks : std::vector<std::vector<std::size_t>>{{32}, {4}, {1}, {7, 1}, {3, 5, 2, 1}})
    expect_same_in_chunks(decoding, whole, random_sequences({5, 17, 11}, seed++), chunks);
}

// Prefill of prompts of different lengths, then one token per run, with sequences ending at different times.
TEST_P(Decode, PrefillThenOneTokenAtATime) {
  const Model model("train_llama", GetParam());
  Whole whole(model);
  Decoding decoding(model, 3, {.capacity = 20});
  const auto prompts = random_sequences({3, 9, 6}, 20), ends = random_sequences({8, 2, 5}, 21);
  std::vector<Tokens> so_far = prompts;
  auto computed = decoding.append(prompts);
  for (std::size_t step = 0;; ++step) {
    std::vector<Tokens> next(3);
    for (std::size_t row = 0; row < 3; ++row) {
      if (computed[row].empty()) continue;
      expect_near(computed[row].back(), whole(so_far[row]).back(),
                  "step " + std::to_string(step) + ", row " + std::to_string(row));
      if (step < ends[row].size()) next[row] = {ends[row][step]};
      so_far[row].insert(so_far[row].end(), next[row].begin(), next[row].end());
    }
    if (HasFatalFailure() || step == 8) break;
    computed = decoding.append(next);
  }
  EXPECT_EQ(so_far[0].size(), 11u);
  EXPECT_EQ(so_far[1].size(), 11u);
}

// Windows in some layers: the ring buffer holds no more than they reach.
TEST_P(Decode, ARingWithAWindowEqualsComputingItWhole) {
  std::string text = test::read_text(goldens / "train_qwen3" / "config.json");
  const auto replace = [&](const std::string& from, const std::string& to) {
    const auto place = text.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    text.replace(place, from.size(), to);
  };
  replace("\"sliding_window\": null", "\"sliding_window\": 4");
  replace("\"use_sliding_window\": false", "\"use_sliding_window\": true");
  replace("full_attention", "sliding_attention");
  const Model windowed("train_qwen3", GetParam(), text), full("train_qwen3", GetParam());
  Whole whole(windowed), whole_without(full);
  const auto sequences = random_sequences({26, 9}, 5);
  EXPECT_NE(whole(sequences[0]).back(), whole_without(sequences[0]).back());
  EXPECT_EQ(whole(sequences[0])[3], whole_without(sequences[0])[3]);

  Decoding ring(windowed, 2, {.capacity = 30, .ring = true, .chunk = 5});
  EXPECT_EQ(ring.session().download_state("cache.0.k").shape(), (Sizes{2, 2, 8, 16}));
  EXPECT_EQ(ring.session().download_state("cache.1.v").shape(), (Sizes{2, 2, 30, 16}));
  for (const auto& chunks : std::vector<std::vector<std::size_t>>{{5}, {1}, {5, 3, 1}})
    expect_same_in_chunks(ring, whole, sequences, chunks);

  Decoding straight(windowed, 2, {.capacity = 30});
  EXPECT_EQ(straight.session().download_state("cache.0.k").shape(), (Sizes{2, 2, 30, 16}));
  expect_same_in_chunks(straight, whole, sequences, {5, 1});
}

INSTANTIATE_TEST_SUITE_P(Devices, Decode, testing::Values("cpu", "reference"));
#ifdef JERBOA_WEBGPU
INSTANTIATE_TEST_SUITE_P(WebGpu, Decode, testing::Values("webgpu"));
#endif

using DeviceAndFamily = std::tuple<const char*, std::string>;
std::string device_and_family(const testing::TestParamInfo<DeviceAndFamily>& info) {
  return std::get<0>(info.param) + ("_" + std::get<1>(info.param));
}

class FamilyDecode : public testing::TestWithParam<DeviceAndFamily> {};

// Sequences long enough for the goldens' ring buffers to wrap around twice.
TEST_P(FamilyDecode, ChunksAndThenSingleTokensEqualComputingItWhole) {
  const auto& [device, family] = GetParam();
  const Model model(family, device);
  Whole whole(model);
  const auto sequences = random_sequences({26, 9}, 7, model.config.size("vocab_size"));
  for (const bool ring : {false, true}) {
    Decoding decoding(model, 2, {.capacity = 30, .ring = ring, .chunk = 5});
    expect_same_in_chunks(decoding, whole, sequences, {5, 3, 1}, 1e-5 * test::magnification(family));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyDecode,
                         testing::Combine(testing::Values("cpu", "reference"),
                                          testing::ValuesIn(test::golden_families())),
                         device_and_family);
#ifdef JERBOA_WEBGPU
// One for each kind of recurrence: others take long to compile with a software driver.
INSTANTIATE_TEST_SUITE_P(WebGpu, FamilyDecode,
                         testing::Combine(testing::Values("webgpu"), testing::Values("mamba2", "qwen3_next")),
                         device_and_family);
#endif

// The root mean square of the differences between a sequence's logits in chunks and at once, relative to the latter's.
double difference(Decoding decoding, const std::vector<Logits>& wanted, const Tokens& sequence, std::size_t chunk) {
  double squares = 0, all = 0;
  for (std::size_t start = 0; start < sequence.size(); start += chunk) {
    const auto at = [&](std::size_t i) {
      return sequence.begin() + static_cast<std::ptrdiff_t>(std::min(i, sequence.size()));
    };
    const auto computed = decoding.append({Tokens(at(start), at(start + chunk))}).front();
    for (std::size_t t = 0; t < computed.size(); ++t)
      for (std::size_t i = 0; i < computed[t].size(); ++i) {
        const double value = wanted[start + t][i], distance = computed[t][i] - value;
        squares += distance * distance;
        all += value * value;
      }
  }
  return std::sqrt(squares / all);
}

class PackedCache : public testing::TestWithParam<std::string> {};

// Rounding to 8 bits errs by half a step at most, 1 / 254 of the largest of 32 features: of normal numbers, a root mean
// square of 0.5 % of theirs, in keys and in values, which add up over the layers. Two goldens make more of it.
TEST_P(PackedCache, StaysClose) {
  const std::string& family = GetParam();
  const Model model(family, "cpu");
  const Tokens sequence = random_sequences({26}, 7, model.config.size("vocab_size")).front();
  const auto wanted = Whole(model)(sequence);
  const CacheOptions cache{.capacity = 30, .ring = true, .chunk = 5, .dtype = DType::i8};
  const double found = difference(Decoding(model, 1, cache), wanted, sequence, 5);
  const bool makes_more = family == "gemma4_text" || family == "lfm2_moe";
  EXPECT_LT(found, makes_more ? 0.08 : 0.02);
  const auto specs = models::cache_specs(model.config, cache);
  const bool rounds =
      std::any_of(specs.begin(), specs.end(), [](const auto& spec) { return spec.dtype != DType::f32; });
  EXPECT_EQ(found > 1e-5 * test::magnification(family), rounds) << found;
}

INSTANTIATE_TEST_SUITE_P(Families, PackedCache, testing::ValuesIn(test::golden_families()), test::name_of);

// Blocks in any order, and none where no sequence gets to.
const Tokens scattered_blocks{6, 2, 9, 1, -1, -1, 0, 8, 3, 5, 7, -1};
constexpr CacheOptions paged_cache{.capacity = 48, .ring = true, .chunk = 16, .block = 8, .blocks = 10};

class PagedDecode : public testing::TestWithParam<DeviceAndFamily> {};

TEST_P(PagedDecode, APermutedTableGivesTheTokensOfAStraightCache) {
  const auto& [device, family] = GetParam();
  const Model model(family, device);
  const auto prompts = random_sequences({7, 16}, 11, model.config.size("vocab_size"));
  for (const DType dtype : {DType::f32, DType::i8}) {
    SCOPED_TRACE(name(dtype));
    CacheOptions options = paged_cache;
    options.dtype = dtype;
    const auto straight = continuations(Decoding(model, 2, {.capacity = 48, .dtype = dtype}), prompts, 20);
    Decoding paged(model, 2, options, scattered_blocks);
    for (const models::CacheSpec& spec : models::cache_specs(model.config, options)) {
      if (spec.kind == models::CacheKind::state) continue;
      EXPECT_EQ(paged.session().download_state(spec.name).shape()[0], 10) << spec.name;
      EXPECT_EQ(paged.session().download_state(spec.name).shape()[2], 8) << spec.name;
    }
    EXPECT_EQ(continuations(std::move(paged), prompts, 20), straight);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PagedDecode,
                         testing::Combine(testing::Values("cpu"), testing::ValuesIn(test::golden_families())),
                         device_and_family);
#ifdef JERBOA_WEBGPU
INSTANTIATE_TEST_SUITE_P(WebGpu, PagedDecode,
                         testing::Combine(testing::Values("webgpu"), testing::Values(std::string("llama"))),
                         device_and_family);
#endif

// Two sequences with a common beginning hold it once.
TEST(PagedCache, SequencesShareABlockOfTheirPrefix) {
  const Model model("train_llama", "cpu");
  Whole whole(model);
  const CacheOptions cache{.capacity = 16, .chunk = 8, .block = 8, .blocks = 3};
  Tokens first = random_sequences({13}, 3)[0], second = random_sequences({12}, 4)[0];
  std::copy_n(first.begin(), 8, second.begin());
  Decoding decoding(model, 2, cache, {1, 2, 1, 0});
  const auto part = [](const Tokens& tokens, std::size_t from, std::size_t to) {
    return Tokens(tokens.begin() + static_cast<std::ptrdiff_t>(from), tokens.begin() + static_cast<std::ptrdiff_t>(to));
  };
  decoding.append({part(first, 0, 8), {}});
  decoding.continue_from(1, 0);
  const auto logits = decoding.append({part(first, 8, 13), part(second, 8, 12)});
  expect_near(logits[0].back(), whole(first).back(), "first");
  expect_near(logits[1].back(), whole(second).back(), "second");
}

// f16 rounds keys and values to 11 bits.
void expect_precision_of_f16_caches(const std::string& folder, double bound) {
  const Model model(folder, "cpu");
  Whole whole(model);
  const auto sequences = random_sequences({11, 5}, 8, model.config.size("vocab_size"));
  for (const int block : {0, 4}) {
    Decoding decoding(model, 2, {.capacity = 12, .chunk = 4, .block = block, .dtype = DType::f16}, {5, 0, 3, 1, 4, 2});
    EXPECT_EQ(decoding.session().download_state("cache.0.v").dtype(), DType::f16);
    std::vector<std::vector<Logits>> all(2);
    for (std::size_t start = 0; start < 12; start += 4) {
      std::vector<Tokens> more;
      for (const Tokens& sequence : sequences)
        more.emplace_back(sequence.begin() + static_cast<std::ptrdiff_t>(std::min(start, sequence.size())),
                          sequence.begin() + static_cast<std::ptrdiff_t>(std::min(start + 4, sequence.size())));
      const auto logits = decoding.append(more);
      for (std::size_t row = 0; row < 2; ++row) all[row].insert(all[row].end(), logits[row].begin(), logits[row].end());
    }
    for (std::size_t row = 0; row < 2; ++row) {
      const auto wanted = whole(sequences[row]);
      for (std::size_t t = 0; t < wanted.size(); ++t)
        for (std::size_t i = 0; i < wanted[t].size(); ++i)
          ASSERT_NEAR(all[row][t][i], wanted[t][i], bound) << row << ", " << t << ", " << i;
    }
  }
}

TEST(NarrowCache, GivesLogitsOfItsPrecision) { expect_precision_of_f16_caches("train_llama", 2e-3); }
// The sinks of scores are parameters in f32.
TEST(NarrowCache, TakesSinks) { expect_precision_of_f16_caches("gpt_oss", 5e-3); }

class GreedyDecode : public testing::TestWithParam<std::string> {};

TEST_P(GreedyDecode, GeneratesTransformersTokens) {
  const Model model(GetParam(), "best");
  const SafeTensors golden = SafeTensors::open(goldens / GetParam() / "golden.safetensors");
  const Tokens prompt = to_i32(golden.view("input_ids"));
  Decoding decoding(model, 1, {.capacity = 48});
  const Tokens wanted = to_i32(golden.view("greedy"));
  Tokens written = prompt;
  auto logits = decoding.append({prompt});
  while (written.size() < wanted.size()) {
    written.push_back(most_likely(logits[0].back()));
    logits = decoding.append({{written.back()}});
  }
  EXPECT_EQ(written, wanted);
}

INSTANTIATE_TEST_SUITE_P(Families, GreedyDecode, testing::ValuesIn(test::golden_families()), test::name_of);
INSTANTIATE_TEST_SUITE_P(Scaled, GreedyDecode, testing::Values("llama3_scaled"));

TEST(DecodeInputs, ThatDoNotFitTogetherAreRefused) {
  const Model model("train_llama", "reference");
  const auto build = [&](const CacheOptions& cache, const Dim& batch, bool positions, bool table = false) {
    return [&model, cache, batch, positions, table] {
      trace([&] {
        const Tensor ids = tensor_input("ids", {batch, 4}, DType::i32);
        GraphInputs inputs{.tensors = {{"ids", ids}}, .cache = cache};
        if (positions) inputs.tensors["positions"] = tensor_input("positions", {batch, 4}, DType::i32);
        if (positions) inputs.tensors["lengths"] = tensor_input("lengths", {batch}, DType::i32);
        if (table) inputs.tensors["table"] = tensor_input("table", {batch, 2}, DType::i32);
        output("output", model.family.logits(model.config, inputs));
      });
    };
  };
  test::expect_error<UsageError>(build({.capacity = 8}, 1, false), "needs positions and lengths");
  test::expect_error<UsageError>(build({.capacity = 8}, Dim::symbol("B", 4), true), "a batch of a fixed size");
  test::expect_error<UsageError>(build({.capacity = 8, .chunk = 0}, 1, true), "chunks of 0");
  test::expect_error<UsageError>(build({.capacity = 8, .block = 4}, 1, true), "needs a table");
  test::expect_error<UsageError>(build({.capacity = 8, .block = 3}, 1, true, true), "blocks of 3");
  test::expect_error<UsageError>(build({.capacity = 8, .dtype = DType::i32}, 1, true), "f32, f16 or int8, not i32");
  test::expect_error<UsageError>(build({.capacity = 8, .windowed = {{2, 3}}}, 1, true), "in a paged cache only");
  test::expect_error<UsageError>(build({.capacity = 8, .block = 4, .windowed = {{0, 3}}}, 1, true, true),
                                 "need a window, which 0 is not");
  test::expect_error<UsageError>(build({.capacity = 8, .block = 4, .windowed = {{2, 0}}}, 1, true, true),
                                 "a window of 2 cannot have 0 blocks");
  test::expect_error<UsageError>(build({.capacity = 8, .block = 4, .windowed = {{2, 3}}}, 1, true, true),
                                 "need the input table.2");
  build({.capacity = 8}, 1, true)();
  build({.capacity = 8, .block = 4, .blocks = 5}, Dim::symbol("B", 4), true, true)();
  build({}, Dim::symbol("B", 4), false)();
}

}  // namespace
}  // namespace jerboa::decode_test
