#include "backend/cpu/attention.h"

#include <hwy/highway.h>

#include <jerboa/base/float16.h>

#include "backend/cpu/packed_rows.h"
#include "oracle.h"

namespace jerboa::cpu::attention_test {
namespace {

using test::count_of;
using test::poison;

struct Case {
  std::string name;
  std::int64_t batch = 1, heads = 1, key_heads = 1, time = 1, keys = 1, size = 4, value_size = 4;
  AttentionAttrs attrs = {};
  Sizes mask = {};  // empty: none
  bool boolean_mask = false;
  bool sinks = false;
  std::vector<std::int32_t> lengths = {};
  std::vector<std::int32_t> positions = {};
};
void PrintTo(const Case& c, std::ostream* stream) { *stream << c.name; }

// [batch, heads, time, width] data and where a kernel finds it: as it is, or as [batch, time, heads, width] with gaps.
struct Rows {
  Sizes shape;
  bool time_first;
  std::vector<float> memory;
  AttentionInputs::Strides strides;

  Rows(Sizes sizes, bool by_time, const std::vector<float>* values = nullptr)
      : shape(std::move(sizes)), time_first(by_time) {
    const std::int64_t width = shape[3] + (time_first ? 3 : 0);
    strides = time_first ? AttentionInputs::Strides{shape[1] * shape[2] * width, width, shape[1] * width}
                         : AttentionInputs::Strides{shape[1] * shape[2] * width, shape[2] * width, width};
    memory.assign(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * width), poison);
    if (values != nullptr) for_each([&](std::int64_t i, std::int64_t at) { memory[at] = (*values)[i]; });
  }
  template <class Visit>
  void for_each(Visit visit) const {
    std::int64_t i = 0;
    for (std::int64_t b = 0; b < shape[0]; ++b)
      for (std::int64_t h = 0; h < shape[1]; ++h)
        for (std::int64_t t = 0; t < shape[2]; ++t)
          for (std::int64_t d = 0; d < shape[3]; ++d) visit(i++, b * strides[0] + h * strides[1] + t * strides[2] + d);
  }
  std::vector<float> values() const {
    std::vector<float> result(static_cast<std::size_t>(count_of(shape)));
    for_each([&](std::int64_t i, std::int64_t at) { result[i] = memory[at]; });
    return result;
  }
};

std::array<std::int64_t, 4> mask_strides(const Sizes& mask) {
  std::array<std::int64_t, 4> strides{};
  std::int64_t stride = 1;
  for (std::size_t i = mask.size(), axis = 4; i-- > 0;) {
    strides[--axis] = mask[i] == 1 ? 0 : stride;
    stride *= mask[i];
  }
  return strides;
}

void check(const Case& c, bool time_first) {
  SCOPED_TRACE(c.name + (time_first ? ", time first" : ""));
  const Sizes q_shape{c.batch, c.heads, c.time, c.size}, k_shape{c.batch, c.key_heads, c.keys, c.size};
  const Sizes v_shape{c.batch, c.key_heads, c.keys, c.value_size}, out_shape{c.batch, c.heads, c.time, c.value_size};
  const auto q_data = test::normal_floats(count_of(q_shape), 1), k_data = test::normal_floats(count_of(k_shape), 2);
  const auto v_data = test::normal_floats(count_of(v_shape), 3),
             dout_data = test::normal_floats(count_of(out_shape), 4);
  const auto sinks = test::normal_floats(c.heads, 5);
  const auto mask_data = test::normal_floats(count_of(c.mask), 6);
  std::vector<std::uint32_t> mask_flags;
  for (const float x : mask_data) mask_flags.push_back(x > -0.3F ? 1 : 0);

  // The reference
  std::vector<std::optional<Value>> options(4);
  if (!c.mask.empty())
    options[0] = c.boolean_mask ? test::value_of(DType::boolean, c.mask, mask_flags)
                                : test::value_of(DType::f32, c.mask, mask_data);
  if (c.sinks) options[1] = test::value_of(DType::f32, {c.heads}, sinks);
  if (!c.lengths.empty()) options[2] = test::value_of(DType::i32, {c.batch}, c.lengths);
  if (!c.positions.empty()) options[3] = test::value_of(DType::i32, {c.batch, c.time}, c.positions);
  const bool mask_grad = !c.mask.empty() && !c.boolean_mask;
  std::vector<std::optional<Value>> inputs{test::value_of(DType::f32, q_shape, q_data),
                                           test::value_of(DType::f32, k_shape, k_data),
                                           test::value_of(DType::f32, v_shape, v_data)};
  auto operands = inputs;
  operands.insert(operands.end(), options.begin(), options.end());
  const auto forward = test::reference_of(Op::attention, operands, c.attrs);
  inputs.insert(inputs.end(), {forward[0], forward[1], test::value_of(DType::f32, out_shape, dout_data)});
  inputs.insert(inputs.end(), options.begin(), options.end());
  const AttentionGradAttrs grad_attrs{c.attrs.scale,    c.attrs.causal, c.attrs.window,
                                      c.attrs.soft_cap, c.attrs.ring,   mask_grad};
  const auto backward = test::reference_of(Op::attention_grad, inputs, grad_attrs);

  // The kernel, on the same data
  const Rows q(q_shape, time_first, &q_data), k(k_shape, time_first, &k_data), v(v_shape, time_first, &v_data);
  const Rows dout(out_shape, time_first, &dout_data);
  const auto fill = [&](AttentionInputs& a) {
    a.batch = c.batch, a.heads = c.heads, a.key_heads = c.key_heads, a.time = c.time, a.keys = c.keys;
    a.size = c.size, a.value_size = c.value_size;
    a.q = q.memory.data(), a.k = k.memory.data(), a.v = v.memory.data();
    a.q_strides = q.strides, a.k_strides = k.strides, a.v_strides = v.strides;
    if (!c.mask.empty() && c.boolean_mask) a.mask_bool = mask_flags.data();
    if (!c.mask.empty() && !c.boolean_mask) a.mask_float = mask_data.data();
    a.mask_strides = mask_strides(c.mask);
    if (c.sinks) a.sinks = sinks.data();
    if (!c.lengths.empty()) a.lengths = c.lengths.data();
    if (!c.positions.empty()) a.positions = c.positions.data();
    a.position_strides = {c.time, 1};
    a.scale = static_cast<float>(c.attrs.scale), a.causal = c.attrs.causal, a.window = c.attrs.window;
    a.soft_cap = static_cast<float>(c.attrs.soft_cap), a.ring = c.attrs.ring;
  };
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    Rows out(out_shape, time_first), dq(q_shape, time_first), dk(k_shape, time_first), dv(v_shape, time_first);
    std::vector<float> lse(static_cast<std::size_t>(c.batch * c.heads * c.time), poison);
    AttentionProblem problem;
    fill(problem);
    problem.out = out.memory.data(), problem.out_strides = out.strides, problem.lse = lse.data();
    run_attention(problem, pool);

    std::vector<float> dsinks(static_cast<std::size_t>(c.heads), poison), dmask(mask_data.size(), poison);
    AttentionGradProblem grad;
    fill(grad);
    grad.out = out.memory.data(), grad.out_strides = out.strides, grad.lse = lse.data();
    grad.dout = dout.memory.data(), grad.dout_strides = dout.strides;
    grad.dq = dq.memory.data(), grad.dk = dk.memory.data(), grad.dv = dv.memory.data();
    grad.dq_strides = dq.strides, grad.dk_strides = dk.strides, grad.dv_strides = dv.strides;
    if (c.sinks) grad.dsinks = dsinks.data();
    if (mask_grad) grad.dmask = dmask.data();
    grad.dmask_strides = mask_strides(c.mask);
    run_attention_grad(grad, pool);

    const std::vector<std::vector<float>> results{out.values(), lse,    dq.values(), dk.values(),
                                                  dv.values(),  dsinks, dmask};
    if (threads > 1) {
      for (std::size_t i = 0; i < results.size(); ++i)
        ASSERT_EQ(results[i], first[i]) << threads << " threads, result " << i;
      continue;
    }
    first = results;
    test::expect_close(results[0], forward[0].data, "out");
    test::expect_close(results[1], forward[1].data, "lse");
    test::expect_close(results[2], backward[0].data, "dq");
    test::expect_close(results[3], backward[1].data, "dk");
    test::expect_close(results[4], backward[2].data, "dv");
    if (c.sinks) test::expect_close(dsinks, backward[3].data, "dsinks", 1e-4, 1e-4);
    if (mask_grad) test::expect_close(dmask, backward.back().data, "dmask", 1e-4, 1e-4);
  }
}

