#include "wgsl/shader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <jerboa/base/error.h>

#include "base/integers.h"
#include "base/stable_sort.h"
#include "lower/bindable.h"
#include "wgsl/body.h"
#include "wgsl/finishing.h"

namespace jerboa::wgsl {

std::string value_type(DType dtype) {
  switch (dtype) {
    case DType::i32: return "i32";
    case DType::u32: return "u32";
    case DType::boolean: return "bool";
    default: return "f32";
  }
}

std::string literal(double value, DType dtype) {
  if (dtype == DType::boolean) return value != 0 ? "true" : "false";
  if (dtype == DType::i32) return fmt::format("i32({})", static_cast<std::int32_t>(static_cast<std::int64_t>(value)));
  if (dtype == DType::u32) return fmt::format("{}u", static_cast<std::uint32_t>(static_cast<std::int64_t>(value)));
  // WGSL has no literals for infinities and NaN, which it may assume do not occur, nor for subnormal numbers.
  constexpr double largest = std::numeric_limits<float>::max(), smallest = std::numeric_limits<float>::min();
  if (std::isnan(value)) value = 0;
  value = std::clamp(value, -largest, largest);
  if (std::abs(value) < smallest) value = 0;
  if (std::abs(value) == largest) return value < 0 ? "-0x1.fffffep+127f" : "0x1.fffffep+127f";
  return fmt::format("{:.9g}f", static_cast<double>(static_cast<float>(value)));
}

std::string rounded_value(const std::string& value, DType dtype) {
  if (dtype == DType::f16) return fmt::format("unpack2x16float(pack2x16float(vec2f({}, 0.0))).x", value);
  if (dtype == DType::bf16) return fmt::format("bitcast<f32>(round_bf16({}) & 0xffff0000u)", value);
  return value;
}

Shader::Shader(Target target, std::string name, std::vector<ShaderMemory> memories, int threads,
               const std::map<int, KernelSpec>* computed, const std::map<int, Finishing>* finished)
    : target_(std::move(target)),
      name_(std::move(name)),
      memories_(std::move(memories)),
      threads_(threads),
      computed_(computed),
      finished_(finished) {}

void Shader::append(const std::string& text) {
  body_.append(static_cast<std::size_t>(depth_) * 2, ' ');
  body_ += text;
  body_ += '\n';
}

void Shader::close(const std::string& text) {
  --depth_;
  append(text);
}

void Shader::otherwise() {
  --depth_;
  append("} else {");
  ++depth_;
}

std::string Shader::fresh(const std::string& prefix) { return fmt::format("{}_{}", prefix, next_name_++); }

std::string Shader::let(const std::string& prefix, const std::string& value) {
  std::string name = fresh(prefix);
  line("let {} = {};", name, value);
  return name;
}

std::string Shader::var(const std::string& prefix, const std::string& type, const std::string& value) {
  std::string name = fresh(prefix);
  line("var {}: {} = {};", name, type, value);
  return name;
}

// The number of a workgroup is below 2^31, because tensors have at most 2^32 elements.
std::string Shader::loop_end(const std::string& count) const {
  return target_.unroll == 1 ? fmt::format("{} + (group >> 31u)", count) : count;
}

std::string Shader::size(const Dim& size) {
  if (size.is_constant()) return fmt::format("{}u", static_cast<std::uint32_t>(size.value()));
  const auto [found, fresh] = size_numbers_.emplace(size.str(), static_cast<int>(sizes_.size()));
  if (fresh) sizes_.push_back(size);
  return fmt::format("sizes[{}].{}", found->second / 4, "xyzw"[found->second % 4]);
}

Shader::Use& Shader::use_of(int memory) {
  if (is_half(memory) && !is_computed(memory)) uses_f16_ = true;
  return uses_[memory];
}

std::string Shader::load(int memory, const std::string& index) {
  use_of(memory).read = true;
  return fmt::format("load_{}({})", memory, index);
}

void Shader::store(int memory, const std::string& index, const std::string& value) {
  if (is_finished(memory)) {
    finished_uses_.insert(memory);
    line("finish_{}({}, {});", memory, index, value);
    return;
  }
  use_of(memory).written = true;
  line("store_{}({}, {});", memory, index, value);
}

bool Shader::can_be_wide(int memory) const {
  const ShaderMemory& shader_memory = memories_[static_cast<std::size_t>(memory)];
  const int bytes_of_four = bits(shader_memory.dtype) / 2;
  return (shader_memory.dtype == DType::f32 || is_half(memory)) && shader_memory.bytes % bytes_of_four == 0 &&
         segments(memory) == 1 && !is_computed(memory) && !is_finished(memory);
}

std::string Shader::load_four(int memory, const std::string& index) {
  if (is_half(memory) && !is_passed(memory)) return fmt::format("vec4f({})", load_four_halves(memory, index));
  use_of(memory).read = use_of(memory).wide = true;
  if (is_passed(memory)) return fmt::format("load_four_{}({})", memory, index);
  return at(memory, buffer_name(memory), fmt::format("({}) / 4u", index));
}

std::string Shader::load_four_halves(int memory, const std::string& index) {
  if (is_passed(memory)) return fmt::format("vec4<f16>({})", load_four(memory, index));
  use_of(memory).read = use_of(memory).wide = true;
  return at(memory, buffer_name(memory), fmt::format("({}) / 4u", index));
}

std::string Shader::load_words(int memory, const std::string& number) {
  use_of(memory).read = use_of(memory).wide = true;
  if (is_half(memory)) use_of(memory).words = true;
  if (!is_passed(memory)) return at(memory, buffer_name(memory), number);
  return is_half(memory) ? fmt::format("load_words_{}({})", memory, number)
                         : fmt::format("load_four_{}(({}) * 4u)", memory, number);
}

bool Shader::can_be_read_in_sixteens(int memory) const {
  const ShaderMemory& shader_memory = memories_[static_cast<std::size_t>(memory)];
  return is_float(shader_memory.dtype) && shader_memory.bytes % 16 == 0 && segments(memory) == 1 &&
         !is_computed(memory) && !(is_passed(memory) && is_packed_pair(memory));
}

std::string Shader::load_sixteen_bytes(int memory, const std::string& number) {
  use_of(memory).sixteens = true;
  if (!is_passed(memory)) return at(memory, buffer_name(memory), number);
  use_of(memory).read = use_of(memory).wide = true;
  if (is_half(memory)) use_of(memory).words = true;
  return fmt::format("load_sixteen_bytes_{}({})", memory, number);
}

bool Shader::can_load_blocks(int memory) const {
  const ShaderMemory& shader_memory = memories_[static_cast<std::size_t>(memory)];
  return bits(shader_memory.dtype) < 16 && shader_memory.bytes % 16 == 0 && segments(memory) == 1;
}

std::string Shader::load_block(int memory, const std::string& number) {
  use_of(memory).read = use_of(memory).words = true;
  return at(memory, buffer_name(memory), number);
}

void Shader::store_four(int memory, const std::string& index, const std::string& value) {
  use_of(memory).written = use_of(memory).wide = true;
  const std::string rounded = is_half(memory) ? fmt::format("vec4<f16>({})", value) : value;
  if (is_passed(memory))
    line("store_four_{}({}, {});", memory, index, is_half(memory) ? fmt::format("vec4f({})", rounded) : value);
  else
    line("{} = {};", at(memory, buffer_name(memory), fmt::format("({}) / 4u", index)), rounded);
}

std::string Shader::at(int memory, const std::string& buffer, const std::string& number) const {
  return is_placed(memory) ? fmt::format("{}[read_at_{} + ({})]", buffer, memory, number)
                           : fmt::format("{}[{}]", buffer, number);
}

void Shader::begin_function(const std::string& signature) {
  main_body_ = std::move(body_);
  body_ = signature + " {\n";
}

void Shader::end_function() {
  kernel_functions_ += body_ + "}\n";
  body_ = std::move(main_body_);
}

std::string Shader::place(const Dim& offset, const std::vector<Dim>& strides, const std::vector<std::string>& indices) {
  std::string text;
  const auto add = [&](const std::string& term) { text += text.empty() ? term : " + " + term; };
  if (!(offset == Dim(0))) add(size(offset));
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (strides[i] == Dim(0) || indices[i] == "0u") continue;
    add(strides[i] == Dim(1) ? indices[i] : fmt::format("{} * {}", indices[i], size(strides[i])));
  }
  return text.empty() ? "0u" : text;
}

