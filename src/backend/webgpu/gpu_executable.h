#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <jerboa/backend/backend.h>

#include "backend/webgpu/gpu_device.h"
#include "backend/webgpu/gpu_results.h"
#include "backend/webgpu/gpu_tensor.h"
#include "backend/webgpu/persistent_run.h"

namespace jerboa::webgpu {

/// The shaders that a program's steps need. The dispatch that runs them as phases is compiled separately: if that
/// fails, they remain dispatches.
std::vector<GpuDevice::ShaderRequest> shader_requests(const Program& program);

/// Runs the steps of a program: one pass and one submission per run, with bind groups that are created once. If runs
/// repeat, the commands of the next are recorded while the device works on this one, which saves a good part of a small
/// model's step.
class GpuExecutable final : public Executable {
 public:
  GpuExecutable(std::shared_ptr<GpuDevice> device, Program program, const FindStorage& storage,
                std::optional<float> sentinel);
  ~GpuExecutable() override;

  std::unique_ptr<RunResults> run(const RunRequest& request) override;
  int kernel_count() const override { return persistent_ ? 1 : static_cast<int>(program_.gpu.steps.size()); }
  const Program* program() const override { return &program_; }
  MemoryReport memory_report() const override;
  void set_profiling(bool on) override;
  std::vector<KernelTime> profile() const override;

 private:
  struct Step {
    GpuDevice::Pipeline pipeline;
    Handle<WGPUBindGroup> bindings;
    std::int64_t sizes_offset = 0;
  };
  // The properties that distinguish one recording of commands from another.
  struct Wanted {
    SymbolValues symbols;
    std::vector<std::string> captures;
    bool persistent = false;
    bool operator==(const Wanted&) const = default;
  };
  // Commands to be submitted once, and where their results will be read.
  struct Recording {
    Wanted wanted;
    std::vector<Handle<WGPUCommandBuffer>> commands;
    Readbacks results;
  };

  // Parameters or states that are adjacent in a buffer of the program.
  struct Pool {
    std::size_t buffer = 0;
    std::vector<std::pair<std::shared_ptr<GpuTensor>, std::int64_t>> members;  // with their offsets
    std::shared_ptr<const void> use = {};                                      // GpuMemory::pool_use
  };

  void allocate(const FindStorage& storage);
  void find_pools();
  void place_storage();
  void place(Pool& pool);
  void separate_readers_from_writers();
  bool was_moved() const;
  std::int64_t start_of(int buffer) const;
  void release();
  void compile();
  void make_bind_groups();
  void make_persistent();
  PersistentRun::FindPlace places() const;
  void set_symbols(const SymbolValues& symbols);
  void upload_inputs(const RunRequest& request);
  void fill_arenas();
  Recording take_recording(const Wanted& wanted);
  Recording record(const Wanted& wanted);
  void record_next(const Wanted& wanted);
  void forget_next();
  void encode(WGPUCommandEncoder encoder, std::size_t first, std::size_t end);
  void resolve_times(WGPUCommandEncoder encoder);
  void encode_step(std::size_t number, WGPUCommandEncoder encoder, WGPUComputePassEncoder& pass);
  WGPUComputePassEncoder begin_pass(WGPUCommandEncoder encoder, std::size_t step);
  void end_pass(WGPUComputePassEncoder& pass) const;
  void copy_results(WGPUCommandEncoder encoder, Recording& recording);
  /// For a step that is bound for the current symbols.
  double bound_bytes(const GpuStep& step) const;
  void read_times();
  std::int64_t planned_bytes() const;

  std::shared_ptr<GpuDevice> device_;
  Program program_;
  std::optional<float> sentinel_;
  std::vector<Handle<WGPUBuffer>> owned_;            // inputs, constants, arenas
  std::vector<std::shared_ptr<GpuTensor>> storage_;  // by Program::buffers; null if it is not storage
  std::vector<int> moves_;                           // by storage: GpuTensor::moves when the bind groups were created
  std::vector<Pool> pools_;
  std::vector<WGPUBuffer> buffers_;  // by Program::buffers
  std::vector<WGPUBuffer> arenas_;
  Handle<WGPUBuffer> sizes_;
  std::int64_t sizes_bytes_ = 0;
  std::vector<Step> steps_;
  std::unique_ptr<PersistentRun> persistent_;  // all steps in one dispatch, if the device supports it
  std::shared_ptr<std::atomic<bool>> failed_ = std::make_shared<std::atomic<bool>>(false);  // whether it failed
  std::shared_ptr<ReadbackPool> readbacks_;
  SymbolValues symbols_;
  bool symbols_set_ = false;
  std::vector<std::array<std::uint32_t, 2>> workgroups_;
  std::optional<Wanted> last_;
  std::optional<Recording> next_;
  bool profiling_ = false;
  Handle<WGPUQuerySet> queries_;
  Handle<WGPUBuffer> query_values_, query_readback_;
  std::vector<KernelTime> times_;
  std::optional<std::uint64_t> first_stamp_;
};

/// Whether another program has the members of this one's pools in different pools: running the two alternately would
/// then move them each time.
bool are_pooled_differently(GpuDevice& device, const Program& program, const FindStorage& storage);

}  // namespace jerboa::webgpu
