#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include <jerboa/lower/lower.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "runtime/regression.h"
#include "support/expect_error.h"
#include "support/small_gpt.h"
#include "support/temp_folder.h"
#include "webgpu/library.h"

// Deliberate device failures: shaders, memory, device loss, errors that no call expected.
namespace jerboa::test {
namespace {

Session regression_on(const Device& device) {
  Session session(device, {.seed = 3});
  session.add_entry("step", regression_step());
  return session;
}

Program program_for(const Backend& backend) {
  Program program = lower(trace([] { output("y", exp(tensor_input("x", {8}))); }), webgpu_target(backend));
  emit_wgsl(program, webgpu_target(backend));
  return program;
}

const FindStorage no_storage = [](const std::string&) { return std::shared_ptr<DeviceTensor>(); };

// Shaders

TEST(WebGpuShader, ThatDoesNotCompileIsToldWithItsNameLineAndText) {
  const Device device = Device::webgpu();
  Program program = program_for(device.backend());
  ASSERT_FALSE(program.gpu.shaders.empty());
  ShaderSource& shader = program.gpu.shaders[0];
  shader.name = "broken kernel";
  shader.source = "const fine = 1;\nconst wrong: f32 = no_such_name;\n" + shader.source;
  const std::string message = message_of<ShaderError>([&] { device.backend().load(program, no_storage); });
  for (const char* part : {"the kernel broken kernel does not compile: line 2", "no_such_name",
                           "\n  const wrong: f32 = no_such_name;\n", "The complete source:\nconst fine = 1;"})
    EXPECT_NE(message.find(part), std::string::npos) << part << "\nin: " << message;
  // The device still works.
  EXPECT_GT(regression_on(device).step(regression_batch()).loss(), 0);
}

TEST(WebGpuShader, ThatFitsNoPipelineIsToldWithItsName) {
  const Device device = Device::webgpu();
  Program program = program_for(device.backend());
  program.gpu.shaders[0].name = "headless kernel";
  program.gpu.shaders[0].source = "fn other() {}\n";
  const std::string message = message_of<ShaderError>([&] { device.backend().load(program, no_storage); });
  EXPECT_NE(message.find("the kernel headless kernel does not compile"), std::string::npos) << message;
  EXPECT_NE(message.find("fn other() {}"), std::string::npos) << message;
}

// Memory

TEST(WebGpuMemory, ATensorLargerThanTheDeviceAllowsIsNamed) {
  const Device device = Device::webgpu();
  const std::string message =
      message_of<OutOfMemoryError>([&] { device.backend().allocate(DType::f32, {std::int64_t{1} << 42}, "table"); });
  EXPECT_NE(message.find("table (f32[4398046511104]) takes 17592186044416 bytes"), std::string::npos) << message;
}

TEST(WebGpuMemory, ASessionThatFindsNoRoomNamesTheTensorAndTheTotalAndStaysAsItWas) {
  Session session(Device::webgpu());
  const std::string message = message_of<OutOfMemoryError>([&] {
    session.add_entry("run", trace([] {
                        const Tensor small = param_input("small", {1024});
                        output("y", sum(param_input("table", {std::int64_t{1} << 40})) + sum(small));
                      }));
  });
  EXPECT_NE(message.find("entry run: table (f32[1099511627776])"), std::string::npos) << message;
  EXPECT_NE(message.find("its parameters, gradients and states take 4398046515200 bytes in all"), std::string::npos)
      << message;
  EXPECT_TRUE(session.param_names().empty());
  session.add_entry("step", regression_step());
  EXPECT_GT(session.step(regression_batch()).loss(), 0);
}

TEST(WebGpuMemory, NamesTensorsThatTheDriverRefusesAndGoesOn) {
  const Device device = Device::webgpu();
  Session session = regression_on(device);
  refuse_buffers_above(device.backend(), 100'000);
  expect_error<OutOfMemoryError>(
      [&] {
        device.backend().allocate(DType::f16, {300, 200}, "table");
      },
      "is out of memory allocating table (f16[300, 200]) (120000 bytes)");
  expect_error<OutOfMemoryError>(
      [&] {
        session.add_entry("run", trace([] { output("y", sum(param_input("table", {200, 200}))); }));
      },
      "its parameters, gradients and states take 160000 bytes in all");
  EXPECT_EQ(session.param_names(), (std::vector<std::string>{"b", "w"}));
  EXPECT_GT(session.step(regression_batch()).loss(), 0);
}

TEST(WebGpuMemory, ActivationsWithoutRoomNameATensorAndThePlannedTotal) {
  const Device device = Device::webgpu();
  Session session(device);
  refuse_buffers_above(device.backend(), 100'000);
  const auto add = [&](const std::string& name, std::int64_t n) {
    session.add_entry(name, trace([&] {
                        const Tensor x = tensor_input("x", {n});
                        const Tensor table = capture(exp(reshape(x, {n, 1}) * reshape(x, {1, n})), "table");
                        output("y", sum(cumsum(table, -1)));
                      }));
  };
  const std::string message = message_of<OutOfMemoryError>([&] { add("large", 400); });
  EXPECT_NE(message.find("is out of memory allocating the memory of "), std::string::npos) << message;
  EXPECT_NE(message.find("activations are planned to take "), std::string::npos) << message;
  EXPECT_FALSE(session.has_entry("large"));
  add("small", 40);
  EXPECT_EQ(session.run("small", {{"x", HostTensor(DType::f32, {40})}}).get("y").item(), 40 * 41 / 2 * 40);
}

TEST(WebGpuMemory, ATensorThatNoKernelCanBindIsNamedWithTheLimitAndTheRemedy) {
  WebGpuOptions options;
  options.target = Target::webgpu_default();
  options.target->max_binding_bytes = 4096;
  Session session(Device::webgpu(options));
  const auto expect = [&](const std::function<void()>& build, const std::string& tensor) {
    const std::string message = message_of<UsageError>([&] { session.add_entry("run", trace(build)); });
    for (const std::string& part :
         {tensor, std::string(" bytes, too many for the device webgpu: it binds a tensor in parts of at most 4096 "),
          std::string("allows 8 of them in a kernel"), std::string("make it smaller")})
      EXPECT_NE(message.find(part), std::string::npos) << part << "\nin: " << message;
    EXPECT_TRUE(session.param_names().empty());
  };
  expect([] { output("y", sum(param_input("table", {200, 50}))); }, "table (f32[200, 50], faults_test.cpp:");
  // Three tensors of five parts each, in a shader that needs them all.
  expect(
      [] {
        const Tensor rows = param_input("rows", {5120}), updates = tensor_input("updates", {5120});
        output("y", scatter_add(rows, tensor_input("places", {5120}, DType::i32), updates, 0));
      },
      " takes 20480 bytes");
  session.add_entry("run", trace([] { output("y", sum(param_input("table", {100, 50}))); }));
  EXPECT_EQ(session.run("run", {}).get("y").item(), 0);
}

// In a separate process, which may use hardly more memory than it has once its device is open. SwiftShader reports when
// that is not enough; lavapipe does not.
constexpr const char* swiftshader = "/usr/lib/chromium/vk_swiftshader_icd.json";

void ask_for_more_than_there_is() {
  for (const char* variable : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}) setenv(variable, swiftshader, 1);
  Session session(Device::webgpu(), {.seed = 1});
  session.add_entry("step", regression_step());
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + (256 << 20);
  const rlimit limit{most, most};
  setrlimit(RLIMIT_AS, &limit);
  try {
    session.add_entry("run", trace([] { output("y", sum(param_input("table", {100 << 20}))); }));
  } catch (const OutOfMemoryError& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(session.step(regression_batch()).loss() > 0 && session.param_names().size() == 2 ? 3 : 4);
  }
  std::_Exit(5);
}

TEST(WebGpuMemory, RealDriverOutOfMemoryNamesTheTensor) {
  if (!std::filesystem::exists(swiftshader)) GTEST_SKIP() << "there is no " << swiftshader;
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(ask_for_more_than_there_is(), testing::ExitedWithCode(3),
              "entry run: SwiftShader.* is out of memory allocating table .f32.104857600.. .419430400 bytes.(.|\n)*its "
              "parameters, "
              "gradients and states take 419430400 bytes in all");
}

// The allocators of sanitizers end the process instead.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(WebGpuMemory, HostOutOfMemoryIsReportedAlike) {
  Session session(Device::cpu(1));
  expect_error<OutOfMemoryError>(
      [&] { session.add_entry("run", trace([] { output("y", sum(param_input("table", {std::int64_t{1} << 46}))); })); },
      "entry run: not enough host memory for table (f32[70368744177664]); its parameters, gradients and states take "
      "281474976710656 bytes in all");
  EXPECT_TRUE(session.param_names().empty());
}
#endif

// Loss

TEST(WebGpuLoss, IsThrownByEveryKindOfCallAndLeavesNothingBehind) {
  const Device device = Device::webgpu();
  Session session = regression_on(device);
  const Result read_before = session.step(regression_batch()), unread = session.step(regression_batch());
  const double loss = read_before.loss();
  force_device_loss(device.backend());
  for (int turn = 0; turn < 2; ++turn) {
    expect_error<DeviceLostError>([&] { session.step(regression_batch()); }, "is lost: a loss was requested");
    expect_error<DeviceLostError>(
        [&] {
          session.upload_params({{"b", HostTensor(DType::f32, {})}}, {.partial = true});
        },
        "make a new device and a new session on it");
    expect_error<DeviceLostError>([&] { session.download_param("w"); }, "is lost");
    expect_error<DeviceLostError>([&] { session.download_state("step"); }, "is lost");
    expect_error<DeviceLostError>([&] { unread.loss(); }, "is lost");
    expect_error<DeviceLostError>([&] { session.sibling().add_entry("forward", regression_forward()); }, "is lost");
    expect_error<DeviceLostError>([&] { Session(device).add_entry("step", regression_step()); }, "is lost");
    expect_error<DeviceLostError>([&] { session.reset(); }, "is lost");
    expect_error<DeviceLostError>([&] { session.set_profiling("step", true); }, "is lost");
    expect_error<DeviceLostError>([&] { session.save(TempFolder() / "checkpoint"); }, "is lost");
  }
  EXPECT_EQ(read_before.loss(), loss);
  EXPECT_NE(session.device().description().find("webgpu"), std::string::npos);
  // A device opened afterwards is a new one.
  EXPECT_EQ(regression_on(Device::webgpu()).step(regression_batch()).loss(),
            regression_on(Device::webgpu()).step(regression_batch()).loss());
}

TEST(WebGpuLoss, WhileAResultIsWaitedForIsThrownToo) {
  const Device device = Device::webgpu();
  Session session = regression_on(device);
  session.step(regression_batch()).loss();
  std::thread other([&] { force_device_loss(device.backend()); });
  try {
    for (;;) session.step(regression_batch()).loss();
  } catch (const DeviceLostError&) {
  }
  other.join();
}

// A training run that loses its device continues on a new one, with the same losses.
class WebGpuRecovery : public testing::Test {
 protected:
  static constexpr int steps = 6, lost_after = 3;