std::vector<std::string> Shader::split_index(const std::string& number, const std::vector<Dim>& sizes) {
  std::vector<std::string> indices(sizes.size(), "0u");
  std::string rest = number;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == Dim(1)) continue;
    const bool outermost = std::all_of(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(i),
                                       [](const Dim& size) { return size == Dim(1); });
    if (outermost) {
      indices[i] = rest;
      break;
    }
    // A division by 0 does not compile, even where it never runs.
    const std::string divisor = size(sizes[i] == Dim(0) ? Dim(1) : sizes[i]);
    const std::string whole = let("rest", fmt::format("{} / {}", rest, divisor));
    indices[i] = let("index", fmt::format("{} - {} * {}", rest, whole, divisor));
    rest = whole;
  }
  return indices;
}

const std::string& Shader::use(const std::string& function) { return *functions_.insert(function).first; }

void Shader::shared_array(const std::string& name, const std::string& type, std::int64_t count) {
  shared_.push_back({name, type, count, workgroup_array_bytes(type, count)});
}

bool Shader::is_half(int memory) const {
  return target_.f16 && memories_[static_cast<std::size_t>(memory)].dtype == DType::f16;
}

bool Shader::is_packed_pair(int memory) const {
  return bits(memories_[static_cast<std::size_t>(memory)].dtype) == 16 && !is_half(memory);
}

