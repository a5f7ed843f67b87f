#include "lower/bindable.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "lower/target.h"

namespace jerboa::detail {
namespace {

// The tensor of a buffer, and where it comes from. The name of a buffer that several tensors share in turn lists all of
// them.
std::string describe(const Buffer& buffer, const Graph& graph) {
  TensorId id = graph.find(buffer.name);
  if (id == no_tensor) id = graph.find(buffer.name.substr(0, buffer.name.find(' ')));
  if (id == no_tensor) return fmt::format("{} ({}[{}])", buffer.name, name(buffer.dtype), buffer.elements.str());
  const std::string& site = graph.producer(id).site;
  return fmt::format("{} ({}{}{})", graph.tensor(id).name, to_string(graph.type(id)), site.empty() ? "" : ", ", site);
}

}  // namespace

void refuse_unbindable_tensors(const Program& program, const Graph& graph, const Target& target) {
  for (const Dispatch& dispatch : program.cpu.dispatches)
    for (const Dispatch::Part& part : dispatch.parts) {
      const Buffer* largest = nullptr;
      int all = 0, most = 0;
      for (const int number : part.buffers) {
        const Buffer& buffer = program.buffers[static_cast<std::size_t>(number)];
        const int count = binding_count(buffer.bytes, target);
        all += count;
        most = std::max(most, count);
        if (largest == nullptr || buffer.bytes > largest->bytes) largest = &buffer;
      }
      // An op on whole tensors may become several shaders that each bind some of them, so only a single tensor that is
      // too large is certain to fail; and too many small tensors are not the user's fault.
      const bool whole = program.cpu.kernels[static_cast<std::size_t>(part.kernel)].kind == KernelSpec::Kind::whole;
      const int needed = whole ? most : all;
      if (most > 1 && needed > target.max_bindings)
        refuse_binding(describe(*largest, graph), largest->bytes, part.label, needed, target);
    }
}

void refuse_tensors_without_room(const Program& program, const Graph& graph) {
  const Buffer* largest = nullptr;
  for (const Buffer& buffer : program.buffers)
    if (largest == nullptr || buffer.bytes > largest->bytes) largest = &buffer;
  std::int64_t all = 0;
  for (const std::int64_t bytes : program.arenas) all += bytes;
  if (largest == nullptr || (largest->bytes <= most_bytes && all <= most_bytes)) return;
  const std::string total = all == 0 ? "" : fmt::format("; the activations take {} bytes in all", all);
  throw OutOfMemoryError(
      fmt::format("not enough memory for {}, {} bytes{}", describe(*largest, graph), largest->bytes, total));
}

void refuse_binding(const std::string& tensor, std::int64_t bytes, const std::string& kernel, int bindings,
                    const Target& target) {
  throw UsageError(fmt::format(
      "{} takes {} bytes, too many for the device {}: it binds a tensor in parts of at most {} bytes and allows {} of "
      "them in a kernel, but the one that computes {} needs {}; make it smaller (several tensors instead of one, a "
      "smaller type or batch), or use a device with larger bindings",
      tensor, bytes, target.name, target.max_binding_bytes, target.max_bindings, kernel, bindings));
}

}  // namespace jerboa::detail
