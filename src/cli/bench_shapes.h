#pragma once

#include <string>
#include <vector>

#include <jerboa/models/config.h>

// Language models in the shapes of real ones, for benchmarks with random weights.
namespace jerboa::cli {

std::vector<std::string> shape_names();
/// The config of one of these models.
models::Config shape_config(const std::string& name);

}  // namespace jerboa::cli