int Shader::segments(int memory) const {
  const std::int64_t bytes = memories_[static_cast<std::size_t>(memory)].bytes;
  return static_cast<int>(std::max<std::int64_t>(1, detail::divide_up(bytes, target_.max_binding_bytes)));
}

std::string Shader::buffer_type(int memory) const {
  const DType dtype = memories_[static_cast<std::size_t>(memory)].dtype;
  if (uses_.at(memory).sixteens) return "vec4u";
  if (is_packed_pair(memory)) return uses_.at(memory).written ? "atomic<u32>" : "u32";
  if (dtype == DType::f16 && uses_.at(memory).words) return "vec2u";
  if (dtype == DType::f16) return is_wide(memory) ? "vec4<f16>" : "f16";
  if (bits(dtype) < 16) return uses_.at(memory).words ? "vec4u" : "u32";
  if (dtype == DType::boolean) return "u32";
  return is_wide(memory) ? "vec4f" : value_type(dtype);
}

std::string Shader::load_from(int memory, const std::string& buffer, const std::string& index) const {
  const DType dtype = memories_[static_cast<std::size_t>(memory)].dtype;
  const Use& use = uses_.at(memory);
  const auto element = [&](const char* number) { return at(memory, buffer, fmt::format(fmt::runtime(number), index)); };
  if (use.sixteens && bits(dtype) == 32)
    return fmt::format("bitcast<f32>({}[({}) & 3u])", element("({}) >> 2u"), index);
  if (use.sixteens) {
    const std::string word = fmt::format("{}[(({}) >> 1u) & 3u]", element("({}) >> 3u"), index);
    if (dtype == DType::f16) return fmt::format("unpack2x16float({})[({}) & 1u]", word, index);
    return fmt::format("bitcast<f32>(({} >> ((({}) & 1u) * 16u)) << 16u)", word, index);
  }
  if (is_packed_pair(memory)) {
    std::string word = element("({}) >> 1u");
    if (use.written) word = fmt::format("atomicLoad(&{})", word);
    const std::string half = fmt::format("(({} >> ((({}) & 1u) * 16u)) & 0xffffu)", word, index);
    return dtype == DType::f16 ? fmt::format("unpack2x16float{}.x", half)
                               : fmt::format("bitcast<f32>({} << 16u)", half);
  }
  if (dtype == DType::boolean) return fmt::format("({} != 0u)", element("{}"));
  const auto word_at = [&](const std::string& number) {
    return use.words ? fmt::format("{}[({}) & 3u]", at(memory, buffer, fmt::format("({}) >> 2u", number)), number)
                     : at(memory, buffer, number);
  };
  if (dtype == DType::i8)
    return fmt::format("f32(extractBits(bitcast<i32>({0}), (({1}) & 3u) * 8u, 8u))",
                       word_at(fmt::format("({}) >> 2u", index)), index);
  // Value j of 32 is in byte j % 16 of 16: in the low nibble for the first 16, in the high nibble for the rest.
  if (dtype == DType::i4)
    return fmt::format("f32(i32(extractBits({0}, (({1}) & 3u) * 8u + ((({1}) >> 4u) & 1u) * 4u, 4u)) - 8)",
                       word_at(fmt::format("(({0}) >> 5u) * 4u + ((({0}) & 15u) >> 2u)", index)), index);
  if (use.words && is_half(memory))
    return fmt::format("unpack2x16float({0}[(({1}) >> 1u) & 1u])[({1}) & 1u]", element("({}) >> 2u"), index);
  const std::string value =
      is_wide(memory) ? fmt::format("{}[({}) & 3u]", element("({}) >> 2u"), index) : element("{}");
  return dtype == DType::f16 ? fmt::format("f32({})", value) : value;
}