class Attention : public testing::TestWithParam<Case> {};

TEST_P(Attention, AgreesWithTheReference) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    check(GetParam(), false);
    check(GetParam(), true);
  }
  hwy::SetSupportedTargetsForTest(0);
}

std::vector<Case> cases() {
  std::vector<Case> list;
  const auto add = [&](Case c) { list.push_back(std::move(c)); };
  // Shapes
  add({"one", 1, 1, 1, 1, 1, 1, 1});
  add({"odd", 2, 3, 3, 5, 7, 5, 3});
  add({"sixteens", 2, 2, 2, 64, 64, 16, 16});
  add({"several_tiles", 1, 2, 2, 130, 150, 20, 24});
  add({"many_heads", 3, 6, 6, 70, 70, 32, 32, {.causal = true}});
  add({"wide_heads", 1, 2, 1, 17, 90, 128, 65});
  add({"no_queries", 1, 2, 2, 0, 4, 8, 8});
  add({"no_keys", 2, 2, 2, 3, 0, 8, 8});
  add({"no_batch", 0, 2, 2, 3, 3, 8, 8});
  add({"scaled", 1, 2, 2, 9, 9, 8, 8, {.scale = 0.7}});
  // Causal, with as many keys, more and fewer
  for (const auto& [time, keys] : {std::pair{1, 1}, {64, 64}, {100, 100}, {33, 200}, {70, 20}, {129, 129}})
    add({"causal_" + std::to_string(time) + "_" + std::to_string(keys), 2, 2, 2, time, keys, 16, 16, {.causal = true}});
  for (const int window : {1, 3, 64, 100})
    add({"window_" + std::to_string(window), 1, 2, 2, 150, 150, 8, 8, {.causal = true, .window = window}});
  // Shared key heads
  add({"grouped", 2, 6, 2, 20, 20, 16, 16, {.causal = true}});
  add({"grouped_long", 1, 4, 1, 140, 140, 16, 16, {.causal = true}});
  add({"grouped_many", 16, 4, 2, 30, 40, 8, 8, {.causal = true}});
  // Decode
  add({"decode", 2, 4, 4, 1, 37, 64, 64, {.causal = true}});
  add({"decode_split", 1, 8, 2, 1, 1300, 32, 32, {.causal = true}});
  add({"decode_split_options",
       2,
       8,
       2,
       1,
       1300,
       20,
       24,
       {.causal = true, .window = 300, .soft_cap = 5},
       {},
       false,
       true,
       {700, 1},
       {699, 0}});
  add({"decode_few", 2, 4, 2, 3, 600, 16, 16, {.causal = true}, {}, false, true, {600, 250}});
  // Soft cap and sinks
  add({"soft_cap", 1, 2, 2, 70, 70, 16, 16, {.soft_cap = 2}});
  add({"soft_cap_causal", 2, 2, 2, 33, 33, 8, 8, {.causal = true, .soft_cap = 30}});
  add({"sinks", 2, 3, 3, 40, 40, 8, 8, {}, {}, false, true});
  add({"sinks_causal_fewer_keys", 1, 2, 2, 70, 20, 8, 8, {.causal = true}, {}, false, true});
  // Masks of every broadcast form
  for (const Sizes& mask : std::vector<Sizes>{{2, 4, 70, 80},
                                              {2, 1, 70, 80},
                                              {1, 4, 70, 80},
                                              {70, 80},
                                              {1, 1, 1, 80},
                                              {80},
                                              {70, 1},
                                              {2, 1, 1, 1},
                                              {4, 1, 1},
                                              {4, 70, 1},
                                              {1},
                                              {2, 4, 1, 80}}) {
    std::string name;
    for (const std::int64_t size : mask) name += "_" + std::to_string(size);
    add({"mask" + name, 2, 4, 2, 70, 80, 8, 8, {}, mask});
    add({"mask_bool" + name, 2, 4, 2, 70, 80, 8, 8, {}, mask, true});
  }
  add({"mask_everything",
       2,
       4,
       2,
       64,
       128,
       16,
       16,
       {.causal = true, .window = 70, .soft_cap = 4},
       {2, 1, 64, 128},
       false,
       true,
       {128, 100}});
  // Lengths and positions
  add({"lengths", 3, 2, 2, 10, 90, 8, 8, {}, {}, false, false, {90, 1, 0}});
  add({"lengths_causal", 3, 2, 1, 80, 80, 8, 8, {.causal = true}, {}, false, false, {80, 33, 64}});
  add({"positions", 2, 2, 2, 3, 50, 8, 8, {.causal = true}, {}, false, false, {}, {0, 7, 49, 20, 21, 3}});
  add({"positions_negative", 1, 2, 2, 3, 20, 8, 8, {.causal = true, .window = 4}, {}, false, false, {}, {-1, 7, 30}});
  // A ring that is not full, just full, and long past it
  add({"ring",
       4,
       2,
       2,
       2,
       70,
       8,
       8,
       {.causal = true, .window = 40, .ring = true},
       {},
       false,
       false,
       {5, 70, 75, 1000},
       {3, 4, 68, 69, 73, 74, 998, 999}});
  add({"ring_empty", 2, 2, 2, 1, 7, 8, 8, {.causal = true, .ring = true}, {}, false, false, {0, 1}, {0, 0}});
  add({"ring_split", 1, 2, 1, 1, 1100, 8, 8, {.causal = true, .ring = true}, {}, false, false, {3000}, {2999}});
  return list;
}

