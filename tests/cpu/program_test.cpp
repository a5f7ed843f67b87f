#include <gtest/gtest.h>

#include <jerboa/backend/cpu.h>
#include <jerboa/base/file.h>
#include <jerboa/frontend/nn.h>
#include <jerboa/frontend/trainer.h>
#include <jerboa/lower/lower.h>
#include <jerboa/lower/program_file.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"

// Whole programs on the CPU engine: training steps, symbolic sizes, files, and the plan's own checks.
namespace jerboa {
namespace {

struct Block {
  int width = 0, heads = 1;
  nn::LayerNorm norm{width};
  nn::Linear qkv{width, 3 * width}, proj{width, width}, up{width, 2 * width}, down{2 * width, width};
  nn::Dropout dropout{0.1};
  JERBOA_FIELDS(norm, qkv, proj, up, down, dropout)
  Tensor operator()(Tensor x) const {
    auto [q, k, v] = split<3>(qkv(norm(x)));
    x = x + dropout(proj(attention(q, k, v, {.heads = heads, .causal = true})));
    return x + down(gelu(up(x)));
  }
};

struct Model {
  nn::Embedding tok{31, 24};
  std::vector<Block> blocks = nn::stack<Block>(2, {.width = 24, .heads = 3});
  JERBOA_FIELDS(tok, blocks)
  Tensor operator()(Tensor ids) const {
    Tensor x = tok(ids);
    for (const auto& block : blocks) x = block(x);
    return tok.logits(x);
  }
};

HostTensor ids_of(std::int64_t batch, std::int64_t length, int shift) {
  HostTensor ids(DType::i32, {batch, length});
  for (std::int64_t i = 0; i < batch * length; ++i) ids.set_number(i, static_cast<double>((i * 7 + shift) % 31));
  return ids;
}

Batch batch_of(int number) { return {{"ids", ids_of(3, 10, number)}, {"targets", ids_of(3, 10, number + 1)}}; }

Device cpu_with(int threads, bool fused = true) {
  CpuOptions options;
  options.threads = threads;
  options.target.fuse = fused;
  return Device(make_cpu_backend(options));
}

TrainerOptions on(Device device) {
  return {.optimizer = AdamW{.lr = warmup_cosine(1e-2, 2, 20), .clip_norm = 1}, .device = std::move(device), .seed = 5};
}

// Losses of the first steps, and the parameters after them.
struct Training {
  std::vector<double> losses;
  TensorMap params;
};

Training train(Device device) {
  Trainer trainer(Model{}, next_token_loss, on(std::move(device)));
  Training result;
  for (int step = 0; step < 4; ++step) result.losses.push_back(trainer.step(batch_of(step)).loss());
  result.params = trainer.session().download_params();
  return result;
}

TEST(CpuTraining, GivesTheSameBitsOnAnyNumberOfThreads) {
  const Training one = train(cpu_with(1));
  for (const int threads : {2, 3}) {
    const Training more = train(cpu_with(threads));
    EXPECT_EQ(one.losses, more.losses);
    EXPECT_TRUE(one.params == more.params);
  }
}

TEST(CpuTraining, GivesTheSameBitsWhateverMemoryHeldAndHoweverItIsPlanned) {
  const Training wanted = train(cpu_with(2));
  for (const bool planned : {true, false})
    for (const float sentinel : {7e8f, -3e-9f}) {
      CpuOptions options;
      options.threads = 2;
      options.target.plan = planned;
      options.sentinel = sentinel;
      const Training other = train(Device(make_cpu_backend(options)));
      EXPECT_EQ(wanted.losses, other.losses) << planned << ' ' << sentinel;
      EXPECT_TRUE(wanted.params == other.params) << planned << ' ' << sentinel;
    }
}

TEST(CpuTraining, FollowsTheReference) {
  const Training wanted = train(Device::reference64());
  for (const bool fused : {true, false}) {
    const Training computed = train(cpu_with(2, fused));
    for (std::size_t i = 0; i < wanted.losses.size(); ++i)
      EXPECT_NEAR(computed.losses[i], wanted.losses[i], 2e-4) << fused;
  }
}

TEST(CpuProgram, SavedAndLoadedStepsGiveTheSameBits) {
  const test::TempFolder folder;
  Trainer trainer(Model{}, next_token_loss, on(cpu_with(2)));
  trainer.step(batch_of(0));
  Session& session = trainer.session();
  session.save_program(folder.path() / "step.jerboa");
  session.save(folder.path() / "checkpoint");

  Session loaded = Session::load_program(folder.path() / "step.jerboa", cpu_with(2));
  loaded.load(folder.path() / "checkpoint");
  for (int step = 1; step < 4; ++step) {
    const double wanted = trainer.step(batch_of(step)).loss();
    EXPECT_EQ(loaded.run("step ids:i32[3, 10] targets:i32[3, 10]", batch_of(step)).loss(), wanted);
  }
  EXPECT_TRUE(loaded.download_params() == session.download_params());
}

TEST(CpuProgram, RefusesDamagedFiles) {
  const test::TempFolder folder;
  Session session(cpu_with(1));
  session.add_entry("run", trace([] { output("y", softmax(tensor_input("x", {4, 5}))); }));
  const auto path = folder.path() / "run.jerboa";
  session.save_program(path);
  const std::string whole(MappedFile(path).text());
  for (const std::size_t length : {std::size_t{0}, std::size_t{7}, std::size_t{20}, whole.size() / 2}) {
    write_file_atomically(path, whole.substr(0, length));
    EXPECT_THROW(load_program(path), FileError) << length;
  }
  for (std::size_t at = 16; at < whole.size(); at += 5) {
    std::string damaged = whole;
    damaged[at] = damaged[at] == '9' ? '1' : '9';
    write_file_atomically(path, damaged);
    try {
      load_program(path);  // a change that still makes sense is no error
    } catch (const Error&) {
    }
  }
}

TEST(CpuProgram, ServesEveryLengthWithOneCompilation) {
  const Dim length = Dim::symbol("T", 40);
  Model model;
  assign_paths(model);
  const Graph graph = trace([&] { output("output", softmax(model(tensor_input("ids", {2, length}, DType::i32)))); });
  Session engine(cpu_with(2), {.seed = 1}), reference(Device::reference64(), {.seed = 1});
  engine.add_entry("run", graph);
  reference.add_entry("run", graph);
  for (const std::int64_t t : {1, 2, 7, 16, 33, 40, 3}) {
    const TensorMap inputs{{"ids", ids_of(2, t, 3)}};
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

TEST(CpuProgram, GivesTheOldVersionOfWhatItUpdatesInPlace) {
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
TEST(CpuProgram, KeepsWhatAKernelLoadedFromMemoryThatItWrites) {
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
  program.kernels = {kernel};
  program.dispatches = {{{{0, {0, 1}, "twice"}}}};
  Buffer state, old;
  state.where = Buffer::Where::storage;
  state.name = "state";
  state.elements = old.elements = size;
  state.bytes = old.bytes = size * 4;
  program.buffers = {state, old};
  program.arenas = {size * 4};
  program.outputs = {{"old", DType::f32, {size}, 1, 0, {1}}};
  const auto backend = make_cpu_backend();
  const auto storage = backend->allocate(DType::f32, {size});
  storage->upload(HostTensor({size}, std::vector<float>(size, 3)));
  const auto results = backend->load(program, [&](const std::string&) { return std::shared_ptr(storage); })
                           ->run({.inputs = {}, .symbols = {}, .captures = {}});
  EXPECT_TRUE(results->read("old") == HostTensor({size}, std::vector<float>(size, 3)));
  EXPECT_TRUE(storage->download() == HostTensor({size}, std::vector<float>(size, 6)));
}

// Fills so many elements of an activation that has four.
void fill_under_guard(std::int64_t count) {
  Instruction one;
  one.number = 1;
  KernelSpec kernel;
  kernel.domain = {count};
  kernel.body = {one};
  kernel.stores = {{0, DType::f32, {0, {1}}, 0}};
  kernel.bindings = 1;
  Program program;
  program.kernels = {kernel};
  program.dispatches = {{{{0, {0}, "ones"}}}};
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
      "dispatch 0 (ones) wrote memory that is not its own: byte 16 of the arena, where no buffer is");
  test::expect_error<GraphError>([] { fill_under_guard(3); }, "dispatch 0 (ones) did not write element 3 of four");
}

TEST(CpuProgram, ReportsMemoryAndTime) {
  Trainer trainer(Model{}, next_token_loss, on(cpu_with(1)));
  trainer.prepare(batch_of(0));
  const std::string entry = "step ids:i32[3, 10] targets:i32[3, 10]";
  const MemoryReport report = trainer.session().memory_report(entry);
  EXPECT_GT(report.activations, 0);
  EXPECT_GT(report.persistent,
            std::int64_t{16} * count_parameters(Model{}) - 1);  // parameters, gradients and two moments
  trainer.session().set_profiling(entry, true);
  trainer.step(batch_of(0));
  EXPECT_EQ(trainer.session().profile(entry).size(), static_cast<std::size_t>(trainer.session().kernel_count(entry)));
}

class PlanOf : public ::testing::Test {
 protected:
  Program program = lower(trace([] {
                            const Tensor x = tensor_input("x", {8, 16});
                            const Tensor a = matmul(x, x, {.transpose_b = true}), b = softmax(a), c = matmul(b, x);
                            output("y", sum(c * c, {0}));
                          }),
                          Target::cpu());
};

TEST_F(PlanOf, IsRefusedWhenBuffersInUseOverlap) {
  for (Buffer& buffer : program.buffers)
    if (buffer.where == Buffer::Where::arena) buffer.offset = 0;
  test::expect_error<GraphError>([&] { verify(program, Target::cpu()); }, "share memory while both are in use");
}

TEST_F(PlanOf, IsRefusedWhenSomethingIsReadBeforeItIsWritten) {
  std::reverse(program.dispatches.begin(), program.dispatches.end());
  test::expect_error<GraphError>([&] { verify(program, Target::cpu()); }, "before it is written");
}

TEST_F(PlanOf, IsRefusedOutsideItsArena) {
  program.arenas[0] = 0;
  test::expect_error<GraphError>([&] { verify(program, Target::cpu()); }, "outside its arena");
}

TEST_F(PlanOf, SharesMemoryBetweenLives) {
  std::int64_t apart = 0;
  for (const Buffer& buffer : program.buffers)
    if (buffer.where == Buffer::Where::arena) apart += buffer.bytes;
  EXPECT_LT(program.arenas[0], apart);
}

}  // namespace
}  // namespace jerboa
