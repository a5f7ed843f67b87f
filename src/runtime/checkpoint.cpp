#include <charconv>
#include <fmt/format.h>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/runtime/session.h>
#include <jerboa/transform/half_copies.h>
#include <jerboa/transform/optimizer.h>

#include "compile/stored_type.h"
#include "runtime/session_state.h"

// A checkpoint is one safetensors file: parameters under their own names, states with a prefix.
namespace jerboa {
namespace {

constexpr std::string_view state_prefix = stored_state_prefix;
constexpr const char* format_name = "jerboa.checkpoint";

bool read_number(const std::string& text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::string stored_name(const std::string& name, bool is_param) {
  return is_param ? name : std::string(state_prefix) + name;
}

}  // namespace

std::filesystem::path checkpoint_file(const std::filesystem::path& path) {
  return path.extension() == ".safetensors" ? path : path / "model.safetensors";
}

void Session::save(const std::filesystem::path& path) const {
  const std::lock_guard lock(*shared_->mutex);
  TensorMap tensors = download_params();
  for (const std::string& name : state_names()) tensors.emplace(stored_name(name, false), download_state(name));
  if (tensors.empty() && shared_->waiting.empty())
    throw UsageError("save: the session has no parameters or states to save; add the entries that declare them first");
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors)
    views.push_back({name, detail::stored_type(tensor.dtype()), tensor.shape(), tensor.bytes()});
  for (const auto& [name, waiting] : shared_->waiting)
    views.push_back({stored_name(name, waiting.is_param), waiting.type, waiting.shape, waiting.bytes});
  const auto file = checkpoint_file(path);
  if (file.has_parent_path()) {
    std::error_code error;
    std::filesystem::create_directories(file.parent_path(), error);
    if (error) throw FileError(fmt::format("{}: {}", file.parent_path().string(), error.message()));
  }
  write_safetensors(file, views, {{"format", format_name}, {"seed", std::to_string(seed())}});
}

namespace {

// The file, and the seed in it.
std::pair<SafeTensors, std::uint64_t> open_checkpoint(const std::filesystem::path& file) {
  SafeTensors stored = SafeTensors::open(file);
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

  return {std::move(stored), stored_seed};
}

// Whether a state belongs to an optimizer: a step counter, or a state of one of the parameters.
bool is_optimizer_state(const std::string& name, const std::set<std::string>& params) {
  return is_step_counter(name) ||
         state_owner(name, [&](const std::string& param) { return params.contains(param); }).has_value();
}

std::set<std::string> optimizer_states(const std::vector<std::string>& states, const std::set<std::string>& params) {
  std::set<std::string> found;
  for (const std::string& name : states)
    if (is_optimizer_state(name, params)) found.insert(name);
  return found;
}

}  // namespace

std::vector<std::string> checkpoint_params(const std::filesystem::path& path) {
  std::vector<std::string> params;
  for (const std::string& name : open_checkpoint(checkpoint_file(path)).first.names())
    if (!name.starts_with(state_prefix)) params.push_back(name);
  return params;
}

LoadReport Session::load(const std::filesystem::path& path, LoadOptions options) {
  const std::lock_guard lock(*shared_->mutex);
  const auto file = checkpoint_file(path);
  const auto opened = open_checkpoint(file);
  const SafeTensors& stored = opened.first;
  std::vector<std::string> stored_states;
  std::set<std::string> stored_params;
  for (const std::string& name : stored.names()) {
    if (name.starts_with(state_prefix))
      stored_states.push_back(name.substr(state_prefix.size()));
    else
      stored_params.insert(name);
  }
  // Restoring only some of an optimizer's states would be worse than restoring none.
  const bool other_optimizer = options.across_optimizers && optimizer_states(stored_states, stored_params) !=
                                                                optimizer_states(state_names(), stored_params);
  const auto is_left_out = [&](const std::string& state) {
    return other_optimizer && is_optimizer_state(state, stored_params);
  };

  LoadReport report;
  std::vector<std::string> missing, unknown;
  std::set<std::string> expected;
  const auto take = [&](const std::string& name, bool is_param) {
    const std::string in_file = stored_name(name, is_param);
    expected.insert(in_file);
    if (!is_param && is_left_out(name)) {
      report.initial.push_back(name);
      if (stored.contains(in_file)) report.left.push_back(name);
      return;
    }
    if (!stored.contains(in_file))
      return (is_param || !options.across_optimizers ? missing : report.initial).push_back(name);
    const TensorEntry& entry = stored.entry(in_file);
    const Slot& slot = shared_->slots.at(name);
    if (entry.type != detail::stored_type(slot.type.dtype) || entry.shape != slot.sizes())
      throw FileError(fmt::format("{}: {} is {}{} but the session's is {}", file.string(), name, to_string(entry.type),
                                  to_string(Sizes(entry.shape)), to_string(slot.type)));
    report.loaded.push_back(name);
  };
  for (const std::string& name : param_names()) take(name, true);
  for (const std::string& name : state_names()) take(name, false);
  for (const std::string& name : stored_params)
    if (!expected.contains(name)) (options.keep_unknown ? report.waiting : unknown).push_back(name);
  for (const std::string& name : stored_states) {
    if (expected.contains(stored_name(name, false))) continue;
    if (is_left_out(name))
      report.left.push_back(name);
    else if (options.keep_unknown)
      report.waiting.push_back(name);
    else
      (options.across_optimizers ? report.left : unknown).push_back(name);
  }
  if (!missing.empty() || !unknown.empty())
    throw FileError(fmt::format("{}: does not match the session: missing: {}; unknown: {}", file.string(),
                                detail::listed(missing), detail::listed(unknown)));

  // Everything is read before anything changes: the file may have been truncated since it was opened.
  for (const std::string& name : expected)
    if (stored.contains(name)) stored.view(name);
  for (const std::string& name : report.loaded) {
    const Slot& slot = shared_->slots.at(name);
    const TensorView& view = stored.view(stored_name(name, slot.storage == Storage::param));
    if (const std::string why = detail::why_unusable(name, slot.type.dtype, view.bytes); !why.empty())
      throw FileError(fmt::format("{}: {}", file.string(), why));
  }
  shared_->seed = opened.second;
  shared_->loaded_file = file.string();
  shared_->waiting.clear();
  for (const std::string& name : report.waiting) {
    const bool is_param = stored_params.contains(name);
    const TensorView& view = stored.view(stored_name(name, is_param));
    shared_->waiting.emplace(name,
                             WaitingTensor{view.type, view.shape, is_param, {view.bytes.begin(), view.bytes.end()}});
  }
  const std::set<std::string> loaded(report.loaded.begin(), report.loaded.end());
  for (auto& [name, slot] : shared_->slots) {
    if (loaded.contains(name))
      shared_->upload(name, stored.view(stored_name(name, slot.storage == Storage::param)).bytes);
    else if (!half_copy_source(name))
      shared_->initialize(name, slot);  // a gradient, or a state that restarts
  }
  return report;
}

void Session::check_loaded(const Graph& graph) const {
  const std::lock_guard lock(*shared_->mutex);
  std::vector<std::string> missing, unknown;
  std::set<std::string> used;
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.storage != Storage::param || !tensor.tied_to.empty()) continue;
    used.insert(tensor.name);
    if (!shared_->slots.contains(tensor.name) && !shared_->waiting.contains(tensor.name))
      missing.push_back(tensor.name);
  }
  for (const auto& [name, waiting] : shared_->waiting)
    if (waiting.is_param && !used.contains(name)) unknown.push_back(name);
  if (!missing.empty() || !unknown.empty())
    throw FileError(fmt::format("{}: does not match the model: missing: {}; unknown: {}", shared_->loaded_file,
                                detail::listed(missing), detail::listed(unknown)));
}

}  // namespace jerboa
