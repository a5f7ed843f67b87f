#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/lower/lower.h>
#include <jerboa/lower/program_file.h>
#include <jerboa/transform/half_copies.h>

#include "base/browser_build.h"
#include "ir/attr_json.h"
#include "lower/entry_checks.h"
#include "lower/input_indices.h"
#include "lower/program_fields.h"
#include "lower/program_sections.h"
#include "lower/target.h"
#include "lower/verify_kernel.h"

// The contents of a program file's sections: JSON, and the constants' bytes (docs/program-files.md).
namespace jerboa {
namespace {

using detail::Bounds;
using detail::Section;
using Json = detail::Json;
namespace section = detail::section;

struct Writer {
  Bounds bounds;

  Json write(const Dim& dim) {
    dim.collect_symbols(bounds);
    return dim.is_constant() ? Json(dim.value()) : Json(dim.str());
  }
  Json write(DType dtype) { return name(dtype); }
  Json write(Op op) { return name(op); }
  Json write(const std::string& text) { return text; }
  Json write(bool value) { return value; }
  Json write(double value) { return detail::number_json(value); }
  template <class T>
  requires std::is_integral_v<T> Json write(T value) { return value; }
  template <class T>
  requires std::is_enum_v<T> Json write(T value) { return static_cast<int>(value); }
  template <class T>
  Json write(const std::vector<T>& list) {
    Json json = Json::array();
    // Pages compile no such checks, see with_checks.
    if constexpr (detail::is_browser_build && std::is_same_v<T, RunChecks::Indices>) return json;
    for (const T& item : list) json.push_back(write(item));
    return json;
  }
  template <class T>
  requires std::is_class_v<T> Json write(const T& x) {
    Json json = Json::object();
    auto visit = [&](const char* field, const auto& value) { json[field] = write(value); };
    detail::fields(visit, x);
    if constexpr (std::is_same_v<T, KernelSpec>)
      if (x.kind == KernelSpec::Kind::whole) json["attrs"] = detail::attrs_json(x.attrs, true);
    return json;
  }
};

std::int64_t integer(const Json& json, std::int64_t low, std::int64_t high) {
  const bool too_large = json.is_number_unsigned() && json.get<std::uint64_t>() > static_cast<std::uint64_t>(high);
  if (!json.is_number_integer() || too_large || json.get<std::int64_t>() < low || json.get<std::int64_t>() > high)
    throw FileError(fmt::format("{} is not a whole number from {} to {}", json.dump(), low, high));
  return json.get<std::int64_t>();
}

struct Reader {
  Bounds bounds;

