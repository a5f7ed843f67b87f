#include <gtest/gtest.h>

#include "runtime/regression.h"
#include "support/expect_error.h"
#include "webgpu/library.h"

// Devices created by other code, and access of other WebGPU code to our objects.
namespace jerboa::test {
namespace {

using webgpu::Handle;

void wait(WGPUInstance instance, WGPUFuture future) {
  WGPUFutureWaitInfo info{future, 0};
  while (library().InstanceWaitAny(instance, 1, &info, 0) == WGPUWaitStatus_TimedOut) {
  }
}

// A device created by other code: with default limits, and perhaps on an instance that cannot sleep while it waits.
struct OtherCode {
  explicit OtherCode(bool timed_waits) {
    const auto& dawn = library();
    const WGPUInstanceFeatureName feature = WGPUInstanceFeatureName_TimedWaitAny;
    WGPUInstanceDescriptor descriptor{};
    descriptor.requiredFeatureCount = timed_waits ? 1 : 0;
    descriptor.requiredFeatures = &feature;
    instance = {dawn.CreateInstance(&descriptor), dawn.InstanceRelease};
    WGPUAdapter found = nullptr;
    WGPURequestAdapterCallbackInfo on_adapter{};
    on_adapter.mode = WGPUCallbackMode_WaitAnyOnly;
    on_adapter.userdata1 = &found;
    on_adapter.callback = [](WGPURequestAdapterStatus, WGPUAdapter given, WGPUStringView, void* to, void*) {
      *static_cast<WGPUAdapter*>(to) = given;
    };
    WGPURequestAdapterOptions options{};
    options.featureLevel = WGPUFeatureLevel_Core;
    wait(instance, dawn.InstanceRequestAdapter(instance, &options, on_adapter));
    adapter = {found, dawn.AdapterRelease};
    if (found == nullptr) throw DeviceError("no adapter");
    WGPUDevice made = nullptr;
    WGPUDeviceDescriptor wanted{};
    wanted.uncapturedErrorCallbackInfo.userdata1 = &errors;
    wanted.uncapturedErrorCallbackInfo.callback = [](WGPUDevice const*, WGPUErrorType, WGPUStringView message, void* to,
                                                     void*) {
      static_cast<std::vector<std::string>*>(to)->push_back(webgpu::text(message));
    };
    WGPURequestDeviceCallbackInfo on_device{};
    on_device.mode = WGPUCallbackMode_WaitAnyOnly;
    on_device.userdata1 = &made;
    on_device.callback = [](WGPURequestDeviceStatus, WGPUDevice given, WGPUStringView, void* to, void*) {
      *static_cast<WGPUDevice*>(to) = given;
    };
    wait(instance, dawn.AdapterRequestDevice(adapter, &wanted, on_device));
    device = {made, dawn.DeviceRelease};
    if (made == nullptr) throw DeviceError("no device");
  }
  Device as_device() const {
    return Device::webgpu({.device = static_cast<WGPUDevice>(device), .instance = static_cast<WGPUInstance>(instance)});
  }

