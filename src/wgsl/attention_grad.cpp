#include "wgsl/attention_grad.h"

#include <functional>

#include "base/integers.h"
#include "wgsl/attention_matrices.h"
#include "wgsl/attention_tiles.h"
#include "wgsl/row_reduction.h"
#include "wgsl/whole_kernels.h"

// The gradient of attention, with p = exp(score - lse):
//   dp = dout · v,  dscore = p (dp - Σ dout · out),  dq = Σ dscore slope k,  dk = Σ dscore slope q,  dv = Σ p dout.
// Probabilities are recomputed; the thread that stores a result also sums it, over all heads that share a key head.
namespace jerboa::wgsl {
namespace {

AttentionAttrs forward_attrs(const KernelSpec& kernel) {
  const auto& attrs = std::get<AttentionGradAttrs>(kernel.attrs);
  return {attrs.scale, attrs.causal, attrs.window, attrs.soft_cap, attrs.ring};
}

// Computes the two terms of each query that the gradients need.
void write_row_terms(KernelWriter& writer, const AttentionGrad& attention) {
  const int threads = writer.target().software ? 32 : 64;
  Shader shader = writer.shader("attention_row_terms", threads);
  shader.line("let query = group * {}u + lane;", threads);
  shader.line("if (query >= {}) {{ return; }}", shader.size(attention.queries()));
  const auto index = shader.split_index("query", {attention.batch, attention.heads, attention.time});
  shader.line("var mean = 0.0;");
  shader.open("for (var feature = 0u; feature < {}; feature++) {{", shader.loop_end(shader.size(attention.value_size)));
  const std::vector<std::string> at{index[0], index[1], index[2], "feature"};
  shader.line("mean += {} * {};", shader.load(*attention.out, at), shader.load(*attention.dout, at));
  shader.close();
  shader.store(attention.row_terms, "query * 2u", shader.load(*attention.lse, index));
  shader.store(attention.row_terms, "query * 2u + 1u", "mean");
  writer.add(shader, groups_of(attention.queries(), threads));
}

// A sink takes probability from all queries of its head, and contributes no value.
void write_sinks(KernelWriter& writer, const AttentionGrad& attention) {
  const Dim queries = attention.batch * attention.time;
  const int threads = lanes_for(queries.upper_bound(), writer.target());
  Shader shader = writer.shader("attention_dsinks", threads);
  shader.line("let sink = {};", shader.load(*attention.sinks, {"group"}));
  RowReduction sum(shader, Op::sum, DType::f32);
  if (queries.upper_bound() > 0) {
    shader.open("for (var query = lane; query < {}; query += {}u) {{", shader.size(queries), threads);
    const auto index = shader.split_index("query", {attention.batch, attention.time});
    sum.add(fmt::format("exp(sink - {}) * {}", attention.lse_of(shader, index[0], "group", index[1]),
                        attention.mean_of(shader, index[0], "group", index[1])),
            "query");
    shader.close();
  }
  const std::string total = sum.finish(threads, "lane", threads);
  shader.open("if (lane == 0u) {{");
  shader.store(*attention.dsinks, {"group"}, fmt::format("-{}", total));
  shader.close();
  writer.add(shader, attention.heads);
}

// Each thread computes one element of the mask's gradient, summed over the axes that it broadcasts along.
void write_mask(KernelWriter& writer, const AttentionGrad& attention) {
  const int threads = writer.target().software ? 32 : 64;
  Shader shader = writer.shader("attention_dmask", threads);
  write_score_functions(shader, attention);
  const std::size_t rank = attention.mask->shape.size();
  const std::vector<Dim> scores{attention.batch, attention.heads, attention.time, attention.keys};
  std::vector<Dim> kept(4, Dim(1)), summed = scores;
  for (std::size_t i = 0; i < rank; ++i)
    if (!(attention.mask->shape[i] == Dim(1))) {
      kept[4 - rank + i] = scores[4 - rank + i];
      summed[4 - rank + i] = Dim(1);
    }
  const Dim count = element_count(kept), each = element_count(summed);
  if (count.upper_bound() == 0) return;
  shader.line("let element = group * {}u + lane;", threads);
  shader.line("if (element >= {}) {{ return; }}", shader.size(count));
  const auto kept_index = shader.split_index("element", kept);
  shader.line("var sum = 0.0;");
  if (each.upper_bound() > 0) {
    shader.open("for (var number = 0u; number < {}; number++) {{", shader.loop_end(shader.size(each)));
    const auto summed_index = shader.split_index("number", summed);
    const char* names[] = {"batch", "head", "time", "key"};
    for (std::size_t i = 0; i < 4; ++i)
      shader.line("let {} = {};", names[i], summed[i] == Dim(1) ? kept_index[i] : summed_index[i]);
    shader.line("let visible = visible_range(batch, time); let position = key_position(batch, key);");
    shader.open("if (position >= visible.x && position < visible.y) {{");
    shader.line("let key_head = head / {};", shader.size(attention.group));
    shader.line("var product = 0.0; var dweight = 0.0;");
    shader.open("for (var feature = 0u; feature < {}; feature++) {{", shader.loop_end(shader.size(attention.size)));
    shader.line("product += {} * {};", shader.load(*attention.q, {"batch", "head", "time", "feature"}),
                shader.load(*attention.k, {"batch", "key_head", "key", "feature"}));
    shader.close();
    shader.open("for (var feature = 0u; feature < {}; feature++) {{",
                shader.loop_end(shader.size(attention.value_size)));
    shader.line("dweight += {} * {};", shader.load(*attention.dout, {"batch", "head", "time", "feature"}),
                shader.load(*attention.v, {"batch", "key_head", "key", "feature"}));
    shader.close();
    shader.line("let key_score = score(visible, batch, head, time, key, position, product).x;");
    shader.line("if (key_score > {}) {{ sum += exp(key_score - {}) * (dweight - {}); }}", unseen_score,
                attention.lse_of(shader, "batch", "head", "time"), attention.mean_of(shader, "batch", "head", "time"));
    shader.close();
    shader.close();
  }
  shader.store(attention.dmask->binding,
               shader.place(attention.dmask->offset, attention.broadcast_strides(*attention.dmask), kept_index), "sum");
  writer.add(shader, groups_of(count, threads));
}

// The forms for software drivers: each thread computes up to four queries, or four keys, in the components of vectors.

// From product_j and dweight_j computes the probabilities weight_j and the gradients of the products, dproduct_j.
void write_weights(Shader& shader, const Lanes& lanes, int j, const std::function<std::string(int)>& score,
                   const std::string& lse, const std::string& mean) {
  shader.open("{{");
  for (int i = 0; i < lanes.count(); ++i) shader.line("let score_{} = {};", i, score(i));
  const auto component = [&](char which) {
    return lanes.each([&](int i) { return fmt::format("score_{}.{}", i, which); });
  };
  shader.line("let scores = {}; let slopes = {};", component('x'), component('y'));
  shader.line("weight_{0} = select({1}(), exp(scores - {2}), scores > {1}({3}));", j, lanes.type(), lse, unseen_score);
  shader.line("dproduct_{0} = weight_{0} * (dweight_{0} - {1}) * slopes;", j, mean);
  shader.close();
}

void declare_weights(Shader& shader, const Lanes& lanes) {
  for (int j = 0; j < others_at_a_time; ++j)
    shader.line("var weight_{0} = {1}(); var dproduct_{0} = {1}();", j, lanes.type());
}

void open_feature_loop(Shader& shader, const Dim& size) {
  shader.open("for (var feature = 0u; feature < {}; feature++) {{", shader.loop_end(shader.size(size)));
}

void write_query_rows(KernelWriter& writer, const AttentionGrad& attention) {
  constexpr int threads = 32;
  const Lanes lanes(attention.rows().upper_bound());
  Shader shader = writer.shader("attention_dq_rows", threads);
  write_score_functions(shader, attention);
  const Dim blocks = groups_of(attention.rows(), lanes.count());
  const Dim count = attention.batch * attention.key_heads * blocks;
  shader.line("let number = group * {}u + lane;", threads);
  shader.line("if (number >= {}) {{ return; }}", shader.size(count));
  const auto index = shader.split_index("number", {attention.batch, attention.key_heads, blocks});
  shader.line("let batch = {}; let key_head = {};", index[0], index[1]);
  std::string least, most;
  for (int i = 0; i < lanes.count(); ++i) {
    shader.line("let row_{0} = {1} * {2}u + {0}u;", i, index[2], lanes.count());
    shader.line("let safe_{0} = min(row_{0}, {1} - 1u);", i, shader.size(attention.rows()));
    shader.line("let head_{0} = key_head * {1} + safe_{0} / {2};", i, shader.size(attention.group),
                shader.size(attention.time));
    shader.line("let time_{0} = safe_{0} % {1};", i, shader.size(attention.time));
    shader.line("let visible_{0} = visible_range(batch, time_{0});", i);
    least = i == 0 ? "visible_0.x" : fmt::format("min({}, visible_{}.x)", least, i);
    most = i == 0 ? "visible_0.y" : fmt::format("max({}, visible_{}.y)", most, i);
  }
  shader.line("let range = key_range(batch, {}, {});", least, most);
  const auto head = [](int i) { return fmt::format("head_{}", i); };
  const auto time = [](int i) { return fmt::format("time_{}", i); };
  const auto of_query = [&](const TensorAccess& tensor) {
    return [&](int i) { return shader.load(tensor, {"batch", head(i), time(i), "feature"}); };
  };
  const auto of_key = [&](const TensorAccess& tensor) {
    return [&](int j) { return shader.load(tensor, {"batch", "key_head", fmt::format("key_{}", j), "feature"}); };
  };
  shader.line("let lse = {};", lanes.each([&](int i) { return attention.lse_of(shader, "batch", head(i), time(i)); }));
  shader.line("let mean = {};",
              lanes.each([&](int i) { return attention.mean_of(shader, "batch", head(i), time(i)); }));
  shader.line("var dq = array<{}, {}>();", lanes.type(), attention.size.upper_bound());
  shader.open("for (var key = range.x; key < range.y; key += {}u) {{", others_at_a_time);
  for (int j = 0; j < others_at_a_time; ++j) shader.line("let key_{0} = min(key + {0}u, range.y - 1u);", j);
  write_products(shader, "product", lanes, attention.size, of_query(*attention.q), of_key(*attention.k));
  write_products(shader, "dweight", lanes, attention.value_size, of_query(*attention.dout), of_key(*attention.v));
  declare_weights(shader, lanes);
  for (int j = 0; j < others_at_a_time; ++j) {
    shader.line("let position_{0} = select(-1, key_position(batch, key_{0}), key + {0}u < range.y);", j);
    write_weights(
        shader, lanes, j,
        [&](int i) {
          return fmt::format("score(visible_{0}, batch, head_{0}, time_{0}, key_{1}, position_{1}, {2})", i, j,
                             lanes.at(fmt::format("product_{}", j), i));
        },
        "lse", "mean");
  }
  write_sums(shader, "dq", "dproduct", attention.size, of_key(*attention.k));
  shader.close();
  for (int i = 0; i < lanes.count(); ++i) {
    shader.open("if (row_{} < {}) {{", i, shader.size(attention.rows()));
    open_feature_loop(shader, attention.size);
    shader.store(*attention.dq, {"batch", head(i), time(i), "feature"}, lanes.at("dq[feature]", i));
    shader.close();
    shader.close();
  }
  writer.add(shader, groups_of(count, threads), operations_of_queries);
}

void write_key_rows(KernelWriter& writer, const AttentionGrad& attention, bool wants_dk, bool wants_dv) {
  constexpr int threads = 32;
  const Lanes lanes(attention.keys.upper_bound());
  Shader shader = writer.shader("attention_dkv_rows", threads);
  write_score_functions(shader, attention);
  const Dim blocks = groups_of(attention.keys, lanes.count());
  const Dim count = attention.batch * attention.key_heads * blocks;
  shader.line("let number = group * {}u + lane;", threads);
  shader.line("if (number >= {}) {{ return; }}", shader.size(count));
  const auto index = shader.split_index("number", {attention.batch, attention.key_heads, blocks});
  shader.line("let batch = {}; let key_head = {};", index[0], index[1]);
  for (int i = 0; i < lanes.count(); ++i) {
    shader.line("let wanted_{0} = {1} * {2}u + {0}u;", i, index[2], lanes.count());
    shader.line("let key_{0} = min(wanted_{0}, {1} - 1u);", i, shader.size(attention.keys));
    shader.line("let position_{0} = key_position(batch, key_{0});", i);
  }
  shader.line("let range = time_range(key_0, key_{} + 1u);", lanes.count() - 1);
  const auto key = [](int i) { return fmt::format("key_{}", i); };
  const auto of_query = [&](const TensorAccess& tensor) {
    return [&](int j) { return shader.load(tensor, {"batch", "head", fmt::format("time_{}", j), "feature"}); };
  };
  const auto of_key = [&](const TensorAccess& tensor) {
    return [&](int i) { return shader.load(tensor, {"batch", "key_head", key(i), "feature"}); };
  };
  if (wants_dk) shader.line("var dk = array<{}, {}>();", lanes.type(), attention.size.upper_bound());
  if (wants_dv) shader.line("var dv = array<{}, {}>();", lanes.type(), attention.value_size.upper_bound());
  shader.open("for (var member = 0u; member < {}; member++) {{", shader.loop_end(shader.size(attention.group)));
  shader.line("let head = key_head * {} + member;", shader.size(attention.group));
  shader.open("for (var time = range.x; time < range.y; time += {}u) {{", others_at_a_time);
  for (int j = 0; j < others_at_a_time; ++j) {
    shader.line("let time_{0} = min(time + {0}u, range.y - 1u);", j);
    shader.line("let visible_{0} = select(vec2i(), visible_range(batch, time_{0}), time + {0}u < range.y);", j);
  }
  write_products(shader, "product", lanes, attention.size, of_key(*attention.k), of_query(*attention.q));
  if (wants_dk)
    write_products(shader, "dweight", lanes, attention.value_size, of_key(*attention.v), of_query(*attention.dout));
  else
    for (int j = 0; j < others_at_a_time; ++j) shader.line("let dweight_{} = {}();", j, lanes.type());
  declare_weights(shader, lanes);
  for (int j = 0; j < others_at_a_time; ++j)
    write_weights(
        shader, lanes, j,
        [&](int i) {
          return fmt::format("score(visible_{1}, batch, head, time_{1}, key_{0}, position_{0}, {2})", i, j,
                             lanes.at(fmt::format("product_{}", j), i));
        },
        attention.lse_of(shader, "batch", "head", fmt::format("time_{}", j)),
        attention.mean_of(shader, "batch", "head", fmt::format("time_{}", j)));
  if (wants_dk) write_sums(shader, "dk", "dproduct", attention.size, of_query(*attention.q));
  if (wants_dv) write_sums(shader, "dv", "weight", attention.value_size, of_query(*attention.dout));
  shader.close();
  shader.close();
  for (int i = 0; i < lanes.count(); ++i) {
    shader.open("if (wanted_{} < {}) {{", i, shader.size(attention.keys));
    if (wants_dk) {
      open_feature_loop(shader, attention.size);
      shader.store(*attention.dk, {"batch", "key_head", key(i), "feature"}, lanes.at("dk[feature]", i));
      shader.close();
    }
    if (wants_dv) {
      open_feature_loop(shader, attention.value_size);
      shader.store(*attention.dv, {"batch", "key_head", key(i), "feature"}, lanes.at("dv[feature]", i));
      shader.close();
    }
    shader.close();
  }
  writer.add_beside(shader, groups_of(count, threads),
                    OperationShare{operations_of_keys.part, wants_dk && wants_dv ? 5 : 10});
}

// Whether tensors larger than a binding leave too few bindings to compute both gradients in one shader.
bool are_bindings_short(const KernelWriter& writer, const AttentionGrad& attention) {
  const std::int64_t most = writer.target().max_binding_bytes;
  std::int64_t segments = 0;
  bool is_cut = false;
  const auto add = [&](int binding) {
    const std::int64_t bytes = writer.memories()[static_cast<std::size_t>(binding)].bytes;
    segments += std::max<std::int64_t>(1, detail::divide_up(bytes, most));
    is_cut = is_cut || bytes > most;
  };
  add(attention.row_terms);
  for (const TensorAccess* tensor : {attention.q, attention.k, attention.v, attention.dout, attention.dk, attention.dv,
                                     attention.mask, attention.lengths, attention.positions})
    if (tensor != nullptr) add(tensor->binding);
  return is_cut && segments > writer.target().max_bindings;
}

void write_attention_grad_rows(KernelWriter& writer, const AttentionGrad& attention) {
  if (attention.queries().upper_bound() > 0) write_query_rows(writer, attention);
  if (attention.keys.upper_bound() == 0) return;
  if (!are_bindings_short(writer, attention)) return write_key_rows(writer, attention, true, true);
  write_key_rows(writer, attention, true, false);
  write_key_rows(writer, attention, false, true);
}

// Whether tiles compute the terms of rows themselves, which is cheaper than a separate dispatch where there are few
// rows. They then bind more tensors, none of which may need several bindings.
bool computes_terms_in_tiles(const KernelWriter& writer, const AttentionGrad& attention, const AttentionForm& form) {
  constexpr std::int64_t few = 256, bindings = 10;
  const Target& target = writer.target();
  return form.kind == AttentionForm::Kind::tiles && attention.time.upper_bound() <= few && attention.mask == nullptr &&
         attention.sinks == nullptr && target.max_bindings >= bindings &&
         std::all_of(writer.memories().begin(), writer.memories().end(),
                     [&](const ShaderMemory& memory) { return memory.bytes <= target.max_binding_bytes; });
}

}  // namespace

AttentionGrad::AttentionGrad(const KernelWriter& writer)
    : Attention(writer.kernel(), 6, forward_attrs(writer.kernel())),
      out(&writer.kernel().operands[3]),
      lse(&writer.kernel().operands[4]),
      dout(&writer.kernel().operands[5]),
      dq(writer.kernel().results.data()),
      dk(&writer.kernel().results[1]),
      dv(&writer.kernel().results[2]) {
  std::size_t next = 3;
  if (sinks != nullptr) dsinks = &writer.kernel().results[next++];
  if (std::get<AttentionGradAttrs>(writer.kernel().attrs).mask_grad) dmask = &writer.kernel().results[next];
}

template <>
void write_whole_op<Op::attention_grad>(KernelWriter& writer) {
  AttentionGrad attention(writer);
  const AttentionGradForms forms = choose_attention_grad(writer, attention);
  if (!computes_terms_in_tiles(writer, attention, forms.dq))
    attention.row_terms = writer.workspace(DType::f32, attention.queries() * Dim(2));
  if (forms.dq.kind == AttentionForm::Kind::matrices)
    return write_attention_grad_matrices(writer, attention, forms.dq.matrices, forms.dkv.matrices);
  if (attention.row_terms >= 0 && attention.queries().upper_bound() > 0) write_row_terms(writer, attention);
  if (forms.dq.kind == AttentionForm::Kind::rows)
    write_attention_grad_rows(writer, attention);
  else
    write_attention_grad_tiles(writer, attention, forms);
  if (attention.dsinks != nullptr) write_sinks(writer, attention);
  if (attention.dmask != nullptr) write_mask(writer, attention);
}

}  // namespace jerboa::wgsl
