#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "wgsl/product/shape.h"
#include "wgsl/tuned.h"

// The kinds of kernels whose forms can be measured. Each kind has a shape, a form and candidates.
namespace jerboa::wgsl {

using KernelShape = std::variant<ProductShape, AttentionShape, RowShape, ColumnShape>;
using KernelForm = std::variant<MatmulForm, QuantisedForm, AttentionForm, RowForm, ColumnForm>;

/// "1024x256x768 f32, transposed b", "attention of 8x8 heads …"
std::string str(const KernelShape& shape);
/// "tiles of 64x64x16, parts of 8x4, two buffers"
std::string describe(const KernelForm& form);

/// The shapes of a program's kernels that can be tuned, each once, in the order in which they are first computed.
std::vector<KernelShape> kernel_shapes(const Program& program, const Target& target);

/// The forms that are worth measuring for kernels of this shape.
std::vector<KernelForm> candidates(const Target& target, const KernelShape& shape);

/// Forms by shape.
class FormTable final : public TunedForms {
 public:
  using Forms = std::map<KernelShape, KernelForm>;
  explicit FormTable(Forms measured) : forms_(std::move(measured)) {}
  const Forms& forms() const { return forms_; }

  const MatmulForm* form_of(const Target& target, const MatmulProblem& problem) const override;
  const QuantisedForm* quantised_form_of(const MatmulProblem& problem) const override;
  const AttentionForm* form_of(const Attention& attention, AttentionPart part) const override;
  const RowForm* form_of(const RowShape& shape) const override { return find<RowForm>(shape); }
  const ColumnForm* form_of(const ColumnShape& shape) const override { return find<ColumnForm>(shape); }

 private:
  template <class Form>
  const Form* find(const KernelShape& shape) const {
    const auto found = forms_.find(shape);
    return found == forms_.end() ? nullptr : std::get_if<Form>(&found->second);
  }
  Forms forms_;
};

}  // namespace jerboa::wgsl
