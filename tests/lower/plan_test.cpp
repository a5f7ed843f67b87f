#include "lower/plan.h"

#include <gtest/gtest.h>
#include <random>

#include <jerboa/lower/lower.h>

#include "graphs.h"
#include "lower/lives.h"

// Invariants of every memory plan, over random live ranges and over the training steps of whole models.
namespace jerboa {
namespace {

std::int64_t total(const Program& program) {
  std::int64_t bytes = 0;
  for (const std::int64_t arena : program.arenas) bytes += arena;
  return bytes;
}

// Buffers of random sizes and live ranges, without the kernels that use them.
Program random_buffers(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
  Program program;
  const int count = 1 + below(80), dispatches = 1 + below(100), sizes = 1 + below(12);
  for (int i = 0; i < count; ++i) {
    Buffer buffer;
    buffer.name = "t" + std::to_string(i);
    // Few distinct sizes, as in repeated layers, or many.
    buffer.bytes = seed % 2 == 0 ? (1 + below(sizes)) * (1 << 18) : below(6400000);
    buffer.first = below(dispatches);
    buffer.last = std::min(dispatches, buffer.first + below(seed % 3 == 0 ? dispatches : 6));
    program.buffers.push_back(buffer);
  }
  return program;
}

Target separate_arenas() { return Target::webgpu_default(); }

void expect_no_overlap(const Program& program, const Target& target) {
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& a = program.buffers[i];
    if (a.where != Buffer::Where::arena) continue;
    ASSERT_LE(a.offset + a.bytes, program.arenas.at(static_cast<std::size_t>(a.arena))) << a.name;
    ASSERT_EQ(a.offset % target.offset_alignment, 0) << a.name;
    for (std::size_t j = i + 1; j < program.buffers.size(); ++j) {
      const Buffer& b = program.buffers[j];
      if (b.where != Buffer::Where::arena || !detail::lives_overlap(a, b) || a.arena != b.arena) continue;
      ASSERT_FALSE(target.separate_arenas) << a.name << " and " << b.name << " in one arena";
      ASSERT_FALSE(a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes) << a.name << " and " << b.name;
    }
  }
}

TEST(Plan, KeepsRandomLivesApart) {
  for (std::uint32_t seed = 0; seed < 200; ++seed)
    for (const Target& target : {Target::cpu(), separate_arenas()}) {
      SCOPED_TRACE(target.name + " " + std::to_string(seed));
      Program program = random_buffers(seed);
      detail::assign_memory(program, target);
      expect_no_overlap(program, target);
      EXPECT_GE(total(program), detail::max_live_bytes(program));
    }
}

TEST(Plan, GivesEveryBufferItsOwnPlaceWithoutPlanning) {
  for (Target target : {Target::cpu(), separate_arenas()}) {
    target.plan = false;
    Program program = random_buffers(4);
    detail::assign_memory(program, target);
    std::int64_t unshared = 0;
    for (Buffer& buffer : program.buffers) {
      unshared += buffer.bytes;
      buffer.first = 0;
    }
    expect_no_overlap(program, target);
    EXPECT_GE(total(program), unshared);
  }
}

// For buffers of one size the plan is optimal, whatever the live ranges.
TEST(Plan, IsTheBestThereIsForBuffersOfOneSize) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    Program program = random_buffers(seed);
    for (Buffer& buffer : program.buffers) buffer.bytes = 1 << 20;
    detail::assign_memory(program, separate_arenas());
    EXPECT_EQ(total(program), detail::max_live_bytes(program)) << seed;
  }
}

// Many small tensors with short lives, one after another: memory that was just read is not overwritten next.
TEST(Plan, LeavesSmallBuffersAsTheyAreForLong) {
  Program program;
  for (int i = 0; i < 1000; ++i) {
    Buffer buffer;
    buffer.name = std::to_string(i);
    buffer.bytes = 256;
    buffer.first = i;
    buffer.last = i + 1;
    program.buffers.push_back(buffer);
  }
  detail::assign_memory(program, separate_arenas());
  expect_no_overlap(program, separate_arenas());
  EXPECT_LE(program.arenas.size(), 256u);
  constexpr int long_after = 50;
  for (std::size_t i = 0; i < program.buffers.size(); ++i)
    for (std::size_t k = i + 1; k < std::min(i + long_after, program.buffers.size()); ++k)
      ASSERT_NE(program.buffers[i].arena, program.buffers[k].arena) << i << " and " << k;
}

// A moderately large tensor takes memory that was idle for a while, even if it is larger, rather than memory that was
// just read.
TEST(Plan, AvoidsMemoryThatWasJustRead) {
  const auto slot_of_last = [](std::int64_t bytes_of_idle) {
    Program program;
    const auto add = [&](std::int64_t bytes, int first, int last) {
      Buffer buffer;
      buffer.bytes = bytes;
      buffer.first = first;
      buffer.last = last;
      program.buffers.push_back(buffer);
    };
    add(bytes_of_idle, 0, 1);
    add(1 << 20, 0, 18);
    add(1 << 20, 20, 22);
    detail::assign_memory(program, separate_arenas());
    expect_no_overlap(program, separate_arenas());
    EXPECT_EQ(program.arenas.size(), 2u);
    return program.buffers[2].arena == program.buffers[0].arena;
  };
  EXPECT_TRUE(slot_of_last(1 << 20));
  EXPECT_TRUE(slot_of_last(4 << 20));
  EXPECT_FALSE(slot_of_last(1 << 19)) << "which it does not fit";
}

TEST(Plan, OfTrainingStepsIsCloseToWhatIsInUseAtOnce) {
  for (const auto& [name, graph] : test::training_steps())
    for (const Target& target : {Target::cpu(), separate_arenas()}) {
      SCOPED_TRACE(name + " for " + target.name);
      const Program program = lower(graph, target);
      expect_no_overlap(program, target);
      const std::int64_t least = detail::max_live_bytes(program);
      EXPECT_GE(total(program), least);
      // Small models are mostly alignment.
      if (least > 1 << 20) {
        EXPECT_LT(static_cast<double>(total(program)), 1.3 * static_cast<double>(least));
      }
    }
}

}  // namespace
}  // namespace jerboa
