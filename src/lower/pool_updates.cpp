#include "lower/pool_updates.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/integers.h"
#include "base/stable_sort.h"
#include "lower/axes.h"
#include "lower/emit.h"
#include "lower/fuse.h"
#include "lower/index.h"
#include "lower/lives.h"

namespace jerboa::detail {
namespace {

constexpr std::size_t fewest_updates = 4;  // the fewest that are worth pooling

bool is_everywhere_the_same(const IndexMap& map, const Shape& domain) {
  for (std::size_t axis = 0; axis < domain.size(); ++axis)
    if (!(domain[axis] == Dim(1)) && !(map.strides[axis] == Dim(0))) return false;
  return true;
}

// Whether the domain, in row-major order, covers memory contiguously from its start.
bool is_in_order(const IndexMap& map, const Shape& domain) {
  return map.offset == Dim(0) && is_row_major(domain, map.strides);
}

// An update of one parameter: a kernel that reads and writes tensors of the parameter's size from the first element to
// the last, and reads single numbers.
struct UpdateKernel {
  int dispatch = 0, part = 0;
  std::int64_t elements = 0;
  KernelSpec kernel;            // flattened to one axis
  std::vector<int> buffers;     // by binding
  std::vector<bool> is_number;  // by binding
};

// Flattens a kernel's loads and stores to one axis; returns which bindings are numbers, nullopt if it cannot.
std::optional<std::vector<bool>> flatten(KernelSpec& kernel) {
  std::vector<bool> is_number(index(kernel.bindings), false), is_tensor(index(kernel.bindings), false);
  for (Load& load : kernel.loads) {
    const bool number = is_everywhere_the_same(load.map, kernel.domain);
    if (!load.masks.empty() || load.indirect >= 0 || (!number && !is_in_order(load.map, kernel.domain)))
      return std::nullopt;
    (number ? is_number : is_tensor)[index(load.binding)] = true;
    load.map.strides = {Dim(number ? 0 : 1)};
  }
  for (Store& store : kernel.stores) {
    if (!is_in_order(store.map, kernel.domain)) return std::nullopt;
    is_tensor[index(store.binding)] = true;
    store.map.strides = {Dim(1)};
  }
  for (std::size_t i = 0; i < is_number.size(); ++i)
    if (is_number[i] == is_tensor[i]) return std::nullopt;
  kernel.domain = {element_count(kernel.domain)};
  return is_number;
}

class UpdatePooler {
 public:
  UpdatePooler(Program& program, const Target& target) : program_(program), target_(target) {}

  // One pool at a time: each pool changes when the other updates run.
  void run() {
    while (pool_some()) {
    }
  }

 private:
  bool pool_some() {
    for (auto& [key, updates] : find()) {
      drop_immovable(updates);
      drop_conflicts(updates);
      keep_one_pool(updates);
      if (updates.size() < fewest_updates) continue;
      pool(updates);
      return true;
    }
    return false;
  }

  const Buffer& buffer(int number) const { return program_.buffers[index(number)]; }
  const std::string& name_of(const UpdateKernel& update) const {
    return buffer(update.buffers[index(update.kernel.stores.front().binding)]).name;
  }

  // The updates, grouped by their computation.
  std::map<std::string, std::vector<UpdateKernel>> find() const {
    std::map<std::string, std::vector<UpdateKernel>> found;
    for (std::size_t d = 0; d < program_.cpu.dispatches.size(); ++d)
      for (std::size_t p = 0; p < program_.cpu.dispatches[d].parts.size(); ++p)
        if (auto update = update_of(program_.cpu.dispatches[d].parts[p])) {
          update->dispatch = static_cast<int>(d);
          update->part = static_cast<int>(p);
          found[key_of(*update)].push_back(std::move(*update));
        }
    return found;
  }

  std::optional<UpdateKernel> update_of(const Dispatch::Part& part) const {
    UpdateKernel update;
    update.kernel = program_.cpu.kernels[index(part.kernel)];
    update.buffers = part.buffers;
    const Dim elements = element_count(update.kernel.domain);
    if (update.kernel.kind != KernelSpec::Kind::loop || update.kernel.row_axes > 0 || !elements.is_constant() ||
        elements.value() < 2)
      return std::nullopt;
    update.elements = elements.value();
    const auto is_number = flatten(update.kernel);
    if (!is_number) return std::nullopt;
    update.is_number = *is_number;
    for (std::size_t i = 0; i < part.buffers.size(); ++i)
      if (!update.is_number[i] && !can_be_pooled(part.buffers[i], elements)) return std::nullopt;
    for (const Store& store : update.kernel.stores)
      if (buffer(part.buffers[index(store.binding)]).where != Buffer::Where::storage) return std::nullopt;
    const auto depends_on_place = [](const Instruction& instruction) {
      return instruction.kind != Instruction::Kind::load && instruction.kind != Instruction::Kind::compute &&
             instruction.kind != Instruction::Kind::constant;
    };
    const auto& body = update.kernel.body;
    if (std::any_of(body.begin(), body.end(), depends_on_place)) return std::nullopt;
    return update;
  }

