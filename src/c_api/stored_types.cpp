#include "c_api/stored_types.h"

#include <span>

namespace jerboa::c_api {
namespace {

std::optional<DType> type_of(Fields& options, const char* key, const std::vector<std::string>& names,
                             std::span<const DType> types) {
  const std::size_t chosen = options.choice(key, names, 0);
  return options.has(key) ? std::optional(types[chosen]) : std::nullopt;
}

}  // namespace

std::optional<DType> weights_of(Fields& options) {
  constexpr DType types[] = {DType::f32, DType::f16, DType::bf16, DType::i8, DType::i4};
  return type_of(options, "weights", {"f32", "f16", "bf16", "int8", "int4"}, types);
}

std::optional<DType> cache_of(Fields& options) {
  constexpr DType types[] = {DType::f32, DType::f16, DType::i8};
  return type_of(options, "cache", {"f32", "f16", "int8"}, types);
}

}  // namespace jerboa::c_api
