#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <jerboa/lower/program.h>

#include "backend/webgpu/gpu_device.h"

namespace jerboa::webgpu {

/// Runs a program as one dispatch whose workgroups wait for each other (PersistentDispatch). WebGPU guarantees neither
/// that they run concurrently nor that one sees what another wrote: a probe with the program's own pipeline verifies
/// both before first use, a reader sees whether a word was written, all waits are bounded, and a run whose wait times
/// out reports it in a word.
class PersistentRun {
 public:
  struct Place {
    WGPUBuffer buffer = nullptr;
    std::int64_t offset = 0;
  };
  using FindPlace = std::function<Place(int)>;  ///< for a buffer of the program

  /// Null if the device does not run it correctly.
  static std::unique_ptr<PersistentRun> make(GpuDevice& device, const PersistentDispatch& dispatch,
                                             const FindPlace& find);

  /// To be called after storage was moved.
  void bind(const FindPlace& find);
  void set_symbols(const SymbolValues& symbols);
  void encode(WGPUCommandEncoder encoder) const;

  WGPUBuffer words() const { return words_; }
  /// Holds, at failure_offset, a u32 that is 0 unless a run has failed: later runs then do nothing.
  WGPUBuffer control() const { return control_; }
  static constexpr std::int64_t failure_offset = 4;

 private:
  PersistentRun(GpuDevice& device, const PersistentDispatch& dispatch);
  bool is_sound(int workgroups);
  bool passes_words(std::uint32_t workgroups, std::uint32_t phases);

  GpuDevice& device_;
  const PersistentDispatch& dispatch_;
  int workgroups_;
  std::int64_t words_bytes_ = 0;
  GpuDevice::Pipeline pipeline_;
  Handle<WGPUBuffer> control_, words_, marks_, table_;  // marks: the words' initial contents
  Handle<WGPUBindGroup> bindings_;
};

/// Prints under JERBOA_DEBUG=1 why a program's steps do not become one dispatch.
void note_separate_steps(std::size_t steps, const std::string& reason);

}  // namespace jerboa::webgpu
