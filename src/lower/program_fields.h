#pragma once

#include <type_traits>

#include <jerboa/lower/program_file.h>

// The fields of what program files hold, by name.
namespace jerboa::detail {

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
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, ProgramMemory> {
  f("buffers", x.buffers);
  f("arenas", x.arenas);
  f("outputs", x.outputs);
  f("captures", x.captures);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, CpuCode> {
  f("kernels", x.kernels);
  f("dispatches", x.dispatches);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, ShaderSource> {
  f("name", x.name);
  f("source", x.source);
  f("threads", x.threads);
  f("workgroup_bytes", x.workgroup_bytes);
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
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, SubgroupMatrix> {
  f("rows", x.rows);
  f("columns", x.columns);
  f("inner", x.inner);
  f("operands", x.operands);
  f("sums", x.sums);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, GpuCode> {
  f("shaders", x.shaders);
  f("steps", x.steps);
  f("uses_f16", x.uses_f16);
  f("uses_subgroups", x.uses_subgroups);
  f("subgroup_matrices", x.subgroup_matrices);
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
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, InputIndices::View> {
  f("shape", x.shape);
  f("offset", x.offset);
  f("strides", x.strides);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, InputIndices> {
  f("input", x.input);
  f("views", x.views);
  f("limit", x.limit);
  f("negative_is_none", x.negative_is_none);
  f("op", x.user);
  f("site", x.site);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, RunChecks::Value> {
  f("name", x.name);
  f("op", x.op);
  f("site", x.site);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, RunChecks::Indices> {
  f("name", x.name);
  f("op", x.user);
  f("site", x.site);
  f("limit", x.range.limit);
  f("negative_is_none", x.range.negative_is_none);
}
template <class F, class T>
void fields(F& f, T& x) requires std::is_same_v<std::remove_const_t<T>, RunChecks> {
  f("finite", x.finite);
  f("indices", x.indices);
}

}  // namespace jerboa::detail
