#include <gtest/gtest.h>

#include <jerboa/lower/program_file.h>

#include "runtime/regression.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"
#include "webgpu/library.h"

// Programs from files run on a device that checks every index, and which shares nothing with the unchecked one.
namespace jerboa::test {
namespace {

class ForeignPrograms : public testing::Test {
 protected:
  void SetUp() override {
    Session session(device, {.seed = 3});
    session.add_entry("step", regression_step());
    session.save_program(path);
    loss = session.step(regression_batch()).loss();
  }

  TempFolder folder;
  std::filesystem::path path = folder / "step.jerboa";
  Device device = Device::webgpu();
  double loss = 0;
};

TEST_F(ForeignPrograms, RunOnARobustDeviceOfTheirOwn) {
  Session loaded = Session::load_program(path, device, {.seed = 3});
  EXPECT_NE(&loaded.device().backend(), &device.backend());
  EXPECT_NE(webgpu_handles(loaded.device().backend()).device, webgpu_handles(device.backend()).device);
  EXPECT_EQ(loaded.step(regression_batch()).loss(), loss);
  // One such device for all files; a robust device serves as its own.
  const Session other = Session::load_program(path, device);
  EXPECT_EQ(&other.device().backend(), &loaded.device().backend());
  const Session again = Session::load_program(path, loaded.device());
  EXPECT_EQ(&again.device().backend(), &loaded.device().backend());
}

TEST_F(ForeignPrograms, MayShareARobustDeviceWithCompiledOnes) {
  const Device robust = Device::webgpu({.robust = true});
  Session loaded = Session::load_program(path, robust, {.seed = 3});
  EXPECT_EQ(&loaded.device().backend(), &robust.backend());
  loaded.add_entry("forward", regression_forward());
  EXPECT_EQ(loaded.step(regression_batch()).loss(), loss);
}

TEST_F(ForeignPrograms, AreRefusedByADeviceThatDoesNotCheck) {
  const Program program = load_program(path).entries[0].program;
  const FindStorage none = [](const std::string&) { return std::shared_ptr<DeviceTensor>(); };
  expect_error<UsageError>([&] { device.backend().load(program, none); },
                           "this program comes from a file, and this device runs only what this process compiled");
}

TEST_F(ForeignPrograms, ShareNoStorageWithOtherDevices) {
  Session fast(device);
  fast.add_entry("step", regression_step());
  const Program program = load_program(path).entries[0].program;
  const Device robust(device.backend().for_foreign_code());
  expect_error<UsageError>(
      [&] { robust.backend().load(program, [&](const std::string& name) { return fast.storage(name); }); },
      "is on another device; devices share no storage");
}

TEST_F(ForeignPrograms, NeedTheOwnersConfirmation) {
  const WebGpuHandles handles = webgpu_handles(device.backend());
  WebGpuOptions options;
  options.device = handles.device;
  options.instance = handles.instance;
  const Device taken = Device::webgpu(options);
  expect_error<UsageError>([&] { Session::load_program(path, taken); }, "if yours does, set WebGpuOptions::robust");
  options.robust = true;
  Session loaded = Session::load_program(path, Device::webgpu(options), {.seed = 3});
  EXPECT_EQ(loaded.step(regression_batch()).loss(), loss);
}

TEST_F(ForeignPrograms, AreRefusedWhereTheDeviceLacksWhatTheyNeed) {
  Target narrow = Target::webgpu_default();
  narrow.max_invocations = 1;
  narrow.workgroup_bytes = 0;
  const Device robust = Device::webgpu({.robust = true, .target = narrow});
  const std::string message = message_of<UsageError>([&] { Session::load_program(path, robust); });
  EXPECT_NE(message.find(" does not support what the program needs"), std::string::npos) << message;
  EXPECT_NE(message.find("threads of a workgroup of "), std::string::npos) << message;
  EXPECT_NE(message.find("(the device has 1)"), std::string::npos) << message;
}

}  // namespace
}  // namespace jerboa::test
