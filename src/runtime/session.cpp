#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/base/float16.h>
#include <jerboa/compile/graphs.h>
#include <jerboa/ops/ops.h>
#include <jerboa/runtime/session.h>
#include <jerboa/transform/half_copies.h>
#include <jerboa/transform/loss_scaling.h>

#include "compile/initialize.h"
#include "compile/stored_type.h"
#include "lower/entry_checks.h"
#include "lower/input_indices.h"
#include "runtime/index_checks.h"
#include "runtime/rate_checks.h"
#include "runtime/run_checks.h"
#include "runtime/session_state.h"

namespace jerboa {
namespace {

template <class Map>
std::vector<std::string> keys(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

// A size that is just a symbol binds it; the first input with the symbol decides.
void bind(const Shape& shape, const Sizes& sizes, SymbolValues& symbols) {
  for (std::size_t i = 0; i < std::min(shape.size(), sizes.size()); ++i) {
    std::map<std::string, std::int64_t> found;
    shape[i].collect_symbols(found);
    if (found.size() == 1 && shape[i].str() == found.begin()->first) symbols.emplace(found.begin()->first, sizes[i]);
  }
}

[[noreturn]] void throw_no_room(const std::string& name, const TensorType& type) {
  throw OutOfMemoryError(fmt::format("not enough host memory for {} ({})", name, to_string(type)));
}

// Names the largest tensor that the graph computes.
[[noreturn]] void throw_no_room_for(const Graph& graph) {
  const TensorInfo* largest = nullptr;
  const auto bytes = [](const TensorInfo& tensor) {
    return element_count(tensor.type.shape).upper_bound() * bits(tensor.type.dtype) / 8;
  };
  for (const TensorInfo& tensor : graph.tensors)
    if (tensor.storage == Storage::activation && (largest == nullptr || bytes(tensor) > bytes(*largest)))
      largest = &tensor;
  const std::string what =
      largest == nullptr ? "its tensors"
                         : fmt::format("{} ({}, {} bytes)", largest->name, to_string(largest->type), bytes(*largest));
  throw OutOfMemoryError(fmt::format("not enough host memory for {}", what));
}

template <class Action>
auto with_room(const Graph& graph, Action&& action) {
  try {
    return action();
  } catch (const HostMemoryError&) {
    throw_no_room_for(graph);
  } catch (const std::bad_alloc&) {
    throw_no_room_for(graph);
  } catch (const std::length_error&) {
    throw_no_room_for(graph);
  }
}

// Runs the action; an error that memory ran out names the entry as well.
template <class Action>
auto with_room(const std::string& entry, const Graph& graph, Action&& action) {
  try {
    return with_room(graph, action);
  } catch (const OutOfMemoryError& error) {
    throw OutOfMemoryError(fmt::format("entry {}: {}", entry, error.what()));
  }
}

// A tensor that was loaded before its storage existed must match it.
void check_waiting(const std::string& file, const TensorInfo& tensor, const WaitingTensor& waiting) {
  const bool is_param = tensor.storage == Storage::param;
  if (waiting.is_param != is_param || waiting.type != detail::stored_type(tensor.type.dtype) ||
      to_shape(waiting.shape) != tensor.type.shape)
    throw FileError(fmt::format("{}: {} is {}{} but the session's is {}", file, tensor.name, to_string(waiting.type),
                                to_string(waiting.shape), to_string(tensor.type)));
  if (const std::string why = detail::why_unusable(tensor.name, tensor.type.dtype, waiting.bytes); !why.empty())
    throw FileError(fmt::format("{}: {}", file, why));
}

}  // namespace

std::string detail::why_unusable(const std::string& state, DType dtype, std::span<const std::byte> bytes) {
  float scale = 0;
  if (state != loss_scale_state || dtype != DType::f32 || bytes.size() != sizeof scale) return {};
  std::memcpy(&scale, bytes.data(), sizeof scale);
  if (is_loss_scale(scale)) return {};
  return fmt::format("{} is {}, which a loss cannot be scaled by", state, scale);
}

std::string detail::listed(const std::vector<std::string>& names) {
  constexpr std::size_t most = 12;
  if (names.empty()) return "none";
  const auto shown = static_cast<std::ptrdiff_t>(std::min(names.size(), most));
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

namespace {

HostTensor in_halves(const HostTensor& wide) {
  HostTensor halves(DType::f16, wide.shape());
  const auto from = wide.f32();
  const auto to = halves.as<std::uint16_t>();
  std::transform(from.begin(), from.end(), to.begin(), f32_to_f16);
  return halves;
}

}  // namespace

void Session::Shared::add(const std::string& name, Slot slot) {
  all_filled = all_filled && slot.filled;
  slots.emplace(name, std::move(slot));
}

void Session::Shared::initialize(const std::string& name, Slot& slot) {
  slot.filled = true;     // set first: filling a copy's source may fill all others
  if (slot.tied) return;  // its memory belongs to another tensor
  try {
    if (const auto source = half_copy_source(name)) {
      const Slot& wide = find(*source, "parameter", Storage::param);
      if (wide.type.dtype != DType::f32 || slot.type != TensorType{DType::f16, wide.type.shape})
        throw UsageError(fmt::format("{} is {}, which is not an f16 copy of {} ({}); give the state another name", name,
                                     to_string(slot.type), *source, to_string(wide.type)));
      slot.memory->upload(in_halves(wide.memory->download()));
      slot.filled = true;  // set again: drawing a parameter now makes its copy outdated
      return;
    }
    if (name != random_state && slot.init.kind == Init::Kind::constant && slot.init.mean == 0) {
      slot.memory->clear();
    } else {
      HostTensor values = detail::initial_values(name, slot.type.dtype, slot.sizes(), slot.init, seed);
      if (name == random_state && values.size() > 0) values.set_number(0, static_cast<double>(seed & 0xffffffffu));
      slot.memory->upload(values);
    }
    if (slot.storage == Storage::param) forget_copy(name);
  } catch (const HostMemoryError&) {
    slot.filled = all_filled = false;
    throw_no_room(name, slot.type);
  } catch (const std::bad_alloc&) {
    slot.filled = all_filled = false;
    throw_no_room(name, slot.type);
  } catch (...) {
    slot.filled = all_filled = false;
    throw;
  }
}

void Session::Shared::forget_copy(const std::string& param) {
  if (const auto copy = slots.find(half_copy_of(param)); copy != slots.end()) copy->second.filled = all_filled = false;
}

std::vector<std::string> Session::Shared::without_copies(const std::set<std::string>& updated) const {
  std::vector<std::string> params;
  for (const std::string& name : updated)
    if (slots.at(name).storage == Storage::param && !updated.contains(half_copy_of(name))) params.push_back(name);
  return params;
}

void Session::Shared::fill(const std::string& name, Slot& slot) {
  if (!slot.filled) initialize(name, slot);
}

void Session::Shared::fill_all() {
  if (all_filled) return;
  for (auto& [name, slot] : slots) fill(name, slot);
  all_filled = true;
}

void Session::Shared::upload(const std::string& name, std::span<const std::byte> bytes) {
  Slot& slot = slots.at(name);
  slot.memory->upload(bytes);
  slot.filled = true;
  if (slot.storage == Storage::param) forget_copy(name);
}

Session::Slot& Session::Shared::find(const std::string& name, const char* what, Storage storage) {
  const auto found = slots.find(name);
  if (found != slots.end() && found->second.storage == storage) {
    fill(name, found->second);
    if (found->second.tied) fill_all();
    return found->second;
  }
  throw UsageError(fmt::format("no {} is named {}; available: {}", what, name, detail::listed(names(storage))));
}

std::vector<std::string> Session::Shared::names(Storage storage) const {
  std::vector<std::string> list;
  for (const auto& [name, slot] : slots)
    if (slot.storage == storage && !slot.tied && !name.starts_with(gradient_prefix) && !half_copy_source(name))
      list.push_back(name);
  return list;
}

// Result

void Result::check(const std::string& name) const {
  if (!has(name))
    throw UsageError(fmt::format("the run has no output or capture {}; available: {}", name, detail::listed(names())));
}

HostTensor Result::get(const std::string& name) const {
  check(name);
  const std::lock_guard lock(*mutex_);
  return results_->read(name);
}

const Sizes& Result::shape_of(const std::string& name) const {
  check(name);
  return shapes_.at(name);
}

std::vector<std::string> Result::names() const { return keys(shapes_); }

void Result::wait() const {
  const std::lock_guard lock(*mutex_);
  results_->wait();
}

// Session

Session::Session(Device device, SessionOptions options)
    : device_(std::move(device)), shared_(std::make_shared<Shared>()) {
  shared_->seed = options.seed;
  shared_->checks = checks_from_environment();
  shared_->checks.finite |= options.check_finite;
  shared_->checks.indices |= options.check_indices;
}

Session::Session(Device device, std::shared_ptr<Shared> shared)
    : device_(std::move(device)), shared_(std::move(shared)) {}

Session Session::sibling() const { return {device_, shared_}; }

std::uint64_t Session::seed() const {
  const std::lock_guard lock(*shared_->mutex);
  return shared_->seed;
}

bool Session::declare(const TensorInfo& tensor) {
  const bool tied = !tensor.tied_to.empty();
  const auto known = shared_->slots.find(tensor.name);
  if (known != shared_->slots.end()) {
    const Slot& slot = known->second;
    if (slot.type != tensor.type || slot.storage != tensor.storage || slot.tied != tied)
      throw UsageError(fmt::format("{} is {}{} {} here, but {}{} {} in another entry of the session", tensor.name,
                                   tied ? "tied " : "", name(tensor.storage), to_string(tensor.type),
                                   slot.tied ? "tied " : "", name(slot.storage), to_string(slot.type)));
    return false;
  }
  for (const Dim& dim : tensor.type.shape)
    if (!dim.is_constant())
      throw UsageError(fmt::format("{} is kept between runs, so its shape {} must not be symbolic", tensor.name,
                                   to_string(tensor.type.shape)));
  const auto waiting = shared_->waiting.find(tensor.name);
  if (waiting != shared_->waiting.end()) check_waiting(shared_->loaded_file, tensor, waiting->second);
  Slot slot{tensor.type, tensor.storage, tensor.init, tied, nullptr, tied};
  try {
    if (!tied) {
      slot.memory = device_.backend().allocate(tensor.type.dtype, slot.sizes(), tensor.name);
    } else if (const auto owner = shared_->slots.find(tensor.tied_to); owner != shared_->slots.end()) {
      slot.memory = owner->second.memory;
    } else {
      throw UsageError(fmt::format("{} is tied to {}, which is not a parameter", tensor.name, tensor.tied_to));
    }
  } catch (const std::bad_alloc&) {
    throw_no_room(tensor.name, tensor.type);
  }
  shared_->add(tensor.name, std::move(slot));
  if (waiting != shared_->waiting.end()) shared_->upload(tensor.name, waiting->second.bytes);
  return true;
}

std::vector<std::string> Session::declare_all(const Graph& graph) {
  std::vector<std::string> declared;
  try {
    for (const bool tied : {false, true})  // a tied parameter needs the other's memory
      for (const TensorInfo& tensor : graph.tensors) {
        const bool persistent = tensor.storage == Storage::param || tensor.storage == Storage::state;
        if (persistent && !tensor.tied_to.empty() == tied && declare(tensor)) declared.push_back(tensor.name);
      }
  } catch (...) {
    forget(declared);
    throw;
  }
  return declared;
}

void Session::declare(const Graph& graph) {
  const std::lock_guard lock(*shared_->mutex);
  for (const std::string& name : declare_all(graph)) shared_->waiting.erase(name);
}

namespace {

std::set<std::string> updated_storage(const Graph& graph) {
  std::set<std::string> names;
  for (const Update& update : graph.updates) names.insert(graph.tensor(update.target).name);
  return names;
}

}  // namespace

PreparedEntry Session::prepare_entry(const std::string& name, Graph graph) const {
  Checks checks;
  {
    const std::lock_guard lock(*shared_->mutex);
    checks = shared_->checks;
  }
  verify(graph);
  auto program = with_room(
      name, graph, [&] { return device_.backend().prepare(checks.any() ? with_checks(graph, checks).graph : graph); });
  return {name, std::move(graph), std::move(program)};
}

void Session::add_entry(const std::string& name, const Graph& graph) { add_entry(name, graph, nullptr); }

void Session::add_entry(const PreparedEntry& entry) { add_entry(entry.name, entry.graph, entry.program.get()); }

void Session::add_entry(const std::string& name, const Graph& graph, const Program* program) {
  const std::lock_guard lock(*shared_->mutex);
  if (entries_.contains(name)) throw UsageError(fmt::format("the session already has an entry {}", name));
  verify(graph);
  detail::OptimizerUses optimizers = shared_->optimizers;
  optimizers.add(name, graph);
  std::vector<std::string> declared;
  std::int64_t bytes = 0;
  for (const TensorInfo& tensor : graph.tensors)
    if ((tensor.storage == Storage::param || tensor.storage == Storage::state) && tensor.tied_to.empty())
      bytes += element_count(tensor.type.shape).upper_bound() * bits(tensor.type.dtype) / 8;
  try {
    declared = declare_all(graph);
    auto entry = std::make_shared<Entry>();
    entry->graph = graph;
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      const TensorInfo& tensor = graph.tensors[i];
      if (tensor.storage != Storage::input) continue;
      entry->inputs.push_back({tensor.name, tensor.type});
      const Rate rate = detail::rate_of(graph, static_cast<TensorId>(i));
      if (rate != Rate::none) entry->rates.emplace(tensor.name, rate);
    }
    for (const NamedTensor& output : graph.outputs) entry->outputs.push_back({output.name, graph.type(output.tensor)});
    for (const NamedTensor& capture : graph.captures)
      entry->captures.push_back({capture.name, graph.type(capture.tensor)});
    entry->indices = detail::find_input_indices(graph);
    entry->params_without_copies = shared_->without_copies(updated_storage(graph));
    std::optional<CheckedGraph> checked;
    if (shared_->checks.any()) {
      checked = with_checks(graph, shared_->checks);
      entry->checks = checked->checks;
    }
    const Graph& compiled = checked ? checked->graph : graph;
    entry->executable = with_room(graph, [&] {
      Backend& backend = device_.backend();
      return program == nullptr ? backend.compile(compiled, finder()) : backend.load(*program, finder());
    });
    entries_.emplace(name, std::move(entry));
    shared_->optimizers = std::move(optimizers);
    for (const std::string& tensor_name : declared) shared_->waiting.erase(tensor_name);
  } catch (const OutOfMemoryError& error) {
    forget(declared);
    throw OutOfMemoryError(fmt::format("entry {}: {}; its parameters, gradients and states take {} bytes in all", name,
                                       error.what(), bytes));
  } catch (...) {
    forget(declared);
    throw;
  }
}

void Session::forget(const std::vector<std::string>& declared) {
  for (const std::string& slot : declared) shared_->slots.erase(slot);
}

bool Session::has_entry(const std::string& name) const {
  const std::lock_guard lock(*shared_->mutex);
  return entries_.contains(name);
}

std::vector<EntryInfo> Session::entries() const {
  const std::lock_guard lock(*shared_->mutex);
  std::vector<EntryInfo> list;
  for (const auto& [name, entry] : entries_) list.push_back({name, entry->inputs, entry->outputs, entry->captures});
  return list;
}

const Session::Entry& Session::entry(const std::string& name) const {
  const std::lock_guard lock(*shared_->mutex);
  const auto found = entries_.find(name);
  if (found == entries_.end())
    throw UsageError(fmt::format("the session has no entry {}; available: {}", name, detail::listed(keys(entries_))));
  return *found->second;
}

FindStorage Session::finder() const {
  return [shared = shared_](const std::string& slot) { return shared->slots.at(slot).memory; };
}

const Graph& Session::graph(const std::string& entry_name) const { return entry(entry_name).graph; }

int Session::kernel_count(const std::string& entry_name) const { return entry(entry_name).executable->kernel_count(); }

namespace {

[[noreturn]] void throw_misfit(const std::string& entry, const Port& port, const HostTensor& given,
                               const std::string& detail) {
  std::string text = fmt::format("entry {}: input {} is {}{} but the graph expects {}", entry, port.name,
                                 name(given.dtype()), to_string(given.shape()), to_string(port.type));
  if (given.dtype() == DType::f32 && is_integer(port.type.dtype))
    text += fmt::format("; make one with HostTensor(DType::{}, shape, {{…}})", name(port.type.dtype));
  throw UsageError(text + detail);
}

// Throws UsageError unless an input has its type under the symbols' values.
void check_input(const std::string& entry, const Port& port, const HostTensor& given, const SymbolValues& symbols) {
  if (given.dtype() != port.type.dtype || given.shape().size() != port.type.shape.size())
    throw_misfit(entry, port, given, "");
  Sizes expected;
  try {
    expected = evaluate(port.type.shape, symbols);
  } catch (const ShapeError& error) {  // a symbol is unbound or exceeds its bound
    throw_misfit(entry, port, given, fmt::format(": {}", error.what()));
  }
  if (given.shape() == expected) return;
  const bool is_symbolic = to_shape(expected) != port.type.shape;
  throw_misfit(entry, port, given, is_symbolic ? fmt::format(", which is {} here", to_string(expected)) : "");
}

// Checks the inputs of a run against those of the entry, and returns the values of its symbols.
SymbolValues check_inputs(const std::string& entry, const std::vector<Port>& ports, const TensorMap& inputs) {
  std::vector<std::string> missing, unknown;
  SymbolValues symbols;
  for (const Port& port : ports) {
    const auto given = inputs.find(port.name);
    if (given == inputs.end())
      missing.push_back(port.name);
    else
      bind(port.type.shape, given->second.shape(), symbols);
  }
  const auto is_known = [&](const std::string& name) {
    return std::any_of(ports.begin(), ports.end(), [&](const Port& port) { return port.name == name; });
  };
  for (const auto& [name, values] : inputs)
    if (!is_known(name)) unknown.push_back(name);
  if (!missing.empty() || !unknown.empty())
    throw UsageError(fmt::format("entry {}: missing inputs: {}; unknown inputs: {}", entry, detail::listed(missing),
                                 detail::listed(unknown)));
  for (const Port& port : ports) check_input(entry, port, inputs.at(port.name), symbols);
  return symbols;
}

std::vector<std::string> wanted_captures(const std::string& entry, const std::vector<Port>& captures,
                                         const RunOptions& options) {
  std::vector<std::string> known;
  for (const Port& capture : captures) known.push_back(capture.name);
  if (options.all_captures) return known;
  for (const std::string& name : options.captures)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UsageError(
          fmt::format("entry {}: no capture is named {}; available: {}", entry, name, detail::listed(known)));
  return options.captures;
}

}  // namespace

Result Session::run(const std::string& entry_name, const TensorMap& inputs, const RunOptions& options) {
  const std::lock_guard lock(*shared_->mutex);
  const Entry& found = entry(entry_name);
  const SymbolValues symbols = check_inputs(entry_name, found.inputs, inputs);
  detail::check_input_indices(found.indices, inputs, symbols);
  detail::check_rates(entry_name, found.rates, inputs);
  const auto captures = wanted_captures(entry_name, found.captures, options);
  std::map<std::string, Sizes> shapes;
  for (const Port& output : found.outputs) shapes[output.name] = evaluate(output.type.shape, symbols);
  for (const Port& capture : found.captures)
    if (std::find(captures.begin(), captures.end(), capture.name) != captures.end())
      shapes[capture.name] = evaluate(capture.type.shape, symbols);
  shared_->fill_all();
  auto results = with_room(entry_name, found.graph, [&] { return found.executable->run({inputs, symbols, captures}); });
  for (const std::string& param : found.params_without_copies) shared_->forget_copy(param);
  if (found.checks.any()) detail::throw_failed_checks(found.checks, *found.executable, *results, symbols);
  return {std::shared_ptr<RunResults>(std::move(results)), std::move(shapes), shared_->mutex};
}

// Storage

namespace {

void check_fits(const std::string& name, const TensorType& type, const HostTensor& values) {
  if (type != TensorType{values.dtype(), to_shape(values.shape())})
    throw UsageError(fmt::format("{} is {} but was given {}{}", name, to_string(type), jerboa::name(values.dtype()),
                                 to_string(values.shape())));
}

}  // namespace

void Session::upload_params(const TensorMap& params, UploadOptions options) {
  const std::lock_guard lock(*shared_->mutex);
  std::vector<std::string> unknown, missing;
  for (const auto& [name, values] : params) {
    const auto found = shared_->slots.find(name);
    if (found == shared_->slots.end() || found->second.storage != Storage::param || found->second.tied)
      unknown.push_back(name);
    else
      check_fits(name, found->second.type, values);
  }
  if (!options.partial)
    for (const std::string& name : param_names())
      if (!params.contains(name)) missing.push_back(name);
  if (!unknown.empty() || !missing.empty())
    throw UsageError(
        fmt::format("upload_params: unknown: {}; missing: {}", detail::listed(unknown), detail::listed(missing)));
  for (const auto& [name, values] : params) shared_->upload(name, values.bytes());
}

void Session::upload_param(const std::string& name, std::span<const std::byte> bytes) {
  const std::lock_guard lock(*shared_->mutex);
  const auto found = shared_->slots.find(name);
  if (found == shared_->slots.end() || found->second.storage != Storage::param || found->second.tied)
    throw UsageError(
        fmt::format("no parameter is named {}; available: {}", name, detail::listed(shared_->names(Storage::param))));
  const TensorType& type = found->second.type;
  const std::int64_t expected = bytes_of(type.dtype, element_count(found->second.sizes()));
  if (std::ssize(bytes) != expected)
    throw UsageError(
        fmt::format("{} is {}, {} bytes, but was given {} bytes", name, to_string(type), expected, bytes.size()));
  shared_->upload(name, bytes);
}

std::span<std::byte> Session::overwrite_param(const std::string& name) {
  const std::lock_guard lock(*shared_->mutex);
  const auto found = shared_->slots.find(name);
  if (found == shared_->slots.end() || found->second.storage != Storage::param || found->second.tied) return {};
  const std::span<std::byte> memory = found->second.memory->host_memory();
  if (memory.empty()) return {};
  found->second.filled = true;
  shared_->forget_copy(name);
  return memory;
}

HostTensor Session::download_param(const std::string& name) const {
  const std::lock_guard lock(*shared_->mutex);
  return shared_->find(name, "parameter", Storage::param).memory->download();
}

TensorMap Session::download_params() const {
  const std::lock_guard lock(*shared_->mutex);
  TensorMap params;
  for (const std::string& name : param_names()) params.emplace(name, download_param(name));
  return params;
}

TensorMap Session::download_param_grads() const {
  const std::lock_guard lock(*shared_->mutex);
  TensorMap grads;
  for (auto& [name, slot] : shared_->slots) {
    if (!name.starts_with(gradient_prefix)) continue;
    shared_->fill(name, slot);
    grads.emplace(name.substr(std::string_view(gradient_prefix).size()), slot.memory->download());
  }
  return grads;
}

HostTensor Session::download_state(const std::string& name) const {
  const std::lock_guard lock(*shared_->mutex);
  return shared_->find(name, "state", Storage::state).memory->download();
}

void Session::upload_state(const std::string& name, const HostTensor& values) {
  const std::lock_guard lock(*shared_->mutex);
  check_fits(name, shared_->find(name, "state", Storage::state).type, values);
  if (const std::string why = detail::why_unusable(name, values.dtype(), values.bytes()); !why.empty())
    throw UsageError(why);
  shared_->upload(name, values.bytes());
}

std::shared_ptr<DeviceTensor> Session::storage(const std::string& name) const {
  const std::lock_guard lock(*shared_->mutex);
  const auto found = shared_->slots.find(name);
  if (found == shared_->slots.end())
    throw UsageError(
        fmt::format("no parameter or state is named {}; available: {}", name, detail::listed(keys(shared_->slots))));
  shared_->fill_all();
  return found->second.memory;
}

void Session::parameter_changed(const std::string& name) {
  const std::lock_guard lock(*shared_->mutex);
  const std::shared_ptr<DeviceTensor> memory = shared_->find(name, "parameter", Storage::param).memory;
  for (const auto& [other, slot] : shared_->slots)  // a tied parameter's memory is another's
    if (slot.storage == Storage::param && slot.memory == memory) shared_->forget_copy(other);
}

std::vector<std::string> Session::param_names() const {
  const std::lock_guard lock(*shared_->mutex);
  return shared_->names(Storage::param);
}

std::vector<std::string> Session::state_names() const {
  const std::lock_guard lock(*shared_->mutex);
  return shared_->names(Storage::state);
}

void Session::reset(std::optional<std::uint64_t> seed) {
  const std::lock_guard lock(*shared_->mutex);
  if (seed) shared_->seed = *seed;
  shared_->waiting.clear();
  for (auto& [name, slot] : shared_->slots)
    if (!half_copy_source(name)) shared_->initialize(name, slot);
}

void Session::reset_optimizer_state() {
  const std::lock_guard lock(*shared_->mutex);
  for (auto& [name, slot] : shared_->slots)
    if (slot.storage == Storage::state && !half_copy_source(name)) shared_->initialize(name, slot);
}

void Session::reset_gradients() {
  const std::lock_guard lock(*shared_->mutex);
  for (auto& [name, slot] : shared_->slots)
    if (name.starts_with(gradient_prefix)) shared_->initialize(name, slot);
}

}  // namespace jerboa
