#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <jerboa/base/dtype.h>

namespace jerboa {

/// A tensor in host memory: the inputs and outputs of a session. f16 and bf16 elements are 16-bit patterns, booleans
/// are 32-bit 0 or 1.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(DType dtype, std::vector<std::int64_t> shape);
  HostTensor(std::vector<std::int64_t> shape, std::span<const float> values);
  HostTensor(std::vector<std::int64_t> shape, std::span<const std::int32_t> values);
  /// Literal values are f32, even if they are whole numbers: HostTensor({2}, {1, 2}) is f32[2].
  HostTensor(std::vector<std::int64_t> shape, std::initializer_list<float> values);
  /// The same in another type: HostTensor(DType::i32, {2}, {1, 2}). Each value is rounded as set_number does.
  HostTensor(DType dtype, std::vector<std::int64_t> shape, std::initializer_list<double> values);
  explicit HostTensor(float value) : HostTensor({}, std::span(&value, 1)) {}
  explicit HostTensor(std::int32_t value) : HostTensor({}, std::span(&value, 1)) {}

  DType dtype() const { return dtype_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::int64_t size() const;

  /// The elements; throws UsageError if T is not the element type. Deleted for temporaries, which the span would
  /// outlive.
  template <class T>
  std::span<T> as() & {
    check_type(type_of<T>());
    return {reinterpret_cast<T*>(bytes_.data()), static_cast<std::size_t>(size())};
  }
  template <class T>
  std::span<const T> as() const& {
    check_type(type_of<T>());
    return {reinterpret_cast<const T*>(bytes_.data()), static_cast<std::size_t>(size())};
  }
  template <class T>
  std::span<const T> as() const&& = delete;
  std::span<float> f32() & { return as<float>(); }
  std::span<const float> f32() const& { return as<float>(); }
  std::span<const float> f32() const&& = delete;
  std::span<const std::int32_t> i32() const& { return as<std::int32_t>(); }
  std::span<const std::int32_t> i32() const&& = delete;
  /// The value of a tensor with exactly one element, whatever its type.
  double item() const;
  /// Element i as a number, whatever the type.
  double number(std::int64_t i) const;
  void set_number(std::int64_t i, double value);

  std::span<std::byte> bytes() { return bytes_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  friend bool operator==(const HostTensor&, const HostTensor&) = default;

 private:
  enum class Element { f32, i32, u32, bits16 };
  template <class T>
  static constexpr Element type_of() {
    if constexpr (std::is_same_v<T, float>) return Element::f32;
    if constexpr (std::is_same_v<T, std::int32_t>) return Element::i32;
    if constexpr (std::is_same_v<T, std::uint32_t>) return Element::u32;
    if constexpr (std::is_same_v<T, std::uint16_t>) return Element::bits16;
  }
  void check_type(Element element) const;

  DType dtype_ = DType::f32;
  std::vector<std::int64_t> shape_{0};
  std::vector<std::byte> bytes_;
};

}  // namespace jerboa