  void read(const Json& json, Dim& dim) const {
    if (json.is_number()) {
      dim = Dim(integer(json, -detail::most_bytes * 8, detail::most_bytes * 8));
      return;
    }
    const auto parsed = Dim::parse(json.get<std::string>(), bounds);
    if (!parsed) throw FileError(fmt::format("{} is not a size over known symbols", json.dump()));
    dim = *parsed;
  }
  void read(const Json& json, DType& dtype) const {
    const auto found = dtype_from_name(json.get<std::string>());
    if (!found) throw FileError(fmt::format("unknown type {}", json.dump()));
    dtype = *found;
  }
  void read(const Json& json, Op& op) const {
    const auto found = op_from_name(json.get<std::string>());
    if (!found) throw FileError(fmt::format("unknown op {}", json.dump()));
    op = *found;
  }
  void read(const Json& json, std::string& text) const { text = json.get<std::string>(); }
  void read(const Json& json, bool& value) const { value = json.get<bool>(); }
  void read(const Json& json, double& value) const {
    const auto number = detail::number_from(json);
    if (!number) throw FileError(fmt::format("{} is not a number", json.dump()));
    value = *number;
  }
  template <class T>
  requires std::is_integral_v<T>
  void read(const Json& json, T& value) const {
    value = static_cast<T>(integer(json, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  }
  void read(const Json& json, Instruction::Kind& kind) const { kind = number<Instruction::Kind>(json, 6); }
  void read(const Json& json, KernelSpec::Kind& kind) const { kind = number<KernelSpec::Kind>(json, 4); }
  void read(const Json& json, Buffer::Where& where) const { where = number<Buffer::Where>(json, 5); }
  void read(const Json& json, Init::Kind& kind) const { kind = number<Init::Kind>(json, 3); }
  template <class E>
  static E number(const Json& json, int count) {
    return static_cast<E>(integer(json, 0, count - 1));
  }
  template <class T>
  void read(const Json& json, std::vector<T>& list) const {
    if (!json.is_array()) throw FileError("a list is expected");
    list.clear();
    for (const Json& item : json) read(item, list.emplace_back());
  }
  template <class T>
  requires std::is_class_v<T>
  void read(const Json& json, T& x) const {
    auto visit = [&](const char* field, auto& value) { read(json.at(field), value); };
    detail::fields(visit, x);
    if constexpr (std::is_same_v<T, KernelSpec>)
      if (x.kind == KernelSpec::Kind::whole) x.attrs = detail::attrs_from(x.op, json.at("attrs"), bounds);
  }

  HostTensor constant(const Json& json, std::string_view data) const {
    DType dtype{};
    std::vector<std::int64_t> shape;
    std::int64_t offset = 0;
    read(json.at("dtype"), dtype);
    read(json.at("shape"), shape);
    read(json.at("offset"), offset);
    const std::int64_t bytes = detail::bytes_of({dtype, to_shape(shape)}),
                       there = static_cast<std::int64_t>(data.size());
    if (std::any_of(shape.begin(), shape.end(), [](std::int64_t size) { return size < 0; }) || offset < 0 ||
        offset > there || bytes > there - offset)
      throw FileError("a constant is truncated");
    HostTensor values(dtype, shape);
    std::memcpy(values.bytes().data(), data.data() + offset, values.bytes().size());
    return values;
  }
};

constexpr std::string_view gpu_target = "webgpu";

// Requirements

Json write(const GpuRequirements& needs) {
  Json features = Json::array();
  if (needs.f16) features.push_back("f16");
  if (needs.subgroups) features.push_back("subgroups");
  return {{"features", features},
          {"subgroup_matrices", Writer().write(needs.subgroup_matrices)},
          {"limits",
           {{"buffer_bytes", needs.buffer_bytes},
            {"binding_bytes", needs.binding_bytes},
            {"workgroup_bytes", needs.workgroup_bytes},
            {"bindings", needs.bindings},
            {"invocations", needs.invocations}}}};
}

GpuRequirements read_requirements(const Json& json) {
  GpuRequirements needs;
  const Reader reader{{}};
  const auto refuse = [](const char* what, const std::string& name) {
    throw FileError(fmt::format("needs the {} {}, which Jerboa {} does not know", what, name,
                                detail::to_string(detail::host_version)));
  };
  for (const Json& feature : json.at("features")) {
    const auto name = feature.get<std::string>();
    if (name != "f16" && name != "subgroups") refuse("feature", name);
    (name == "f16" ? needs.f16 : needs.subgroups) = true;
  }
  reader.read(json.at("subgroup_matrices"), needs.subgroup_matrices);
  for (const auto& [name, value] : json.at("limits").items()) {
    if (name == "buffer_bytes")
      reader.read(value, needs.buffer_bytes);
    else if (name == "binding_bytes")
      reader.read(value, needs.binding_bytes);
    else if (name == "workgroup_bytes")
      reader.read(value, needs.workgroup_bytes);
    else if (name == "bindings")
      reader.read(value, needs.bindings);
    else if (name == "invocations")
      reader.read(value, needs.invocations);
    else
      refuse("limit", name);
  }
  return needs;
}

// The union over all entries.
GpuRequirements requirements_of(const ProgramFile& file) {
  GpuRequirements all;
  for (const ProgramEntry& entry : file.entries) {
    const GpuRequirements requirements = gpu_requirements(entry.program);
    all.f16 |= requirements.f16;
    all.subgroups |= requirements.subgroups;
    for (const SubgroupMatrix& matrix : requirements.subgroup_matrices)
      if (std::find(all.subgroup_matrices.begin(), all.subgroup_matrices.end(), matrix) == all.subgroup_matrices.end())
        all.subgroup_matrices.push_back(matrix);
    all.buffer_bytes = std::max(all.buffer_bytes, requirements.buffer_bytes);
    all.binding_bytes = std::max(all.binding_bytes, requirements.binding_bytes);
    all.workgroup_bytes = std::max(all.workgroup_bytes, requirements.workgroup_bytes);
    all.bindings = std::max(all.bindings, requirements.bindings);
    all.invocations = std::max(all.invocations, requirements.invocations);
  }
  return all;
}

// A host checks the requirements a file states before it reads the steps.
void check_requirements(const GpuRequirements& said, const GpuRequirements& needs) {
  const auto is_said = [&](const SubgroupMatrix& matrix) {
    return std::find(said.subgroup_matrices.begin(), said.subgroup_matrices.end(), matrix) !=
           said.subgroup_matrices.end();
  };
  if (needs.f16 > said.f16 || needs.subgroups > said.subgroups || needs.buffer_bytes > said.buffer_bytes ||
      needs.binding_bytes > said.binding_bytes || needs.workgroup_bytes > said.workgroup_bytes ||
      needs.bindings > said.bindings || needs.invocations > said.invocations ||
      !std::all_of(needs.subgroup_matrices.begin(), needs.subgroup_matrices.end(), is_said))
    throw FileError("needs more of a device than its requirements state");
}

// Data that a host copies into a buffer must match the buffer's size.
void check_contents(const ProgramFile& file, const ProgramEntry& entry) {
  const auto holds = [&](const auto& tensors, const Buffer& buffer) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
      return tensor.name == buffer.name && tensor.dtype == buffer.dtype &&
             element_count(tensor.shape) == buffer.elements &&
             detail::bytes_of({tensor.dtype, tensor.shape}) == buffer.bytes;
    });
  };
  for (const Buffer& buffer : entry.program.buffers) {
    bool fine = true;
    if (buffer.where == Buffer::Where::storage) fine &= holds(file.storage, buffer);
    if (buffer.where == Buffer::Where::input) fine &= holds(entry.inputs, buffer);
    if (!fine)
      throw FileError(fmt::format("entry {}: the buffer {} does not match its contents", entry.name, buffer.name));
  }
}

// Sizes of tensors from a file: not negative, and their byte counts do not overflow.
void check_sizes(const std::string& name, DType dtype, const Shape& shape) {
  for (const Dim& size : shape)
    if (size.lower_bound() < 0) throw FileError(fmt::format("{} has a size of {}", name, size.str()));
  if (detail::bytes_of({dtype, shape}) > detail::most_bytes) throw FileError(fmt::format("{} is too large", name));
}

// A host fills some states from a parameter, so they must have its size.
void check_half_copy(const std::map<std::string_view, const PersistentTensor*>& params, const PersistentTensor& copy) {
  const auto source = half_copy_source(copy.name);
  if (!source || copy.is_param) return;
  const auto found = params.find(*source);
  const bool matches =
      found != params.end() && found->second->dtype == DType::f32 && found->second->shape == copy.shape;
  if (!matches || copy.dtype != DType::f16)
    throw FileError(fmt::format("{} is not the f16 copy of a parameter {}", copy.name, *source));
}

void check_initial_values(const PersistentTensor& tensor) {
  constexpr double longest_draw = 16;  // of a normal distribution, in standard deviations, with a margin
  const Init& init = tensor.init;
  const double reach = init.kind == Init::Kind::constant ? 0 : longest_draw * std::fabs(init.width);
  for (const double value : {init.mean - reach, init.mean + reach})
    if (!detail::can_hold(tensor.dtype, value))
      throw FileError(fmt::format("{} cannot hold its initial values, such as {}", tensor.name, value));
}

void check_storage(const ProgramFile& file) {
  std::map<std::string_view, const PersistentTensor*> params;
  for (const PersistentTensor& tensor : file.storage)
    if (tensor.is_param) params.emplace(tensor.name, &tensor);
  for (const PersistentTensor& tensor : file.storage) {
    check_sizes(tensor.name, tensor.dtype, tensor.shape);
    for (const Dim& size : tensor.shape)
      if (!size.is_constant())
        throw FileError(
            fmt::format("{} is kept between runs, so its size {} must not be symbolic", tensor.name, size.str()));
    check_half_copy(params, tensor);
    check_initial_values(tensor);
  }
}

void check(const ProgramFile& file) {
  check_storage(file);
  for (const ProgramEntry& entry : file.entries) {
    for (const InputTensor& input : entry.inputs) check_sizes(input.name, input.dtype, input.shape);
    Target target = Target::cpu();  // without size limits: those of the original device do not matter
    target.separate_arenas = file.target == gpu_target;
    verify(entry.program, target);
    detail::verify_input_indices(entry);
    detail::verify_rates_and_checks(entry);
    check_contents(file, entry);
  }
}

}  // namespace

