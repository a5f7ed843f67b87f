#include "wgsl/attention_parts.h"

#include <algorithm>

#include "base/integers.h"

namespace jerboa::wgsl {

std::int64_t parts_of(const Dim& blocks, std::int64_t wanted, const Dim& keys, std::int64_t least_keys) {
  const std::int64_t count = std::max<std::int64_t>(blocks.upper_bound(), 1);
  return std::clamp<std::int64_t>(detail::divide_up(wanted, count), 1,
                                  std::max<std::int64_t>(keys.upper_bound() / least_keys, 1));
}

AttentionParts::AttentionParts(KernelWriter& writer, const Attention& attention, std::int64_t parts)
    : attention_(attention), out_(writer.kernel().results[0]), lse_(writer.kernel().results[1]), parts_(parts) {
  if (parts_ == 1) return;
  sums_ = writer.workspace(DType::f32, attention.queries() * Dim(parts_) * attention.value_size);
  rows_ = writer.workspace(DType::f32, attention.queries() * Dim(parts_ * 2));
}

std::string AttentionParts::first_top(Shader& shader, const std::string& head, const std::string& part) const {
  if (attention_.sinks == nullptr) return unseen_score;
  const std::string sink = shader.load(*attention_.sinks, {head});
  return parts_ == 1 ? sink : fmt::format("select({}, {}, {} == 0u)", unseen_score, sink, part);
}

std::string AttentionParts::first_total(const std::string& part) const {
  if (attention_.sinks == nullptr) return "0.0";
  return parts_ == 1 ? "1.0" : fmt::format("select(0.0, 1.0, {} == 0u)", part);
}

void AttentionParts::write_range(Shader& shader, const std::string& from, const std::string& to,
                                 const std::string& part) const {
  if (parts_ == 1) {
    shader.line("let first = {}; let end = {};", from, to);
    return;
  }
  shader.line("let share = (max({1}, {0}) - {0} + {2}u) / {3}u;", from, to, parts_ - 1, parts_);
  shader.line("let first = {} + {} * share; let end = min(first + share, {});", from, part, to);
}

std::string AttentionParts::number(Shader& shader, const std::string& batch, const std::string& head,
                                   const std::string& time, const std::string& part) const {
  return fmt::format("((({} * {} + {}) * {} + {}) * {}u + {})", batch, shader.size(attention_.heads), head,
                     shader.size(attention_.time), time, parts_, part);
}

void AttentionParts::store_sum(Shader& shader, const std::string& batch, const std::string& head,
                               const std::string& time, const std::string& part, const std::string& feature,
                               const std::string& sum, const std::string& total) const {
  if (parts_ == 1)
    shader.store(out_, {batch, head, time, feature}, fmt::format("select(0.0, {0} / {1}, {1} > 0.0)", sum, total));
  else
    shader.store(sums_,
                 fmt::format("{} * {} + {}", number(shader, batch, head, time, part),
                             shader.size(attention_.value_size), feature),
                 sum);
}

void AttentionParts::store_row(Shader& shader, const std::string& batch, const std::string& head,
                               const std::string& time, const std::string& part, const std::string& top,
                               const std::string& total) const {
  if (parts_ == 1) {
    shader.store(lse_, {batch, head, time},
                 fmt::format("select({0}, {1} + {2}({3}), {3} > 0.0)", unseen_lse, top, shader.use("log_f32"), total));
    return;
  }
  shader.store(rows_, number(shader, batch, head, time, part) + " * 2u", top);
  shader.store(rows_, number(shader, batch, head, time, part) + " * 2u + 1u", total);
}

bool AttentionParts::is_in_order() const {
  const Dim sizes[] = {attention_.batch, attention_.heads, attention_.time, attention_.value_size};
  Dim stride = 1;
  for (std::size_t axis = std::size(sizes); axis-- > 0;) {
    if (!(sizes[axis] == Dim(1)) && !(out_.strides[axis] == stride)) return false;
    stride = stride * sizes[axis];
  }
  return out_.offset == Dim(0) && stride.is_constant();
}

void AttentionParts::write_combine(KernelWriter& writer) const {
  if (parts_ == 1) return;
  constexpr int threads = 64;
  Shader shader = writer.shader("attention_parts", threads);
  const Dim count = attention_.queries() * attention_.value_size;
  shader.line("let element = group * {}u + lane;", threads);
  shader.line("if (element >= {}) {{ return; }}", shader.size(count));
  const auto index =
      shader.split_index("element", {attention_.batch, attention_.heads, attention_.time, attention_.value_size});
  shader.line("let query = (element / {}) * {}u;", shader.size(attention_.value_size), parts_);
  shader.line("var top = {};", unseen_score);
  const std::string parts = shader.loop_end(fmt::format("{}u", parts_));
  shader.open("for (var part = 0u; part < {}; part++) {{", parts);
  shader.line("top = max(top, {});", shader.load(rows_, "(query + part) * 2u"));
  shader.close();
  shader.line("var total = 0.0; var sum = 0.0;");
  shader.open("for (var part = 0u; part < {}; part++) {{", parts);
  shader.line("let weight = exp({} - top);", shader.load(rows_, "(query + part) * 2u"));
  shader.line("total += weight * {};", shader.load(rows_, "(query + part) * 2u + 1u"));
  shader.line("sum += weight * {};", shader.load(sums_, fmt::format("(query + part) * {} + {}",
                                                                    shader.size(attention_.value_size), index[3])));
  shader.close();
  const AttentionParts whole(*this, 1);
  whole.store_sum(shader, index[0], index[1], index[2], "0u", index[3], "sum", "total");
  shader.open("if ({} == 0u) {{", index[3]);
  whole.store_row(shader, index[0], index[1], index[2], "0u", "top", "total");
  shader.close();
  if (is_in_order() && writer.folded().finished.empty())
    shader.set_combination({sums_, rows_, out_.binding, lse_.binding, attention_.queries().value(), parts_,
                            attention_.value_size.value(), out_.dtype});
  writer.add(shader, groups_of(count, threads));
}

}  // namespace jerboa::wgsl
