#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace jerboa::cpu {

/// Memory for a kernel's tiles that grows and is never freed: one object per thread and use. Its contents are
/// undefined, and get() invalidates earlier pointers.
template <class T>
class Scratch {
 public:
  T* get(std::size_t count) {
    if (count > capacity_) {
      data_.reset();
      data_.reset(static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(alignment))));
      capacity_ = count;
    }
    return data_.get();
  }
  T* get(std::ptrdiff_t count) { return get(static_cast<std::size_t>(count)); }

 private:
  static constexpr std::size_t alignment = 64;
  struct Free {
    void operator()(T* data) const { ::operator delete(data, std::align_val_t(alignment)); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t capacity_ = 0;
};

}  // namespace jerboa::cpu