std::string Shader::store_to(int memory, const std::string& buffer, const std::string& index) const {
  const DType dtype = memories_[static_cast<std::size_t>(memory)].dtype;
  if (is_packed_pair(memory)) {
    // Two threads may write the two halves of a word: each changes only its half.
    const std::string half = dtype == DType::f16 ? "pack2x16float(vec2f(value, 0.0))" : "(round_bf16(value) >> 16u)";
    return fmt::format(
        "let shift = (({1}) & 1u) * 16u; atomicAnd(&{0}, ~(0xffffu << shift)); "
        "atomicOr(&{0}, ({2} & 0xffffu) << shift);",
        at(memory, buffer, fmt::format("({}) >> 1u", index)), index, half);
  }
  if (dtype == DType::boolean) return fmt::format("{} = select(0u, 1u, value);", at(memory, buffer, index));
  const char* value = dtype == DType::f16 ? "f16(value)" : "value";
  if (is_wide(memory))
    return fmt::format("{}[({}) & 3u] = {};", at(memory, buffer, fmt::format("({}) >> 2u", index)), index, value);
  return fmt::format("{} = {};", at(memory, buffer, index), value);
}

std::int64_t Shader::staged(int memory) const {
  constexpr std::int64_t most = 8192;
  const ShaderMemory& shader_memory = memories_[static_cast<std::size_t>(memory)];
  const Use& use = uses_.at(memory);
  const std::int64_t elements = shader_memory.bytes * 8 / bits(shader_memory.dtype);
  return is_passed(memory) && use.read && use.wide && shader_memory.has_fixed_size && elements <= most ? elements : 0;
}

