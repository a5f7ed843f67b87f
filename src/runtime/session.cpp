#include <algorithm>
#include <fmt/format.h>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/ops/ops.h>
#include <jerboa/runtime/session.h>

#include "runtime/initialize.h"
#include "runtime/session_state.h"

namespace jerboa {
namespace {

template <class Map>
std::vector<std::string> keys(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

// A size that is a symbol alone binds it; the first input that has the symbol decides.
void bind(const Shape& shape, const Sizes& sizes, SymbolValues& symbols) {
  for (std::size_t i = 0; i < std::min(shape.size(), sizes.size()); ++i) {
    std::map<std::string, std::int64_t> own;
    shape[i].collect_symbols(own);
    if (own.size() == 1 && shape[i].str() == own.begin()->first) symbols.emplace(own.begin()->first, sizes[i]);
  }
}

}  // namespace

std::string detail::listed(const std::vector<std::string>& names) {
  constexpr std::size_t most = 12;
  if (names.empty()) return "none";
  const auto shown = static_cast<std::ptrdiff_t>(std::min(names.size(), most));
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

void Session::Shared::initialize(const std::string& name, const Slot& slot) const {
  if (slot.tied) return;  // its memory belongs to another
  HostTensor values = detail::initial_values(name, slot.type.dtype, slot.sizes(), slot.init, seed);
  if (name == random_state) values.set_number(0, static_cast<double>(seed & 0xffffffffu));
  slot.memory->upload(values);
}

const Session::Slot& Session::Shared::find(const std::string& name, const char* what, Storage storage) const {
  const auto found = slots.find(name);
  if (found != slots.end() && found->second.storage == storage) return found->second;
  throw UsageError(fmt::format("no {} is named {}; there are {}", what, name, detail::listed(names(storage))));
}

std::vector<std::string> Session::Shared::names(Storage storage) const {
  std::vector<std::string> list;
  for (const auto& [name, slot] : slots)
    if (slot.storage == storage && !slot.tied && !name.starts_with(gradient_prefix)) list.push_back(name);
  return list;
}

// Result

void Result::check(const std::string& name) const {
  if (!has(name))
    throw UsageError(fmt::format("the run has no output or capture {}; there are {}", name, detail::listed(names())));
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

// Session

Session::Session(Device device, SessionOptions options)
    : device_(std::move(device)), shared_(std::make_shared<Shared>()) {
  shared_->seed = options.seed;
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
  Slot slot{tensor.type, tensor.storage, tensor.init, tied, nullptr};
  try {
    slot.memory = tied ? shared_->find(tensor.tied_to, "parameter", Storage::param).memory
                       : device_.backend().allocate(tensor.type.dtype, slot.sizes(), tensor.name);
    shared_->initialize(tensor.name, slot);
  } catch (const std::bad_alloc&) {
    throw OutOfMemoryError(fmt::format("the host has no room for {} ({})", tensor.name, to_string(tensor.type)));
  }
  shared_->slots.emplace(tensor.name, std::move(slot));
  return true;
}

void Session::add_entry(const std::string& name, const Graph& graph) {
  const std::lock_guard lock(*shared_->mutex);
  if (entries_.contains(name)) throw UsageError(fmt::format("the session already has an entry {}", name));
  verify(graph);
  std::vector<std::string> declared;
  std::int64_t bytes = 0;
  for (const TensorInfo& tensor : graph.tensors)
    if ((tensor.storage == Storage::param || tensor.storage == Storage::state) && tensor.tied_to.empty())
      bytes += element_count(tensor.type.shape).upper_bound() * bits(tensor.type.dtype) / 8;
  try {
    for (const bool tied : {false, true})  // what is tied needs the other's memory
      for (const TensorInfo& tensor : graph.tensors) {
        const bool persistent = tensor.storage == Storage::param || tensor.storage == Storage::state;
        if (persistent && !tensor.tied_to.empty() == tied && declare(tensor)) declared.push_back(tensor.name);
      }
    auto entry = std::make_shared<Entry>();
    entry->graph = graph;
    for (const TensorInfo& tensor : graph.tensors)
      if (tensor.storage == Storage::input) entry->inputs.push_back({tensor.name, tensor.type});
    for (const NamedTensor& output : graph.outputs) entry->outputs.push_back({output.name, graph.type(output.tensor)});
    for (const NamedTensor& capture : graph.captures)
      entry->captures.push_back({capture.name, graph.type(capture.tensor)});
    entry->executable = device_.backend().compile(graph, finder());
    entries_.emplace(name, std::move(entry));
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

const Session::Entry& Session::entry(const std::string& name) const {
  const std::lock_guard lock(*shared_->mutex);
  const auto found = entries_.find(name);
  if (found == entries_.end())
    throw UsageError(fmt::format("the session has no entry {}; there are {}", name, detail::listed(keys(entries_))));
  return *found->second;
}

FindStorage Session::finder() const {
  return [shared = shared_](const std::string& slot) { return shared->slots.at(slot).memory; };
}

const Graph& Session::graph(const std::string& entry_name) const { return entry(entry_name).graph; }

int Session::kernel_count(const std::string& entry_name) const { return entry(entry_name).executable->kernel_count(); }

namespace {

// Says in what way an input does not fit its type under the symbols' values; empty where it does.
std::string misfit(const HostTensor& given, const TensorType& type, const SymbolValues& symbols) {
  std::string text =
      fmt::format("is {}{} but the graph takes {}", name(given.dtype()), to_string(given.shape()), to_string(type));
  if (given.dtype() != type.dtype || given.shape().size() != type.shape.size()) return text;
  try {
    const Sizes wanted = evaluate(type.shape, symbols);
    if (given.shape() == wanted) return {};
    return to_shape(wanted) == type.shape ? text : fmt::format("{}, which is {} here", text, to_string(wanted));
  } catch (const ShapeError& error) {  // a symbol without a value, or beyond its bound
    return fmt::format("{}: {}", text, error.what());
  }
}

// Checks the inputs of a run against those of the entry, and gives the values of its symbols.
SymbolValues check_inputs(const std::string& entry, const std::vector<Port>& ports, const TensorMap& inputs) {
  std::vector<std::string> missing, unknown;
  SymbolValues symbols;
  std::set<std::string> wanted;
  for (const Port& port : ports) {
    wanted.insert(port.name);
    const auto given = inputs.find(port.name);
    if (given == inputs.end())
      missing.push_back(port.name);
    else
      bind(port.type.shape, given->second.shape(), symbols);
  }
  for (const auto& [name, values] : inputs)
    if (!wanted.contains(name)) unknown.push_back(name);
  if (!missing.empty() || !unknown.empty())
    throw UsageError(fmt::format("entry {}: missing inputs: {}; unknown inputs: {}", entry, detail::listed(missing),
                                 detail::listed(unknown)));
  for (const Port& port : ports)
    if (const std::string problem = misfit(inputs.at(port.name), port.type, symbols); !problem.empty())
      throw UsageError(fmt::format("entry {}: input {} {}", entry, port.name, problem));
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
          fmt::format("entry {}: no capture is named {}; there are {}", entry, name, detail::listed(known)));
  return options.captures;
}

}  // namespace

Result Session::run(const std::string& entry_name, const TensorMap& inputs, const RunOptions& options) {
  const std::lock_guard lock(*shared_->mutex);
  const Entry& own = entry(entry_name);
  const SymbolValues symbols = check_inputs(entry_name, own.inputs, inputs);
  const auto captures = wanted_captures(entry_name, own.captures, options);
  std::map<std::string, Sizes> shapes;
  for (const Port& output : own.outputs) shapes[output.name] = evaluate(output.type.shape, symbols);
  for (const Port& capture : own.captures)
    if (std::find(captures.begin(), captures.end(), capture.name) != captures.end())
      shapes[capture.name] = evaluate(capture.type.shape, symbols);
  auto results = own.executable->run({inputs, symbols, captures});
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
  for (const auto& [name, values] : params) shared_->slots.at(name).memory->upload(values);
}

HostTensor Session::download_param(const std::string& name) const {
  const std::lock_guard lock(*shared_->mutex);
  return shared_->find(name, "parameter", Storage::param).memory->download();
}

TensorMap Session::download_params() const {
  const std::lock_guard lock(*shared_->mutex);
  TensorMap params;
  for (const std::string& name : param_names()) params.emplace(name, shared_->slots.at(name).memory->download());
  return params;
}

TensorMap Session::download_param_grads() const {
  const std::lock_guard lock(*shared_->mutex);
  TensorMap grads;
  for (const auto& [name, slot] : shared_->slots)
    if (name.starts_with(gradient_prefix))
      grads.emplace(name.substr(std::string_view(gradient_prefix).size()), slot.memory->download());
  return grads;
}

HostTensor Session::download_state(const std::string& name) const {
  const std::lock_guard lock(*shared_->mutex);
  return shared_->find(name, "state", Storage::state).memory->download();
}

void Session::upload_state(const std::string& name, const HostTensor& values) {
  const std::lock_guard lock(*shared_->mutex);
  const Slot& slot = shared_->find(name, "state", Storage::state);
  check_fits(name, slot.type, values);
  slot.memory->upload(values);
}

std::shared_ptr<DeviceTensor> Session::storage(const std::string& name) const {
  const std::lock_guard lock(*shared_->mutex);
  const auto found = shared_->slots.find(name);
  if (found == shared_->slots.end())
    throw UsageError(
        fmt::format("no parameter or state is named {}; there are {}", name, detail::listed(keys(shared_->slots))));
  return found->second.memory;
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
  for (auto& [name, slot] : shared_->slots) shared_->initialize(name, slot);
}

void Session::reset_optimizer_state() {
  const std::lock_guard lock(*shared_->mutex);
  for (auto& [name, slot] : shared_->slots)
    if (slot.storage == Storage::state) shared_->initialize(name, slot);
}

}  // namespace jerboa
