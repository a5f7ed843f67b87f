#include "wgsl/shader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <jerboa/base/error.h>

#include "base/integers.h"
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
  // WGSL has no literals for infinities and NaN, which ops may assume do not occur, nor for subnormal numbers.
  constexpr double largest = std::numeric_limits<float>::max(), smallest = std::numeric_limits<float>::min();
  if (std::isnan(value)) value = 0;
  value = std::clamp(value, -largest, largest);
  if (std::abs(value) < smallest) value = 0;
  if (std::abs(value) == largest) return value < 0 ? "-0x1.fffffep+127f" : "0x1.fffffep+127f";
  return fmt::format("{:.9g}f", static_cast<double>(static_cast<float>(value)));
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
  if (is_half(memory)) return fmt::format("vec4f({})", load_four_halves(memory, index));
  use_of(memory).read = use_of(memory).wide = true;
  return fmt::format("buffer_{}[({}) / 4u]", memory, index);
}

std::string Shader::load_four_halves(int memory, const std::string& index) {
  use_of(memory).read = use_of(memory).wide = true;
  return fmt::format("buffer_{}[({}) / 4u]", memory, index);
}

std::string Shader::load_words(int memory, const std::string& number) {
  use_of(memory).read = use_of(memory).wide = true;
  if (is_half(memory)) use_of(memory).words = true;
  return fmt::format("buffer_{}[{}]", memory, number);
}

bool Shader::can_be_read_in_sixteens(int memory) const {
  const ShaderMemory& shader_memory = memories_[static_cast<std::size_t>(memory)];
  return is_float(shader_memory.dtype) && shader_memory.bytes % 16 == 0 && segments(memory) == 1 &&
         !is_computed(memory);
}

std::string Shader::load_sixteen_bytes(int memory, const std::string& number) {
  use_of(memory).sixteens = true;
  return fmt::format("buffer_{}[{}]", memory, number);
}

bool Shader::can_load_blocks(int memory) const {
  const ShaderMemory& shader_memory = memories_[static_cast<std::size_t>(memory)];
  return bits(shader_memory.dtype) < 16 && shader_memory.bytes % 16 == 0 && segments(memory) == 1;
}

std::string Shader::load_block(int memory, const std::string& number) {
  use_of(memory).read = use_of(memory).words = true;
  return fmt::format("buffer_{}[{}]", memory, number);
}