  // Runs the steps of a range; returns the losses.
  static std::vector<double> run(Trainer<SmallGpt>& trainer, int from, int to) {
    std::vector<double> losses;
    for (int step = from; step < to; ++step) losses.push_back(trainer.step(small_batch(step)).loss());
    return losses;
  }
  static void lose(Trainer<SmallGpt>& trainer) {
    force_device_loss(trainer.session().device().backend());
    EXPECT_THROW(trainer.step(small_batch(lost_after)), DeviceLostError);
  }
};

TEST_F(WebGpuRecovery, FromACheckpointOrHostCopiesGivesTheSameBits) {
  const TempFolder folder;
  Trainer<SmallGpt> whole = small_trainer(Device::webgpu());
  run(whole, 0, lost_after);
  const auto wanted = run(whole, lost_after, steps);
  const TensorMap params = whole.session().download_params();

  auto broken = std::make_unique<Trainer<SmallGpt>>(small_trainer(Device::webgpu()));
  run(*broken, 0, lost_after);
  broken->save(folder / "checkpoint");
  TensorMap host_params = broken->session().download_params(), host_states;
  for (const std::string& name : broken->session().state_names())
    host_states.emplace(name, broken->session().download_state(name));
  lose(*broken);
  broken.reset();

  Trainer<SmallGpt> loaded = small_trainer(Device::webgpu());
  loaded.prepare(small_batch(0));
  loaded.load(folder / "checkpoint");
  EXPECT_EQ(run(loaded, lost_after, steps), wanted);
  EXPECT_TRUE(loaded.session().download_params() == params);

  Trainer<SmallGpt> copied = small_trainer(Device::webgpu());
  copied.prepare(small_batch(0));
  copied.session().upload_params(host_params);
  for (const auto& [name, values] : host_states) copied.session().upload_state(name, values);
  EXPECT_EQ(run(copied, lost_after, steps), wanted);
  EXPECT_TRUE(copied.session().download_params() == params);
}

// Errors that no call expected

TEST(WebGpuErrors, AreThrownByTheNextCallAndNameTheDevice) {
  const Device device = Device::webgpu();
  Session session = regression_on(device);
  const double loss = session.step(regression_batch()).loss();
  const auto make_an_error = [&] {
    WGPUBufferDescriptor descriptor{};
    descriptor.label = webgpu::text("a buffer of no use");
    descriptor.size = 16;
    descriptor.usage = WGPUBufferUsage_MapRead | WGPUBufferUsage_Storage;
    const webgpu::Handle<WGPUBuffer> buffer{
        library().DeviceCreateBuffer(static_cast<WGPUDevice>(webgpu_handles(device.backend()).device), &descriptor),
        library().BufferRelease};
  };
  const std::string name = device.description().substr(8, device.description().find(" (") - 8);
  const auto expect = [&](const std::function<void()>& call) {
    make_an_error();
    const std::string message = message_of<DeviceError>(call);
    EXPECT_EQ(message.find("WebGPU on " + name), 0u) << message;
    EXPECT_NE(message.find("a buffer of no use"), std::string::npos) << message;
  };
  expect([&] { session.step(regression_batch()); });
  expect([&] { session.download_param("w"); });
  expect([&] { session.upload_params({{"b", HostTensor(DType::f32, {})}}, {.partial = true}); });
  expect([&] { Session(device).add_entry("step", regression_step()); });
  const Result unread = session.step(regression_batch());
  expect([&] { unread.loss(); });
  EXPECT_GT(unread.loss(), 0);  // reported once; the device keeps working
  session.reset();
  EXPECT_EQ(session.step(regression_batch()).loss(), loss);
}

// Misuse

TEST(WebGpuMisuse, IsReportedInTheCallersTerms) {
  const Device device = Device::webgpu();
  const Program for_cpu = lower(trace([] { output("y", exp(tensor_input("x", {8}))); }), Target::cpu());
  expect_error<UsageError>([&] { device.backend().load(for_cpu, no_storage); },
                           "this program was compiled for the CPU; compile it for WebGPU");
  const TempFolder folder;
  Session on_cpu(Device::cpu(1));
  on_cpu.add_entry("run", regression_forward());
  on_cpu.save_program(folder / "run.jerboa");
  expect_error<UsageError>([&] { Session::load_program(folder / "run.jerboa", device); },
                           "is a program for the device cpu, not webgpu");
  const std::string message = message_of<DeviceError>([] { Device::webgpu({.adapter = "no such adapter"}); });
  EXPECT_EQ(message.find("no WebGPU adapter is named no such adapter; available: "), 0u) << message;
  expect_error<DeviceError>([] { Device::by_name("webgpu:no such adapter"); }, "available: ");
  expect_error<DeviceError>([] { Device::webgpu({.library = "/no/such/libwebgpu_dawn.so"}); },
                            "/no/such/libwebgpu_dawn.so");
  expect_error<UsageError>([] { webgpu_handles(Device::cpu(1).backend()); }, "the device cpu is not a WebGPU device");
  expect_error<UsageError>([&] { webgpu_buffer(*on_cpu.storage("w")); }, "this tensor is not on a WebGPU device");
  expect_error<UsageError>([&] { on_cpu.storage("v"); }, "no parameter or state is named v; available: b, w");
}

TEST(WebGpuMisuse, AGpuIsAskedForWhereOnlyADriverOnTheCpuIs) {
  const auto adapters = webgpu_adapters();
  const bool gpu =
      std::any_of(adapters.begin(), adapters.end(), [](const AdapterInfo& adapter) { return adapter.kind != "CPU"; });
  EXPECT_EQ(Device::best().name(), gpu ? "webgpu" : "cpu");
  if (!gpu)
    expect_error<DeviceError>([] { Device::webgpu({.software = false}); },
                              "WebGPU finds no GPU adapter, only software drivers");
}

// In a separate process, in which the Vulkan loader finds no drivers.
void open_without_a_driver() {
  for (const char* variable : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}) setenv(variable, "/no/such/driver.json", 1);
  try {
    Device::webgpu();
  } catch (const DeviceError& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(Device::best().name() == "cpu" && webgpu_adapters().empty() ? 3 : 4);
  }
  std::_Exit(5);
}

TEST(WebGpuMisuse, WithoutADriverSaysWhatIsMissingAndTheBestDeviceIsTheCpu) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(open_without_a_driver(), testing::ExitedWithCode(3), "WebGPU finds no adapter.*install a Vulkan driver");
}

}  // namespace
}  // namespace jerboa::test
