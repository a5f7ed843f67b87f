#include <cmath>

#include "wgsl/attention.h"

namespace jerboa::wgsl {
namespace {

const TensorAccess* present(const KernelSpec& kernel, std::size_t operand) {
  const bool is_there = operand < kernel.operands.size() && kernel.operands[operand].binding >= 0;
  return is_there ? &kernel.operands[operand] : nullptr;
}

void write_visible_range(Shader& shader, const Attention& attention) {
  shader.begin_function("fn visible_range(batch: u32, time: u32) -> vec2i");
  const std::string length =
      fmt::format("i32({})", attention.lengths != nullptr ? shader.load(*attention.lengths, {"batch"})
                                                          : shader.size(attention.keys));
  if (!attention.attrs.causal) {
    shader.line("return vec2i(0, {});", length);
  } else {
    if (attention.positions != nullptr)
      shader.line("let query = i32({});", shader.load(*attention.positions, {"batch", "time"}));
    else
      shader.line("let query = i32(time + {} - {});", shader.size(attention.keys), shader.size(attention.time));
    const int window = attention.attrs.window;
    shader.line("return vec2i({}, min({}, query + 1));",
                window > 0 ? fmt::format("max(query - {}, 0)", window - 1) : "0", length);
  }
  shader.end_function();

  shader.begin_function("fn key_position(batch: u32, key: u32) -> i32");
  if (attention.attrs.ring) {
    shader.line("let last = i32({}) - 1; let slots = i32({});", shader.load(*attention.lengths, {"batch"}),
                shader.size(attention.keys));
    shader.line("return last - ((last - i32(key)) % slots + slots) % slots;");
  } else {
    shader.line("return i32(key);");
  }
  shader.end_function();
}

void write_score(Shader& shader, const Attention& attention) {
  shader.begin_function(
      "fn score(visible: vec2i, batch: u32, head: u32, time: u32, key: u32, position: i32, product: f32) -> vec2f");
  // Without branches, which cost software drivers more than they save.
  shader.line("var seen = (position >= visible.x) & (position < visible.y);");
  std::string place;
  if (attention.mask != nullptr)
    place = shader.place(attention.mask->offset, attention.mask_strides(), {"batch", "head", "time", "key"});
  const bool boolean = attention.mask != nullptr && attention.mask->dtype == DType::boolean;
  if (boolean) shader.line("seen = seen & {};", shader.load(attention.mask->binding, place));
  if (attention.mask != nullptr && !boolean) {
    shader.line("let bias = {};", shader.load(attention.mask->binding, place));
    shader.line("seen = seen & (bias > {});", literal(hidden_key(attention.mask->dtype), DType::f32));
  }
  const double given = attention.attrs.scale;
  std::string scale;
  if (given == 0 && !attention.size.is_constant())
    scale = fmt::format("inverseSqrt(f32({}))", shader.size(attention.size));
  else
    scale = literal(given != 0 ? given : 1 / std::sqrt(static_cast<double>(attention.size.value())), DType::f32);
  shader.line("var result = product * {};", scale);
  shader.line("var slope = {};", scale);
  if (attention.attrs.soft_cap > 0) {
    const std::string cap = literal(attention.attrs.soft_cap, DType::f32);
    shader.line("let bent = {}(result / {});", shader.use("tanh_f32"), cap);
    shader.line("slope *= 1.0 - bent * bent;");
    shader.line("result = bent * {};", cap);
  }
  if (attention.mask != nullptr && !boolean) shader.line("result += bias;");
  shader.line("return select(vec2f({}, 0.0), vec2f(result, slope), seen);", unseen_score);
  shader.end_function();
}

void write_ranges(Shader& shader, const Attention& attention) {
  shader.begin_function("fn key_range(batch: u32, least: i32, most: i32) -> vec2u");
  if (attention.attrs.ring)  // the slots of a ring are filled in order
    shader.line("return vec2u(0u, min(u32(max(i32({}), 0)), {}));", shader.load(*attention.lengths, {"batch"}),
                shader.size(attention.keys));
  else
    shader.line("return vec2u(u32(max(least, 0)), min(u32(max(most, 0)), {}));", shader.size(attention.keys));
  shader.end_function();

  shader.begin_function("fn time_range(key: u32, end: u32) -> vec2u");
  const std::string time = shader.size(attention.time);
  if (attention.has_fixed_visibility() && attention.attrs.causal) {
    // A query at time t has position t + key_offset, and sees positions from its own minus the window up to its own.
    shader.line("let key_offset = i32({}) - i32({});", shader.size(attention.keys), time);
    const int window = attention.attrs.window;
    shader.line("let start = u32(clamp(i32(key) - key_offset, 0, i32({})));", time);
    if (window > 0)
      shader.line("return vec2u(start, u32(clamp(i32(end) - 1 + {} - key_offset, 0, i32({}))));", window, time);
    else
      shader.line("return vec2u(start, {});", time);
  } else {
    shader.line("return vec2u(0u, {});", time);
  }
  shader.end_function();
}

// Table entries past a sequence's length may be anything, and should not be read; if they are, or if an entry is wrong,
// this keeps the access within the cache.
void write_block_of(Shader& shader, const Attention& attention) {
  shader.begin_function("fn block_of(batch: u32, key: u32) -> u32");
  const std::string number = fmt::format("key / {}", shader.size(attention.k->shape[2]));
  shader.line("return min(u32({}), {} - 1u);", shader.load(*attention.table, {"batch", number}),
              shader.size(attention.k->shape[0]));
  shader.end_function();
}

}  // namespace

Attention::Attention(const KernelSpec& kernel, std::size_t options, const AttentionAttrs& attributes)
    : q(kernel.operands.data()),
      k(&kernel.operands[1]),
      v(&kernel.operands[2]),
      mask(present(kernel, options)),
      sinks(present(kernel, options + 1)),
      lengths(present(kernel, options + 2)),
      positions(present(kernel, options + 3)),
      table(present(kernel, options + 4)),
      attrs(attributes),
      batch(q->shape[0]),
      heads(q->shape[1]),
      key_heads(k->shape[1]),
      group(divide_exactly(heads, key_heads).value_or(Dim(1))),
      time(q->shape[2]),
      keys(table != nullptr ? table->shape[1] * k->shape[2] : k->shape[2]),
      size(q->shape[3]),
      value_size(features_of(*v)) {
  // Such a window hides no key from a query that is among the keys. Slots of a ring hold positions beyond their count.
  if (attrs.window >= keys.upper_bound() && !attrs.ring && (positions == nullptr || lengths != nullptr))
    attrs.window = 0;
}

std::vector<std::string> Attention::key_indices(Shader& shader, const std::string& key,
                                                const std::string& feature) const {
  if (table == nullptr) return {"batch", "key_head", key, feature};
  return {fmt::format("block_of(batch, {})", key), "key_head", fmt::format("({} % {})", key, shader.size(k->shape[2])),
          feature};
}

std::vector<Dim> Attention::broadcast_strides(const TensorAccess& tensor) const {
  std::vector<Dim> strides(4, Dim(0));
  const std::size_t rank = tensor.shape.size();
  for (std::size_t i = 0; i < rank; ++i)
    if (!(tensor.shape[i] == Dim(1))) strides[4 - rank + i] = tensor.strides[i];
  return strides;
}

void write_score_functions(Shader& shader, const Attention& attention) {
  if (attention.lengths != nullptr || attention.positions != nullptr) shader.loop_over_data();
  write_visible_range(shader, attention);
  write_score(shader, attention);
  write_ranges(shader, attention);
  if (attention.table != nullptr) write_block_of(shader, attention);
}

void write_products(Shader& shader, const std::string& name, const Lanes& lanes, const Dim& size,
                    const std::function<std::string(int)>& mine, const std::function<std::string(int)>& other) {
  for (int j = 0; j < others_at_a_time; ++j) shader.line("var {}_{} = {}();", name, j, lanes.type());
  shader.open("for (var feature = 0u; feature < {}; feature++) {{", shader.loop_end(shader.size(size)));
  shader.line("let mine = {};", lanes.each(mine));
  for (int j = 0; j < others_at_a_time; ++j) shader.line("{}_{} += mine * {};", name, j, other(j));
  shader.close();
}

void write_sums(Shader& shader, const std::string& sums, const std::string& weight, const Dim& size,
                const std::function<std::string(int)>& other) {
  shader.open("for (var feature = 0u; feature < {}; feature++) {{", shader.loop_end(shader.size(size)));
  shader.line("var sum = {}[feature];", sums);
  for (int j = 0; j < others_at_a_time; ++j) shader.line("sum += {}_{} * {};", weight, j, other(j));
  shader.line("{}[feature] = sum;", sums);
  shader.close();
}

}  // namespace jerboa::wgsl
