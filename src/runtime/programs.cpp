#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/lower/program_file.h>
#include <jerboa/runtime/session.h>

#include "runtime/session_state.h"

namespace jerboa {
namespace {

// The parameters and states that a program writes.
std::set<std::string> updated_storage(const Program& program) {
  std::vector<bool> written(program.buffers.size(), false);
  for (const Dispatch& dispatch : program.cpu.dispatches)
    for (const Dispatch::Part& part : dispatch.parts) {
      const std::vector<bool> writes = written_bindings(program.cpu.kernels[static_cast<std::size_t>(part.kernel)]);
      for (std::size_t i = 0; i < writes.size(); ++i)
        if (writes[i]) written[static_cast<std::size_t>(part.buffers[i])] = true;
    }
  for (const GpuStep& step : program.gpu.steps)
    for (const GpuStep::Binding& binding : step.bindings)
      if (binding.written) written[static_cast<std::size_t>(binding.buffer)] = true;
  std::set<std::string> names;
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    const bool in_pool = buffer.within >= 0 && written[static_cast<std::size_t>(buffer.within)];
    if (buffer.where == Buffer::Where::storage && (written[i] || in_pool)) names.insert(buffer.name);
  }
  return names;
}

// Whether some entry was compiled with each of the checks.
bool has_checks(const ProgramFile& file, const Checks& wanted) {
  const auto any = [&](auto has) { return std::any_of(file.entries.begin(), file.entries.end(), has); };
  return (!wanted.finite || any([](const ProgramEntry& entry) { return !entry.checks.finite.empty(); })) &&
         (!wanted.indices || any([](const ProgramEntry& entry) { return !entry.checks.indices.empty(); }));
}

bool is_output_of(const RunChecks& checks, const std::string& name) {
  return (name == finite_flags && !checks.finite.empty()) || (name == index_extremes && !checks.indices.empty());
}

}  // namespace

void Session::save_program(const std::filesystem::path& path) const {
  const std::lock_guard lock(*shared_->mutex);
  ProgramFile file;
  file.target = device_.name();
  for (const auto& [name, slot] : shared_->slots)
    if (!slot.tied)  // programs refer to the tensor that owns the memory
      file.storage.push_back({name, slot.type.dtype, slot.type.shape, slot.storage == Storage::param, slot.init});
  for (const auto& [name, entry] : entries_) {
    // The file has the checks that the programs were loaded with, but none that this session added.
    const bool is_loaded = entry->graph.nodes.empty();
    const auto unchecked =
        entry->checks.any() && !is_loaded ? device_.backend().compile(entry->graph, finder()) : nullptr;
    const Program* program = (unchecked ? *unchecked : *entry->executable).program();
    if (program == nullptr)
      throw UsageError(
          fmt::format("the device {} interprets graphs, so it has no program to save; use cpu", device_.name()));
    ProgramEntry saved{name, {}, entry->indices, *program, is_loaded ? entry->checks : RunChecks()};
    for (const Port& input : entry->inputs) {
      const auto rate = entry->rates.find(input.name);
      saved.inputs.push_back(
          {input.name, input.type.dtype, input.type.shape, rate == entry->rates.end() ? Rate::none : rate->second});
    }
    file.entries.push_back(std::move(saved));
  }
  jerboa::save_program(path, file);
}

Session Session::load_program(const std::filesystem::path& path, Device device, SessionOptions options) {
  const ProgramFile file = jerboa::load_program(path);
  if (file.target != device.name())
    throw UsageError(
        fmt::format("{} is a program for the device {}, not {}", path.string(), file.target, device.name()));
  if (auto robust = device.backend().for_foreign_code()) device = Device(std::move(robust));
  Session session(std::move(device), options);
  if (!has_checks(file, session.shared_->checks))
    throw UsageError(
        fmt::format("{} is already compiled, so its tensors cannot be checked: load it without check_finite, "
                    "check_indices and JERBOA_CHECK, or compile it with checks (compile_program)",
                    path.string()));
  for (const PersistentTensor& tensor : file.storage) {
    TensorInfo info;
    info.name = tensor.name;
    info.type = {tensor.dtype, tensor.shape};
    info.storage = tensor.is_param ? Storage::param : Storage::state;
    info.init = tensor.init;
    session.declare(info);
  }
  for (const ProgramEntry& saved : file.entries) {
    auto entry = std::make_shared<Entry>();
    for (const InputTensor& input : saved.inputs) {
      entry->inputs.push_back({input.name, {input.dtype, input.shape}});
      if (input.rate != Rate::none) entry->rates.emplace(input.name, input.rate);
    }
    for (const Readable& output : saved.program.outputs)
      if (!is_output_of(saved.checks, output.name))
        entry->outputs.push_back({output.name, {output.dtype, output.shape}});
    for (const Readable& capture : saved.program.captures)
      entry->captures.push_back({capture.name, {capture.dtype, capture.shape}});
    entry->indices = saved.indices;
    entry->checks = saved.checks;
    entry->executable = session.device_.backend().load(saved.program, session.finder());
    entry->params_without_copies = session.shared_->without_copies(updated_storage(saved.program));
    session.entries_.emplace(saved.name, std::move(entry));
  }
  return session;
}

}  // namespace jerboa
