#include "wgsl/whole_kernels.h"
#include <jerboa/base/error.h>
namespace jerboa::wgsl {
#define N(op) template <> void write_whole_op<Op::op>(KernelWriter&) { throw GraphError("no " #op); }
N(attention) N(attention_grad)
}
