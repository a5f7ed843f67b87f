#include "wgsl/attention_decode.h"
#include "wgsl/attention_grad.h"
#include "wgsl/attention_matrices.h"
#include "wgsl/attention_stream.h"
#include "wgsl/attention_tiles.h"
#include "wgsl/tuned.h"

namespace jerboa::wgsl {
namespace {

using Kind = AttentionForm::Kind;

AttentionForm tiles_for(const Target& target) {
  return {
      .kind = Kind::tiles, .tile_rows = AttentionTiles::rows_for(target), .depth = AttentionTiles::depth_for(target)};
}

AttentionForm rows_for(const Attention& attention) {
  AttentionForm form{.kind = Kind::rows};
  const Dim blocks = groups_of(attention.rows(), Lanes(attention.rows().upper_bound()).count());
  form.parts = parts_of(attention.batch * attention.key_heads * blocks, 32, attention.keys, 16);
  return form;
}

AttentionForm choose_untuned(const KernelWriter& writer, const Attention& attention) {
  const Target& target = writer.target();
  if (const auto forms = choose_matrix_forms(writer, attention, {writer.kernel().results.data()}, false))
    return {.kind = Kind::matrices, .matrices = forms->forward};
  if (target.software || !AttentionTiles::suit(target, attention)) return rows_for(attention);
  if (AttentionStream::suits(target, attention)) return AttentionStream::form_for(writer, attention);
  if (AttentionDecode::suits(target, attention)) return AttentionDecode::form_for(attention);
  AttentionForm form = tiles_for(target);
  const Dim tiles = groups_of(attention.rows(), form.tile_rows);
  form.parts = parts_of(attention.batch * attention.key_heads * tiles, 128, attention.keys, 256);
  return form;
}

AttentionGradForms choose_grad_untuned(const KernelWriter& writer, const AttentionGrad& attention) {
  const Target& target = writer.target();
  if (attention.queries().upper_bound() > 0)
    if (const auto forms = choose_matrix_forms(
            writer, attention, {attention.out, attention.dout, attention.dq, attention.dk, attention.dv}, true))
      return {{.kind = Kind::matrices, .matrices = forms->dq}, {.kind = Kind::matrices, .matrices = forms->dkv}};
  const AttentionForm form = target.software || !AttentionTiles::suit(target, attention)
                                 ? AttentionForm{.kind = Kind::rows}
                                 : tiles_for(target);
  return {form, form};
}

// A shape does not contain everything that a form needs: `untuned` is the form chosen without measuring.
bool suits(const AttentionForm& form, const AttentionForm& untuned, const Target& target, const Attention& attention) {
  switch (form.kind) {
    case Kind::matrices:
      // A tile of keys must lie in one block.
      return untuned.kind == Kind::matrices &&
             (attention.table == nullptr ||
              (attention.k->shape[2].is_constant() && attention.k->shape[2].value() % form.matrices.tile_rows == 0));
    case Kind::rows: return untuned.kind == Kind::rows;
    case Kind::stream: return AttentionStream::suits(target, attention);
    case Kind::decode: return AttentionDecode::suits(target, attention);
    case Kind::tiles: return untuned.kind != Kind::rows && AttentionTiles::suit(target, attention);
  }
  return false;
}

// Replaces the form chosen without measuring by the measured one, if there is one.
void use_tuned(AttentionForm& form, const Target& target, const Attention& attention, AttentionPart part) {
  if (target.tuned == nullptr || target.software || target.fixed_threads > 0) return;
  const AttentionForm* tuned = target.tuned->form_of(attention, part);
  const bool may_differ = part == AttentionPart::forward;  // the gradients share a shader
  if (tuned != nullptr && (may_differ || tuned->kind == form.kind) && suits(*tuned, form, target, attention))
    form = *tuned;
}

}  // namespace

AttentionForm choose_attention(const KernelWriter& writer, const Attention& attention) {
  AttentionForm form = choose_untuned(writer, attention);
  use_tuned(form, writer.target(), attention, AttentionPart::forward);
  return form;
}

AttentionGradForms choose_attention_grad(const KernelWriter& writer, const AttentionGrad& attention) {
  AttentionGradForms forms = choose_grad_untuned(writer, attention);
  use_tuned(forms.dq, writer.target(), attention, AttentionPart::dq);
  use_tuned(forms.dkv, writer.target(), attention, AttentionPart::dkv);
  return forms;
}

}  // namespace jerboa::wgsl