// An element is a word with the bits of its value in the shader. The functions that read and write words are declared
// by phases_source.
std::string Shader::passed_functions(int memory) const {
  const DType dtype = memories_[static_cast<std::size_t>(memory)].dtype;
  const Use& use = uses_.at(memory);
  const std::string type = value_type(dtype);
  std::string text;
  const auto add = [&](fmt::string_view format) {
    text += fmt::format(fmt::runtime(format), fmt::arg("m", memory), fmt::arg("type", type));
  };
  const bool is_boolean = dtype == DType::boolean;
  const bool is_staged = staged(memory) > 0;
  if (use.read && is_staged)
    add("fn load_{m}(index: u32) -> {type} {{ return bitcast<{type}>(staged[staged_buffer_{m} + (index >> "
        "2u)][index & 3u]); }}\n");
  else if (use.read)
    add(is_boolean
            ? "fn load_{m}(index: u32) -> bool {{ return passed_word(read_at_{m} + index) != 0u; }}\n"
            : "fn load_{m}(index: u32) -> {type} {{ return bitcast<{type}>(passed_word(read_at_{m} + index)); }}\n");
  const char* four = is_staged ? "staged[staged_buffer_{m} + ({place} >> 2u)]" : "passed_four(read_at_{m} + {place})";
  const auto four_at = [&](const char* place) {
    return fmt::format(fmt::runtime(four), fmt::arg("m", memory), fmt::arg("place", place));
  };
  if (use.read && use.wide)
    text += fmt::format("fn load_four_{}(index: u32) -> vec4f {{ return bitcast<vec4f>({}); }}\n", memory,
                        four_at("index"));
  if (use.words)
    add("fn load_words_{m}(number: u32) -> vec2u {{\n"
        "  let four = load_four_{m}(number * 4u);\n"
        "  return vec2u(pack2x16float(four.xy), pack2x16float(four.zw));\n}}\n");
  if (use.sixteens && is_half(memory))
    add("fn load_sixteen_bytes_{m}(number: u32) -> vec4u {{\n"
        "  return vec4u(load_words_{m}(number * 2u), load_words_{m}(number * 2u + 1u));\n}}\n");
  else if (use.sixteens)
    text += fmt::format("fn load_sixteen_bytes_{}(number: u32) -> vec4u {{ return bitcast<vec4u>({}); }}\n", memory,
                        four_at("(number * 4u)"));
  if (!use.written) return text;
  const std::string pass = is_boolean        ? "pass_word(write_at_{0} + index, select(0u, 1u, value))"
                           : is_float(dtype) ? "pass_float(write_at_{0} + index, " + rounded_value("value", dtype) + ")"
                                             : "pass_word(write_at_{0} + index, bitcast<u32>(value))";
  text += fmt::format("fn store_{0}(index: u32, value: {1}) {{ {2}; }}\n", memory, type,
                      fmt::format(fmt::runtime(pass), memory));
  if (use.wide)
    add("fn store_four_{m}(index: u32, value: vec4f) {{\n"
        "  for (var i = 0u; i < 4u; i++) {{ pass_float(write_at_{m} + index + i, value[i]); }}\n}}\n");
  return text;
}

// A combination's members are memory numbers before the shader is finished, and buffer numbers after.
void Shader::add_combination(Finished& finished) const {
  if (!combination_) return;
  Combination combination = *combination_;
  for (int* memory : {&combination.sums, &combination.rows, &combination.out, &combination.lse}) {
    const auto found = std::find_if(finished.bindings.begin(), finished.bindings.end(),
                                    [&](const Binding& binding) { return binding.memory == *memory; });
    *memory = static_cast<int>(found - finished.bindings.begin());
  }
  finished.text.combination = combination;
}

std::string Shader::load_function(int memory, const std::vector<std::string>& buffers) const {
  const ShaderMemory& shader_memory = memories_[static_cast<std::size_t>(memory)];
  std::string text = fmt::format("fn load_{}(index: u32) -> {} {{\n", memory, value_type(shader_memory.dtype));
  const std::int64_t step = target_.max_binding_bytes * 8 / bits(shader_memory.dtype);
  for (std::size_t i = 0; i + 1 < buffers.size(); ++i)
    text += fmt::format("  if (index < {}u) {{ return {}; }}\n", step * static_cast<std::int64_t>(i + 1),
                        load_from(memory, buffers[i], fmt::format("index - {}u", step * static_cast<std::int64_t>(i))));
  const std::int64_t base = step * static_cast<std::int64_t>(buffers.size() - 1);
  text += fmt::format("  return {};\n}}\n",
                      load_from(memory, buffers.back(), base == 0 ? "index" : fmt::format("index - {}u", base)));
  return text;
}

