#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/runtime/session.h>

#include "runtime/session_state.h"

// A checkpoint is one safetensors file: parameters under their own names, states behind a prefix.
namespace jerboa {
namespace {

constexpr std::string_view state_prefix = "jerboa.state/";
constexpr const char* format_name = "jerboa.checkpoint";

StoredType stored_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return StoredType::F32;
    case DType::f16: return StoredType::F16;
    case DType::bf16: return StoredType::BF16;
    case DType::i32: return StoredType::I32;
    case DType::u32:
    case DType::boolean: return StoredType::U32;
    case DType::i8:
    case DType::i4: break;
  }
  throw UsageError(fmt::format("a checkpoint cannot hold {} tensors", name(dtype)));
}

}  // namespace

std::filesystem::path checkpoint_file(const std::filesystem::path& path) {
  return path.extension() == ".safetensors" ? path : path / "model.safetensors";
}

void Session::save(const std::filesystem::path& path) const {
  const std::lock_guard lock(*shared_->mutex);
  TensorMap tensors = download_params();
  for (const std::string& name : state_names()) tensors.emplace(std::string(state_prefix) + name, download_state(name));
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors)
    views.push_back({name, stored_type(tensor.dtype()), tensor.shape(), tensor.bytes()});
  const auto file = checkpoint_file(path);
  if (file.has_parent_path()) {
    std::error_code error;
    std::filesystem::create_directories(file.parent_path(), error);
    if (error) throw FileError(fmt::format("{}: {}", file.parent_path().string(), error.message()));
  }
  write_safetensors(file, views, {{"format", format_name}, {"seed", std::to_string(seed())}});
}

void Session::load(const std::filesystem::path& path) {
  const std::lock_guard lock(*shared_->mutex);
  const auto file = checkpoint_file(path);
  const SafeTensors stored = SafeTensors::open(file);
  if (const auto found = stored.metadata().find("format"); found == stored.metadata().end() || found->second != format_name)
    throw FileError(fmt::format("{}: not a checkpoint of a session; to take over parameters alone, read them and call "
                                "upload_params",
                                file.string()));
  TensorMap params, states;
  std::vector<std::string> missing, unknown;
  const auto read = [&](const std::string& name, const std::string& stored_name, const HostTensor& now) {
    if (!stored.contains(stored_name)) {
      missing.push_back(name);
      return now;
    }
    const TensorView& view = stored.view(stored_name);
    if (view.type != stored_type(now.dtype()) || view.shape != now.shape())
      throw FileError(fmt::format("{}: {} is {}{} but the session's is {}{}", file.string(), name, to_string(view.type),
                                  to_string(Sizes(view.shape)), jerboa::name(now.dtype()), to_string(now.shape())));
    HostTensor values(now.dtype(), now.shape());
    std::copy(view.bytes.begin(), view.bytes.end(), values.bytes().begin());
    return values;
  };
  for (const std::string& name : param_names()) params.emplace(name, read(name, name, download_param(name)));
  for (const std::string& name : state_names())
    states.emplace(name, read(name, std::string(state_prefix) + name, download_state(name)));
  for (const std::string& name : stored.names()) {
    const bool is_state = name.starts_with(state_prefix);
    const bool known = is_state ? states.contains(name.substr(state_prefix.size())) : params.contains(name);
    if (!known) unknown.push_back(name);
  }
  if (!missing.empty() || !unknown.empty())
    throw FileError(fmt::format("{}: does not fit the session: missing: {}; unknown: {}", file.string(),
                                detail::listed(missing), detail::listed(unknown)));
  upload_params(params);
  for (const auto& [name, values] : states) upload_state(name, values);
}

}  // namespace jerboa
