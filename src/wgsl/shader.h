#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <jerboa/lower/program.h>

#include "wgsl/shader_text.h"

namespace jerboa::wgsl {

/// How a shader accesses its memory. All but `bound` are for the phases of one dispatch (persistent.h).
enum class MemoryAccess : std::uint8_t {
  bound,   ///< in its own buffers
  placed,  ///< at an offset, held in private variables, of a buffer that it shares with others
  passed   ///< in words that other workgroups of the same dispatch write or read, one per element
};

/// Memory that a shader may bind: a binding of the kernel, or workspace. f16 and bf16 values become f32 in the shader,
/// booleans become bool.
struct ShaderMemory {
  DType dtype = DType::f32;
  std::int64_t bytes = 0;
  std::string name = {};  ///< for errors
  MemoryAccess access = MemoryAccess::bound;
  bool has_fixed_size = true;  ///< otherwise a run may use less of it
};

/// Processes the elements that a kernel would store to a memory: an element-wise loop over them, whose results are
/// stored instead, or a convolution of one token per sequence, for the elements that it reads.
struct Finishing {
  KernelSpec kernel;
  bool stores = false;  ///< whether the elements themselves are stored as well
};

/// The WGSL type that values of this type have in a shader: f32, i32, u32 or bool.
std::string value_type(DType dtype);
/// An f32 rounded as if it were stored as a float of this type; bf16 needs the function round_bf16.
std::string rounded_value(const std::string& value, DType dtype);
/// A WGSL literal.
std::string literal(double value, DType dtype);

/// Writes one compute shader. Indices are u32 and wrap, so that negative strides work.
///
///   Shader shader(target, "fill", memories, 64);
///   shader.line("let element = group * 64u + lane;");
///   shader.open("if (element < {}) {{", shader.size(count));
///   shader.store(0, "element", "1.0");
///   shader.close();
///
/// `main` begins with `group`, the number of the workgroup, and `lane`, that of the thread in it.
class Shader {
 public:
  /// `computed`: memories without storage, whose elements these loops compute; only `load` reads them. `finished`: the
  /// kernels that process the elements passed to `store` for a memory.
  Shader(Target target, std::string name, std::vector<ShaderMemory> memories, int threads,
         const std::map<int, KernelSpec>* computed = nullptr, const std::map<int, Finishing>* finished = nullptr);

  const Target& target() const { return target_; }
  int threads() const { return threads_; }

  /// A line of main, indented. Arguments are constant references: each other combination would instantiate another
  /// function, which adds to the WASM.
  template <class... Args>
  void line(fmt::format_string<Args...> format, const Args&... args) {
    append(fmt::vformat(format, fmt::make_format_args(args...)));
  }
  /// A line that opens a block, which close() ends.
  template <class... Args>
  void open(fmt::format_string<Args...> format, const Args&... args) {
    line(format, args...);
    ++depth_;
  }
  void close(const std::string& text = "}");
  /// "} else {"
  void otherwise();
  void barrier() { append("workgroupBarrier();"); }

  /// Until end_function(), lines go to the body of this function instead of main's.
  void begin_function(const std::string& signature);
  void end_function();

  /// A unique name.
  std::string fresh(const std::string& prefix);
  /// `let NAME = value;` with a fresh name, which is returned.
  std::string let(const std::string& prefix, const std::string& value);
  /// `var NAME: TYPE = value;` likewise.
  std::string var(const std::string& prefix, const std::string& type, const std::string& value);

  /// WGSL expression of a size as u32: a number, or a field of the uniform buffer if it depends on symbols.
  std::string size(const Dim& size);
  /// The end of a loop, which drivers on the CPU must not know: they unroll whatever they can, and then take many times
  /// longer to compile the shader. Where `group` is known.
  std::string loop_end(const std::string& count) const;
  /// WGSL expression that reads an element; `index` is u32.
  std::string load(int memory, const std::string& index);
  void store(int memory, const std::string& index, const std::string& value);
  /// The same for four values at once, a vec4f, from an index that is a multiple of four. Only for memory that
  /// can_be_wide.
  std::string load_four(int memory, const std::string& index);
  void store_four(int memory, const std::string& index, const std::string& value);
  /// Four f16 without conversion, a vec4<f16>.
  std::string load_four_halves(int memory, const std::string& index);
  /// Four elements without conversion, by the index of the group of four: a vec4f, or a vec2u that holds f16. Only for
  /// memory that can_be_wide.
  std::string load_words(int memory, const std::string& number);
  /// 16 bytes without conversion, by their index: a vec4u that holds f32 or 16-bit floats. Only for memory that
  /// can_be_read_in_sixteens.
  std::string load_sixteen_bytes(int memory, const std::string& number);
  bool can_be_read_in_sixteens(int memory) const;
  /// 16 bytes of int8 or int4 weights, by their index: a vec4u. Only for memory that can_load_blocks.
  std::string load_block(int memory, const std::string& number);
  bool can_load_blocks(int memory) const;
  /// The name of memory that can_be_wide.
  static std::string buffer_name(int memory) { return fmt::format("buffer_{}", memory); }
  /// Whether the memory holds f32, or f16 that needs no unpacking, in whole groups of four, and fits one binding.
  bool can_be_wide(int memory) const;
  /// WGSL expression of an index: offset + Σ stride * index, omitting zero terms.
  std::string place(const Dim& offset, const std::vector<Dim>& strides, const std::vector<std::string>& indices);
  std::string place(const IndexMap& map, const std::vector<std::string>& indices) {
    return place(map.offset, map.strides, indices);
  }
  /// WGSL expression that reads the element of a tensor at these indices.
  std::string load(const TensorAccess& tensor, const std::vector<std::string>& indices) {
    return load(tensor.binding, place(tensor.offset, tensor.strides, indices));
  }
  void store(const TensorAccess& tensor, const std::vector<std::string>& indices, const std::string& value) {
    store(tensor.binding, place(tensor.offset, tensor.strides, indices), value);
  }
  /// Splits a flat index (a u32 expression) into one index per size, the last varying fastest.
  std::vector<std::string> split_index(const std::string& number, const std::vector<Dim>& sizes);

