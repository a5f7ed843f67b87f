#include <gtest/gtest.h>

#include <jerboa/backend/cpu.h>
#include <jerboa/base/file.h>
#include <jerboa/lower/lower.h>
#include <jerboa/lower/program_file.h>

#include "support/expect_error.h"
#include "support/small_gpt.h"
#include "support/temp_folder.h"

// Whole programs on the CPU engine: training steps, symbolic sizes, files.
namespace jerboa {
namespace {

using test::small_batch;
using test::small_ids;
using test::small_step;
using test::small_trainer;
using test::small_training;
using test::SmallTraining;

Device cpu_with(int threads, bool fused = true) {
  CpuOptions options;
  options.threads = threads;
  options.target.fuse = fused;
  return Device(make_cpu_backend(options));
}

TEST(CpuTraining, GivesTheSameBitsOnAnyNumberOfThreads) {
  const SmallTraining one = small_training(cpu_with(1));
  for (const int threads : {2, 3}) {
    const SmallTraining more = small_training(cpu_with(threads));
    EXPECT_EQ(one.losses, more.losses);
    EXPECT_TRUE(one.params == more.params);
  }
}

TEST(CpuTraining, GivesTheSameBitsWhateverMemoryHeldAndHoweverItIsPlanned) {
  const SmallTraining wanted = small_training(cpu_with(2));
  for (const bool planned : {true, false})
    for (const float sentinel : {7e8f, -3e-9f}) {
      CpuOptions options;
      options.threads = 2;
      options.target.plan = planned;
      options.sentinel = sentinel;
      const SmallTraining other = small_training(Device(make_cpu_backend(options)));
      EXPECT_EQ(wanted.losses, other.losses) << planned << ' ' << sentinel;
      EXPECT_TRUE(wanted.params == other.params) << planned << ' ' << sentinel;
    }
}

TEST(CpuTraining, FollowsTheReference) {
  const SmallTraining wanted = small_training(Device::reference64());
  for (const bool fused : {true, false}) {
    const SmallTraining computed = small_training(cpu_with(2, fused));
    for (std::size_t i = 0; i < wanted.losses.size(); ++i)
      EXPECT_NEAR(computed.losses[i], wanted.losses[i], 2e-4) << fused;
  }
}

TEST(CpuProgram, SavedAndLoadedStepsGiveTheSameBits) {
  const test::TempFolder folder;
  auto trainer = small_trainer(cpu_with(2));
  trainer.step(small_batch(0));
  Session& session = trainer.session();
  session.save_program(folder.path() / "step.jerboa");
  session.save(folder.path() / "checkpoint");

  Session loaded = Session::load_program(folder.path() / "step.jerboa", cpu_with(2));
  loaded.load(folder.path() / "checkpoint");
  for (int step = 1; step < 4; ++step) {
    const double wanted = trainer.step(small_batch(step)).loss();
    EXPECT_EQ(loaded.run(small_step, small_batch(step)).loss(), wanted);
  }
  EXPECT_TRUE(loaded.download_params() == session.download_params());
}

TEST(CpuProgram, RefusesDamagedFiles) {
  const test::TempFolder folder;
  Session session(cpu_with(1));
  session.add_entry("run", trace([] { output("y", softmax(tensor_input("x", {4, 5}))); }));
  const auto path = folder.path() / "run.jerboa";
  session.save_program(path);
  const std::string whole(FileContent(path).text());
  for (const std::size_t length : {std::size_t{0}, std::size_t{7}, std::size_t{20}, whole.size() / 2}) {
    write_file_atomically(path, whole.substr(0, length));
    EXPECT_THROW(load_program(path), FileError) << length;
  }
  for (std::size_t at = 16; at < whole.size(); at += 5) {
    std::string damaged = whole;
    damaged[at] = damaged[at] == '9' ? '1' : '9';
    write_file_atomically(path, damaged);
    try {
      load_program(path);  // a change that is still valid is not an error
    } catch (const Error&) {
    }
  }
}

TEST(CpuProgram, ServesEveryLengthWithOneCompilation) {
  const Graph graph = test::small_forward_of_any_length();
  Session engine(cpu_with(2), {.seed = 1}), reference(Device::reference64(), {.seed = 1});
  engine.add_entry("run", graph);
  reference.add_entry("run", graph);
  for (const std::int64_t t : {1, 2, 7, 16, 33, 40, 3}) {
    const TensorMap inputs{{"ids", small_ids(2, t, 3)}};
    const HostTensor computed = engine.run("run", inputs).get("output"),
                     wanted = reference.run("run", inputs).get("output");
    ASSERT_EQ(computed.shape(), wanted.shape());
    for (std::int64_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(computed.number(i), wanted.number(i), 1e-5) << t;
  }
}

TEST(CpuProgram, SwapsStatesThatAreEachOthersNextVersion) {
  Session session(cpu_with(1));
  session.add_entry("swap", trace([] {
                      const Tensor a = state_input("a", {3}), b = state_input("b", {3});
                      update(a, b);
                      update(b, a + b);
                      output("old", transpose(reshape(a, {3, 1}), {1, 0}));
                    }));
  session.upload_state("a", HostTensor({3}, {1, 2, 3}));
  session.upload_state("b", HostTensor({3}, {10, 20, 30}));
  const HostTensor old = session.run("swap", {}).get("old");
  EXPECT_TRUE(old == HostTensor({1, 3}, {1, 2, 3}));
  EXPECT_TRUE(session.download_state("a") == HostTensor({3}, {10, 20, 30}));
  EXPECT_TRUE(session.download_state("b") == HostTensor({3}, {11, 22, 33}));
}

TEST(CpuProgram, ReturnsTheOldVersionOfTensorsUpdatedInPlace) {
  for (const std::int64_t size : {3, 5000}) {
    Session session(cpu_with(1));
    session.add_entry("step", trace([&] {
                        const Tensor a = state_input("a", {size}), b = state_input("b", {size});
                        update(a, a + 1);
                        update(b, a);
                        output("old", a);
                      }));
    for (int step = 0; step < 3; ++step) {
      const HostTensor old = session.run("step", {}).get("old");
      const HostTensor a = session.download_state("a"), b = session.download_state("b");
      for (std::int64_t i = 0; i < size; ++i) {
        ASSERT_EQ(old.number(i), step) << size << ' ' << i;
        ASSERT_EQ(a.number(i), step + 1) << size << ' ' << i;
        ASSERT_EQ(b.number(i), step) << size << ' ' << i;
      }
    }
  }
}

// A kernel may store what it loaded after it has written the memory that it comes from.
TEST(CpuProgram, KeepsValuesLoadedFromMemoryThatAKernelWrites) {
  constexpr std::int64_t size = 3000;
  Instruction load, twice;
  load.kind = Instruction::Kind::load;
  twice.kind = Instruction::Kind::compute;
  twice.a = twice.b = 0;
  const IndexMap along{0, {1}};
  KernelSpec kernel;
  kernel.domain = {size};
  kernel.loads.push_back({.map = along, .masks = {}});
  kernel.body = {load, twice};
  kernel.stores = {{0, DType::f32, along, 1}, {1, DType::f32, along, 0}};
  kernel.bindings = 2;
  Program program;
  program.cpu.kernels = {kernel};
  program.cpu.dispatches = {{{{0, {0, 1}, "twice"}}}};
  Buffer state, old;
  state.where = Buffer::Where::storage;
  state.name = "state";
  state.elements = old.elements = size;
  state.bytes = old.bytes = size * 4;
  program.buffers = {state, old};
  program.arenas = {size * 4};
  program.outputs = {{"old", DType::f32, {size}, 1, 0, {1}}};
  const auto backend = make_cpu_backend();
  const auto storage = backend->allocate(DType::f32, {size}, "state");
  storage->upload(HostTensor({size}, std::vector<float>(size, 3)));
  const auto results = backend->load(program, [&](const std::string&) { return std::shared_ptr(storage); })
                           ->run({.inputs = {}, .symbols = {}, .captures = {}});
  EXPECT_TRUE(results->read("old") == HostTensor({size}, std::vector<float>(size, 3)));
  EXPECT_TRUE(storage->download() == HostTensor({size}, std::vector<float>(size, 6)));
}

// Fills this many elements of an activation that has four.
void fill_under_guard(std::int64_t count) {
  Instruction one;
  one.number = 1;
  KernelSpec kernel;
  kernel.domain = {count};
  kernel.body = {one};
  kernel.stores = {{0, DType::f32, {0, {1}}, 0}};
  kernel.bindings = 1;
  Program program;
  program.cpu.kernels = {kernel};
  program.cpu.dispatches = {{{{0, {0}, "ones"}}}};
  Buffer four;
  four.name = "four";
  four.elements = 4;
  four.bytes = 16;
  program.buffers = {four};
  program.arenas = {64};
  CpuOptions options;
  options.guard = true;
  make_cpu_backend(options)->load(program, {})->run({.inputs = {}, .symbols = {}, .captures = {}});
}

TEST(CpuGuard, NamesADispatchThatDoesNotWriteItsOwnMemoryAndNothingElse) {
  fill_under_guard(4);
  test::expect_error<GraphError>(
      [] { fill_under_guard(5); },
      "dispatch 0 (ones) wrote outside its results: byte 16 of the arena, where no buffer is");
  test::expect_error<GraphError>([] { fill_under_guard(3); }, "dispatch 0 (ones) did not write element 3 of four");
}

TEST(CpuProgram, ReportsMemoryAndTime) {
  auto trainer = small_trainer(cpu_with(1));
  trainer.prepare(small_batch(0));
  const MemoryReport report = trainer.session().memory_report(small_step);
  EXPECT_GT(report.activations, 0);
  const std::int64_t floats = 4 * count_parameters(test::SmallGpt{});  // parameters, gradients and two moments
  EXPECT_GE(report.persistent, 4 * floats);
  trainer.session().set_profiling(small_step, true);
  trainer.step(small_batch(0));
  EXPECT_EQ(trainer.session().profile(small_step).size(),
            static_cast<std::size_t>(trainer.session().kernel_count(small_step)));
}

}  // namespace
}  // namespace jerboa
