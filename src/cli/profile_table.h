#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include <jerboa/runtime/device.h>
#include <jerboa/runtime/session.h>

namespace jerboa::cli {

/// The rates that a device reaches on work that does nothing else, per second; 0: not measured.
struct Ceilings {
  double f32_operations = 0;  ///< a large product of f32
  double f16_operations = 0;  ///< the same of f16; 0 where the device has none
  double bytes = 0;           ///< a large copy, read and written

  std::string str() const;
  /// In TFLOP/s and TB/s; those that were not measured are left out.
  nlohmann::ordered_json json() const;
};

/// Measured on the device's own clock by the kernels that any graph gets, after the device has warmed up. Only on GPUs.
Ceilings measure_ceilings(const Device& device);

/// A table of a profile's kernels, those that take longest first, with their rates, and the larger of their shares of
/// the ceilings for arithmetic and for memory. `by_label`: kernels of one kind whose labels differ in more than the
/// number of a layer are separate rows.
std::string profile_table(const std::vector<KernelTime>& times, const Ceilings& ceilings, bool by_label);
/// The same as a list of objects, without the rates that are unknown.
nlohmann::ordered_json profile_json(const std::vector<KernelTime>& times, const Ceilings& ceilings, bool by_label);

}  // namespace jerboa::cli
