#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/base/host_tensor.h>
#include <jerboa/ir/graph.h>

namespace jerboa {

struct Program;

/// Device memory of one tensor that is kept between steps.
class DeviceTensor {
 public:
  virtual ~DeviceTensor() = default;
  /// Writes the tensor, in its element type. Throws UsageError if the number of bytes differs from bytes().
  void upload(std::span<const std::byte> values) {
    if (std::ssize(values) != bytes())
      throw UsageError("a tensor of " + std::to_string(bytes()) + " bytes was given " + std::to_string(values.size()));
    write(values);
  }
  void upload(const HostTensor& values) { upload(values.bytes()); }
  /// Sets every element to zero.
  virtual void clear() { write(std::vector<std::byte>(static_cast<std::size_t>(bytes()))); }
  virtual HostTensor download() const = 0;
  /// The tensor's bytes, if they are in memory that the host may write to; otherwise empty.
  virtual std::span<std::byte> host_memory() { return {}; }
  /// The size of the tensor's elements, without any padding.
  virtual std::int64_t bytes() const = 0;

 private:
  virtual void write(std::span<const std::byte> bytes) = 0;
};

/// The results of a run, read back only on request.
class RunResults {
 public:
  virtual ~RunResults() = default;
  /// An output, or a capture that was requested.
  virtual HostTensor read(const std::string& name) = 0;
  /// Returns when the run has ended, and throws its error if it failed. Does nothing by default: for devices whose
  /// run() returns when the run has ended.
  virtual void wait() {}
};

struct RunRequest {
  const std::map<std::string, HostTensor>& inputs;
  const SymbolValues& symbols;
  const std::vector<std::string>& captures;
};

/// The memory use of an entry.
struct MemoryReport {
  struct Tensor {
    std::string name;
    std::int64_t bytes = 0, offset = 0;
    int first = 0, last = 0;  ///< its live range, in kernels
  };
  std::int64_t persistent = 0;   ///< parameters, gradients and states
  std::int64_t activations = 0;  ///< everything that lives within a run, as planned
  std::vector<Tensor> tensors;   ///< the tensors that share the activations' memory
};

/// One execution of a kernel.
struct KernelTime {
  std::string label;   ///< names of its results
  std::string kernel;  ///< its kind and size
  double seconds = 0;
  double start = 0;       ///< seconds on the device's clock, from an arbitrary origin before the first kernel
  double operations = 0;  ///< multiplications and additions of products, convolutions and attention; otherwise 0
  double bytes = 0;       ///< of the memory that it binds: an upper bound on what it reads and writes
};

/// One entry of a session, compiled for a device. Runs read and update the persistent tensors it was compiled with.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual std::unique_ptr<RunResults> run(const RunRequest& request) = 0;
  /// Kernels, or nodes, that one run executes.
  virtual int kernel_count() const = 0;
  /// The compiled form, or null on a device that interprets graphs.
  virtual const Program* program() const { return nullptr; }
  virtual MemoryReport memory_report() const { return {}; }
  /// Timings of each kernel since profiling was enabled.
  virtual void set_profiling(bool) {}
  virtual std::vector<KernelTime> profile() const { return {}; }
};

/// The device memory behind a parameter or state of the given name.
using FindStorage = std::function<std::shared_ptr<DeviceTensor>(const std::string& name)>;

/// The interface of a device. One folder of backend/ implements it for each kind of device.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  virtual std::string description() const { return name(); }
  /// Throws OutOfMemoryError that names the tensor.
  virtual std::shared_ptr<DeviceTensor> allocate(DType dtype, const Sizes& sizes, const std::string& name) = 0;
  virtual std::unique_ptr<Executable> compile(const Graph& graph, const FindStorage& storage) = 0;
  /// Does the slow part of compile(), which needs no storage; load() takes the result. May be called while other
  /// threads use the device. Null on a device that interprets graphs.
  virtual std::shared_ptr<const Program> prepare(const Graph&) { return nullptr; }
  /// Does the rest, for the result of prepare() or for a program that was compiled earlier for such a device.
  virtual std::unique_ptr<Executable> load(const Program&, const FindStorage&) {
    throw UsageError("the device " + name() + " runs graphs, not programs");
  }
  /// A device like this one that may run code from files; null if this one may. The two share no storage.
  virtual std::shared_ptr<Backend> for_foreign_code() { return nullptr; }
};

}  // namespace jerboa
