#include <charconv>
#include <fmt/format.h>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/runtime/session.h>

#include "runtime/session_state.h"
#include "runtime/stored_type.h"

// A checkpoint is one safetensors file: parameters under their own names, states behind a prefix.
namespace jerboa {
namespace {

constexpr std::string_view state_prefix = "jerboa.state/";
constexpr const char* format_name = "jerboa.checkpoint";

bool read_number(const std::string& text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

StoredType detail::stored_type(DType dtype) {
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

std::filesystem::path checkpoint_file(const std::filesystem::path& path) {
  return path.extension() == ".safetensors" ? path : path / "model.safetensors";
}

void Session::save(const std::filesystem::path& path) const {
  const std::lock_guard lock(*shared_->mutex);
  TensorMap tensors = download_params();
  for (const std::string& name : state_names()) tensors.emplace(std::string(state_prefix) + name, download_state(name));
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors)
    views.push_back({name, detail::stored_type(tensor.dtype()), tensor.shape(), tensor.bytes()});
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
  if (const auto found = stored.metadata().find("format");
      found == stored.metadata().end() || found->second != format_name)
    throw FileError(
        fmt::format("{}: not a checkpoint of a session; to take over parameters alone, read them and call "
                    "upload_params",
                    file.string()));
  std::uint64_t stored_seed = 0;
  const auto seed_text = stored.metadata().find("seed");
  if (seed_text == stored.metadata().end() || !read_number(seed_text->second, stored_seed))
    throw FileError(fmt::format("{}: its metadata has no seed", file.string()));

  std::map<std::string, HostTensor> loaded;
  std::vector<std::string> missing, unknown;
  std::set<std::string> wanted;
  const auto read = [&](const std::string& name, const std::string& stored_name) {
    wanted.insert(stored_name);
    if (!stored.contains(stored_name)) return missing.push_back(name);
    const TensorEntry& entry = stored.entry(stored_name);
    const Slot& slot = shared_->slots.at(name);
    if (entry.type != detail::stored_type(slot.type.dtype) || entry.shape != slot.sizes())
      throw FileError(fmt::format("{}: {} is {}{} but the session's is {}", file.string(), name, to_string(entry.type),
                                  to_string(Sizes(entry.shape)), to_string(slot.type)));
    HostTensor values(slot.type.dtype, entry.shape);
    stored.read(stored_name, values.bytes());
    loaded.emplace(name, std::move(values));
  };
  for (const std::string& name : param_names()) read(name, name);
  for (const std::string& name : state_names()) read(name, std::string(state_prefix) + name);
  for (const std::string& name : stored.names())
    if (!wanted.contains(name)) unknown.push_back(name);
  if (!missing.empty() || !unknown.empty())
    throw FileError(fmt::format("{}: does not fit the session: missing: {}; unknown: {}", file.string(),
                                detail::listed(missing), detail::listed(unknown)));
  shared_->seed = stored_seed;
  for (const auto& [name, slot] : shared_->slots) {
    if (const auto values = loaded.find(name); values != loaded.end())
      slot.memory->upload(values->second);
    else
      shared_->initialize(name, slot);  // a gradient
  }
}

}  // namespace jerboa
