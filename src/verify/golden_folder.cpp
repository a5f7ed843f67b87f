#include "verify/golden_folder.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>

namespace jerboa {

GoldenFolder::GoldenFolder(const std::filesystem::path& folder, Device where)
    : goldens(SafeTensors::open(folder / "golden.safetensors")),
      config(models::Config::open(folder)),
      family(models::family_of(config)),
      weights(SafeTensors::open(folder)),
      device(std::move(where)) {
  models::check_layers(weights, config, family);
}

void GoldenFolder::refuse(const std::string& problem) const {
  throw FileError(fmt::format("{}: {}", goldens.path().string(), problem));
}

void GoldenFolder::check(const Graph& graph) const { models::check_params(weights, graph, family); }

HostTensor GoldenFolder::integers(const std::string& name) const {
  const TensorView& view = goldens.view(name);
  if (view.shape.size() != 2) refuse(name + " is not [batch, time]");
  return {view.shape, to_i32(view)};
}

}  // namespace jerboa