std::string Shader::store_function(int memory, const std::vector<std::string>& buffers) const {
  const ShaderMemory& shader_memory = memories_[static_cast<std::size_t>(memory)];
  std::string text = fmt::format("fn store_{}(index: u32, value: {}) {{\n", memory, value_type(shader_memory.dtype));
  const std::int64_t step = target_.max_binding_bytes * 8 / bits(shader_memory.dtype);
  for (std::size_t i = 0; i + 1 < buffers.size(); ++i)
    text += fmt::format("  if (index < {}u) {{ {} return; }}\n", step * static_cast<std::int64_t>(i + 1),
                        store_to(memory, buffers[i], fmt::format("index - {}u", step * static_cast<std::int64_t>(i))));
  const std::int64_t base = step * static_cast<std::int64_t>(buffers.size() - 1);
  text += fmt::format("  {}\n}}\n",
                      store_to(memory, buffers.back(), base == 0 ? "index" : fmt::format("index - {}u", base)));
  return text;
}

// If a shader needs more buffers than it may bind, the smallest read-only ones share one.
std::vector<int> Shader::memories_to_pack() const {
  int count = 0;
  std::vector<int> candidates;
  for (const auto& [memory, use] : uses_) {
    if (is_computed(memory)) continue;
    count += segments(memory);
    if (!use.written && !use.wide && !use.sixteens && segments(memory) == 1 &&
        bits(memories_[static_cast<std::size_t>(memory)].dtype) == 32)
      candidates.push_back(memory);
  }
  if (count <= target_.max_bindings) return {};
  detail::stable_sort(candidates, [&](int a, int b) {
    return memories_[static_cast<std::size_t>(a)].bytes < memories_[static_cast<std::size_t>(b)].bytes;
  });
  const auto wanted = static_cast<std::size_t>(count - target_.max_bindings) + 1;
  if (candidates.size() < wanted) refuse_bindings(count);
  candidates.resize(wanted);
  return candidates;
}

void Shader::refuse_bindings(int count) const {
  const auto largest = std::max_element(uses_.begin(), uses_.end(), [&](const auto& a, const auto& b) {
    return memories_[static_cast<std::size_t>(a.first)].bytes < memories_[static_cast<std::size_t>(b.first)].bytes;
  });
  const ShaderMemory& memory = memories_[static_cast<std::size_t>(largest->first)];
  if (segments(largest->first) > 1)
    detail::refuse_binding(fmt::format("{} ({})", memory.name, jerboa::name(memory.dtype)), memory.bytes, name_, count,
                           target_);
  throw GraphError(
      fmt::format("the kernel {} needs {} storage buffers, but the device allows {} and too few of them can share one",
                  name_, count, target_.max_bindings));
}

// Finishing an element may produce others that are finished too.
void Shader::write_finishing() {
  std::set<int> written;
  while (written != finished_uses_)
    for (const int memory : std::set<int>(finished_uses_)) {
      if (!written.insert(memory).second) continue;
      const Finishing& finishing = finished_->at(memory);
      begin_function(fmt::format("fn finish_{}(element: u32, value: f32)", memory));
      if (finishing.stores) {
        use_of(memory).written = true;
        line("store_{}(element, value);", memory);
      }
      write_finished_element(*this, finishing.kernel, memory, memories_[static_cast<std::size_t>(memory)].dtype);
      end_function();
    }
}

// Computing an element may read others that are computed too.
void Shader::write_computed_loads() {
  if (computed_ == nullptr) return;
  std::set<int> written;
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [memory, kernel] : *computed_) {
      if (!uses_.contains(memory) || !written.insert(memory).second) continue;
      changed = true;
      begin_function(fmt::format("fn load_{}(element: u32) -> {}", memory,
                                 value_type(memories_[static_cast<std::size_t>(memory)].dtype)));
      BodyWriter body(*this, kernel, split_index("element", kernel.domain));
      const std::string value = body.value(kernel.stores.front().value);
      line("return {};", value);
      end_function();
    }
  }
}

