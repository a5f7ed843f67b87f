#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <new>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include <jerboa/backend/cpu.h>
#include <jerboa/base/error.h>
#include <jerboa/lower/lower.h>

#include "backend/cpu/guard.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/pack.h"
#include "base/in_parallel.h"
#include "lower/cost.h"
#include "lower/verify_access.h"

namespace jerboa {
namespace {

using cpu::Memory;
using cpu::Workers;

// Memory that may be read, and its padding written, one vector past the end. Large blocks use huge pages if the system
// has them: CPUs then prefetch across what would be the end of a small page, which makes a step that reads all weights
// up to a fifth faster.
class PaddedBytes {
 public:
  explicit PaddedBytes(std::int64_t size)
      : size_(size + 4 * cpu::vector_padding),
        memory_(static_cast<std::byte*>(::operator new(static_cast<std::size_t>(size_), alignment_for(size_))),
                Free{alignment_for(size_)}) {
#ifdef __linux__
    if (size_ >= huge_page) madvise(memory_.get(), static_cast<std::size_t>(size_), MADV_HUGEPAGE);
#endif
  }
  std::int64_t size() const { return size_; }
  std::byte* data() { return memory_.get(); }
  const std::byte* data() const { return memory_.get(); }

 private:
  static constexpr std::int64_t huge_page = std::int64_t{2} << 20;
  static std::align_val_t alignment_for(std::int64_t size) {
    return static_cast<std::align_val_t>(size >= huge_page ? huge_page : 64);
  }
  struct Free {
    std::align_val_t alignment;
    void operator()(std::byte* memory) const { ::operator delete(memory, alignment); }
  };
  std::int64_t size_;
  std::unique_ptr<std::byte, Free> memory_;
};

class CpuTensor final : public DeviceTensor {
 public:
  CpuTensor(DType dtype, const Sizes& sizes)
      : dtype_(dtype),
        sizes_(sizes),
        bytes_(static_cast<std::size_t>(bytes_of(dtype, element_count(sizes)))),
        memory_(static_cast<std::int64_t>(bytes_)) {}

  HostTensor download() const override {
    HostTensor values(dtype_, sizes_);
    std::copy_n(memory_.data(), bytes_, values.bytes().data());
    return values;
  }
  // On several threads, because touching memory for the first time is the slowest part.
  void clear() override {
    constexpr std::int64_t least_bytes = 16 << 20;  // the least for which a thread pays off
    detail::in_parallel(bytes(), least_bytes, [&](std::int64_t first, std::int64_t end) {
      std::fill_n(memory_.data() + first, end - first, std::byte{0});
    });
  }
  std::span<std::byte> host_memory() override { return {memory_.data(), bytes_}; }
  std::byte* data() { return memory_.data(); }
  std::int64_t padded_size() const { return memory_.size(); }
  std::int64_t bytes() const override { return static_cast<std::int64_t>(bytes_); }

 private:
  void write(std::span<const std::byte> bytes) override { std::copy(bytes.begin(), bytes.end(), memory_.data()); }

  DType dtype_;
  Sizes sizes_;
  std::size_t bytes_;
  PaddedBytes memory_;
};

class CpuResults final : public RunResults {
 public:
  explicit CpuResults(std::map<std::string, HostTensor> values) : values_(std::move(values)) {}
  HostTensor read(const std::string& name) override { return values_.at(name); }

 private:
  std::map<std::string, HostTensor> values_;
};

class CpuExecutable final : public Executable {
 public:
  CpuExecutable(Program program, const FindStorage& storage, std::shared_ptr<Workers> workers, CpuOptions options)
      : program_(std::move(program)), workers_(std::move(workers)), options_(std::move(options)) {
    for (const std::int64_t bytes : program_.arenas) add_arena(bytes);
    for (const Buffer& buffer : program_.buffers) {
      Memory memory;
      if (buffer.where == Buffer::Where::storage) {
        storage_.push_back(std::static_pointer_cast<CpuTensor>(storage(buffer.name)));
        memory = {storage_.back()->data(), true, true};
      } else if (buffer.where == Buffer::Where::arena) {
        memory = {arenas_[static_cast<std::size_t>(buffer.arena)].data() + buffer.offset, true};
      } else if (buffer.where == Buffer::Where::constant) {
        memory = {program_.constants[static_cast<std::size_t>(buffer.constant)].bytes().data(), false};
      }
      memory_.push_back(memory);
    }
    if (program_is_static()) prepare_kernels({});
  }

  int kernel_count() const override { return static_cast<int>(program_.cpu.dispatches.size()); }

  std::unique_ptr<RunResults> run(const RunRequest& request) override {
    if (kernels_.empty() || request.symbols != symbols_) prepare_kernels(request.symbols);
    if (options_.sentinel) fill_arenas(*options_.sentinel);
    for (std::size_t i = 0; i < program_.buffers.size(); ++i)
      if (program_.buffers[i].where == Buffer::Where::input)
        // Kernels only read inputs.
        memory_[i] = {const_cast<std::byte*>(request.inputs.at(program_.buffers[i].name).bytes().data()), false};
    if (options_.guard)
      run_guarded(request);
    else
      for (std::size_t i = 0; i < program_.cpu.dispatches.size(); ++i) run_dispatch(i);
    std::map<std::string, HostTensor> values;
    for (const Readable& output : program_.outputs) values.emplace(output.name, read(output, request.symbols));
    for (const Readable& capture : program_.captures)
      if (std::find(request.captures.begin(), request.captures.end(), capture.name) != request.captures.end())
        values.emplace(capture.name, read(capture, request.symbols));
    return std::make_unique<CpuResults>(std::move(values));
  }

