#include <fmt/format.h>
#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/ops/ops.h>

#include "models/tiny_graph.h"
#include "support/expect_error.h"

// LongRoPE, compared with rotary embeddings whose frequencies it has in special cases.
namespace jerboa::long_rope_test {
namespace {

using test::expect_error;

// The logits of five tokens, with the same weights for every config.
std::vector<float> logits_of(const std::string& more, const models::CacheOptions& cache = {}) {
  const models::Config config = test::tiny_config("phi3", more + R"(, "initializer_range": 0.5)");
  const InputSpecs specs{{"ids", {1, 5}, DType::i32}, {"positions", {1, 5}, DType::i32}, {"lengths", {1}, DType::i32}};
  Module module =
      compile(forward_graph(specs,
                            [&](const Inputs& in) {
                              return models::family_of(config).logits(config, {.tensors = in.all(), .cache = cache});
                            }),
              {.device = Device::by_name("cpu")});
  const HostTensor ids(DType::i32, {1, 5}, {3, 1, 4, 1, 5});
  const HostTensor positions(DType::i32, {1, 5}, {0, 1, 2, 3, 4});
  const HostTensor lengths(DType::i32, {1}, {5});
  const HostTensor logits = module.run({{"ids", ids}, {"positions", positions}, {"lengths", lengths}}).get("output");
  return {logits.f32().begin(), logits.f32().end()};
}

void expect_near(const std::vector<float>& one, const std::vector<float>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(one[i], other[i], 1e-5) << i;
}

bool differ(const std::vector<float>& one, const std::vector<float>& other) {
  double most = 0;
  for (std::size_t i = 0; i < one.size(); ++i) most = std::max(most, std::abs(static_cast<double>(one[i]) - other[i]));
  return most > 1e-3;
}

// Factors of 1 within the original context and of 4 beyond it, without a change of magnitude.
std::string long_rope(int original, const std::string& attention = R"(, "attention_factor": 1)") {
  return R"("max_position_embeddings": 64, "original_max_position_embeddings": )" + std::to_string(original) +
         R"(, "rope_scaling": {"type": "longrope", "short_factor": [1, 1], "long_factor": [4, 4])" + attention + "}";
}

const std::string plain = R"("max_position_embeddings": 64)";
// phi3 has no linear scaling; one pair, whose frequency is 1, and one of base^-1/2.
const std::string slower =
    R"("max_position_embeddings": 64, "original_max_position_embeddings": 64,
       "rope_scaling": {"type": "su", "short_factor": [4, 4], "long_factor": [1, 1], "attention_factor": 1})";

TEST(LongRope, HasTheFactorsOfTheTextsLength) {
  EXPECT_TRUE(differ(logits_of(plain), logits_of(slower)));
  expect_near(logits_of(long_rope(5)), logits_of(plain));
  expect_near(logits_of(long_rope(4)), logits_of(slower));
}

TEST(LongRope, WithACacheHasTheFactorsOfTheCachesCapacity) {
  expect_near(logits_of(long_rope(8), {.capacity = 8}), logits_of(plain));
  expect_near(logits_of(long_rope(8), {.capacity = 9}), logits_of(slower));
}

// Keys that were rotated by a graph with one capacity are read by one with another.
TEST(LongRope, WithAContextHasTheSameFactorsForEveryCapacity) {
  for (const int capacity : {5, 8, 16, 64}) {
    expect_near(logits_of(long_rope(8), {.capacity = capacity, .context = 8}), logits_of(plain));
    expect_near(logits_of(long_rope(8), {.capacity = capacity, .context = 9}), logits_of(slower));
  }
}

TEST(LongRope, GrowsWithTheContext) {
  // sqrt(1 + ln(64 / 16) / ln(16)) = sqrt(1.5)
  expect_near(logits_of(long_rope(16, "")), logits_of(long_rope(16, R"(, "attention_factor": 1.224744871391589)")));
  expect_near(logits_of(long_rope(16, R"(, "factor": 4)")), logits_of(long_rope(16, "")));
  expect_near(logits_of(long_rope(64, "")), logits_of(plain));
  EXPECT_TRUE(differ(logits_of(long_rope(16, "")), logits_of(plain)));
}

TEST(LongRope, IsReadFromNewAndOldFilesAlike) {
  const std::string factors = R"("short_factor": [1, 2], "long_factor": [3, 4])";
  const auto graph = [&](const std::string& more) {
    return to_json(test::tiny_graph("phi3", more + R"(, "max_position_embeddings": 64)"));
  };
  const std::string older = R"("original_max_position_embeddings": 16, "rope_scaling": {)";
  const std::string newer = graph(R"("original_max_position_embeddings": 16,
      "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000, )" +
                                  factors + "}");
  for (const char* type : {"longrope", "su", "yarn"})
    EXPECT_EQ(graph(fmt::format(R"({}"type": "{}", {}}})", older, type, factors)), newer) << type;
}

TEST(LongRope, ThatDoesNotFitIsRefused) {
  const auto refuse = [](const std::string& more, const std::string& message) {
    expect_error<FileError>(
        [&] {
          test::tiny_graph("phi3", R"("max_position_embeddings": 64, "rope_scaling": {"type": "su", )" + more + "}");
        },
        "config.json: rope_scaling: " + message);
  };
  refuse(R"("short_factor": [1, 1])", "long_factor is missing");
  refuse(R"("short_factor": [1], "long_factor": [1, 1])",
         "short_factor is [1], which has 1 factors for 2 rotated pairs");
  refuse(R"("short_factor": [1, 1], "long_factor": [1, 0])", "long_factor is [1,0], which has a factor that is not");
  refuse(R"("short_factor": [1, 1], "long_factor": [1, "2"])", "long_factor is [1,\"2\"], which is not a list");
  refuse(R"("short_factor": [1, 1], "long_factor": [1, 1], "attention_factor": 0)", "attention_factor is 0");
  expect_error<FileError>(
      [] { test::tiny_graph("phi3", R"("rope_scaling": {"type": "su"}, "max_position_embeddings": 64)"); },
      "unknown type of rotary embedding \"su\"");
}

}  // namespace
}  // namespace jerboa::long_rope_test
