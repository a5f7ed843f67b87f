#include "models/caches.h"

#include <gtest/gtest.h>
#include <numeric>

#include <jerboa/frontend/compile.h>
#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

// The state that layers keep between runs: recurrent states by slot, and the list of everything that a decoder keeps.
namespace jerboa::caches_test {
namespace {

using models::CacheKind;
using models::CacheOptions;
using models::CacheSpec;

// A layer whose state is the weighted sum of all tokens so far, s = s / 2 + token, and which returns the state after
// this run's tokens. Padding must not count.
Tensor toy_layer(const models::GraphInputs& inputs) {
  const models::Caches caches(inputs);
  const Tensor positions = inputs.find("positions");
  const Tensor ids = inputs.find("ids");
  const Tensor real = cast(greater_equal(positions, 0), DType::f32);
  const std::int64_t time = ids.dim(1).value();
  Tensor state = caches.state(0, "sum", {2});  // the sum, and the number of tokens
  for (std::int64_t t = 0; t < time; ++t) {
    const Tensor token = cast(slice(ids, 1, t, t + 1), DType::f32), counts = slice(real, 1, t, t + 1);
    const Tensor sum = slice(state, 1, 0, 1), count = slice(state, 1, 1, 2);
    const Tensor next = where(greater(counts, 0), sum / 2.0 + token, sum);
    state = concat({next, count + counts}, 1);
  }
  caches.set_state(0, "sum", state);
  return state;
}

class ToyModel {
 public:
  ToyModel(std::int64_t batch, std::int64_t time, const CacheOptions& cache, const char* device)
      : batch_(batch), time_(time) {
    InputSpecs specs{
        {"ids", {batch, time}, DType::i32}, {"positions", {batch, time}, DType::i32}, {"lengths", {batch}, DType::i32}};
    if (cache.slots > 0) specs.push_back({"slots", {batch}, DType::i32});
    session_ = create_session(
        {{"run",
          forward_graph(specs, [&](const Inputs& in) { return toy_layer({.tensors = in.all(), .cache = cache}); })}},
        {.device = Device::by_name(device)});
  }

  std::vector<float> run(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& positions,
                         const std::vector<std::int32_t>& lengths, const std::vector<std::int32_t>& slots = {}) {
    const auto tensor = [](Sizes shape, const std::vector<std::int32_t>& values) {
      return HostTensor(std::move(shape), std::span(values));
    };
    TensorMap inputs{{"ids", tensor({batch_, time_}, ids)},
                     {"positions", tensor({batch_, time_}, positions)},
                     {"lengths", tensor({batch_}, lengths)}};
    if (!slots.empty()) inputs.emplace("slots", tensor({batch_}, slots));
    const HostTensor result = session_->run("run", inputs).get("output");
    return {result.f32().begin(), result.f32().end()};
  }

 private:
  std::int64_t batch_, time_;
  std::optional<Session> session_;
};

using Values = std::vector<float>;

class RecurrentState : public testing::TestWithParam<const char*> {};

TEST_P(RecurrentState, IsCarriedFromRunToRunAndBeginsAtZero) {
  ToyModel model(2, 2, {.capacity = 8}, GetParam());
  EXPECT_EQ(model.run({4, 6, 0, 8}, {0, 1, -1, 0}, {2, 1}), (Values{8, 2, 8, 1}));
  EXPECT_EQ(model.run({0, 2, 0, 0}, {-1, 2, -1, -1}, {3, 1}), (Values{6, 3, 8, 1}));
  EXPECT_EQ(model.run({0, 5, 2, 2}, {-1, 0, 1, 2}, {1, 3}), (Values{5, 1, 5, 3})) << "the first row begins again";
}

TEST_P(RecurrentState, IsReadFromAndWrittenToTheRowsSlot) {
  ToyModel model(2, 1, {.capacity = 8, .slots = 5}, GetParam());
  EXPECT_EQ(model.run({4, 6}, {0, 0}, {1, 1}, {3, 1}), (Values{4, 1, 6, 1}));
  EXPECT_EQ(model.run({1, 1}, {1, 1}, {2, 2}, {1, 3}), (Values{4, 2, 3, 2})) << "rows have changed places";
  EXPECT_EQ(model.run({9, 1}, {-1, 2}, {0, 3}, {3, 1}), (Values{0, 0, 3, 3})) << "padding sees an empty state";
  EXPECT_EQ(model.run({1, 1}, {2, 0}, {3, 1}, {3, 4}), (Values{2.5, 3, 1, 1})) << "and leaves the slot alone";
}

INSTANTIATE_TEST_SUITE_P(Devices, RecurrentState, testing::Values("cpu", "reference"));
#ifdef JERBOA_WEBGPU
INSTANTIATE_TEST_SUITE_P(WebGpu, RecurrentState, testing::Values("webgpu"));
#endif

TEST(CacheSpecs, ListTheStateOfLayers) {
  const auto config =
      models::Config::open(std::filesystem::path(JERBOA_SOURCE_DIR "/tests/data/goldens/gemma3_text/config.json"));
  const auto layers = static_cast<std::size_t>(config.count("num_hidden_layers"));
  const auto rings = models::cache_specs(config, {.capacity = 64, .ring = true});
  ASSERT_EQ(rings.size(), 2 * layers);
  EXPECT_EQ(rings[0].name, "cache.0.k");
  EXPECT_EQ(rings[0].kind, CacheKind::ring);
  EXPECT_EQ(rings[0].shape[2], Dim(config.size("sliding_window")));
  EXPECT_TRUE(
      std::any_of(rings.begin(), rings.end(), [](const CacheSpec& spec) { return spec.kind == CacheKind::kv; }));
  const auto paged =
      models::cache_specs(config, {.capacity = 64, .ring = true, .block = 16, .blocks = 12, .dtype = DType::f16});
  ASSERT_EQ(paged.size(), 2 * layers);
  for (const CacheSpec& spec : paged) {
    EXPECT_EQ(spec.kind, CacheKind::kv);
    EXPECT_EQ(spec.dtype, DType::f16);
    EXPECT_EQ(spec.shape[0], Dim(12));
    EXPECT_EQ(spec.shape[2], Dim(16));
  }
}

}  // namespace
}  // namespace jerboa::caches_test