  bool can_be_pooled(int number, const Dim& elements) const {
    const Buffer& tensor_buffer = buffer(number);
    const bool fits = tensor_buffer.where == Buffer::Where::storage || tensor_buffer.where == Buffer::Where::arena;
    return fits && tensor_buffer.within < 0 && tensor_buffer.elements == elements && bits(tensor_buffer.dtype) >= 16 &&
           tensor_buffer.bytes <= target_.max_binding_bytes;
  }

  std::string key_of(const UpdateKernel& update) const {
    KernelSpec kernel = update.kernel;
    kernel.domain = {Dim(0)};
    std::string key = print(kernel);
    for (std::size_t i = 0; i < update.buffers.size(); ++i) {
      const Buffer& tensor_buffer = buffer(update.buffers[i]);
      key += update.is_number[i] ? fmt::format(" {}", update.buffers[i])
                                 : fmt::format(" {}{}", name(tensor_buffer.dtype),
                                               tensor_buffer.where == Buffer::Where::arena ? " made here" : "");
    }
    return key;
  }

  // All of them run where the last one did: until then no other kernel may use what one writes, or write what one
  // reads.
  void drop_immovable(std::vector<UpdateKernel>& updates) const {
    int last = 0;
    std::set<std::pair<int, int>> update_parts;
    for (const UpdateKernel& update : updates) {
      last = std::max(last, update.dispatch);
      update_parts.emplace(update.dispatch, update.part);
    }
    std::erase_if(updates, [&](const UpdateKernel& update) {
      const auto written = written_bindings(update.kernel);
      for (int d = update.dispatch + 1; d <= last; ++d)
        for (std::size_t p = 0; p < program_.cpu.dispatches[index(d)].parts.size(); ++p) {
          const Dispatch::Part& other = program_.cpu.dispatches[index(d)].parts[p];
          if (update_parts.contains({d, static_cast<int>(p)})) continue;
          const auto writes = written_bindings(program_.cpu.kernels[index(other.kernel)]);
          for (std::size_t i = 0; i < other.buffers.size(); ++i)
            for (std::size_t k = 0; k < update.buffers.size(); ++k)
              if (other.buffers[i] == update.buffers[k] && (writes[i] || written[k])) return true;
        }
      return false;
    });
  }

  // Different updates use different tensors, and no kernel reads one tensor of a pool while it writes another.
  void drop_conflicts(std::vector<UpdateKernel>& updates) const {
    std::map<int, std::size_t> owner;  // by buffer: the update that it belongs to
    std::map<int, std::size_t> role;   // by buffer: the pool that it would be in, as a binding
    std::set<std::size_t> dropped;
    for (std::size_t u = 0; u < updates.size(); ++u)
      for (std::size_t b = 0; b < updates[u].buffers.size(); ++b) {
        if (updates[u].is_number[b]) continue;
        if (!owner.emplace(updates[u].buffers[b], u).second) dropped.insert(u);
        role.emplace(updates[u].buffers[b], b);
      }
    for (const Dispatch& dispatch : program_.cpu.dispatches)
      for (const Dispatch::Part& part : dispatch.parts) {
        const auto writes = written_bindings(program_.cpu.kernels[index(part.kernel)]);
        for (std::size_t i = 0; i < part.buffers.size(); ++i)
          for (std::size_t k = 0; k < part.buffers.size(); ++k) {
            const auto read = role.find(part.buffers[i]), written = role.find(part.buffers[k]);
            if (i != k && writes[k] && !writes[i] && read != role.end() && written != role.end() &&
                read->second == written->second)
              dropped.insert(owner.at(part.buffers[i]));
          }
      }
    std::vector<UpdateKernel> kept;
    for (std::size_t u = 0; u < updates.size(); ++u)
      if (!dropped.contains(u)) kept.push_back(std::move(updates[u]));
    updates = std::move(kept);
  }

  // Each tensor starts at an offset that a device can bind.
  std::int64_t elements_between(const UpdateKernel& update) const {
    std::int64_t elements = 1;
    for (std::size_t i = 0; i < update.buffers.size(); ++i)
      if (!update.is_number[i])
        elements = std::max(elements, target_.offset_alignment * 8 / bits(buffer(update.buffers[i]).dtype));
    return round_up(update.elements, elements);
  }

