#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <jerboa/io/tensor_view.h>
#include <jerboa/lower/program_file.h>
#include <jerboa/runtime/session.h>
#include <jerboa/transform/checks.h>

#include "compile/optimizer_uses.h"

namespace jerboa {

namespace detail {
/// "a, b and 3 more", or "none": for errors that list the known names.
std::string listed(const std::vector<std::string>& names);
/// What is wrong with these values of a state, "loss_scale is inf, …"; empty if they are for any other tensor, or
/// right.
std::string why_unusable(const std::string& state, DType dtype, std::span<const std::byte> bytes);
}  // namespace detail

// A persistent tensor.
struct Session::Slot {
  TensorType type;
  Storage storage = Storage::state;
  Init init;
  bool tied = false;  // shares another parameter's memory, under whose name it is saved and listed
  std::shared_ptr<DeviceTensor> memory;
  bool filled = false;  // has values; if not, the initial ones are drawn on first use

  Sizes sizes() const { return evaluate(type.shape, {}); }
};

// A tensor of a loaded file that no entry has storage for yet.
struct WaitingTensor {
  StoredType type;
  Sizes shape;
  bool is_param;
  std::vector<std::byte> bytes;
};

struct Session::Shared {
  std::shared_ptr<std::recursive_mutex> mutex = std::make_shared<std::recursive_mutex>();
  std::uint64_t seed = 0;
  std::map<std::string, Slot> slots;
  std::map<std::string, WaitingTensor> waiting;
  std::string loaded_file;  // the last one that was loaded
  detail::OptimizerUses optimizers;
  Checks checks;
  bool all_filled = false;  // all slots have values, so that runs need not look for one without

  /// Declares a tensor whose values are drawn when they are first needed.
  void add(const std::string& name, Slot slot);
  void initialize(const std::string& name, Slot& slot);
  /// Initialises a tensor, or every tensor, that has no values yet.
  void fill(const std::string& name, Slot& slot);
  void fill_all();
  void upload(const std::string& name, std::span<const std::byte> bytes);
  /// Notes that the parameter has new values: its f16 copy, if any, is made again before the next run.
  void forget_copy(const std::string& param);
  /// The parameters among these tensors whose f16 copies are not among them.
  std::vector<std::string> without_copies(const std::set<std::string>& updated) const;
  /// Throws UsageError that lists the known names.
  Slot& find(const std::string& name, const char* what, Storage storage);
  /// The names of all slots except those of gradients, f16 copies and tied parameters.
  std::vector<std::string> names(Storage storage) const;
};

struct Session::Entry {
  Graph graph;  // without nodes if the entry was loaded as a program
  std::vector<Port> inputs, outputs, captures;
  std::vector<InputIndices> indices;  // checked before each run
  std::map<std::string, Rate> rates;  // also checked
  RunChecks checks;
  std::unique_ptr<Executable> executable;
  std::vector<std::string> params_without_copies;  // that it updates, without their f16 copies
};

}  // namespace jerboa