  const Program* program() const override { return &program_; }

  MemoryReport memory_report() const override {
    MemoryReport report;
    for (const Buffer& buffer : program_.buffers) {
      if (buffer.where == Buffer::Where::storage) report.persistent += buffer.bytes;
      if (buffer.where == Buffer::Where::arena)
        report.tensors.push_back({buffer.name, buffer.bytes, buffer.offset, buffer.first, buffer.last});
    }
    for (const std::int64_t bytes : program_.arenas) report.activations += bytes;
    return report;
  }

  std::vector<KernelTime> profile() const override { return times_; }
  void set_profiling(bool on) override {
    profiling_ = on;
    profiling_since_ = std::chrono::steady_clock::now();
    times_.clear();
  }

 private:
  void add_arena(std::int64_t bytes) {
    try {
      arenas_.emplace_back(bytes);
    } catch (const std::bad_alloc&) {
      throw_no_room();
    }
  }

  // Names the largest activation.
  [[noreturn]] void throw_no_room() const {
    const MemoryReport report = memory_report();
    const auto largest = std::max_element(report.tensors.begin(), report.tensors.end(),
                                          [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    throw OutOfMemoryError(fmt::format("not enough host memory for {} ({} bytes); the activations take {} bytes in all",
                                       largest->name, largest->bytes, report.activations));
  }

  bool program_is_static() const {
    return std::all_of(program_.buffers.begin(), program_.buffers.end(),
                       [](const Buffer& buffer) { return buffer.elements.is_constant(); });
  }

  void prepare_kernels(const SymbolValues& symbols) {
    // The program was verified at its symbols' bounds.
    if (!symbols.empty()) detail::verify_access(program_, symbols);
    std::vector<std::unique_ptr<cpu::Kernel>> kernels;
    for (const KernelSpec& kernel : program_.cpu.kernels) kernels.push_back(cpu::prepare(kernel, symbols));
    kernels_ = std::move(kernels);
    symbols_ = symbols;
    bound_.clear();
    for (const Dispatch& dispatch : program_.cpu.dispatches) {
      auto& parts = bound_.emplace_back();
      for (const Dispatch::Part& part : dispatch.parts)
        parts.push_back({kernels_[static_cast<std::size_t>(part.kernel)].get(), {}});
    }
  }

  void bind(std::size_t number) {
    const Dispatch& dispatch = program_.cpu.dispatches[number];
    for (std::size_t i = 0; i < dispatch.parts.size(); ++i) {
      auto& memory = bound_[number][i].memory;
      memory.clear();
      for (const int buffer : dispatch.parts[i].buffers) memory.push_back(memory_[static_cast<std::size_t>(buffer)]);
    }
  }

  void run_dispatch(std::size_t number) {
    const auto start = std::chrono::steady_clock::now();
    bind(number);
    auto& parts = bound_[number];
    if (parts.size() == 1) {
      parts[0].kernel->run(parts[0].memory, *workers_);
    } else {
      // Runs all parts at once, with their tasks in one list.
      std::vector<std::int64_t> first{0};
      for (const Bound& part : parts) first.push_back(first.back() + part.kernel->tasks());
      const auto run_task = [&](std::int64_t task, int worker) {
        const auto part =
            static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), task) - first.begin()) - 1;
        parts[part].kernel->run_task(task - first[part], parts[part].memory, workers_->of(worker));
      };
      if (std::all_of(parts.begin(), parts.end(), [](const Bound& part) { return part.kernel->is_small(); }))
        workers_->pool.run_alone(first.back(), run_task);
      else
        workers_->pool.run(first.back(), run_task);
    }
    if (!profiling_) return;
    const auto seconds = [](auto from, auto to) { return std::chrono::duration<double>(to - from).count(); };
    KernelTime time{program_.cpu.dispatches[number].parts[0].label, describe(number),
                    seconds(start, std::chrono::steady_clock::now()), seconds(profiling_since_, start)};
    add_cost(program_.cpu.dispatches[number], time);
    times_.push_back(std::move(time));
  }

  void add_cost(const Dispatch& dispatch, KernelTime& time) const {
    for (const Dispatch::Part& part : dispatch.parts) {
      const KernelSpec& kernel = program_.cpu.kernels[static_cast<std::size_t>(part.kernel)];
      time.operations += static_cast<double>(detail::operations_of(kernel).evaluate(symbols_));
      for (const int number : part.buffers) {
        const Buffer& buffer = program_.buffers[static_cast<std::size_t>(number)];
        const std::int64_t bytes = buffer.elements.evaluate(symbols_) * bits(buffer.dtype) / 8;
        time.bytes += static_cast<double>(bytes);
      }
    }
  }

