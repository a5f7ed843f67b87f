#include "lower/emit.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include "lower/axes.h"
#include "lower/index.h"
#include "lower/kernel_builder.h"
#include "lower/target.h"

namespace jerboa::detail {
namespace {

class Emitter {
 public:
  Emitter(const Graph& graph, const Fusion& fusion) : graph_(graph), fusion_(fusion) {}

  Program run() {
    make_buffers();
    for (std::size_t i = 0; i < fusion_.groups.size(); ++i) add_group(static_cast<int>(i));
    add_copies();
    for (const NamedTensor& output : graph_.outputs) program_.outputs.push_back(readable(output));
    for (const NamedTensor& capture : graph_.captures) program_.captures.push_back(readable(capture));
    program_.constants = graph_.constants;
    return std::move(program_);
  }

 private:
  void make_buffers() {
    buffer_of_.assign(graph_.tensors.size(), -1);
    for (TensorId id = 0; id < static_cast<TensorId>(graph_.tensors.size()); ++id) {
      if (!fusion_.in_memory[index(id)] || fusion_.written_to[index(id)] != no_tensor) continue;
      buffer_of_[index(id)] = add_buffer(id);
    }
    for (TensorId id = 0; id < static_cast<TensorId>(graph_.tensors.size()); ++id)
      if (const TensorId target = fusion_.written_to[index(id)]; target != no_tensor)
        buffer_of_[index(id)] = buffer_of_[index(target)];
  }

  int add_buffer(TensorId id) {
    const TensorInfo& tensor = graph_.tensor(id);
    Buffer buffer;
    buffer.name = tensor.name;
    buffer.dtype = tensor.type.dtype;
    buffer.elements = element_count(tensor.type.shape);
    buffer.bytes = bytes_of(tensor.type);
    switch (tensor.storage) {
      case Storage::param:
      case Storage::state: buffer.where = Buffer::Where::storage; break;
      case Storage::input: buffer.where = Buffer::Where::input; break;
      case Storage::constant:
        buffer.where = Buffer::Where::constant;
        buffer.constant = graph_.producer(id).as<ConstantAttrs>().blob;
        break;
      case Storage::activation: buffer.where = Buffer::Where::arena; break;
    }
    program_.buffers.push_back(std::move(buffer));
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  int add_kernel(KernelSpec kernel) {
    const auto [found, fresh] = kernel_numbers_.emplace(print(kernel), static_cast<int>(program_.cpu.kernels.size()));
    if (fresh) program_.cpu.kernels.push_back(std::move(kernel));
    return found->second;
  }

  // The names of a group's results, for profiles and dumps.
  std::string label(const Group& group) const {
    std::string text;
    for (const NodeId id : group.nodes) {
      const TensorId result = graph_.nodes[index(id)].outputs[0];
      if (!fusion_.in_memory[index(result)]) continue;
      if (!text.empty()) text += " ";
      text += graph_.tensor(result).name;
      if (text.size() > 60) break;
    }
    return text;
  }

  void add_group(int number) {
    KernelBuilder builder(graph_, fusion_, buffer_of_, number);
    const Group& group = fusion_.groups[index(number)];
    Dispatch::Part part;
    const int kernel = add_kernel(builder.build());
    part.kernel = kernel;
    part.buffers = builder.buffers();
    part.label = label(group);
    // A kernel that does not depend on those of the last dispatch runs alongside them.
    const bool mergeable = group.kind == KernelSpec::Kind::loop;
    const bool independent =
        std::none_of(group.needs.begin(), group.needs.end(), [&](int need) { return in_last_.contains(need); });
    if (mergeable && last_mergeable_ && independent) {
      program_.cpu.dispatches.back().parts.push_back(std::move(part));
    } else {
      program_.cpu.dispatches.push_back({{std::move(part)}});
      in_last_.clear();
    }
    last_mergeable_ = mergeable;
    in_last_.insert(number);
  }

  // Updates that could not be written in place are copied from the new value to the state's memory at the end.
  void add_copies() {
    std::set<TensorId> targets;
    for (const Update& update : graph_.updates) targets.insert(update.target);
    Dispatch to_temporary, to_storage;
    for (const Update& update : graph_.updates) {
      const Layout& layout = fusion_.layouts[index(update.value)];
      if (fusion_.written_to[index(layout.root)] == update.target) continue;
      int source = buffer_of_[index(layout.root)];
      Dim offset = layout.offset;
      std::vector<Dim> strides = layout.strides;
      const Shape& shape = graph_.shape(update.value);
      // A source that is about to be overwritten is saved first.
      const TensorId overwritten =
          fusion_.written_to[index(layout.root)] == no_tensor ? layout.root : fusion_.written_to[index(layout.root)];
      if (targets.contains(overwritten)) {
        Buffer temporary;
        temporary.name = "next " + graph_.tensor(update.target).name;
        temporary.dtype = graph_.type(update.value).dtype;
        temporary.elements = element_count(shape);
        temporary.bytes = bytes_of({temporary.dtype, shape});
        program_.buffers.push_back(temporary);
        const int between = static_cast<int>(program_.buffers.size()) - 1;
        to_temporary.parts.push_back(
            copy_part(source, offset, strides, between, shape, temporary.dtype, temporary.name));
        source = between;
        offset = 0;
        strides = row_major_strides(shape);
      }
      to_storage.parts.push_back(copy_part(source, offset, strides, buffer_of_[index(update.target)], shape,
                                           graph_.type(update.value).dtype, graph_.tensor(update.target).name));
    }
    if (!to_temporary.parts.empty()) program_.cpu.dispatches.push_back(std::move(to_temporary));
    if (!to_storage.parts.empty()) program_.cpu.dispatches.push_back(std::move(to_storage));
  }

  Dispatch::Part copy_part(int source, const Dim& offset, const std::vector<Dim>& strides, int target,
                           const Shape& shape, DType dtype, const std::string& name) {
    KernelSpec kernel;
    kernel.domain = shape;
    Load load;
    load.dtype = dtype;
    load.map = {offset, strides};
    kernel.loads.push_back(load);
    Instruction instruction;
    instruction.kind = Instruction::Kind::load;
    instruction.dtype = dtype;
    kernel.body.push_back(instruction);
    kernel.stores.push_back({1, dtype, {0, row_major_strides(shape)}, 0});
    kernel.bindings = 2;
    return {add_kernel(std::move(kernel)), {source, target}, name};
  }

  Readable readable(const NamedTensor& named) const {
    const Layout& layout = fusion_.layouts[index(named.tensor)];
    return {named.name,
            graph_.type(named.tensor).dtype,
            graph_.shape(named.tensor),
            buffer_of_[index(layout.root)],
            layout.offset,
            layout.strides};
  }

  const Graph& graph_;
  const Fusion& fusion_;
  Program program_;
  std::vector<int> buffer_of_;
  std::map<std::string, int> kernel_numbers_;
  std::set<int> in_last_;
  bool last_mergeable_ = false;
};

}  // namespace

Program emit(const Graph& graph, const Fusion& fusion, const Target&) { return Emitter(graph, fusion).run(); }

}  // namespace jerboa::detail
