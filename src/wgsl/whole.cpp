#include <array>

#include <jerboa/base/error.h>

#include "wgsl/kernel_writer.h"
#include "wgsl/whole_kernels.h"

namespace jerboa::wgsl {
namespace {

using WholeWriter = void (*)(KernelWriter&);

template <Op op, bool wanted>
constexpr WholeWriter entry() {
  if constexpr (wanted)
    return &write_whole_op<op>;
  else
    return nullptr;
}

constexpr WholeWriter whole_writers[] = {
#define OP(name, operands, attrs, rule, lowering, traits, gradient, doc) \
  entry<Op::name, Lowering::lowering == Lowering::Whole>(),
#include <jerboa/ir/ops.def>
#undef OP
};

}  // namespace

void write_whole(KernelWriter& writer) { whole_writers[static_cast<std::size_t>(writer.kernel().op)](writer); }

}  // namespace jerboa::wgsl
