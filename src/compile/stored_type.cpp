#include "compile/stored_type.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>

namespace jerboa {

StoredType detail::stored_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return StoredType::F32;
    case DType::f16: return StoredType::F16;
    case DType::bf16: return StoredType::BF16;
    case DType::i32: return StoredType::I32;
    case DType::u32:
    case DType::boolean: return StoredType::U32;
    case DType::i8:
    case DType::i4: break;
  }
  throw UsageError(fmt::format("a checkpoint cannot hold {} tensors", name(dtype)));
}

}  // namespace jerboa