  std::vector<std::string> errors;
  Handle<WGPUInstance> instance;
  Handle<WGPUAdapter> adapter;
  Handle<WGPUDevice> device;
};

double first_loss(const Device& device) {
  Session session(device, {.seed = 1});
  session.add_entry("step", regression_step());
  return session.step(regression_batch()).loss();
}

TEST(WebGpuHandles, AnExternalDeviceTrainsLikeOurOwn) {
  for (const bool timed_waits : {true, false}) {
    const OtherCode other(timed_waits);
    EXPECT_EQ(first_loss(other.as_device()), first_loss(Device::webgpu()));
    EXPECT_EQ(first_loss(other.as_device()), first_loss(other.as_device()));  // it outlives the sessions on it
    EXPECT_TRUE(other.errors.empty()) << other.errors[0];
  }
}

TEST(WebGpuHandles, ADeviceOfOthersStaysAsLongAsASessionUsesIt) {
  auto other = std::make_unique<OtherCode>(true);
  const Device device = other->as_device();
  const auto errors = std::make_unique<std::vector<std::string>>();
  {
    other->device = {};
    other->instance = {};
    EXPECT_EQ(first_loss(device), first_loss(Device::webgpu()));
  }
}

TEST(WebGpuHandles, TheLossOfADeviceOfOthersIsSeen) {
  const OtherCode other(true);
  Session session(other.as_device(), {.seed = 1});
  session.add_entry("step", regression_step());
  const Result unread = session.step(regression_batch());
  force_device_loss(session.device().backend());
  expect_error<DeviceLostError>([&] { unread.loss(); }, "is lost");
  expect_error<DeviceLostError>([&] { session.step(regression_batch()); }, "is lost");
  expect_error<DeviceLostError>([&] { session.download_param("w"); }, "is lost");
}

TEST(WebGpuHandles, ADeviceNeedsItsInstance) {
  const OtherCode other(true);
  expect_error<UsageError>([&] { Device::webgpu({.device = static_cast<WGPUDevice>(other.device)}); },
                           "needs the instance it was created from");
}

// Other code writes a parameter by a copy on the device, and reads it back the same way.
TEST(WebGpuHandles, OtherCodeReadsAndWritesParameters) {
  const auto& dawn = library();
  Session session(Device::webgpu(), {.seed = 1});
  session.add_entry("forward", regression_forward());
  const WebGpuHandles handles = webgpu_handles(session.device().backend());
  auto* const device = static_cast<WGPUDevice>(handles.device);
  auto* const queue = static_cast<WGPUQueue>(handles.queue);
  const WebGpuBuffer weights = webgpu_buffer(*session.storage("w"));
  const HostTensor before = session.download_param("w");
  {
    const std::scoped_lock lock(*handles.mutex);
    const float values[] = {10, 20, 30};
    WGPUBufferDescriptor descriptor{};
    descriptor.size = sizeof(values);
    descriptor.usage = WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst;
    const Handle<WGPUBuffer> handle{dawn.DeviceCreateBuffer(device, &descriptor), dawn.BufferRelease};
    dawn.QueueWriteBuffer(queue, handle, 0, values, sizeof(values));
    const Handle<WGPUCommandEncoder> encoder{dawn.DeviceCreateCommandEncoder(device, nullptr),
                                             dawn.CommandEncoderRelease};
    dawn.CommandEncoderCopyBufferToBuffer(encoder, handle, 0, static_cast<WGPUBuffer>(weights.buffer),
                                          static_cast<std::uint64_t>(weights.offset), sizeof(values));
    const Handle<WGPUCommandBuffer> commands{dawn.CommandEncoderFinish(encoder, nullptr), dawn.CommandBufferRelease};
    WGPUCommandBuffer list = commands;
    dawn.QueueSubmit(queue, 1, &list);
  }
  EXPECT_NE(session.download_param("w"), before);
  EXPECT_EQ(session.download_param("w"), HostTensor({3}, {10, 20, 30}));
  const HostTensor y = session.run("forward", {{"x", HostTensor({2, 3}, {1, 0, 0, 1, 1, 1})}}).get("output");
  EXPECT_EQ(y, HostTensor({2}, {10, 60}));
}

// A reference held by other code outlives all our objects.
TEST(WebGpuHandles, OtherCodeMayKeepTheDevice) {
  const auto& dawn = library();
  Handle<WGPUDevice> kept;
  {
    const Device device = Device::webgpu();
    auto* const handle = static_cast<WGPUDevice>(webgpu_handles(device.backend()).device);
    dawn.DeviceAddRef(handle);
    kept = {handle, dawn.DeviceRelease};
    EXPECT_EQ(first_loss(device), first_loss(device));
  }
  WGPUBufferDescriptor wrong{};
  wrong.size = 16;
  wrong.usage = WGPUBufferUsage_MapRead | WGPUBufferUsage_Storage;
  const Handle<WGPUBuffer> buffer{dawn.DeviceCreateBuffer(kept, &wrong), dawn.BufferRelease};
}

// Static objects are destroyed after drivers have cleaned up.
TEST(WebGpuProcess, EndsWithDevicesInStaticObjects) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        static std::vector<Session> sessions;
        sessions.emplace_back(Device::webgpu());
        sessions.back().add_entry("step", regression_step());
        sessions.back().step(regression_batch());
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace jerboa::test
