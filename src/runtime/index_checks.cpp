#include "runtime/index_checks.h"

#include <jerboa/base/error.h>
#include <jerboa/transform/checks.h>

#include "base/strided.h"
#include "lower/input_indices.h"

namespace jerboa::detail {
namespace {

// The values of an input that the op uses.
std::vector<std::int64_t> values_of(const InputIndices& indices, const HostTensor& input, const SymbolValues& symbols) {
  verify_views(indices, input.size(), symbols);  // views may come from a file
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < input.size(); ++i) values.push_back(static_cast<std::int64_t>(input.number(i)));
  for (const InputIndices::View& view : indices.views) {
    std::vector<std::int64_t> part;
    for_each_place(view.offset.evaluate(symbols), evaluate(view.shape, symbols), evaluate(view.strides, symbols),
                   [&](std::int64_t, std::int64_t place) { part.push_back(values[static_cast<std::size_t>(place)]); });
    values = std::move(part);
  }
  return values;
}

}  // namespace

void check_input_indices(const std::vector<InputIndices>& indices, const TensorMap& inputs,
                         const SymbolValues& symbols) {
  for (const InputIndices& checked : indices) {
    const HostTensor& input = inputs.at(checked.input);
    const std::int64_t limit = checked.limit.evaluate(symbols);
    const auto check = [&](std::int64_t value) {
      if (value >= limit || (value < 0 && !checked.negative_is_none))
        throw UsageError(out_of_range(value, "input " + checked.input, checked.user, limit, checked.site));
    };
    if (checked.views.empty() && input.dtype() == DType::i32)
      for (const std::int32_t value : input.i32()) check(value);
    else
      for (const std::int64_t value : values_of(checked, input, symbols)) check(value);
  }
}

}  // namespace jerboa::detail