  void run_guarded(const RunRequest& request) {
    std::vector<cpu::Guard::Region> persistent, scratch;
    for (const auto& tensor : storage_) persistent.push_back({"the storage", tensor->data(), tensor->padded_size()});
    std::vector<std::byte*> memory;
    for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      memory.push_back(memory_[i].data);
      if (buffer.where == Buffer::Where::constant || buffer.where == Buffer::Where::input)
        persistent.push_back(
            {buffer.name, memory_[i].data, buffer.elements.evaluate(request.symbols) * bits(buffer.dtype) / 8});
    }
    for (PaddedBytes& arena : arenas_) scratch.push_back({"the arena", arena.data(), arena.size()});
    cpu::Guard guard(program_, request.symbols, std::move(memory), std::move(persistent), scratch);
    for (std::size_t i = 0; i < program_.cpu.dispatches.size(); ++i) {
      guard.before(i);
      run_dispatch(i);
      guard.after(i);
    }
  }

  std::string describe(std::size_t number) const {
    const Dispatch& dispatch = program_.cpu.dispatches[number];
    const KernelSpec& kernel = program_.cpu.kernels[static_cast<std::size_t>(dispatch.parts[0].kernel)];
    constexpr auto kinds = std::to_array<std::string_view>({"loop", "reduce", "matmul", "whole"});
    const std::string kind = kernel.kind == KernelSpec::Kind::whole
                                 ? std::string(name(kernel.op))
                                 : std::string(kinds[static_cast<std::size_t>(kernel.kind)]);
    return dispatch.parts.size() == 1 ? fmt::format("{} {}", kind, to_string(kernel.domain))
                                      : fmt::format("{} x{}", kind, dispatch.parts.size());
  }

  HostTensor read(const Readable& readable, const SymbolValues& symbols) const {
    const Sizes sizes = evaluate(readable.shape, symbols);
    HostTensor values(readable.dtype, sizes);
    const std::byte* memory = memory_[static_cast<std::size_t>(readable.buffer)].data;
    const std::int64_t offset = readable.offset.evaluate(symbols);
    std::vector<std::int64_t> strides;
    for (const Dim& stride : readable.strides) strides.push_back(stride.evaluate(symbols));
    if (bits(readable.dtype) == 32) {
      cpu::pack_f32(memory, readable.dtype, offset, sizes, strides, reinterpret_cast<float*>(values.bytes().data()));
      return values;
    }
    std::vector<float> wide(static_cast<std::size_t>(values.size()));
    cpu::pack_f32(memory, readable.dtype, offset, sizes, strides, wide.data());
    for (std::int64_t i = 0; i < values.size(); ++i)
      values.set_number(i, static_cast<double>(wide[static_cast<std::size_t>(i)]));
    return values;
  }

  void fill_arenas(float sentinel) {
    for (std::size_t i = 0; i < arenas_.size(); ++i)
      std::fill_n(reinterpret_cast<float*>(arenas_[i].data()), program_.arenas[i] / 4, sentinel);
  }

  struct Bound {
    cpu::Kernel* kernel = nullptr;
    std::vector<Memory> memory;
  };

  Program program_;
  std::shared_ptr<Workers> workers_;
  CpuOptions options_;
  std::vector<PaddedBytes> arenas_;
  std::vector<std::shared_ptr<CpuTensor>> storage_;
  std::vector<Memory> memory_;
  SymbolValues symbols_;
  std::vector<std::unique_ptr<cpu::Kernel>> kernels_;
  std::vector<std::vector<Bound>> bound_;
  bool profiling_ = false;
  std::chrono::steady_clock::time_point profiling_since_;
  std::vector<KernelTime> times_;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options)
      : options_(options), workers_(std::make_shared<Workers>(options.threads, options.integer_products)) {}

  std::string name() const override { return "cpu"; }
  std::shared_ptr<DeviceTensor> allocate(DType dtype, const Sizes& sizes, const std::string&) override {
    return std::make_shared<CpuTensor>(dtype, sizes);
  }
  std::unique_ptr<Executable> compile(const Graph& graph, const FindStorage& storage) override {
    return load(*prepare(graph), storage);
  }
  std::shared_ptr<const Program> prepare(const Graph& graph) override {
    return std::make_shared<Program>(lower(graph, options_.target));
  }
  std::unique_ptr<Executable> load(const Program& program, const FindStorage& storage) override {
    const auto is_pool = [](const Buffer& buffer) { return buffer.where == Buffer::Where::pool; };
    if (std::any_of(program.buffers.begin(), program.buffers.end(), is_pool) ||
        (program.gpu.emitted && program.cpu.dispatches.empty()))
      throw UsageError("this program was compiled for WebGPU; compile it for the CPU to run it there");
    return std::make_unique<CpuExecutable>(program, storage, workers_, options_);
  }

 private:
  CpuOptions options_;
  std::shared_ptr<Workers> workers_;
};

}  // namespace

std::shared_ptr<Backend> make_cpu_backend(const CpuOptions& options) { return std::make_shared<CpuBackend>(options); }

}  // namespace jerboa
