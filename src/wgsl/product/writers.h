#pragma once

#include "wgsl/product/form.h"
#include "wgsl/product/problem.h"

namespace jerboa::wgsl {

// One per kind of form.
void write_dots(KernelWriter& writer, const MatmulProblem& problem);
void write_vectors(KernelWriter& writer, const MatmulProblem& problem, const MatmulForm& form);
void write_blocks(KernelWriter& writer, const MatmulProblem& problem);
void write_tiles(KernelWriter& writer, const MatmulProblem& problem, const MatmulForm& form);
void write_matrices(KernelWriter& writer, const MatmulProblem& problem, const MatmulForm& form);

}  // namespace jerboa::wgsl
