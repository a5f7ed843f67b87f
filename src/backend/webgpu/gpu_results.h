#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <jerboa/backend/backend.h>
#include <jerboa/lower/program.h>

#include "backend/webgpu/gpu_device.h"

namespace jerboa::webgpu {

/// Buffers that results are copied to for reading, used again once nobody wants what they hold: making one is slow.
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

/// A copy of one result in a buffer for reading.
struct Readback {
  /// Takes a buffer from the pool for the elements of `readable` under these symbols.
  Readback(const Readable& readable, const SymbolValues& symbols, ReadbackPool& pool);

  HostTensor read(GpuDevice& device) const;

  DType dtype;
  Sizes sizes;
  std::vector<std::int64_t> strides;
  std::int64_t start = 0;  ///< of the first element among those copied
  std::int64_t from = 0;   ///< byte of the result's own buffer that the copy begins with
  std::int64_t bytes = 0;
  Handle<WGPUBuffer> buffer;
};

using Readbacks = std::map<std::string, Readback>;

/// Hands the buffers of results back. The device must be the caller's alone.
void give_back(Readbacks& readbacks, ReadbackPool& pool);

/// What a run gave, copied on the device when it ended, read when asked for.
class GpuResults final : public RunResults {
 public:
  GpuResults(std::shared_ptr<GpuDevice> device, std::shared_ptr<ReadbackPool> pool, Readbacks values)
      : device_(std::move(device)), pool_(std::move(pool)), values_(std::move(values)) {}
  ~GpuResults() override;

  HostTensor read(const std::string& name) override;

 private:
  std::shared_ptr<GpuDevice> device_;
  std::shared_ptr<ReadbackPool> pool_;
  Readbacks values_;
  std::map<std::string, HostTensor> known_;
};

}  // namespace jerboa::webgpu
