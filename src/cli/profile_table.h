#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include <jerboa/runtime/device.h>
#include <jerboa/runtime/session.h>

namespace jerboa::cli {

/// The rates that a device reaches on pure arithmetic or copying, per second; 0: not measured.
struct Ceilings {
  double f32_operations = 0;  ///< a large f32 product
  double f16_operations = 0;  ///< a large f16 product; 0 if the device does not support it
  double bytes = 0;           ///< a large copy, reads and writes together

  std::string str() const;
  /// In TFLOP/s and TB/s; those that were not measured are left out.
  nlohmann::ordered_json json() const;
};

/// Measured by the device's own clock, with the kernels that any graph gets, after the device has warmed up. GPUs only.
Ceilings measure_ceilings(const Device& device);

/// A table of a profile's kernels, slowest first, with their rates and the larger of their fractions of the arithmetic
/// and memory ceilings. `by_label`: kernels of one kind get separate rows if their labels differ in more than a layer's
/// number.
std::string profile_table(const std::vector<KernelTime>& times, const Ceilings& ceilings, bool by_label);
/// The same as a list of objects, without the rates that are unknown.
nlohmann::ordered_json profile_json(const std::vector<KernelTime>& times, const Ceilings& ceilings, bool by_label);

}  // namespace jerboa::cli
