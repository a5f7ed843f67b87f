#include <algorithm>
#include <cstring>
#include <exception>
#include <fmt/format.h>
#include <limits>

#include <jerboa/base/error.h>
#include <jerboa/base/float16.h>
#include <jerboa/base/host_tensor.h>

namespace jerboa {
namespace {

// Ensures that the size in bits does not overflow either.
constexpr std::int64_t most_elements = std::numeric_limits<std::int64_t>::max() / 64;

std::int64_t count(const std::vector<std::int64_t>& shape) {
  std::int64_t total = 1;
  for (const auto size : shape) {
    if (size < 0) throw UsageError(fmt::format("a tensor cannot have a size of {}", size));
    if (__builtin_mul_overflow(total, size, &total) || total > most_elements)
      throw UsageError(fmt::format("a tensor cannot have sizes as large as [{}]", fmt::join(shape, ", ")));
  }
  return total;
}

std::vector<std::byte> zeros(DType dtype, const std::vector<std::int64_t>& shape) {
  const std::int64_t bytes = bytes_of(dtype, count(shape));
  try {
    return std::vector<std::byte>(static_cast<std::size_t>(bytes), std::byte{0});
  } catch (const std::exception&) {  // bad_alloc or length_error
    throw HostMemoryError(fmt::format("not enough host memory for a tensor {}[{}] ({} bytes)", name(dtype),
                                      fmt::join(shape, ", "), bytes));
  }
}

// The position of an int4 value; see DType.
std::size_t i4_byte(std::int64_t i) { return static_cast<std::size_t>(i / 32 * 16 + i % 16); }
int i4_shift(std::int64_t i) { return i % 32 < 16 ? 0 : 4; }

}  // namespace

HostTensor::HostTensor(DType dtype, std::vector<std::int64_t> shape)
    : dtype_(dtype), shape_(std::move(shape)), bytes_(zeros(dtype, shape_)) {
  if (dtype == DType::i4 && count(shape_) % 32 != 0)
    throw UsageError(fmt::format("an int4 tensor must have a multiple of 32 elements, not {}", count(shape_)));
}

HostTensor::HostTensor(std::vector<std::int64_t> shape, std::span<const float> values)
    : HostTensor(DType::f32, std::move(shape)) {
  if (static_cast<std::int64_t>(values.size()) != size())
    throw UsageError(fmt::format("a tensor of {} elements was initialised with {} values", size(), values.size()));
  std::copy(values.begin(), values.end(), as<float>().begin());
}

HostTensor::HostTensor(std::vector<std::int64_t> shape, std::span<const std::int32_t> values)
    : HostTensor(DType::i32, std::move(shape)) {
  if (static_cast<std::int64_t>(values.size()) != size())
    throw UsageError(fmt::format("a tensor of {} elements was initialised with {} values", size(), values.size()));
  std::copy(values.begin(), values.end(), as<std::int32_t>().begin());
}

HostTensor::HostTensor(std::vector<std::int64_t> shape, std::initializer_list<float> values)
    : HostTensor(std::move(shape), std::span(values.begin(), values.size())) {}

HostTensor::HostTensor(DType dtype, std::vector<std::int64_t> shape, std::initializer_list<double> values)
    : HostTensor(dtype, std::move(shape)) {
  if (static_cast<std::int64_t>(values.size()) != size())
    throw UsageError(fmt::format("a tensor of {} elements was initialised with {} values", size(), values.size()));
  std::int64_t i = 0;
  for (const double value : values) set_number(i++, value);
}

std::int64_t HostTensor::size() const { return count(shape_); }

double HostTensor::item() const {
  if (size() != 1) throw UsageError(fmt::format("item() needs a tensor of one element; this one has {}", size()));
  return number(0);
}

double HostTensor::number(std::int64_t i) const {
  const auto at = [&]<class T>(T) {
    T value;
    std::memcpy(&value, bytes_.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return value;
  };
  switch (dtype_) {
    case DType::f32: return at(float{});
    case DType::f16: return f16_to_f32(at(std::uint16_t{}));
    case DType::bf16: return bf16_to_f32(at(std::uint16_t{}));
    case DType::i32: return at(std::int32_t{});
    case DType::u32:
    case DType::boolean: return at(std::uint32_t{});
    case DType::i8: return at(std::int8_t{});
    case DType::i4: return static_cast<int>(std::to_integer<unsigned>(bytes_[i4_byte(i)]) >> i4_shift(i) & 15u) - 8;
  }
  return 0;
}

void HostTensor::set_number(std::int64_t i, double value) {
  const auto put = [&]<class T>(T element) {
    std::memcpy(bytes_.data() + static_cast<std::size_t>(i) * sizeof(T), &element, sizeof(T));
  };
  switch (dtype_) {
    case DType::f32: return put(static_cast<float>(value));
    case DType::f16: return put(f32_to_f16(static_cast<float>(value)));
    case DType::bf16: return put(f32_to_bf16(static_cast<float>(value)));
    case DType::i32: return put(static_cast<std::int32_t>(value));
    // Negative numbers wrap around, as they do in an int32 that is read as a uint32.
    case DType::u32: return put(static_cast<std::uint32_t>(static_cast<std::int64_t>(value)));
    case DType::boolean: return put(std::uint32_t{value != 0});
    case DType::i8: return put(static_cast<std::int8_t>(std::clamp(value, -128.0, 127.0)));
    case DType::i4: {
      const auto bits = static_cast<unsigned>(std::clamp(value, -8.0, 7.0) + 8) << i4_shift(i);
      std::byte& byte = bytes_[i4_byte(i)];
      byte = (byte & ~(std::byte{15} << i4_shift(i))) | static_cast<std::byte>(bits);
      return;
    }
  }
}

void HostTensor::check_type(Element element) const {
  const bool fits = [&] {
    switch (dtype_) {
      case DType::f32: return element == Element::f32;
      case DType::i32: return element == Element::i32;
      case DType::u32:
      case DType::boolean: return element == Element::u32;
      case DType::f16:
      case DType::bf16: return element == Element::bits16;
      case DType::i8:
      case DType::i4: return false;
    }
    return false;
  }();
  if (!fits) throw UsageError(fmt::format("a {} tensor was read as another element type", name(dtype_)));
}

}  // namespace jerboa
