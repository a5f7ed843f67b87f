#include <gtest/gtest.h>

#include <jerboa/frontend/compile.h>
#include <jerboa/lower/lower.h>

#include "runtime/regression.h"
#include "support/small_gpt.h"
#include "support/temp_folder.h"

// Parameters and moments that one dispatch updates are pooled; sessions, siblings and other programs over the same
// storage are not affected.
namespace jerboa::test {
namespace {

Device webgpu_pooled(bool pooled, std::optional<float> sentinel = {}) {
  WebGpuOptions options;
  options.sentinel = sentinel;
  Target target = webgpu_target(Device::webgpu().backend());
  target.pool_updates = pooled;
  options.target = target;
  return Device::webgpu(options);
}

bool share_memory(const Session& session, const std::string& a, const std::string& b) {
  return webgpu_buffer(*session.storage(a)).buffer == webgpu_buffer(*session.storage(b)).buffer;
}

TEST(WebGpuPool, FollowsTheSameWayAsUpdatesOneByOne) {
  const SmallTraining wanted = small_training(webgpu_pooled(false));
  for (const float sentinel : {7e8f, -3e-9f}) {
    const SmallTraining pooled = small_training(webgpu_pooled(true, sentinel));
    for (std::size_t i = 0; i < wanted.losses.size(); ++i) EXPECT_NEAR(pooled.losses[i], wanted.losses[i], 1e-5);
  }
}

Graph small_step_graph(const Optimizer& optimizer) {
  SmallGpt model;
  assign_paths(model);
  return training_graph(
      {{"ids", {3, 10}, DType::i32}, {"targets", {3, 10}, DType::i32}},
      [&](const Inputs& in) { return mean(cross_entropy(model(in["ids"]), in["targets"])); }, optimizer);
}

// Whether a buffer holds parameters or moments, not gradients.
bool is_updated(const Program& program, int number) {
  const Buffer& buffer = program.buffers[static_cast<std::size_t>(number)];
  if (buffer.where == Buffer::Where::storage) return !buffer.name.starts_with(gradient_prefix);
  return buffer.where == Buffer::Where::pool &&
         std::any_of(program.buffers.begin(), program.buffers.end(), [&](const Buffer& member) {
           return member.within == number && !member.name.starts_with(gradient_prefix);
         });
}

TEST(WebGpuPool, UpdatesManyParametersInOneKernel) {
  const auto updates = [](bool pooled) {
    Target target = Target::webgpu_default();
    target.pool_updates = pooled;
    const Program program = lower(small_step_graph(Adam{.lr = 1e-3}), target);
    int count = 0;
    for (const Dispatch& dispatch : program.cpu.dispatches)
      for (const Dispatch::Part& part : dispatch.parts) {
        const auto written = written_bindings(program.cpu.kernels[static_cast<std::size_t>(part.kernel)]);
        bool is_update = false;
        for (std::size_t i = 0; i < written.size(); ++i)
          is_update = is_update || (written[i] && is_updated(program, part.buffers[i]));
        count += is_update ? 1 : 0;
      }
    return count;
  };
  EXPECT_LT(updates(true) + 15, updates(false));
}

Graph clipped_step() { return small_step_graph(Adam{.lr = 1e-3, .clip_norm = 1}); }
// Decays some parameters and not others, which makes two pooled updates.
Graph decaying_step() { return small_step_graph(AdamW{.lr = 1e-3, .weight_decay = 0.1}); }

// Reads one parameter and writes another in one kernel, so they must not share a buffer.
Graph mixing_step() {
  return trace([] {
    const Tensor a = param_input("blocks.0.up.bias", {48}), b = param_input("blocks.1.up.bias", {48});
    update(b, b + 0.5 * a + 0.25);
    output("loss", sum(a));
  });
}

// Calls the argument with a session on the device, and returns everything that the session stores.
template <class Work>
TensorMap after(const Device& device, const Work& work) {
  Session session(device, {.seed = 3});
  work(session);
  return everything(session);
}

void expect_near(const TensorMap& computed, const TensorMap& wanted) {
  ASSERT_EQ(computed.size(), wanted.size());
  for (const auto& [name, values] : wanted)
    for (std::int64_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(computed.at(name).number(i), values.number(i), 2e-4) << name << " " << i;
}

// Entries that need the storage in different layouts, alternating.
TEST(WebGpuPool, ServesProgramsThatDisagree) {
  const auto work = [](Session& session) {
    session.add_entry("forward", small_forward_of_any_length());
    session.run("forward", {{"ids", small_ids(2, 7, 0)}});
    session.add_entry("decaying", decaying_step());
    session.add_entry("clipped", clipped_step());
    session.add_entry("mixing", mixing_step());
    for (int step = 0; step < 3; ++step) {
      session.run("clipped", small_batch(step)).get("loss");
      session.run("decaying", small_batch(step)).get("loss");
      session.run("forward", {{"ids", small_ids(2, 7, 0)}});
      session.run("mixing", {}).get("loss");
      session.run("decaying", small_batch(step)).get("loss");
    }
  };
  expect_near(after(Device::webgpu(), work), after(Device::reference(), work));
}

TEST(WebGpuPool, MovesWhatWasThereBefore) {
  Session session(Device::webgpu(), {.seed = 3});
  session.add_entry("forward", small_forward_of_any_length());
  const TensorMap inputs{{"ids", small_ids(2, 7, 0)}};
  const HostTensor wanted = session.run("forward", inputs).get("output");
  EXPECT_FALSE(share_memory(session, "blocks.0.qkv.weight", "blocks.1.qkv.weight"));
  const TensorMap before = session.download_params();
  session.add_entry("step", clipped_step());
  EXPECT_TRUE(share_memory(session, "blocks.0.qkv.weight", "blocks.1.qkv.weight"));
  EXPECT_TRUE(session.download_params() == before);
  EXPECT_EQ(session.run("forward", inputs).get("output"), wanted);
}

TEST(WebGpuPool, KeepsCheckpointsAndUploads) {
  const TempFolder folder;
  auto trainer = small_trainer(Device::webgpu());
  trainer.step(small_batch(0));
  trainer.save(folder / "checkpoint");
  const TensorMap saved = trainer.session().download_params();
  trainer.step(small_batch(1));
  const TensorMap next = everything(trainer.session());
  EXPECT_FALSE(trainer.session().download_params() == saved);
  trainer.load(folder / "checkpoint");
  EXPECT_TRUE(trainer.session().download_params() == saved);
  trainer.step(small_batch(1));
  EXPECT_TRUE(everything(trainer.session()) == next);
}

// Gradients that are accumulated over several runs and then used by one pooled update.
TEST(WebGpuPool, HoldsAccumulatedGradients) {
  const auto train = [](const Device& device) {
    Trainer trainer(SmallGpt{}, next_token_loss,
                    {.optimizer = Adam{.lr = 1e-3, .clip_norm = 1}, .device = device, .seed = 5, .accumulate = 2});
    for (int step = 0; step < 6; ++step) trainer.step(small_batch(step));
    return everything(trainer.session());
  };
  expect_near(train(Device::webgpu()), train(Device::reference()));
}

// Memory next to a moment stays unchanged when moments are set to zero.
TEST(WebGpuPool, ClearsTheStatesThatAreResetAndNothingElse) {
  Session session(Device::webgpu(), {.seed = 3});
  session.add_entry("step", clipped_step());
  session.run("step", small_batch(0)).get("loss");
  const TensorMap params = session.download_params();
  session.reset_optimizer_state();
  EXPECT_TRUE(session.download_params() == params);
  for (const std::string& name : session.state_names()) {
    if (name == random_state) continue;
    const HostTensor state = session.download_state(name);
    for (std::int64_t i = 0; i < state.size(); ++i) ASSERT_EQ(state.number(i), 0) << name << " " << i;
  }
}

}  // namespace
}  // namespace jerboa::test