INSTANTIATE_TEST_SUITE_P(Cases, Attention, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

// 8-bit caches, straight and in blocks, give the same bits as what they hold in f32. Heads of whole vectors are
// read where they are, others gathered first.
TEST(AttentionCaches, In8BitsEqualTheirValues) {
  constexpr std::int64_t heads = 4, key_heads = 2, keys = 600, block = 40;
  const std::vector<std::int32_t> lengths{583};
  ThreadPool pool(2);
  for (const std::int64_t size : {20, 64, 96})
    for (const std::int64_t time : {1, 3, 70}) {
      SCOPED_TRACE(testing::Message() << time << " queries of " << size << " features");
      const std::int64_t words = packed_words(size), rows = key_heads * keys;
      std::vector<std::uint32_t> packed[2];
      std::vector<float> wide[2];
      for (int i = 0; i < 2; ++i) {
        const auto values = test::normal_floats(rows * size, static_cast<unsigned>(2 + i));
        packed[i].resize(static_cast<std::size_t>(rows * words));
        for (std::int64_t row = 0; row < rows; ++row) {
          std::uint32_t* to = packed[i].data() + row * words;
          pack_row(values.data() + row * size, size, to);
          for (std::int64_t j = 0; j < size; ++j)
            wide[i].push_back(static_cast<float>(static_cast<std::int8_t>(to[j / 4] >> (j % 4 * 8))) *
                              packed_scale(to, size, j));
        }
      }
      const auto q = test::normal_floats(heads * time * size, 1);
      std::vector<std::int32_t> positions;
      for (std::int64_t t = 0; t < time; ++t) positions.push_back(static_cast<std::int32_t>(lengths[0] - time + t));
      AttentionProblem problem;
      problem.batch = 1, problem.heads = heads, problem.key_heads = key_heads, problem.time = time;
      problem.keys = keys, problem.size = problem.value_size = size, problem.causal = true;
      problem.q = q.data(), problem.q_strides = {heads * time * size, time * size, size};
      problem.lengths = lengths.data(), problem.positions = positions.data(), problem.position_strides = {time, 1};
      problem.out_strides = problem.q_strides;
      const auto run = [&](AttentionProblem one) {
        std::vector<float> out(q.size(), poison), lse(static_cast<std::size_t>(heads * time), poison);
        one.out = out.data(), one.lse = lse.data();
        run_attention(one, pool);
        return std::pair(out, lse);
      };
      AttentionProblem straight = problem, narrow = problem;
      straight.k = wide[0].data(), straight.v = wide[1].data();
      straight.k_strides = straight.v_strides = {rows * size, keys * size, size};
      narrow.k_packed = packed[0].data(), narrow.v_packed = packed[1].data();
      narrow.k_strides = narrow.v_strides = {rows * words, keys * words, words};
      const auto wanted = run(straight);
      EXPECT_EQ(run(narrow), wanted);

      std::vector<std::int32_t> table;
      for (std::int32_t i = 0; i < keys / block; ++i) table.push_back(keys / block - 1 - i);
      std::vector<std::uint32_t> paged[2];
      for (int i = 0; i < 2; ++i) {
        paged[i].resize(packed[i].size());
        for (std::int64_t h = 0; h < key_heads; ++h)
          for (std::int64_t key = 0; key < keys; ++key)
            std::copy_n(packed[i].data() + (h * keys + key) * words, words,
                        paged[i].data() + ((table[key / block] * key_heads + h) * block + key % block) * words);
      }
      narrow.table = table.data(), narrow.block = block, narrow.blocks = keys / block;
      narrow.k_packed = paged[0].data(), narrow.v_packed = paged[1].data();
      narrow.k_strides = narrow.v_strides = {key_heads * block * words, block * words, words};
      EXPECT_EQ(run(narrow), wanted);
    }
}

// A straight cache, the same in f16, and both in blocks that are scattered over memory, whose table holds anything for
// keys past a sequence's length: the same bits.
TEST(AttentionCaches, PagedAndNarrowOnesEqualAStraightOne) {
  constexpr std::int64_t batch = 3, heads = 4, key_heads = 2, capacity = 192, size = 20, value_size = 24;
  const std::vector<std::int32_t> lengths{150, 1, 77};
  const auto narrow = [](std::vector<float> values) {
    std::vector<std::uint16_t> halves;
    for (float& value : values) halves.push_back(f32_to_f16(value));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = f16_to_f32(halves[i]);
    return std::pair(values, halves);
  };
  const auto [k, k_half] = narrow(test::normal_floats(batch * key_heads * capacity * size, 2));
  const auto [v, v_half] = narrow(test::normal_floats(batch * key_heads * capacity * value_size, 3));
  ThreadPool pool(2);
  for (const std::int64_t time : {1, 5, 70}) {
    const auto q = test::normal_floats(batch * heads * time * size, 1);
    std::vector<std::int32_t> positions;
    for (const std::int32_t length : lengths)
      for (std::int64_t t = 0; t < time; ++t) positions.push_back(static_cast<std::int32_t>(length - time + t));
    AttentionProblem problem;
    problem.batch = batch, problem.heads = heads, problem.key_heads = key_heads, problem.time = time;
    problem.keys = capacity, problem.size = size, problem.value_size = value_size, problem.causal = true;
    problem.q = q.data(), problem.q_strides = {heads * time * size, time * size, size};
    problem.lengths = lengths.data(), problem.positions = positions.data(), problem.position_strides = {time, 1};
    problem.out_strides = {heads * time * value_size, time * value_size, value_size};
    const auto run = [&](AttentionProblem one) {
      std::vector<float> out(static_cast<std::size_t>(batch * heads * time * value_size), poison);
      std::vector<float> lse(static_cast<std::size_t>(batch * heads * time), poison);
      one.out = out.data(), one.lse = lse.data();
      run_attention(one, pool);
      return std::pair(out, lse);
    };
    problem.k_strides = {key_heads * capacity * size, capacity * size, size};
    problem.v_strides = {key_heads * capacity * value_size, capacity * value_size, value_size};
    AttentionProblem straight = problem, half = problem;
    straight.k = k.data(), straight.v = v.data();
    half.k_half = k_half.data(), half.v_half = v_half.data();
    const auto wanted = run(straight);
    EXPECT_EQ(run(half), wanted) << time;

    for (const std::int64_t block : {64, 16, 3}) {
      SCOPED_TRACE(testing::Message() << time << " queries, blocks of " << block);
      const std::int64_t columns = capacity / block, blocks = batch * columns + 2;
      std::vector<std::int32_t> table;
      for (std::int64_t i = 0; i < batch * columns; ++i)
        table.push_back(static_cast<std::int32_t>((i * 7 + 3) % (blocks - (blocks % 7 == 0 ? 1 : 0))));
      const auto paged = [&]<class T>(const std::vector<T>& from, std::int64_t width) {
        std::vector<T> to(static_cast<std::size_t>(blocks * key_heads * block * width), T(777));
        for (std::int64_t b = 0; b < batch; ++b)
          for (std::int64_t h = 0; h < key_heads; ++h)
            for (std::int64_t s = 0; s < lengths[b]; ++s)
              std::copy_n(from.data() + ((b * key_heads + h) * capacity + s) * width, width,
                          to.data() + ((table[b * columns + s / block] * key_heads + h) * block + s % block) * width);
        return to;
      };
      const auto k_paged = paged(k, size), v_paged = paged(v, value_size);
      const auto k_half_paged = paged(k_half, size), v_half_paged = paged(v_half, value_size);
      std::vector<std::int32_t> entries = table;
      for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t i = (lengths[b] + block - 1) / block; i < columns; ++i)
          entries[b * columns + i] = i % 2 == 0 ? -1 : 1 << 30;
      AttentionProblem in_blocks = problem;
      in_blocks.table = entries.data(), in_blocks.block = block, in_blocks.blocks = blocks;
      in_blocks.k_strides = {key_heads * block * size, block * size, size};
      in_blocks.v_strides = {key_heads * block * value_size, block * value_size, value_size};
      AttentionProblem half_in_blocks = in_blocks;
      in_blocks.k = k_paged.data(), in_blocks.v = v_paged.data();
      half_in_blocks.k_half = k_half_paged.data(), half_in_blocks.v_half = v_half_paged.data();
      EXPECT_EQ(run(in_blocks), wanted);
      EXPECT_EQ(run(half_in_blocks), wanted);
    }
  }
}

}  // namespace
}  // namespace jerboa::cpu::attention_test
