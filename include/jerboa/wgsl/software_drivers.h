#pragma once

#include <span>
#include <string_view>

namespace jerboa {

/// The names by which WebGPU drivers that run on the CPU identify themselves, in lower case.
std::span<const std::string_view> software_driver_names();

}  // namespace jerboa