  /// Adds a function of wgsl/functions.cpp, or the given source, to the shader.
  const std::string& use(const std::string& function);
  void declare(const std::string& text) { declarations_.insert(text); }
  /// Workgroup memory.
  void shared_array(const std::string& name, const std::string& type, std::int64_t count);
  void use_subgroups() { uses_subgroups_ = true; }
  /// Declares `subgroup` and `subgroup_lane`, the indices of a thread's subgroup and of the thread in it, and enables
  /// subgroup matrices.
  void use_subgroup_matrices() { uses_subgroups_ = uses_subgroup_matrices_ = uses_f16_ = true; }
  bool uses_subgroup_matrices() const { return uses_subgroup_matrices_; }
  /// For shaders that use f16 beyond loads and stores.
  void use_f16() { uses_f16_ = true; }
  /// Binds all memory but that of integers read_write, although some of it is only read: compilers may move loads of
  /// memory that nothing writes, which undoes the prefetching of the next tiles.
  void keep_loads_in_place() { keeps_loads_in_place_ = true; }
  /// The same for one memory alone, so that dispatches that read the others stay independent.
  void keep_loads_in_place(int memory) { use_of(memory).read_write = true; }
  /// Declares that the bounds of some loops are data (ShaderText::loops_over_data).
  void loop_over_data() { loops_over_data_ = true; }
  /// Declares that the shader does nothing but combine the parts of attention; its buffers are given as memory numbers.
  void set_combination(const Combination& combination) { combination_ = combination; }
  bool uses_subgroups() const { return uses_subgroups_; }
  bool uses_f16() const { return uses_f16_; }

  /// One storage buffer of the finished shader.
  struct Binding {
    int memory = 0;
    std::int64_t offset = 0, bytes = 0;
    bool written = false, read_write = false;
    std::vector<int> packed;  ///< several small memories that were copied into one buffer, because bindings are few
  };
  struct Finished {
    ShaderText text;
    ShaderSource source;  ///< the complete source
    std::vector<Binding> bindings;
    std::vector<Dim> sizes;
  };
  /// Finishes the shader for this many workgroups. If they need two dimensions, those past the last do nothing.
  Finished finish(const Dim& workgroups);

 private:
  struct Use {
    bool read = false, written = false, wide = false, words = false, sixteens = false, read_write = false;
  };
  bool is_passed(int memory) const {
    return has_phases && memories_[static_cast<std::size_t>(memory)].access == MemoryAccess::passed;
  }
  bool is_placed(int memory) const {
    return has_phases && memories_[static_cast<std::size_t>(memory)].access == MemoryAccess::placed;
  }
  /// The element with this index in a buffer's array.
  std::string at(int memory, const std::string& buffer, const std::string& number) const;
  /// The number of elements of passed memory that a phase copies to workgroup memory: all, if they are read in fours,
  /// are few, and their number is fixed. Words that others wrote come from the device's shared cache each time, one
  /// sector for each word of a four.
  std::int64_t staged(int memory) const;
  std::string passed_functions(int memory) const;
  void append(const std::string& text);
  Use& use_of(int memory);
  bool is_computed(int memory) const { return computed_ != nullptr && computed_->contains(memory); }
  bool is_finished(int memory) const { return finished_ != nullptr && finished_->contains(memory); }
  void add_combination(Finished& finished) const;
  void write_finishing();
  void write_computed_loads();
  bool is_half(int memory) const;  // f16 that needs no unpacking
  bool is_wide(int memory) const { return uses_.at(memory).wide; }
  bool is_packed_pair(int memory) const;  // 16-bit elements that the shader must extract from 32-bit words
  int segments(int memory) const;
  std::vector<int> memories_to_pack() const;
  [[noreturn]] void refuse_bindings(int count) const;
  std::string buffer_type(int memory) const;
  std::string load_function(int memory, const std::vector<std::string>& buffers) const;
  std::string store_function(int memory, const std::vector<std::string>& buffers) const;
  std::string load_from(int memory, const std::string& buffer, const std::string& index) const;
  std::string store_to(int memory, const std::string& buffer, const std::string& index) const;

  Target target_;
  std::string name_;
  std::vector<ShaderMemory> memories_;
  int threads_;
  const std::map<int, KernelSpec>* computed_;
  const std::map<int, Finishing>* finished_;
  std::set<int> finished_uses_;  // memories with elements to finish
  std::map<int, Use> uses_;
  std::vector<Dim> sizes_;
  std::map<std::string, int> size_numbers_;
  std::set<std::string> functions_, declarations_;
  std::vector<ShaderText::WorkgroupArray> shared_;
  std::string body_, main_body_, kernel_functions_;
  int depth_ = 1, next_name_ = 0;
  std::optional<Combination> combination_;
  bool uses_subgroups_ = false, uses_subgroup_matrices_ = false, uses_f16_ = false, keeps_loads_in_place_ = false,
       loops_over_data_ = false;
};

}  // namespace jerboa::wgsl
