#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <jerboa/runtime/session.h>

namespace jerboa {

namespace detail {
/// "a, b and 3 more", or "none": for errors that list what is known.
std::string listed(const std::vector<std::string>& names);
}  // namespace detail

// A persistent tensor.
struct Session::Slot {
  TensorType type;
  Storage storage = Storage::state;
  Init init;
  bool tied = false;  // the memory is another parameter's, under whose name it is saved and listed
  std::shared_ptr<DeviceTensor> memory;

  Sizes sizes() const { return evaluate(type.shape, {}); }
};

struct Session::Shared {
  std::shared_ptr<std::recursive_mutex> mutex = std::make_shared<std::recursive_mutex>();
  std::uint64_t seed = 0;
  std::map<std::string, Slot> slots;

  void initialize(const std::string& name, const Slot& slot) const;
  /// Throws UsageError that lists the known names.
  const Slot& find(const std::string& name, const char* what, Storage storage) const;
  /// Without the slots that hold gradients, and without tied ones.
  std::vector<std::string> names(Storage storage) const;
};

// What goes in or comes out of an entry.
struct Port {
  std::string name;
  TensorType type;
};

struct Session::Entry {
  Graph graph;  // without nodes where the entry was loaded as a program
  std::vector<Port> inputs, outputs, captures;
  std::unique_ptr<Executable> executable;
};

}  // namespace jerboa
