#pragma once

#include <filesystem>
#include <string>

#include <jerboa/io/safetensors.h>
#include <jerboa/models/family.h>
#include <jerboa/runtime/device.h>

namespace jerboa {

/// A small model with results that another program computed, and the device to compare with them.
struct GoldenFolder {
  GoldenFolder(const std::filesystem::path& folder, Device where);

  /// Throws FileError, for goldens that would pass whatever the engine computes.
  [[noreturn]] void refuse(const std::string& problem) const;
  /// Checks the weights against config.json before anything is allocated for the graph.
  void check(const Graph& graph) const;
  /// A tensor of the goldens, which must be [batch, time].
  HostTensor integers(const std::string& name) const;

  SafeTensors goldens;
  models::Config config;
  const models::Family& family;
  SafeTensors weights;
  Device device;
};

}  // namespace jerboa
