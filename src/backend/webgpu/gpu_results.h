#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/backend/backend.h>
#include <jerboa/lower/program.h>

#include "backend/webgpu/gpu_device.h"

namespace jerboa::webgpu {

/// Readback buffers, reused once their contents are no longer needed: creating one is slow.
class ReadbackPool {
 public:
  explicit ReadbackPool(std::shared_ptr<GpuDevice> device) : device_(std::move(device)) {}
  ~ReadbackPool();
  ReadbackPool(const ReadbackPool&) = delete;
  ReadbackPool& operator=(const ReadbackPool&) = delete;

  Handle<WGPUBuffer> take(std::int64_t bytes, const std::string& name);
  void give_back(std::int64_t bytes, Handle<WGPUBuffer> buffer) { free_.emplace(bytes, std::move(buffer)); }

 private:
  std::shared_ptr<GpuDevice> device_;
  std::multimap<std::int64_t, Handle<WGPUBuffer>> free_;
};

/// A copy of one result in a readback buffer.
struct Readback {
  /// Takes a buffer from the pool for the elements of `readable` under these symbols.
  Readback(const Readable& readable, const SymbolValues& symbols, ReadbackPool& pool);

  HostTensor read(GpuDevice& device) const;

  DType dtype;
  Sizes sizes;
  std::vector<std::int64_t> strides;
  std::int64_t start = 0;  ///< offset of the first element among those copied
  std::int64_t from = 0;   ///< offset in bytes of the copied range in the result's buffer
  std::int64_t bytes = 0;
  Handle<WGPUBuffer> buffer;
};

using Readbacks = std::map<std::string, Readback>;

/// Returns the buffers of results to the pool. The caller must hold the device.
void give_back(Readbacks& readbacks, ReadbackPool& pool);

/// The results of a run, copied on the device when it ended, read back on request.
class GpuResults final : public RunResults {
 public:
  /// `failed` is set if a persistent dispatch failed: nothing can be read after that.
  GpuResults(std::shared_ptr<GpuDevice> device, std::shared_ptr<ReadbackPool> pool, Readbacks values,
             std::shared_ptr<std::atomic<bool>> failed)
      : device_(std::move(device)), pool_(std::move(pool)), values_(std::move(values)), failed_(std::move(failed)) {}
  ~GpuResults() override;

  /// The name of the failure word among the results, which is not 0 if a persistent dispatch failed; no output can have
  /// it.
  static constexpr const char* failure = "";

  HostTensor read(const std::string& name) override;
  void wait() override;

 private:
  std::shared_ptr<GpuDevice> device_;
  std::shared_ptr<ReadbackPool> pool_;
  Readbacks values_;
  std::map<std::string, HostTensor> known_;
  std::shared_ptr<std::atomic<bool>> failed_;
  std::optional<bool> has_failed_;  // unknown until something is read

  void check_failure();
};

}  // namespace jerboa::webgpu
