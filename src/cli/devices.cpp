#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <thread>

#include <jerboa/runtime/device.h>

#include "cli/commands.h"

namespace jerboa::cli {
namespace {

std::string megabytes(std::int64_t bytes) { return fmt::format("{} MiB", bytes >> 20); }

void print_adapter(const AdapterInfo& adapter) {
  std::string features = adapter.f16 ? "f16" : "no f16";
  if (adapter.subgroup_max > 0)
    features += adapter.subgroup_min == adapter.subgroup_max
                    ? fmt::format(", subgroups of {}", adapter.subgroup_max)
                    : fmt::format(", subgroups of {} to {}", adapter.subgroup_min, adapter.subgroup_max);
  if (adapter.subgroup_matrices) features += ", subgroup matrices";
  if (adapter.timestamps) features += ", timestamps";
  fmt::print("webgpu  {} ({}, {})\n", adapter.name, adapter.kind, adapter.driver);
  fmt::print("        {}\n", features);
  fmt::print(
      "        buffers of {}, bindings of {}, {} storage buffers per kernel, {} KiB of workgroup memory, {} threads "
      "per "
      "workgroup\n",
      megabytes(adapter.max_buffer_bytes), megabytes(adapter.max_binding_bytes), adapter.max_bindings,
      adapter.workgroup_bytes >> 10, adapter.max_invocations);
}

void run_devices() {
  fmt::print("cpu     {} threads\n", std::thread::hardware_concurrency());
  try {
    const auto adapters = webgpu_adapters();
    for (const AdapterInfo& adapter : adapters) print_adapter(adapter);
    if (adapters.empty()) fmt::print("webgpu  no adapter: install a Vulkan driver\n");
  } catch (const DeviceError& error) {
    fmt::print("webgpu  {}\n", error.what());
  }
  fmt::print("best    {}\n", Device::best().description());
}

}  // namespace

void add_devices(CLI::App& app) {
  app.add_subcommand("devices",
                     "List the available devices: the CPU, and WebGPU adapters with their features and limits")
      ->callback(run_devices);
}

}  // namespace jerboa::cli
