#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <jerboa/models/family.h>
#include <jerboa/models/quantise.h>

#include "base/browser_build.h"
#include "models/round_for_products.h"
#include "models/stored_param.h"

namespace jerboa::models {

/// Memory that is reused for one parameter after another. Its old content is lost.
class ReusedBytes {
 public:
  std::span<std::byte> of(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      memory_.reset(new std::byte[bytes]);  // without clearing it
      size_ = bytes;
    }
    return {memory_.get(), bytes};
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
};

/// Adds up the time that threads spend on one kind of work.
class SharedStopwatch {
 public:
  template <class Work>
  void time(const Work& work) {
    if (detail::is_browser_build) return work();  // browsers do not report timings
    const auto start = std::chrono::steady_clock::now();
    work();
    nanoseconds_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  }
  double seconds() const { return static_cast<double>(nanoseconds_) * 1e-9; }

 private:
  std::atomic<std::int64_t> nanoseconds_ = 0;
};

inline constexpr std::size_t max_parts = 3;  // a quantised weight with its scales and minimums
using PartMemory = std::array<std::span<std::byte>, max_parts>;

/// The data uploaded for a parameter; for a quantised weight, its scales and minimums too.
std::vector<ParamValues> parts_of(const TensorInfo& param);

/// Quantises whole rows, weighted by the inputs that they are multiplied with.
using RoundRows = std::function<void(std::span<const float> values, std::int64_t in, const GroupWriter& writer)>;

/// Reads parameters into reused memory, or into that of the caller. All threads share the elements of a tensor: each
/// reads a piece, which stays in its cache until it is converted.
class ParamReader {
 public:
  explicit ParamReader(const TensorSource& weights) : weights_(weights) {}

  /// The values are valid until the next call.
  std::vector<ParamValues> read(const TensorInfo& param, const StoredParam& stored, const PartMemory& memory,
                                const RoundRows& round = {});

  ReadSeconds seconds() const { return {reading_.seconds(), converting_.seconds()}; }

 private:
  /// Called for pieces of a tensor in f32, from its element `first` on.
  using UsePiece = std::function<void(std::size_t first, std::span<const float> values)>;

  void read_bytes(const std::string& name, std::span<std::byte> to);
  void read_floats(const StoredParam& stored, DType dtype, std::span<std::byte> to);
  void quantise(const StoredParam& stored, std::int64_t in, const QuantisedView& to, const RoundRows& round);
  bool keep_blocks(const std::string& name, std::size_t first, const QuantisedView& to) const;
  std::size_t for_each_piece(const StoredParam& tensor, const UsePiece& use);
  void use_pieces(std::span<const float> values, const UsePiece& use);
  std::size_t for_each_piece_of_experts(const StoredParam& stored, const UsePiece& use);
  std::span<const float> wide(const StoredParam& tensor);
  std::span<const float> in_order_of_file(const StoredParam& tensor);
  std::span<const float> transposed(std::span<const float> values, std::int64_t rows, std::int64_t columns);
  std::span<const std::byte> raw(const std::string& name);

  const TensorSource& weights_;
  std::array<ReusedBytes, max_parts> buffers_;
  ReusedBytes raw_;
  std::vector<float> wide_, transposed_;
  SharedStopwatch reading_, converting_;
};

}  // namespace jerboa::models
