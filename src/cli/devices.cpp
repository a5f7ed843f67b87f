#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include <jerboa/runtime/device.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/terminal.h"

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

nlohmann::ordered_json adapter_json(const AdapterInfo& adapter) {
  return {{"device", "webgpu"},
          {"name", adapter.name},
          {"kind", adapter.kind},
          {"driver", adapter.driver},
          {"f16", adapter.f16},
          {"subgroup_min", adapter.subgroup_min},
          {"subgroup_max", adapter.subgroup_max},
          {"subgroup_matrices", adapter.subgroup_matrices},
          {"timestamps", adapter.timestamps},
          {"max_buffer_bytes", adapter.max_buffer_bytes},
          {"max_binding_bytes", adapter.max_binding_bytes},
          {"max_bindings", adapter.max_bindings},
          {"workgroup_bytes", adapter.workgroup_bytes},
          {"max_invocations", adapter.max_invocations}};
}

void print_devices_json() {
  auto all = nlohmann::ordered_json::array({{{"device", "cpu"}, {"threads", std::thread::hardware_concurrency()}}});
  try {
    for (const AdapterInfo& adapter : webgpu_adapters()) all.push_back(adapter_json(adapter));
  } catch (const DeviceError& error) {
    all.push_back({{"device", "webgpu"}, {"error", error.what()}});
  }
  write_text(all.dump(1) + "\n");
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
  auto json = std::make_shared<bool>(false);
  auto* sub = app.add_subcommand(
      "devices", "List the available devices: the CPU, and WebGPU adapters with their features and limits");
  sub->add_flag("--json", *json, "Print JSON");
  add_examples(*sub, {"jerboa devices", "jerboa devices --json"});
  sub->callback([json] { *json ? print_devices_json() : run_devices(); });
}

}  // namespace jerboa::cli
