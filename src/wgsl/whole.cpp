#include <array>

#include <jerboa/base/error.h>

#include "ir/op_functions.h"
#include "wgsl/kernel_writer.h"
#include "wgsl/whole_kernels.h"

namespace jerboa::wgsl {
namespace {

using WholeWriter = void (*)(KernelWriter&);

constexpr auto whole_writers = detail::op_functions<WholeWriter>([]<Op op>() -> WholeWriter {
  if constexpr (detail::columns_of<op>.lowering == Lowering::Whole) return &write_whole_op<op>;
  return nullptr;
});

}  // namespace

void write_whole(KernelWriter& writer) { whole_writers[static_cast<std::size_t>(writer.kernel().op)](writer); }

}  // namespace jerboa::wgsl