GpuRequirements gpu_requirements(const Program& program) {
  GpuRequirements needs;
  needs.f16 = program.gpu.uses_f16;
  needs.subgroups = program.gpu.uses_subgroups;
  needs.subgroup_matrices = program.gpu.subgroup_matrices;
  for (const std::int64_t bytes : program.arenas) needs.buffer_bytes = std::max(needs.buffer_bytes, bytes);
  for (const Buffer& buffer : program.buffers) needs.buffer_bytes = std::max(needs.buffer_bytes, buffer.bytes);
  for (const ShaderSource& shader : program.gpu.shaders) {
    needs.workgroup_bytes = std::max(needs.workgroup_bytes, shader.workgroup_bytes);
    needs.invocations = std::max(needs.invocations, shader.threads);
  }
  for (const GpuStep& step : program.gpu.steps) {
    if (step.shader < 0) continue;
    needs.bindings = std::max(needs.bindings, static_cast<int>(step.bindings.size()));
    for (const auto& binding : step.bindings) needs.binding_bytes = std::max(needs.binding_bytes, binding.bytes);
  }
  return needs;
}

std::string encode_program(const ProgramFile& file) {
  const bool for_gpu = file.target == gpu_target;
  Writer writer;
  Json programs = {{"storage", writer.write(file.storage)}, {"entries", Json::array()}}, code = Json::array(),
       indices = Json::array(), rates = Json::array(), checks = Json::array();
  std::string data;
  bool has_rates = false, has_checks = false;
  for (const ProgramEntry& entry : file.entries) {
    Json constants = Json::array();
    for (const HostTensor& constant : entry.program.constants) {
      constants.push_back({{"dtype", name(constant.dtype())}, {"shape", constant.shape()}, {"offset", data.size()}});
      data.append(reinterpret_cast<const char*>(constant.bytes().data()), constant.bytes().size());
    }
    programs["entries"].push_back({{"name", entry.name},
                                   {"inputs", writer.write(entry.inputs)},
                                   {"memory", writer.write(static_cast<const ProgramMemory&>(entry.program))},
                                   {"constants", std::move(constants)}});
    code.push_back(for_gpu ? writer.write(entry.program.gpu) : writer.write(entry.program.cpu));
    indices.push_back(writer.write(entry.indices));
    rates.push_back(Json::array());
    for (const InputTensor& input : entry.inputs) {
      rates.back().push_back(static_cast<int>(input.rate));
      has_rates |= input.rate != Rate::none;
    }
    checks.push_back(writer.write(entry.checks));
    has_checks |= entry.checks.any();
  }
  programs["symbols"] = writer.bounds;
  Json needs = for_gpu ? write(requirements_of(file)) : Json::object();
  needs["device"] = file.target;
  const std::string needs_text = needs.dump(), programs_text = programs.dump(), code_text = code.dump(),
                    indices_text = indices.dump(), rates_text = rates.dump(), checks_text = checks.dump();
  std::vector<Section> sections = {{std::string(section::requirements), true, needs_text},
                                   {std::string(section::programs), true, programs_text},
                                   {std::string(for_gpu ? section::gpu : section::cpu), true, code_text},
                                   {std::string(section::indices), false, indices_text}};
  if (has_rates) sections.push_back({std::string(section::rates), false, rates_text});
  // Required: a host that does not look at them would take a run that changed nothing for one that worked.
  if (has_checks) sections.push_back({std::string(section::checks), true, checks_text});
  sections.push_back({std::string(section::data), true, data});
  return detail::write_sections(sections, {0, 1, 0});
}