  // Sorted by name, which is the same in every program over the same storage. Updates that do not fit go into the next
  // pool.
  void keep_one_pool(std::vector<UpdateKernel>& updates) const {
    detail::stable_sort(updates, [&](const UpdateKernel& a, const UpdateKernel& b) { return name_of(a) < name_of(b); });
    const std::int64_t most = std::min(target_.max_binding_bytes, target_.max_buffer_bytes) / 4;
    std::int64_t elements = 0;
    std::erase_if(updates, [&](const UpdateKernel& update) {
      if (elements + elements_between(update) > most) return true;
      elements += elements_between(update);
      return false;
    });
  }

  void pool(const std::vector<UpdateKernel>& updates) {
    const UpdateKernel& first = updates.front();
    std::int64_t total = 0;
    std::vector<std::int64_t> places;
    bool gaps = false;
    for (const UpdateKernel& update : updates) {
      places.push_back(total);
      total += elements_between(update);
      gaps |= elements_between(update) != update.elements;
    }
    Dispatch::Part part;
    std::vector<int> cleared;
    for (std::size_t b = 0; b < first.buffers.size(); ++b) {
      if (first.is_number[b]) {
        part.buffers.push_back(first.buffers[b]);
        continue;
      }
      std::vector<int> members;
      for (const UpdateKernel& update : updates) members.push_back(update.buffers[b]);
      part.buffers.push_back(put_side_by_side(members, places, total));
      // The gaps between them would be summed as well. In an arena they are cleared; in storage they hold whatever
      // updates, including those of other programs, have left there.
      const bool in_arena = buffer(part.buffers.back()).where == Buffer::Where::arena;
      const bool squared = (in_arena || !gaps) && read_squares_of(part.buffers.back(), members);
      if (squared && gaps) cleared.push_back(part.buffers.back());
    }
    part.label =
        fmt::format("{} and {} more", program_.cpu.dispatches[index(first.dispatch)].parts[index(first.part)].label,
                    updates.size() - 1);
    KernelSpec kernel = first.kernel;
    kernel.domain = {Dim(total)};
    part.kernel = add_kernel(std::move(kernel));
    replace(updates, part, cleared);
  }

  int put_side_by_side(const std::vector<int>& members, const std::vector<std::int64_t>& places, std::int64_t total) {
    const Buffer& like = buffer(members.front());
    Buffer whole;
    whole.where = like.where == Buffer::Where::arena ? Buffer::Where::arena : Buffer::Where::pool;
    whole.name = fmt::format("{} and {} more in a pool", like.name, members.size() - 1);
    whole.dtype = like.dtype;
    whole.elements = total;
    whole.bytes = total * bits(like.dtype) / 8;
    const int number = static_cast<int>(program_.buffers.size());
    program_.buffers.push_back(std::move(whole));
    for (std::size_t i = 0; i < members.size(); ++i) {
      Buffer& buffer = program_.buffers[index(members[i])];
      buffer.within = number;
      buffer.inside = places[i] * bits(buffer.dtype) / 8;
      if (buffer.where == Buffer::Where::storage) buffer.offset = buffer.inside;
    }
    return number;
  }

  // A sum of squares that reads all of them reads the pool instead.
  bool read_squares_of(int whole, const std::vector<int>& members) {
    bool any = false;
    for (Dispatch& dispatch : program_.cpu.dispatches)
      for (Dispatch::Part& part : dispatch.parts) {
        const KernelSpec& kernel = program_.cpu.kernels[index(part.kernel)];
        if (kernel.kind != KernelSpec::Kind::whole || kernel.op != Op::sum_squares || !reads_all(part, kernel, members))
          continue;
        replace_operands(part, KernelSpec(kernel), whole);
        any = true;
      }
    return any;
  }

  bool reads_all(const Dispatch::Part& part, const KernelSpec& kernel, const std::vector<int>& members) const {
    return std::all_of(members.begin(), members.end(), [&](int member) {
      return std::count_if(kernel.operands.begin(), kernel.operands.end(), [&](const TensorAccess& access) {
               return part.buffers[index(access.binding)] == member && is_all_of(access, buffer(member));
             }) == 1;
    });
  }

  // Whether each element of the buffer is read exactly once, in any order.
  static bool is_all_of(const TensorAccess& access, const Buffer& buffer) {
    for (std::size_t axis = 0; axis < access.shape.size(); ++axis)
      if (access.strides[axis] == Dim(0) && !(access.shape[axis] == Dim(1))) return false;
    return element_count(access.shape) == buffer.elements;
  }

