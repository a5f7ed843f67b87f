#include "verify/golden_folder.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>

namespace jerboa {

GoldenFolder::GoldenFolder(const std::filesystem::path& folder, Device where)
    : goldens(SafeTensors::open(folder / "golden.safetensors")),
      config(models::Config::open(folder)),
      family(models::family_of(config)),
      weights(SafeTensors::open(folder)),
      device(std::move(where)) {}

void GoldenFolder::refuse(const std::string& problem) const {
  throw FileError(fmt::format("{}: {}", goldens.path().string(), problem));
}

HostTensor GoldenFolder::integers(const std::string& name) const {
  const TensorView& view = goldens.view(name);
  if (view.shape.size() != 2) refuse(name + " is not [batch, time]");
  return {view.shape, to_i32(view)};
}

}  // namespace jerboa
