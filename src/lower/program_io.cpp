#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/lower/lower.h>
#include <jerboa/lower/program_file.h>

#include "ir/attr_json.h"

// A program file: "JERBOAP4", the length of a JSON header as 8 bytes, the header, the constants' bytes one after
// another.
namespace jerboa {
namespace {

using detail::Bounds;
using Json = detail::Json;

constexpr std::string_view magic = "JERBOAP4";

// One description of each struct serves writing and reading: `f` is called with the name and the field.
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, IndexMap> {
  f("offset", x.offset);
  f("strides", x.strides);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, Mask> {
  f("axis", x.axis);
  f("from", x.from);
  f("to", x.to);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, Load> {
  f("binding", x.binding);
  f("dtype", x.dtype);
  f("map", x.map);
  f("masks", x.masks);
  f("fill", x.fill);
  f("indirect", x.indirect);
  f("indirect_stride", x.indirect_stride);
  f("indirect_limit", x.indirect_limit);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, Store> {
  f("binding", x.binding);
  f("dtype", x.dtype);
  f("map", x.map);
  f("value", x.value);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, Instruction> {
  f("kind", x.kind);
  f("op", x.op);
  f("dtype", x.dtype);
  f("a", x.a);
  f("b", x.b);
  f("c", x.c);
  f("index", x.index);
  f("number", x.number);
  f("number2", x.number2);
  f("dim", x.dim);
  f("dim_scale", x.dim_scale);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, TensorAccess> {
  f("binding", x.binding);
  f("dtype", x.dtype);
  f("shape", x.shape);
  f("offset", x.offset);
  f("strides", x.strides);
  f("prologue", x.prologue);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, KernelSpec> {
  f("kind", x.kind);
  f("op", x.op);
  f("domain", x.domain);
  f("row_axes", x.row_axes);
  f("loads", x.loads);
  f("body", x.body);
  f("stores", x.stores);
  f("operands", x.operands);
  f("results", x.results);
  f("bindings", x.bindings);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, Buffer> {
  f("where", x.where);
  f("name", x.name);
  f("constant", x.constant);
  f("dtype", x.dtype);
  f("elements", x.elements);
  f("arena", x.arena);
  f("offset", x.offset);
  f("bytes", x.bytes);
  f("first", x.first);
  f("last", x.last);
  f("within", x.within);
  f("inside", x.inside);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, Dispatch::Part> {
  f("kernel", x.kernel);
  f("buffers", x.buffers);
  f("label", x.label);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, Dispatch> {
  f("parts", x.parts);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, Readable> {
  f("name", x.name);
  f("dtype", x.dtype);
  f("shape", x.shape);
  f("buffer", x.buffer);
  f("offset", x.offset);
  f("strides", x.strides);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, ShaderSource> {
  f("name", x.name);
  f("source", x.source);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, GpuStep::Binding> {
  f("buffer", x.buffer);
  f("offset", x.offset);
  f("bytes", x.bytes);
  f("written", x.written);
  f("read_write", x.read_write);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, GpuStep> {
  f("shader", x.shader);
  f("bindings", x.bindings);
  f("sizes", x.sizes);
  f("workgroups", x.workgroups);
  f("label", x.label);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, GpuCode> {
  f("shaders", x.shaders);
  f("steps", x.steps);
  f("uses_f16", x.uses_f16);
  f("uses_subgroups", x.uses_subgroups);
  f("uses_subgroup_matrices", x.uses_subgroup_matrices);
  f("emitted", x.emitted);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, Program> {
  f("kernels", x.kernels);
  f("buffers", x.buffers);
  f("dispatches", x.dispatches);
  f("arenas", x.arenas);
  f("outputs", x.outputs);
  f("captures", x.captures);
  f("gpu", x.gpu);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, PersistentTensor> {
  f("name", x.name);
  f("dtype", x.dtype);
  f("shape", x.shape);
  f("is_param", x.is_param);
  f("init_kind", x.init.kind);
  f("init_mean", x.init.mean);
  f("init_width", x.init.width);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, InputTensor> {
  f("name", x.name);
  f("dtype", x.dtype);
  f("shape", x.shape);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, ProgramEntry> {
  f("name", x.name);
  f("inputs", x.inputs);
  f("program", x.program);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, ProgramFile> {
  f("target", x.target);
  f("storage", x.storage);
  f("entries", x.entries);
}

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
  template <class T>
  requires std::is_arithmetic_v<T> Json write(T value) { return value; }
  template <class T>
  requires std::is_enum_v<T> Json write(T value) { return static_cast<int>(value); }
  template <class T>
  Json write(const std::vector<T>& list) {
    Json json = Json::array();
    for (const T& item : list) json.push_back(write(item));
    return json;
  }
  template <class T>
  requires std::is_class_v<T> Json write(const T& x) {
    Json json = Json::object();
    auto visit = [&](const char* field, const auto& value) { json[field] = write(value); };
    fields(visit, x);
    if constexpr (std::is_same_v<T, KernelSpec>)
      if (x.kind == KernelSpec::Kind::whole) json["attrs"] = detail::attrs_json(x.attrs, true);
    return json;
  }
};

struct Reader {
  const Bounds& bounds;

  void read(const Json& json, Dim& dim) const {
    if (json.is_number_integer()) {
      dim = Dim(json.get<std::int64_t>());
      return;
    }
    const auto parsed = Dim::parse(json.get<std::string>(), bounds);
    if (!parsed) throw FileError(fmt::format("{} is no size over known symbols", json.dump()));
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
  template <class T>
  requires std::is_arithmetic_v<T>
  void read(const Json& json, T& value) const { value = json.get<T>(); }
  void read(const Json& json, Instruction::Kind& kind) const { kind = number<Instruction::Kind>(json, 6); }
  void read(const Json& json, KernelSpec::Kind& kind) const { kind = number<KernelSpec::Kind>(json, 4); }
  void read(const Json& json, Buffer::Where& where) const { where = number<Buffer::Where>(json, 5); }
  void read(const Json& json, Init::Kind& kind) const { kind = number<Init::Kind>(json, 3); }
  template <class E>
  static E number(const Json& json, int count) {
    const int value = json.get<int>();
    if (value < 0 || value >= count) throw FileError(fmt::format("{} is out of range", value));
    return static_cast<E>(value);
  }
  template <class T>
  void read(const Json& json, std::vector<T>& list) const {
    if (!json.is_array()) throw FileError("a list is missing");
    list.clear();
    for (const Json& item : json) read(item, list.emplace_back());
  }
  template <class T>
  requires std::is_class_v<T>
  void read(const Json& json, T& x) const {
    auto visit = [&](const char* field, auto& value) { read(json.at(field), value); };
    fields(visit, x);
    if constexpr (std::is_same_v<T, KernelSpec>)
      if (x.kind == KernelSpec::Kind::whole) x.attrs = detail::attrs_from(x.op, json.at("attrs"), bounds);
  }
};

// What a host copies into a buffer must have the buffer's size.
void check_contents(const ProgramFile& file, const ProgramEntry& entry) {
  const auto bytes_of = [](const auto& tensor) {
    return element_count(tensor.shape).upper_bound() * bits(tensor.dtype) / 8;
  };
  const auto holds = [&](const auto& tensors, const Buffer& buffer) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
      return tensor.name == buffer.name && tensor.dtype == buffer.dtype && bytes_of(tensor) == buffer.bytes;
    });
  };
  for (const Buffer& buffer : entry.program.buffers) {
    bool fine = buffer.bytes >= 0;
    if (buffer.where == Buffer::Where::storage) fine &= holds(file.storage, buffer);
    if (buffer.where == Buffer::Where::input) fine &= holds(entry.inputs, buffer);
    if (buffer.where == Buffer::Where::constant)
      fine &= buffer.bytes == static_cast<std::int64_t>(
                                  entry.program.constants[static_cast<std::size_t>(buffer.constant)].bytes().size());
    if (!fine)
      throw FileError(fmt::format("entry {}: the buffer {} does not fit what it holds", entry.name, buffer.name));
  }
}

// Indices that a host would follow must stay in range.
void check_references(const ProgramFile& file) {
  for (const ProgramEntry& entry : file.entries) {
    const Program& program = entry.program;
    const auto in = [](int index, std::size_t size) { return index >= 0 && index < static_cast<int>(size); };
    bool fine = true;
    for (const Buffer& buffer : program.buffers) {
      fine &= buffer.where != Buffer::Where::arena || in(buffer.arena, program.arenas.size());
      fine &= buffer.where != Buffer::Where::constant || in(buffer.constant, program.constants.size());
      fine &= buffer.within == -1 || in(buffer.within, program.buffers.size());
    }
    for (const Dispatch& dispatch : program.dispatches)
      for (const Dispatch::Part& part : dispatch.parts) {
        fine &= in(part.kernel, program.kernels.size());
        for (const int buffer : part.buffers) fine &= in(buffer, program.buffers.size());
      }
    for (const auto* list : {&program.outputs, &program.captures})
      for (const Readable& readable : *list) fine &= in(readable.buffer, program.buffers.size());
    for (const KernelSpec& kernel : program.kernels) {
      const auto body = kernel.body.size(), bindings = static_cast<std::size_t>(std::max(kernel.bindings, 0));
      for (const Load& load : kernel.loads)
        fine &= in(load.binding, bindings) && load.map.strides.size() == kernel.domain.size() &&
                (load.indirect < 0 || in(load.indirect, body));
      for (const Store& store : kernel.stores)
        fine &=
            in(store.binding, bindings) && store.map.strides.size() == kernel.domain.size() && in(store.value, body);
      for (std::size_t i = 0; i < body; ++i) {
        const Instruction& own = kernel.body[i];
        for (const int operand : {own.a, own.b, own.c}) fine &= operand < static_cast<int>(i);
        if (own.kind == Instruction::Kind::load) fine &= in(own.index, kernel.loads.size());
        if (own.kind == Instruction::Kind::position) fine &= in(own.index, kernel.domain.size());
      }
      for (const auto* list : {&kernel.operands, &kernel.results})
        for (const TensorAccess& access : *list)
          fine &= access.binding < kernel.bindings && access.strides.size() == access.shape.size();
    }
    if (!fine) throw FileError(fmt::format("entry {} refers to something that is not there", entry.name));
    check_contents(file, entry);
    Target target = Target::cpu();  // whose sizes know no limits: the device that ran it had its own
    target.separate_arenas = file.target == Target::webgpu_default().name;
    verify(program, target);
  }
}

}  // namespace

void save_program(const std::filesystem::path& path, const ProgramFile& file) {
  Writer writer;
  Json json = writer.write(file);
  std::string blobs;
  for (std::size_t i = 0; i < file.entries.size(); ++i) {
    Json& constants = json["entries"][i]["constants"] = Json::array();
    for (const HostTensor& constant : file.entries[i].program.constants) {
      constants.push_back({{"dtype", name(constant.dtype())}, {"shape", constant.shape()}, {"offset", blobs.size()}});
      blobs.append(reinterpret_cast<const char*>(constant.bytes().data()), constant.bytes().size());
    }
  }
  json["symbols"] = writer.bounds;
  const std::string header = json.dump();
  const std::uint64_t length = header.size();
  std::string content(magic);
  content.append(reinterpret_cast<const char*>(&length), sizeof(length));
  write_file_atomically(path, content + header + blobs);
}

ProgramFile load_program(const std::filesystem::path& path) {
  const MappedFile mapped(path);
  const std::string_view text = mapped.text();
  const auto fail = [&](const std::string& what) -> FileError {
    return FileError(fmt::format("{}: {}", path.string(), what));
  };
  std::uint64_t length = 0;
  if (text.size() < magic.size() + sizeof(length) || !text.starts_with(magic))
    throw fail("not a program of this version of Jerboa");
  std::memcpy(&length, text.data() + magic.size(), sizeof(length));
  const std::string_view rest = text.substr(magic.size() + sizeof(length));
  if (length > rest.size()) throw fail("the header is cut off");
  const std::string_view blobs = rest.substr(length);
  try {
    const Json json = Json::parse(rest.substr(0, length));
    const auto bounds = json.at("symbols").get<Bounds>();
    ProgramFile file;
    const Reader reader{bounds};
    reader.read(json, file);
    for (std::size_t i = 0; i < file.entries.size(); ++i)
      for (const Json& item : json.at("entries").at(i).at("constants")) {
        DType dtype{};
        reader.read(item.at("dtype"), dtype);
        const auto shape = item.at("shape").get<std::vector<std::int64_t>>();
        const auto offset = item.at("offset").get<std::uint64_t>();
        std::uint64_t bytes = static_cast<std::uint64_t>(bits(dtype)) / 8;
        for (const auto size : shape) {
          if (size < 0 || (size > 0 && bytes > blobs.size() / static_cast<std::uint64_t>(size) + 1))
            throw fail("a constant is cut off");
          bytes *= static_cast<std::uint64_t>(size);
        }
        if (offset > blobs.size() || bytes > blobs.size() - offset) throw fail("a constant is cut off");
        HostTensor constant(dtype, shape);
        std::memcpy(constant.bytes().data(), blobs.data() + offset, bytes);
        file.entries[i].program.constants.push_back(std::move(constant));
      }
    check_references(file);
    return file;
  } catch (const Json::exception& error) {
    throw fail(error.what());
  } catch (const GraphError& error) {
    throw fail(error.what());
  } catch (const ShapeError& error) {
    throw fail(error.what());
  }
}

}  // namespace jerboa
