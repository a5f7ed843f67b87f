#include "support/recurrent_checks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

#include <jerboa/ops/ops.h>
#include <jerboa/runtime/session.h>

#include "verify/compare.h"

namespace jerboa::test {
namespace {

constexpr std::int64_t tokens = 75, batch = 2, slots = 5, groups = 2, heads = 4, keys = 12, values = 20, taps = 4;
constexpr std::int64_t channels = groups * keys;

HostTensor uniform(const Sizes& shape, double low, double high, unsigned seed) {
  std::mt19937 engine(seed);
  HostTensor tensor(DType::f32, shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i)
    tensor.set_number(i, low + (high - low) * static_cast<double>(engine()) / 4294967296.0);
  return tensor;
}

HostTensor integers(const Sizes& shape, const std::vector<std::int32_t>& numbers) { return {shape, numbers}; }

// Tokens from `first` to `end` of a tensor [batch, tokens, …], behind `padding` ones that must not matter.
HostTensor piece(const HostTensor& all, std::int64_t first, std::int64_t end, std::int64_t padding) {
  Sizes shape = all.shape();
  const std::int64_t width = all.size() / (shape[0] * shape[1]), time = end - first + padding;
  shape[1] = time;
  HostTensor part(all.dtype(), shape);
  for (std::int64_t b = 0; b < shape[0]; ++b)
    for (std::int64_t t = 0; t < time; ++t)
      for (std::int64_t i = 0; i < width; ++i)
        part.set_number((b * time + t) * width + i,
                        t < padding ? 77 : all.number((b * tokens + first + t - padding) * width + i));
  return part;
}

// A convolution gives the keys of the recurrence, so that both states matter to the result.
Graph layer(std::int64_t time, bool with_beta) {
  return trace([&] {
    const Tensor positions = tensor_input("positions", {batch, time}, DType::i32);
    const Tensor rows = tensor_input("slots", {batch}, DType::i32);
    const Tensor x = tensor_input("x", {batch, time, channels});
    const Tensor weight = tensor_input("weight", {channels, taps});
    const Tensor window = state_input("window", {slots, taps - 1, channels}, DType::f32, Init::normal(1));
    const Recurrent conv = causal_conv1d(x, weight, {window, positions, rows});
    update(window, conv.state);
    const Tensor k = reshape(conv.y, {batch, time, groups, keys});
    const Tensor q = tensor_input("q", {batch, time, groups, keys});
    const Tensor v = tensor_input("v", {batch, time, heads, values});
    const Tensor log_decay = tensor_input("log_decay", {batch, time, heads});
    const Tensor beta = with_beta ? tensor_input("beta", {batch, time, heads}) : Tensor();
    const Tensor memory = state_input("memory", {slots, heads, keys, values}, DType::f32, Init::normal(1));
    const Recurrent attended =
        linear_attention(q, k, v, log_decay, with_beta ? Operand(beta) : Operand(), {memory, positions, rows});
    update(memory, attended.state);
    output("y", attended.y);
  });
}

class Pieces {
 public:
  Pieces(const Device& device, bool with_beta) : session_(device), with_beta_(with_beta) {
    weight_ = uniform({channels, taps}, -0.4, 0.4, 1);
    inputs_["x"] = uniform({batch, tokens, channels}, -0.8, 0.8, 2);
    inputs_["q"] = uniform({batch, tokens, groups, keys}, -1, 1, 3);
    inputs_["v"] = uniform({batch, tokens, heads, values}, -1, 1, 4);
    inputs_["log_decay"] = uniform({batch, tokens, heads}, -0.5, -0.01, 5);
    if (with_beta) inputs_["beta"] = uniform({batch, tokens, heads}, 0.2, 0.9, 6);
  }

  // y of the tokens from `first` to `end`.
  std::vector<double> run(std::int64_t first, std::int64_t end, std::int64_t padding,
                          const std::vector<std::int32_t>& rows) {
    const std::int64_t time = end - first + padding;
    const std::string entry = fmt::format("{} tokens", time);
    if (!entries_.contains(entry)) session_.add_entry(entry, layer(time, with_beta_));
    entries_.insert(entry);
    TensorMap inputs{{"weight", weight_}, {"slots", integers({batch}, rows)}};
    for (const auto& [name, all] : inputs_) inputs.emplace(name, piece(all, first, end, padding));
    std::vector<std::int32_t> positions;
    for (std::int64_t i = 0; i < batch * time; ++i)
      positions.push_back(static_cast<std::int32_t>(i % time < padding ? -1 : first + i % time - padding));
    inputs.emplace("positions", integers({batch, time}, positions));
    const HostTensor y = session_.run(entry, inputs).get("y");
    std::vector<double> kept;
    const std::int64_t width = heads * values;
    for (std::int64_t i = 0; i < y.size(); ++i) {
      if (i / width % time >= padding)
        kept.push_back(y.number(i));
      else
        EXPECT_EQ(y.number(i), 0) << "of padding";
    }
    return kept;
  }

  // A sequence's part of a state.
  std::vector<double> state(const std::string& name, std::int32_t slot) const {
    const HostTensor all = session_.download_state(name);
    const std::int64_t width = all.size() / slots;
    std::vector<double> row;
    for (std::int64_t i = 0; i < width; ++i) row.push_back(all.number(slot * width + i));
    return row;
  }

 private:
  Session session_;
  bool with_beta_;
  HostTensor weight_;
  std::map<std::string, HostTensor> inputs_;
  std::set<std::string> entries_;
};

// The same tokens of [batch, tokens, heads, values].
std::vector<double> tokens_of(const std::vector<double>& all, std::int64_t first, std::int64_t end) {
  std::vector<double> part;
  const std::int64_t width = heads * values;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(all.size()); ++i)
    if (const std::int64_t t = i / width % tokens; first <= t && t < end)
      part.push_back(all[static_cast<std::size_t>(i)]);
  return part;
}

void expect_same(const std::vector<double>& computed, const std::vector<double>& wanted, const std::string& what) {
  EXPECT_EQ(difference(computed, wanted, {1e-4, 1e-5, 1e-4}), std::nullopt) << what;
}

}  // namespace

void expect_pieces_equal_the_whole(const Device& device) {
  for (const bool with_beta : {false, true}) {
    SCOPED_TRACE(with_beta ? "delta rule" : "plain");
    Pieces pieces(device, with_beta);
    const std::vector<std::int32_t> first_slots{3, 1}, other_slots{0, 4};
    const std::vector<double> all = pieces.run(0, tokens, 0, first_slots);
    const std::vector<double> untouched = pieces.state("memory", 2);
    // Prompts behind padding, few tokens, and one by one.
    std::int64_t done = 0;
    for (const auto& [count, padding] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{34, 6}, {3, 1}, {1, 0}, {1, 0}, {36, 4}}) {
      const std::vector<double> part = pieces.run(done, done + count, padding, other_slots);
      expect_same(part, tokens_of(all, done, done + count), fmt::format("tokens from {}", done));
      done += count;
    }
    ASSERT_EQ(done, tokens);
    for (const char* name : {"window", "memory"})
      for (std::size_t b = 0; b < batch; ++b)
        expect_same(pieces.state(name, other_slots[b]), pieces.state(name, first_slots[b]), name);
    EXPECT_EQ(pieces.state("memory", 2), untouched);
    // Padding alone changes nothing.
    const std::vector<double> before = pieces.state("memory", 0);
    pieces.run(tokens, tokens, 4, other_slots);
    EXPECT_EQ(pieces.state("memory", 0), before);
  }
}

}  // namespace jerboa::test
