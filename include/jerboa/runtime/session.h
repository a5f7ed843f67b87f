#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <jerboa/ir/graph.h>
#include <jerboa/runtime/device.h>

namespace jerboa {

/// Tensors by name: inputs of a run, parameters, gradients.
using TensorMap = std::map<std::string, HostTensor>;

/// The outputs and captures of a run. Reading one waits for the device; those that are never read are never copied.
class Result {
 public:
  Result() = default;
  Result(std::shared_ptr<RunResults> results, std::map<std::string, Sizes> shapes,
         std::shared_ptr<std::recursive_mutex> mutex)
      : results_(std::move(results)), shapes_(std::move(shapes)), mutex_(std::move(mutex)) {}

  /// Throws UsageError that lists the known names.
  HostTensor get(const std::string& name) const;
  const Sizes& shape_of(const std::string& name) const;
  bool has(const std::string& name) const { return shapes_.contains(name); }
  std::vector<std::string> names() const;
  /// Returns when the run has ended; throws its error if it failed. Not needed before get, which waits too.
  void wait() const;
  /// The number in the output "loss".
  double loss() const { return get("loss").item(); }

 private:
  void check(const std::string& name) const;

  std::shared_ptr<RunResults> results_;
  std::map<std::string, Sizes> shapes_;
  std::shared_ptr<std::recursive_mutex> mutex_;
};

struct SessionOptions {
  std::uint64_t seed = 0;  ///< of initial values and of random ops
  /// Runs check every tensor for NaN and infinity, by bit pattern, and throw NotFiniteError that names the first one,
  /// its op and the user's line; parameters and states stay as they were. Gradients that overflow in mixed precision
  /// are left to the loss scaling while it can reduce the scale. Slow; meant for debugging. The environment variable
  /// JERBOA_CHECK=finite turns it on for every session.
  bool check_finite = false;
  /// The same for indices that the graph computes: indices out of range throw UsageError. Inputs used as indices are
  /// always checked before a run. JERBOA_CHECK=indices, or finite,indices for both.
  bool check_indices = false;
};
struct RunOptions {
  std::vector<std::string> captures = {};
  bool all_captures = false;
};
struct UploadOptions {
  bool partial = false;  ///< parameters may be missing
};
struct LoadOptions {
  /// If the states of the file's optimizer differ from the session's, load everything else and restart the optimizer,
  /// including moments and counters.
  bool across_optimizers = false;
  /// Keep tensors that the session has no storage for yet until an entry creates it.
  bool keep_unknown = false;
};
/// The outcome of a load for the tensors of the file and of the session, by name.
struct LoadReport {
  std::vector<std::string> loaded;   ///< parameters and states that now have the file's values
  std::vector<std::string> waiting;  ///< tensors in the file for an entry that has not been added yet
  std::vector<std::string> left;     ///< states in the file that the session does not use
  std::vector<std::string> initial;  ///< states of the session that are not in the file: they have their initial values

  /// Whether training continues exactly where the file was saved.
  bool complete() const { return left.empty() && initial.empty(); }
};

/// An input or output of an entry.
struct Port {
  std::string name;
  TensorType type;
};
/// The name and interface of an entry.
struct EntryInfo {
  std::string name;
  std::vector<Port> inputs, outputs, captures;
};

/// A graph that was compiled as far as is possible without storage (Session::prepare_entry).
struct PreparedEntry {
  std::string name;
  Graph graph;
  std::shared_ptr<const Program> program;  ///< null on a device that interprets graphs
};

/// Named persistent tensors on a device (parameters, gradients, states) and the entries that run over them. Calls from
/// several threads, including those on siblings, are serialised.
class Session {
 public:
  explicit Session(Device device, SessionOptions options = {});

  /// Compiles a graph under a name. Its parameters and states become storage, shared by name with other entries; their
  /// types must agree. Throws UsageError if they do not, or if the name is taken, and leaves the session unchanged.
  void add_entry(const std::string& name, const Graph& graph);
  /// Does the slow part of add_entry, which changes nothing, while other threads use the session. The result is for
  /// this session only.
  PreparedEntry prepare_entry(const std::string& name, Graph graph) const;
  void add_entry(const PreparedEntry& entry);
  /// Allocates storage for a graph's parameters and states without compiling it, so that they can be loaded first.
  void declare(const Graph& graph);
  bool has_entry(const std::string& name) const;
  /// The entries of the session, by name.
  std::vector<EntryInfo> entries() const;
  const Graph& graph(const std::string& entry) const;
  int kernel_count(const std::string& entry) const;

  /// Runs an entry. Input shapes bind the symbols of the graph. Throws UsageError that lists missing and unknown
  /// inputs.
  Result run(const std::string& entry, const TensorMap& inputs, const RunOptions& options = {});
  /// Runs the entry "step".
  Result step(const TensorMap& inputs, const RunOptions& options = {}) { return run("step", inputs, options); }

