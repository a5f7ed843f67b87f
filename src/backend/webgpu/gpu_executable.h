#pragma once

#include <memory>
#include <string>
#include <vector>

#include <jerboa/backend/backend.h>

#include "backend/webgpu/gpu_device.h"

namespace jerboa::webgpu {

/// Memory of a parameter or state on the device.
class GpuTensor final : public DeviceTensor {
 public:
  GpuTensor(std::shared_ptr<GpuDevice> device, DType dtype, const Sizes& sizes, const std::string& name);
  ~GpuTensor() override;
  void upload(const HostTensor& values) override;
  HostTensor download() const override;
  WGPUBuffer buffer() const { return buffer_; }

 private:
  std::shared_ptr<GpuDevice> device_;
  DType dtype_;
  Sizes sizes_;
  std::int64_t bytes_;
  Handle<WGPUBuffer> buffer_;
};

/// Runs the steps of a program: one pass and one submission a run, with bind groups that are made once.
class GpuExecutable final : public Executable {
 public:
  GpuExecutable(std::shared_ptr<GpuDevice> device, Program program, const FindStorage& storage,
                std::optional<float> sentinel);
  ~GpuExecutable() override;

  std::unique_ptr<RunResults> run(const RunRequest& request) override;
  int kernel_count() const override { return static_cast<int>(program_.gpu.steps.size()); }
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
  class Results;
  class ReadbackPool;

  void allocate(const FindStorage& storage);
  void release();
  void compile();
  void make_bind_groups();
  void set_symbols(const SymbolValues& symbols);
  void upload_inputs(const RunRequest& request);
  void fill_arenas();
  void encode(WGPUCommandEncoder encoder);
  void encode_step(std::size_t number, WGPUCommandEncoder encoder, WGPUComputePassEncoder& pass);
  WGPUComputePassEncoder begin_pass(WGPUCommandEncoder encoder, std::size_t step);
  void end_pass(WGPUComputePassEncoder& pass) const;
  void read_times();
  std::int64_t planned_bytes() const;

  std::shared_ptr<GpuDevice> device_;
  Program program_;
  std::optional<float> sentinel_;
  std::vector<Handle<WGPUBuffer>> owned_;            // inputs, constants, arenas
  std::vector<std::shared_ptr<GpuTensor>> storage_;  // kept alive
  std::vector<WGPUBuffer> buffers_;                  // of each Program::buffers
  std::vector<WGPUBuffer> arenas_;
  Handle<WGPUBuffer> sizes_;
  std::int64_t sizes_bytes_ = 0;
  std::vector<Step> steps_;
  std::shared_ptr<ReadbackPool> readbacks_;
  SymbolValues symbols_;
  bool symbols_set_ = false;
  std::vector<std::array<std::uint32_t, 2>> workgroups_;
  bool profiling_ = false;
  Handle<WGPUQuerySet> queries_;
  Handle<WGPUBuffer> query_values_, query_readback_;
  std::vector<KernelTime> times_;
  std::optional<std::uint64_t> first_stamp_;
};

}  // namespace jerboa::webgpu
