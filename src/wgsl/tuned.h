#pragma once

#include "wgsl/attention_form.h"
#include "wgsl/product/form.h"
#include "wgsl/product/quantised.h"
#include "wgsl/reduction_form.h"

namespace jerboa::wgsl {

/// The type behind Target::tuned: forms that were measured on a device. The emitter only queries them; the measurements
/// and their file are in wgsl/tuning, which a compiler for browsers leaves out. Null: none was measured for the sizes,
/// or it does not suit the kernel.
class TunedForms {
 public:
  virtual ~TunedForms() = default;
  virtual const MatmulForm* form_of(const Target& target, const MatmulProblem& problem) const = 0;
  virtual const QuantisedForm* quantised_form_of(const MatmulProblem& problem) const = 0;
  virtual const AttentionForm* form_of(const Attention& attention, AttentionPart part) const = 0;
  virtual const RowForm* form_of(const RowShape& shape) const = 0;
  virtual const ColumnForm* form_of(const ColumnShape& shape) const = 0;
};

}  // namespace jerboa::wgsl
