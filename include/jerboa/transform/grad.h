#pragma once

#include <functional>
#include <string>
#include <vector>

#include <jerboa/ir/reserved_names.h>
#include <jerboa/ops/tensor.h>

namespace jerboa {

/// Gradients of a scalar for each of `wrt`, appended to the traced graph as ordinary nodes, so that a gradient can be
/// differentiated again. A tensor that does not reach the loss gets zeros. Throws GraphError if an op in between cannot
/// be differentiated, with its name and the user's line.
std::vector<Tensor> grad(Operand loss, const std::vector<Tensor>& wrt);

/// The general form: for each of `wrt`, the sum over outputs of the output's cotangent times its derivative. An empty
/// tensor means a gradient of zero.
std::vector<Tensor> vector_jacobian(const std::vector<Tensor>& outputs, const std::vector<Tensor>& cotangents,
                                    const std::vector<Tensor>& wrt);

struct ParamGrad {
  Tensor param, grad;
};
/// Gradients of the loss for every trainable parameter of the traced graph, named "d_NAME". If other parameters are
/// tied to one, its gradient is the sum over all of them.
std::vector<ParamGrad> append_grad(Operand loss);
/// The same for the parameters whose names the filter accepts: one side of an adversarial pair, a head to fine-tune.
std::vector<ParamGrad> append_grad(Operand loss, const std::function<bool(const std::string& name)>& wanted);

}  // namespace jerboa
