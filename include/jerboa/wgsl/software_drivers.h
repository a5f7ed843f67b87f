#pragma once

#include <span>
#include <string_view>

namespace jerboa {

/// What WebGPU drivers that run on the CPU call themselves, in lower case.
std::span<const std::string_view> software_driver_names();

}  // namespace jerboa