  /// Another session over the same storage: nothing is copied, and each sees the other's changes.
  Session sibling() const;

  /// Throws UsageError that lists unknown and missing names, before anything changes. A parameter tied to another has
  /// no values of its own; the same applies to the calls below.
  void upload_params(const TensorMap& params, UploadOptions options = {});
  /// One parameter from memory that the caller owns, such as a loaded file, with elements of the parameter's type.
  void upload_param(const std::string& name, std::span<const std::byte> bytes);
  /// The memory of a parameter, if the device shares its memory with the host; the caller must then write its values
  /// before anything runs. Empty otherwise, and for unknown names.
  std::span<std::byte> overwrite_param(const std::string& name);
  TensorMap download_params() const;
  HostTensor download_param(const std::string& name) const;
  /// Gradients of the last step by parameter name; empty before an entry that keeps them was added. With accumulation
  /// they are the sum so far, which an update sets to zero.
  TensorMap download_param_grads() const;
  HostTensor download_state(const std::string& name) const;
  void upload_state(const std::string& name, const HostTensor& values);
  /// The device memory of a parameter or state, for code that uses the device directly (webgpu_buffer). After such code
  /// has written to a parameter, call parameter_changed.
  std::shared_ptr<DeviceTensor> storage(const std::string& name) const;
  /// What is made of a parameter's values, the f16 copy that mixed precision multiplies, is made anew before the next
  /// run. Everything that changes parameters through a session does this by itself.
  void parameter_changed(const std::string& name);
  std::vector<std::string> param_names() const;
  std::vector<std::string> state_names() const;

  /// Resets parameters and states to their initial values, from the same seed or another.
  void reset(std::optional<std::uint64_t> seed = {});
  /// Resets moments, counters and other states; keeps the parameters.
  void reset_optimizer_state();
  /// Zeroes the gradients that download_param_grads returns.
  void reset_gradients();

  /// Parameters, states and the random state, in one safetensors file, written atomically. A path without an extension
  /// is a folder, in which model.safetensors is written.
  void save(const std::filesystem::path& path) const;
  /// Restores everything that save wrote, including the seed; gradients, which are not saved, become zero. If names,
  /// shapes or types do not match, throws FileError before anything changes.
  LoadReport load(const std::filesystem::path& path, LoadOptions options = {});
  /// Throws FileError that lists the differences if the graph's parameters are not those that were loaded with
  /// keep_unknown.
  void check_loaded(const Graph& graph) const;

  /// The memory use of an entry: persistent and activation bytes, and every activation tensor.
  MemoryReport memory_report(const std::string& entry) const;
  /// Turns timing of each kernel of an entry on or off; profile() returns the measurements.
  void set_profiling(const std::string& entry, bool on);
  std::vector<KernelTime> profile(const std::string& entry) const;

  /// Writes the compiled entries with the storage they share, without its values, to one file that needs no compiler.
  /// Throws UsageError on a device that interprets graphs (the reference).
  void save_program(const std::filesystem::path& path) const;
  /// A session from such a file; parameters and states start from the seed until they are uploaded or loaded. A file is
  /// untrusted code: it is refused unless every access is proved to be in bounds, and on a GPU it runs on a separate
  /// device that checks every index and shares no storage with `device` (WebGpuOptions::robust).
  static Session load_program(const std::filesystem::path& path, Device device, SessionOptions options = {});

  const Device& device() const { return device_; }
  std::uint64_t seed() const;

 private:
  struct Slot;
  struct Shared;
  struct Entry;

  Session(Device device, std::shared_ptr<Shared> shared);
  void add_entry(const std::string& name, const Graph& graph, const Program* program);
  const Entry& entry(const std::string& name) const;
  FindStorage finder() const;
  /// Whether the storage is new.
  bool declare(const TensorInfo& tensor);
  /// The names of what is new.
  std::vector<std::string> declare_all(const Graph& graph);
  void forget(const std::vector<std::string>& declared);

  Device device_;
  std::shared_ptr<Shared> shared_;
  std::map<std::string, std::shared_ptr<Entry>> entries_;
};

/// A table of kernels by total time: calls, milliseconds, share, and the rates of products and of memory.
std::string print(const std::vector<KernelTime>& times);
/// The same for Perfetto (ui.perfetto.dev) and chrome://tracing: trace-event JSON with one event per kernel execution,
/// written atomically.
void write_trace(const std::vector<KernelTime>& times, const std::filesystem::path& path);
/// One line per entry: its name, inputs and outputs.
std::string print(const std::vector<EntryInfo>& entries);
/// Totals, and the largest tensors.
std::string print(const MemoryReport& report);

/// The path of a checkpoint's file: the file itself, or model.safetensors in the folder.
std::filesystem::path checkpoint_file(const std::filesystem::path& path);
/// The names of the parameters in a checkpoint. Throws FileError if it is not one.
std::vector<std::string> checkpoint_params(const std::filesystem::path& path);

}  // namespace jerboa