namespace {

ProgramFile decode(std::string_view bytes) {
  const std::vector<Section> sections = detail::read_sections(bytes);
  const auto optional_content = [&](std::string_view kind) -> std::optional<std::string_view> {
    for (const Section& section : sections)
      if (section.kind == kind) return section.bytes;
    return std::nullopt;
  };
  const auto content = [&](std::string_view kind) {
    if (const auto found = optional_content(kind)) return *found;
    throw FileError(fmt::format("lacks the section {}", kind));
  };
  const Json needs = Json::parse(content(section::requirements)), programs = Json::parse(content(section::programs));
  Bounds bounds;
  for (const auto& [name, bound] : programs.at("symbols").items())
    bounds.emplace(name, integer(bound, 1, std::numeric_limits<std::int32_t>::max()));
  const Reader reader{bounds};
  ProgramFile file;
  reader.read(needs.at("device"), file.target);
  reader.read(programs.at("storage"), file.storage);
  const bool for_gpu = file.target == gpu_target;
  const Json code = Json::parse(content(for_gpu ? section::gpu : section::cpu));
  const std::string_view data = content(section::data);
  const Json& entries = programs.at("entries");
  if (!entries.is_array() || !code.is_array() || entries.size() != code.size())
    throw FileError("does not have one program for each entry");
  const auto of_entries = [&](std::string_view kind, const char* what, const Json& none) {
    const auto text = optional_content(kind);
    Json rows = text ? Json::parse(*text) : Json(entries.size(), none);
    if (!rows.is_array() || rows.size() != entries.size())
      throw FileError(fmt::format("does not have one list of {} for each entry", what));
    return rows;
  };
  const Json indices = of_entries(section::indices, "indices", Json::array()),
             rates = of_entries(section::rates, "rates", Json::array()),
             checks = of_entries(section::checks, "checks", {{"finite", Json::array()}, {"indices", Json::array()}});
  for (std::size_t i = 0; i < entries.size(); ++i) {
    ProgramEntry& entry = file.entries.emplace_back();
    reader.read(entries[i].at("name"), entry.name);
    reader.read(entries[i].at("inputs"), entry.inputs);
    reader.read(indices[i], entry.indices);
    for (std::size_t k = 0; k < rates[i].size() && k < entry.inputs.size(); ++k)
      entry.inputs[k].rate = Reader::number<Rate>(rates[i][k], 3);
    reader.read(checks[i], entry.checks);
    reader.read(entries[i].at("memory"), static_cast<ProgramMemory&>(entry.program));
    for (const Json& item : entries[i].at("constants")) entry.program.constants.push_back(reader.constant(item, data));
    if (for_gpu) {
      reader.read(code[i], entry.program.gpu);
      entry.program.gpu.emitted = entry.program.gpu.foreign = true;
    } else {
      reader.read(code[i], entry.program.cpu);
    }
  }
  check(file);
  if (for_gpu) check_requirements(read_requirements(needs), requirements_of(file));
  return file;
}

}  // namespace

ProgramFile decode_program(std::string_view bytes, const std::string& name) {
  try {
    return decode(bytes);
  } catch (const Json::exception& error) {
    throw FileError(fmt::format("{}: {}", name, error.what()));
  } catch (const Error& error) {
    throw FileError(fmt::format("{}: {}", name, error.what()));
  }
}

void save_program(const std::filesystem::path& path, const ProgramFile& file) {
  write_file_atomically(path, encode_program(file));
}

ProgramFile load_program(const std::filesystem::path& path) {
  const FileContent content(path);
  return decode_program(content.text(), path.string());
}

}  // namespace jerboa