void Shader::store_four(int memory, const std::string& index, const std::string& value) {
  use_of(memory).written = use_of(memory).wide = true;
  line("buffer_{}[({}) / 4u] = {};", memory, index, is_half(memory) ? fmt::format("vec4<f16>({})", value) : value);
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

namespace {

// The bytes of an element of an array of this type.
std::int64_t stride_of(const std::string& type) {
  if (type == "vec4f" || type == "vec4u" || type == "vec4i" || type == "vec4<f32>") return 16;
  if (type == "vec2f" || type == "vec2u" || type == "vec2i" || type == "vec4<f16>") return 8;
  if (type == "f16") return 2;
  if (type == "f32" || type == "u32" || type == "i32" || type == "bool" || type == "vec2<f16>") return 4;
  throw GraphError(fmt::format("internal: the size of {} is unknown", type));
}

}  // namespace

void Shader::shared_array(const std::string& name, const std::string& type, std::int64_t count) {
  shared_.push_back({name, type, count, (stride_of(type) * count + 15) / 16 * 16});
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
  if (uses_.at(memory).sixteens && bits(dtype) == 32)
    return fmt::format("bitcast<f32>({0}[({1}) >> 2u][({1}) & 3u])", buffer, index);
  if (uses_.at(memory).sixteens) {
    const std::string word = fmt::format("{0}[({1}) >> 3u][(({1}) >> 1u) & 3u]", buffer, index);
    if (dtype == DType::f16) return fmt::format("unpack2x16float({})[({}) & 1u]", word, index);
    return fmt::format("bitcast<f32>(({} >> ((({}) & 1u) * 16u)) << 16u)", word, index);
  }
  if (is_packed_pair(memory)) {
    const std::string word = uses_.at(memory).written ? fmt::format("atomicLoad(&{}[({}) >> 1u])", buffer, index)
                                                      : fmt::format("{}[({}) >> 1u]", buffer, index);
    const std::string half = fmt::format("(({} >> ((({}) & 1u) * 16u)) & 0xffffu)", word, index);
    return dtype == DType::f16 ? fmt::format("unpack2x16float{}.x", half)
                               : fmt::format("bitcast<f32>({} << 16u)", half);
  }
  if (dtype == DType::boolean) return fmt::format("({}[{}] != 0u)", buffer, index);
  const auto word_at = [&](const std::string& number) {
    return uses_.at(memory).words ? fmt::format("{0}[({1}) >> 2u][({1}) & 3u]", buffer, number)
                                  : fmt::format("{}[{}]", buffer, number);
  };
  if (dtype == DType::i8)
    return fmt::format("f32(extractBits(bitcast<i32>({0}), (({1}) & 3u) * 8u, 8u))",
                       word_at(fmt::format("({}) >> 2u", index)), index);
  // Value j of 32 is in byte j % 16 of 16: in the low half for the first 16, in the high half for the rest.
  if (dtype == DType::i4)
    return fmt::format("f32(i32(extractBits({0}, (({1}) & 3u) * 8u + ((({1}) >> 4u) & 1u) * 4u, 4u)) - 8)",
                       word_at(fmt::format("(({0}) >> 5u) * 4u + ((({0}) & 15u) >> 2u)", index)), index);
  if (uses_.at(memory).words && is_half(memory))
    return fmt::format("unpack2x16float({0}[({1}) >> 2u][(({1}) >> 1u) & 1u])[({1}) & 1u]", buffer, index);
  const std::string element = is_wide(memory) ? fmt::format("{0}[({1}) >> 2u][({1}) & 3u]", buffer, index)
                                              : fmt::format("{}[{}]", buffer, index);
  return dtype == DType::f16 ? fmt::format("f32({})", element) : element;
}

std::string Shader::store_to(int memory, const std::string& buffer, const std::string& index) const {
  const DType dtype = memories_[static_cast<std::size_t>(memory)].dtype;
  if (is_packed_pair(memory)) {
    // Two threads may write the two halves of a word: each changes only its half.
    const std::string half = dtype == DType::f16 ? "pack2x16float(vec2f(value, 0.0))" : "(round_bf16(value) >> 16u)";
    return fmt::format(
        "let shift = (({1}) & 1u) * 16u; atomicAnd(&{0}[({1}) >> 1u], ~(0xffffu << shift)); "
        "atomicOr(&{0}[({1}) >> 1u], ({2} & 0xffffu) << shift);",
        buffer, index, half);
  }
  if (dtype == DType::boolean) return fmt::format("{}[{}] = select(0u, 1u, value);", buffer, index);
  const char* value = dtype == DType::f16 ? "f16(value)" : "value";
  if (is_wide(memory)) return fmt::format("{0}[({1}) >> 2u][({1}) & 3u] = {2};", buffer, index, value);
  return fmt::format("{}[{}] = {};", buffer, index, value);
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

// Where a shader needs more buffers than it may bind, the smallest that it only reads share one.
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
  std::stable_sort(candidates.begin(), candidates.end(), [&](int a, int b) {
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

// What finishes an element may give others that are finished too.
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

// What computes an element may read others that are computed too.
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
    const std::int64_t bytes = memories_[static_cast<std::size_t>(memory)].bytes;
    const int count = segments(memory);
    for (int i = 0; i < count; ++i) {
      buffers.push_back(count == 1 ? fmt::format("buffer_{}", memory) : fmt::format("buffer_{}_{}", memory, i));
      const bool read_write = keeps_loads_in_place_ || use.read_write;
      text.buffers.push_back({buffers.back(), buffer_type(memory), use.written || read_write});
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
  text.uses_f16 = uses_f16_;
  text.uses_subgroups = uses_subgroups_;
  text.uses_subgroup_matrices = uses_subgroup_matrices_;
  finished.source = {name_, assemble(text, threads_), threads_, workgroup_bytes(shared_)};
  finished.sizes = sizes_;
  return finished;
}

}  // namespace jerboa::wgsl
