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

/// The outputs and captures of a run. Reading one waits for the device; what is never read is never copied.
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
  /// Runs look for NaN and infinity in every tensor, by bit pattern, and throw NotFiniteError that names the first one,
  /// its op and the user's line; parameters and states stay as they were. Slow: for finding where training went wrong.
  /// The environment variable JERBOA_CHECK=finite turns it on for every session.
  bool check_finite = false;
  /// The same for indices that the graph computes: out of range, they throw UsageError. Inputs that are indices are
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
  /// Where the file's optimizer keeps other states than the session's, take everything else and let the optimizer start
  /// anew, moments and counters alike.
  bool across_optimizers = false;
  /// Keep what the session has no storage for yet until an entry makes it.
  bool keep_unknown = false;
};
/// What a load did with the tensors of a file and those of the session, by name.
struct LoadReport {
  std::vector<std::string> loaded;   ///< parameters and states that have the file's values now
  std::vector<std::string> waiting;  ///< in the file, for an entry that is not there yet
  std::vector<std::string> left;     ///< states in the file that the session has no use for
  std::vector<std::string> initial;  ///< states of the session that the file does not have: they start anew

  /// Whether it continues where the file was saved.
  bool complete() const { return left.empty() && initial.empty(); }
};

/// What goes in or comes out of an entry.
struct Port {
  std::string name;
  TensorType type;
};
/// An entry of a session: what it can run.
struct EntryInfo {
  std::string name;
  std::vector<Port> inputs, outputs, captures;
};

/// Named persistent tensors on a device (parameters, gradients, states) and the entries that run over them.
/// Calls from several threads, also on siblings, are serialised.
class Session {
 public:
  explicit Session(Device device, SessionOptions options = {});

  /// Compiles a graph under a name. Its parameters and states become storage, shared by name with other entries; their
  /// types must agree. Throws UsageError where they do not, or where the name is taken, and leaves the session as it
  /// was.
  void add_entry(const std::string& name, const Graph& graph);
  /// Makes the storage of a graph's parameters and states without compiling it, so that it can be filled first.
  void declare(const Graph& graph);
  bool has_entry(const std::string& name) const;
  /// What the session can run, by name.
  std::vector<EntryInfo> entries() const;
  const Graph& graph(const std::string& entry) const;
  int kernel_count(const std::string& entry) const;

  /// Runs an entry. Input shapes bind the symbols of the graph. Throws UsageError that lists missing and unknown
  /// inputs.
  Result run(const std::string& entry, const TensorMap& inputs, const RunOptions& options = {});
  /// Runs the entry "step".
  Result step(const TensorMap& inputs, const RunOptions& options = {}) { return run("step", inputs, options); }

  /// Another session over the same storage: no copy, changes are seen at once.
  Session sibling() const;

  /// Throws UsageError that lists unknown and missing names, before anything changes. A parameter that is tied to
  /// another has no values of its own, here and below.
  void upload_params(const TensorMap& params, UploadOptions options = {});
  /// One parameter from memory that the caller owns, such as a mapped file: its elements in the parameter's own type.
  void upload_param(const std::string& name, std::span<const std::byte> bytes);
  TensorMap download_params() const;
  HostTensor download_param(const std::string& name) const;
  /// Gradients of the last step by parameter name; empty before an entry that keeps them was added. With accumulation
  /// they are the sum so far, which an update sets to zero.
  TensorMap download_param_grads() const;
  HostTensor download_state(const std::string& name) const;
  void upload_state(const std::string& name, const HostTensor& values);
  /// The device memory of a parameter or state, for code that uses the device by itself (webgpu_buffer).
  std::shared_ptr<DeviceTensor> storage(const std::string& name) const;
  std::vector<std::string> param_names() const;
  std::vector<std::string> state_names() const;

  /// Parameters and states start again, from the same seed or another.
  void reset(std::optional<std::uint64_t> seed = {});
  /// Moments, counters and other states start again; parameters stay.
  void reset_optimizer_state();
  /// The gradients that download_param_grads gives are zero again.
  void reset_gradients();

  /// Parameters, states and the random state, in one safetensors file, written atomically. A path without the extension
  /// is a folder, which then holds model.safetensors.
  void save(const std::filesystem::path& path) const;
  /// Everything that save wrote, the seed included; gradients, which it does not write, become zero. Throws FileError
  /// before anything changes where names, shapes or types do not fit.
  LoadReport load(const std::filesystem::path& path, LoadOptions options = {});
  /// Throws FileError that lists the differences where the parameters of the graph are not those that a load with
  /// keep_unknown brought.
  void check_loaded(const Graph& graph) const;

  /// What an entry's memory holds: persistent and activation bytes, and each tensor that shares the latter.
  MemoryReport memory_report(const std::string& entry) const;
  /// Times each kernel of an entry from now on, or stops; profile() gives what was measured, for printing.
  void set_profiling(const std::string& entry, bool on);
  std::vector<KernelTime> profile(const std::string& entry) const;

  /// Writes the compiled entries with the storage they share, without its values, to one file that needs no compiler.
  /// Throws UsageError on a device that runs graphs as they are.
  void save_program(const std::filesystem::path& path) const;
  /// A session of such a file; parameters and states start from the seed until they are uploaded or loaded. A file is
  /// code from somewhere: every access of it is proved to be in bounds, or it is refused; and on a GPU it runs on a
  /// device of its own, which checks every index and shares no storage with `device` (WebGpuOptions::robust).
  static Session load_program(const std::filesystem::path& path, Device device, SessionOptions options = {});

  const Device& device() const { return device_; }
  std::uint64_t seed() const;

 private:
  struct Slot;
  struct Shared;
  struct Entry;

  Session(Device device, std::shared_ptr<Shared> shared);
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

/// A table of kernels by total time: calls, milliseconds, share.
std::string print(const std::vector<KernelTime>& times);
/// The same for Perfetto (ui.perfetto.dev) and chrome://tracing: an event for each execution of a kernel, as
/// trace-event JSON, written atomically.
void write_trace(const std::vector<KernelTime>& times, const std::filesystem::path& path);
/// A line for each entry: its name, inputs and outputs.
std::string print(const std::vector<EntryInfo>& entries);
/// Totals, and the largest tensors.
std::string print(const MemoryReport& report);

/// The prefix of the states that hold the last gradients.
inline constexpr const char* gradient_prefix = "grad/";

/// Where a checkpoint of this name is: the file itself, or model.safetensors in the folder.
std::filesystem::path checkpoint_file(const std::filesystem::path& path);
/// The names of the parameters in a checkpoint. Throws FileError where it is not one.
std::vector<std::string> checkpoint_params(const std::filesystem::path& path);

}  // namespace jerboa
