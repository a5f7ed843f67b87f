#include "wgsl/tuning/form_table.h"

#include <algorithm>
#include <fmt/format.h>

#include "wgsl/attention_grad.h"
#include "wgsl/fold.h"
#include "wgsl/product/problem.h"

namespace jerboa::wgsl {
namespace {

const char* name_of(AttentionForm::Kind kind) {
  switch (kind) {
    case AttentionForm::Kind::matrices: return "matrices";
    case AttentionForm::Kind::rows: return "rows";
    case AttentionForm::Kind::stream: return "stream";
    case AttentionForm::Kind::decode: return "decode";
    case AttentionForm::Kind::tiles: return "tiles";
  }
  return "";
}

std::string describe(const AttentionForm& form) {
  std::string text = name_of(form.kind);
  const auto parts = [&] { return form.parts > 1 ? fmt::format(", {} parts", form.parts) : std::string(); };
  switch (form.kind) {
    case AttentionForm::Kind::matrices: {
      const AttentionMatrixForm& matrices = form.matrices;
      return text + fmt::format(", {} subgroups of {} columns, {} rows at a time, {} columns of a thread{}",
                                matrices.subgroups, matrices.columns(), matrices.tile_rows, matrices.lane_columns,
                                matrices.fetches_ahead ? ", fetched ahead" : "");
    }
    case AttentionForm::Kind::rows: return text + parts();
    case AttentionForm::Kind::stream:
      return text + fmt::format(", {} queries, {} keys at a time{}", form.queries, form.keys_at_a_time, parts());
    case AttentionForm::Kind::decode: return text + fmt::format(", {} queries{}", form.queries, parts());
    case AttentionForm::Kind::tiles:
      return text + fmt::format(" of {} rows, {} features at a time{}", form.tile_rows, form.depth, parts());
  }
  return text;
}
std::string describe(const RowForm& form) { return fmt::format("{} threads for a row", form.lanes); }
std::string describe(const ColumnForm& form) {
  return fmt::format("{} threads along columns{}", form.kept_lanes,
                     form.chunks > 1 ? fmt::format(", {} chunks", form.chunks) : "");
}

void add_shapes(KernelWriter& writer, std::vector<KernelShape>& shapes) {
  const KernelSpec& kernel = writer.kernel();
  const auto add = [&](const auto& shape) {
    if (shape && std::find(shapes.begin(), shapes.end(), KernelShape(*shape)) == shapes.end())
      shapes.emplace_back(*shape);
  };
  if (kernel.kind == KernelSpec::Kind::matmul) {
    add(shape_of(MatmulProblem(writer)));
  } else if (kernel.kind == KernelSpec::Kind::loop) {
    add(row_shape_of(kernel));
  } else if (kernel.kind == KernelSpec::Kind::reduce) {
    add(column_shape_of(writer));
  } else if (kernel.kind == KernelSpec::Kind::whole && kernel.op == Op::attention) {
    add(shape_of(Attention(kernel, 3, std::get<AttentionAttrs>(kernel.attrs)), AttentionPart::forward));
  } else if (kernel.kind == KernelSpec::Kind::whole && kernel.op == Op::attention_grad) {
    const AttentionGrad attention(writer);
    add(shape_of(attention, AttentionPart::dq));
    add(shape_of(attention, AttentionPart::dkv));
  }
}

struct Candidates {
  const Target& target;
  std::vector<KernelForm> forms = {};

  void operator()(const ProductShape& shape) {
    for (const ProductForm& form : product_candidates(target, shape))
      std::visit([&](const auto& one) { forms.emplace_back(one); }, form);
  }
  void operator()(const AttentionShape& shape) { add(attention_candidates(target, shape)); }
  void operator()(const RowShape& shape) { add(row_candidates(target, shape)); }
  void operator()(const ColumnShape& shape) { add(column_candidates(target, shape)); }

 private:
  template <class Form>
  void add(const std::vector<Form>& more) {
    forms.insert(forms.end(), more.begin(), more.end());
  }
};

}  // namespace

std::string str(const KernelShape& shape) {
  return std::visit([](const auto& one) { return one.str(); }, shape);
}

std::string describe(const KernelForm& form) {
  return std::visit([](const auto& one) { return describe(one); }, form);
}

std::vector<KernelShape> kernel_shapes(const Program& program, const Target& target) {
  std::vector<KernelShape> shapes;
  for (const FoldedPart& part : fold_kernels(program, target)) {
    const KernelSpec& kernel = program.cpu.kernels[static_cast<std::size_t>(part.kernel)];
    KernelWriter writer(kernel, target, memories_of(program, part.buffers), false, part.folded);
    add_shapes(writer, shapes);
  }
  return shapes;
}

std::vector<KernelForm> candidates(const Target& target, const KernelShape& shape) {
  Candidates found{target};
  std::visit(found, shape);
  return std::move(found.forms);
}

const MatmulForm* FormTable::form_of(const Target& target, const MatmulProblem& problem) const {
  const std::optional<ProductShape> shape = shape_of(problem);
  const MatmulForm* form = shape ? find<MatmulForm>(*shape) : nullptr;
  return form != nullptr && suits(target, problem, *form) ? form : nullptr;
}

const QuantisedForm* FormTable::quantised_form_of(const MatmulProblem& problem) const {
  const std::optional<ProductShape> shape = shape_of(problem);
  return shape ? find<QuantisedForm>(*shape) : nullptr;
}

const AttentionForm* FormTable::form_of(const Attention& attention, AttentionPart part) const {
  const std::optional<AttentionShape> shape = shape_of(attention, part);
  return shape ? find<AttentionForm>(*shape) : nullptr;
}

}  // namespace jerboa::wgsl
