#include "wgsl/whole_kernels.h"
#include <jerboa/base/error.h>
namespace jerboa::wgsl {
#define N(op) template <> void write_whole_op<Op::op>(KernelWriter&) { throw GraphError("no " #op); }
N(conv2d) N(conv2d_input_grad) N(conv2d_weight_grad) N(max_pool2d) N(max_pool2d_grad) N(avg_pool2d) N(avg_pool2d_grad)
 N(matmul_grouped) N(matmul_grouped_weight_grad)
}