Shader::Finished Shader::finish(const Dim& workgroups) {
  write_finishing();
  write_computed_loads();
  Finished finished;
  ShaderText& text = finished.text;
  if (workgroups.upper_bound() > target_.max_workgroups)
    text.body = fmt::format("  if (group >= {}) {{ return; }}\n", size(workgroups));
  const std::vector<int> packed = memories_to_pack();
  for (const auto& [memory, use] : uses_) {
    if (is_computed(memory) || std::find(packed.begin(), packed.end(), memory) != packed.end()) continue;
    std::vector<std::string> buffers;
    const ShaderMemory& shader_memory = memories_[static_cast<std::size_t>(memory)];
    const std::int64_t bytes = shader_memory.bytes;
    if (is_passed(memory)) {
      text.buffers.push_back({buffer_name(memory), "passed", use.written,
                              use.read ? fmt::format("read_at_{}", memory) : "",
                              use.written ? fmt::format("write_at_{}", memory) : ""});
      text.buffers.back().staged = staged(memory);
      text.buffers.back().is_read_elsewhere = use.read && staged(memory) == 0;
      finished.bindings.push_back({memory, 0, bytes, use.written, false, {}});
      text.functions += passed_functions(memory);
      continue;
    }
    const int count = segments(memory);
    for (int i = 0; i < count; ++i) {
      buffers.push_back(count == 1 ? fmt::format("buffer_{}", memory) : fmt::format("buffer_{}_{}", memory, i));
      // Numbers may say how far loops go: only where nothing can write them do compilers know that all threads agree.
      const bool is_number = shader_memory.dtype == DType::i32 || shader_memory.dtype == DType::u32;
      const bool read_write = (keeps_loads_in_place_ && !is_number) || use.read_write;
      text.buffers.push_back({buffers.back(), buffer_type(memory), use.written || read_write});
      if (is_placed(memory)) text.buffers.back().read_at = fmt::format("read_at_{}", memory);
      const std::int64_t offset = target_.max_binding_bytes * i;
      finished.bindings.push_back(
          {memory, offset, std::min(bytes - offset, target_.max_binding_bytes), use.written, read_write, {}});
    }
    if (use.read) text.functions += load_function(memory, buffers);
    if (use.written) text.functions += store_function(memory, buffers);
  }
  if (!packed.empty()) {
    Binding binding;
    binding.packed = packed;
    for (const int memory : packed) {
      const ShaderMemory& shader_memory = memories_[static_cast<std::size_t>(memory)];
      const std::string word = fmt::format("packed[index + {}u]", binding.bytes / 4);
      text.functions +=
          fmt::format("fn load_{}(index: u32) -> {} {{ return {}; }}\n", memory, value_type(shader_memory.dtype),
                      shader_memory.dtype == DType::boolean
                          ? word + " != 0u"
                          : fmt::format("bitcast<{}>({})", value_type(shader_memory.dtype), word));
      binding.bytes += detail::whole_words(shader_memory.bytes);
    }
    text.buffers.push_back({"packed", "u32", false});
    finished.bindings.push_back(std::move(binding));
  }
  text.size_vectors = (sizes_.size() + 3) / 4;
  text.workgroup_memory = shared_;
  text.library = functions_;
  if (std::any_of(uses_.begin(), uses_.end(), [&](const auto& use) {
        return use.second.written && memories_[static_cast<std::size_t>(use.first)].dtype == DType::bf16;
      }))
    text.library.insert("round_bf16");
  for (const std::string& declaration : declarations_) text.functions += declaration;
  text.functions += kernel_functions_;
  text.body += body_;
  text.loops_over_data = loops_over_data_;
  add_combination(finished);
  text.uses_f16 = uses_f16_;
  text.uses_subgroups = uses_subgroups_;
  text.uses_subgroup_matrices = uses_subgroup_matrices_;
  finished.source = {name_, assemble(text, threads_), threads_, workgroup_bytes(shared_)};
  finished.sizes = sizes_;
  return finished;
}

}  // namespace jerboa::wgsl