  void replace_operands(Dispatch::Part& part, const KernelSpec& before, int whole) {
    KernelSpec kernel = before;
    kernel.operands.clear();
    std::vector<int> buffers;
    const auto bind = [&](TensorAccess access, int number) {
      const auto found = std::find(buffers.begin(), buffers.end(), number);
      access.binding = static_cast<int>(found - buffers.begin());
      if (found == buffers.end()) buffers.push_back(number);
      return access;
    };
    kernel.operands.push_back(bind({0, buffer(whole).dtype, {buffer(whole).elements}, Dim(0), {Dim(1)}}, whole));
    for (const TensorAccess& access : before.operands)
      if (const int number = part.buffers[index(access.binding)]; buffer(number).within != whole)
        kernel.operands.push_back(bind(access, number));
    for (TensorAccess& result : kernel.results) result = bind(result, part.buffers[index(result.binding)]);
    kernel.bindings = static_cast<int>(buffers.size());
    part.buffers = std::move(buffers);
    part.kernel = add_kernel(std::move(kernel));
  }

  int add_kernel(KernelSpec kernel) {
    program_.cpu.kernels.push_back(std::move(kernel));
    return static_cast<int>(program_.cpu.kernels.size()) - 1;
  }

  // Returns a kernel that fills a buffer with zeros.
  Dispatch::Part clear(int number) {
    const Buffer& tensor_buffer = buffer(number);
    KernelSpec kernel;
    kernel.domain = {tensor_buffer.elements};
    Instruction zero;
    zero.dtype = tensor_buffer.dtype;
    kernel.body.push_back(zero);
    kernel.stores.push_back({0, tensor_buffer.dtype, {0, {Dim(1)}}, 0});
    kernel.bindings = 1;
    return {add_kernel(std::move(kernel)), {number}, "clear " + tensor_buffer.name};
  }

  // The pooled kernel replaces the last of them. Buffers that must be cleared are cleared before their first use.
  void replace(const std::vector<UpdateKernel>& updates, const Dispatch::Part& part, const std::vector<int>& cleared) {
    std::set<std::pair<int, int>> removed;
    int last = 0;
    for (const UpdateKernel& update : updates) {
      removed.emplace(update.dispatch, update.part);
      last = std::max(last, update.dispatch);
    }
    const std::vector<Life> lives = lives_of(program_);
    std::map<int, std::vector<Dispatch::Part>> before;
    for (const int number : cleared) before[lives[index(number)].first].push_back(clear(number));
    std::vector<Dispatch> dispatches;
    for (int d = 0; d < static_cast<int>(program_.cpu.dispatches.size()); ++d) {
      Dispatch dispatch;
      for (std::size_t p = 0; p < program_.cpu.dispatches[index(d)].parts.size(); ++p)
        if (!removed.contains({d, static_cast<int>(p)}))
          dispatch.parts.push_back(std::move(program_.cpu.dispatches[index(d)].parts[p]));
      for (Dispatch::Part& zeros : before[d]) dispatches.push_back({{std::move(zeros)}});
      if (!dispatch.parts.empty()) dispatches.push_back(std::move(dispatch));
      if (d == last) dispatches.push_back({{part}});
    }
    program_.cpu.dispatches = std::move(dispatches);
  }

  Program& program_;
  const Target& target_;
};

}  // namespace

std::vector<bool> find_update_nodes(const Graph& graph) {
  std::vector<bool> found(graph.nodes.size(), false);
  std::vector<bool> used_elsewhere(graph.tensors.size(), false), updates(graph.tensors.size(), false);
  for (const auto* list : {&graph.outputs, &graph.captures})
    for (const NamedTensor& named : *list) used_elsewhere[index(named.tensor)] = true;
  std::size_t count = 0;
  for (const Update& update : graph.updates) {
    updates[index(update.value)] = true;
    const Dim elements = element_count(graph.shape(update.target));
    if (graph.tensor(update.target).storage == Storage::param && elements.upper_bound() > 1) ++count;
  }
  if (count < fewest_updates) return found;
  // From the last node to the first, so that all users of a node have been visited before it.
  for (std::size_t id = graph.nodes.size(); id-- > 0;) {
    const Node& node = graph.nodes[id];
    const TensorId result = node.outputs[0];
    const bool wanted = updates[index(result)] && !used_elsewhere[index(result)];
    found[id] =
        wanted && (is_elementwise(node.op) || is_view(node.op)) && element_count(graph.shape(result)).upper_bound() > 1;
    for (const TensorId input : node.inputs)
      if (input != no_tensor) (found[id] ? updates : used_elsewhere)[index(input)] = true;
  }
  return found;
}

void pool_updates(Program& program, const Target& target) { UpdatePooler(program, target).run(); }

}  // namespace jerboa::detail
