#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <jerboa/base/host_tensor.h>
#include <jerboa/ir/graph.h>

namespace jerboa {

// Kernels and programs as plain data: what the compiler hands to the hosts. Any backend can execute or print them.

/// Whether subgroups of 32 threads can multiply 16×16 f16 matrices cooperatively, accumulating in f32.
enum class SubgroupMatrices : std::uint8_t {
  none,
  emulated,  ///< the same kernels, with functions that emulate it on any device: slow, for tests
  native
};

namespace wgsl {
class TunedForms;  // forms measured on a device: only the stage that emits its code knows the type
}

/// The properties of a device that the compiler depends on.
struct Target {
  std::string name = "cpu";
  std::int64_t max_buffer_bytes = std::int64_t{1} << 40;
  std::int64_t max_binding_bytes = std::int64_t{1} << 40;
  int max_bindings = 1 << 20;          ///< storage buffers that one kernel may bind
  std::int64_t offset_alignment = 64;  ///< of a binding's offset in its buffer, bytes
  bool separate_arenas = false;        ///< a buffer must not be bound for reading and writing in one dispatch
  bool fuse = true;                    ///< off: one kernel per node, for comparison
  bool recompute = true;               ///< off: nothing is recomputed to save memory, for comparison
  bool plan = true;                    ///< off: every tensor has separate memory, for comparison
  bool pool_updates = false;           ///< identical updates become one dispatch over adjacent tensors
  // For GPUs:
  int max_workgroups = 65535;  ///< in each dimension of a dispatch
  int max_invocations = 256;   ///< threads per workgroup
  std::int64_t workgroup_bytes = 16384;
  int subgroup_size = 0;       ///< threads that can exchange values directly; 0: unsupported, or of varying size
  bool f16 = false;            ///< f16 in shaders: accessed without unpacking, and f16 tiles stay f16
  bool f16_arithmetic = true;  ///< with f16: products of f16 that result in f16 are multiplied in f16
  SubgroupMatrices subgroup_matrices = SubgroupMatrices::none;
  int resident_workgroups = 0;  ///< workgroups of 128 threads and 24 KiB that run concurrently; 0: unknown
  int unroll = 4;               ///< copies of a loop's body in a shader; 1: drivers must not unroll loops either
  bool software = false;        ///< a software driver: kernels without workgroup memory are faster there
  /// Workgroups that run concurrently and see each other's writes to atomic words, so that a program's steps can be
  /// phases of one dispatch; 0: unknown, or not to be relied on.
  int persistent_workgroups = 0;
  int persistent_threads = 256;  ///< per workgroup
  int fixed_threads = 0;         ///< threads of shaders that use workgroup memory, as phases of one dispatch
  /// The forms of kernels that were fastest on this device (`jerboa tune`), which take precedence over those chosen
  /// from the facts above; null: none were measured.
  std::shared_ptr<const wgsl::TunedForms> tuned = {};

  static Target cpu() { return {}; }
  /// The limits that every WebGPU device has.
  static Target webgpu_default();
};

/// The location of an element of a kernel's domain in a buffer: offset + sum of stride * index, in elements.
struct IndexMap {
  Dim offset = 0;
  std::vector<Dim> strides;  ///< one per axis of the domain
};

/// A range of one axis of the domain outside of which a load produces its fill value: padding.
struct Mask {
  int axis = 0;
  Dim from = 0, to = 0;
};

struct Load {
  int binding = 0;
  DType dtype = DType::f32;
  IndexMap map;
  std::vector<Mask> masks;
  double fill = 0;
  /// A gather: the instruction whose value, clamped to 0 … limit - 1, is multiplied by the stride and added. -1: none.
  int indirect = -1;
  Dim indirect_stride = 0, indirect_limit = 0;
};

struct Store {
  int binding = 0;
  DType dtype = DType::f32;
  IndexMap map;
  int value = 0;  ///< an instruction
};

/// One step of a kernel's body, in static single assignment: instruction i defines value i.
struct Instruction {
  enum class Kind : std::uint8_t {
    load,      ///< loads[index]
    constant,  ///< number, or dim
    position,  ///< the index along axis `index` of the domain, times dim_scale, plus dim
    compute,   ///< op on a, b, c
    reduce,    ///< op (sum, max, min, argmax, all_finite) of a over the row
    product    ///< supplied from outside: an element of the matrix product or of an operand, or the reduced value
  };
  Kind kind = Kind::constant;
  Op op = Op::add;
  DType dtype = DType::f32;  ///< of the result
  int a = -1, b = -1, c = -1;
  int index = 0;
  double number = 0;   ///< a constant, an exponent, a lower bound
  double number2 = 0;  ///< an upper bound
  Dim dim = 0, dim_scale = 1;
};

/// A tensor that a kernel reads or writes as a whole: an operand of a product, attention or a sort.
struct TensorAccess {
  int binding = -1;  ///< -1: absent
  DType dtype = DType::f32;
  Shape shape;
  Dim offset = 0;
  std::vector<Dim> strides;
  /// For an operand of a product: applied to each element as it is read, which is the value of the `product`
  /// instruction; the last instruction is the result. Empty: nothing.
  std::vector<Instruction> prologue = {};
};

struct KernelSpec {
  enum class Kind : std::uint8_t {
    loop,    ///< the body for each element; reductions run over the last row_axes axes
    reduce,  ///< like a loop with one reduction, over elements in any memory order: the body stores one value for
             ///< each index along the axes before the last row_axes
    matmul,  ///< operands[0] times operands[1], whose scales are operands[2] if any, then the body on each element
    whole    ///< `op` on whole tensors
  };
  Kind kind = Kind::loop;
  Op op = Op::add;
  Attrs attrs;
  Shape domain;
  int row_axes = 0;
  std::vector<Load> loads;
  std::vector<Instruction> body;
  std::vector<Store> stores;
  std::vector<TensorAccess> operands;  ///< of matmul and whole
  std::vector<TensorAccess> results;   ///< of whole
  int bindings = 0;  ///< one that is loaded and stored is in place: both use the same map, and stores come last
};

/// Which of its bindings a kernel writes.
std::vector<bool> written_bindings(const KernelSpec& kernel);

/// Memory that a program's kernels bind.
struct Buffer {
  enum class Where : std::uint8_t {
    storage,
    input,
    constant,
    arena,
    pool  ///< adjacent storage of several tensors, which are buffers within it
  };
  Where where = Where::arena;
  std::string name;   ///< for storage and inputs; otherwise the contents, for reports
  int constant = -1;  ///< index into constants
  DType dtype = DType::f32;
  Dim elements = 0;
  int arena = 0;
  std::int64_t offset = 0;  ///< in the arena or pool, bytes
  std::int64_t bytes = 0;   ///< at the symbols' upper bounds
  int first = 0, last = 0;  ///< dispatches that use it
  int within = -1;          ///< the buffer that contains it: a pool, or one in the same arena
  std::int64_t inside = 0;  ///< its offset there, bytes
};

/// Kernels that run concurrently: none reads what another writes.
struct Dispatch {
  struct Part {
    int kernel = 0;
    std::vector<int> buffers;  ///< by binding
    std::string label;         ///< names of the results, for profiles
  };
  std::vector<Part> parts;
};

/// A tensor that can be read after a run.
struct Readable {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  int buffer = 0;
  Dim offset = 0;
  std::vector<Dim> strides;
};

/// What every host of a program needs: its memory, and what can be read from it after a run.
struct ProgramMemory {
  std::vector<Buffer> buffers;
  std::vector<std::int64_t> arenas;  ///< bytes
  std::vector<HostTensor> constants;
  std::vector<Readable> outputs, captures;
};

/// The buffer itself, or the one that contains it.
int root_of(const ProgramMemory& memory, int buffer);

/// What the CPU engine runs. The compiler's passes work on it for every device, and WGSL is emitted from it.
struct CpuCode {
  std::vector<KernelSpec> kernels;
  std::vector<Dispatch> dispatches;
};

/// WGSL source of a compute shader; its entry point is main, and its bindings are in group 0.
struct ShaderSource {
  std::string name;
  std::string source;
  int threads = 1;                   ///< per workgroup
  std::int64_t workgroup_bytes = 0;  ///< shared by a workgroup
};

/// One dispatch of a shader. Storage buffers are bound in order, from 0; if there are sizes, a uniform buffer follows
/// that holds them as u32.
struct GpuStep {
  struct Binding {
    int buffer = 0;
    std::int64_t offset = 0, bytes = 0;  ///< a part of the buffer, if the whole exceeds the binding limit
    bool written = false;
    bool read_write = false;  ///< bound read-write although it is only read, which keeps drivers from moving its loads
    bool is_read_write() const { return written || read_write; }
  };
  int shader = -1;  ///< -1: a copy of the first binding to the second instead of a dispatch
  std::vector<Binding> bindings;
  std::vector<Dim> sizes;  ///< only those that depend on symbols
  Dim workgroups = 0;      ///< in total; if they exceed one dimension they are spread over two, x first
  Dim operations = 0;      ///< floating-point operations of products, for profiles; not stored in files
  std::string label;       ///< names of the results, for profiles
};

/// A product of matrices that the threads of a subgroup compute together: rows × inner times inner × columns.
struct SubgroupMatrix {
  int rows = 0, columns = 0, inner = 0;
  DType operands = DType::f16, sums = DType::f32;

  friend bool operator==(const SubgroupMatrix&, const SubgroupMatrix&) = default;
};

/// All steps of a program as phases of one dispatch, whose workgroups wait for each other between phases. Its bindings
/// are the control words, the words that are passed between workgroups, those listed here, and the table.
struct PersistentDispatch {
  /// The initial value of all words: the bits of a NaN that arithmetic never produces. A reader that finds it polls.
  static constexpr std::uint32_t unwritten = 0x7fa5c3e1;
  /// The first words, which hold the counter of workgroups that have arrived.
  static constexpr std::int64_t counter_words = 32;
  ShaderSource shader;
  std::vector<GpuStep::Binding> bindings;
  std::vector<Dim> table;  ///< a uniform buffer of u32: the code of each phase, and where its memory is
  std::int64_t words = 0;  ///< including those of the counter
  int phases = 0;
  int probe_row = 0;                     ///< of the table, in vectors of four: an unused row as long as any phase's
  std::map<int, std::int64_t> words_of;  ///< by buffer: the first word of its contents after a run
  std::vector<Buffer> unpooled;          ///< the buffers before pooling, for a host that runs the steps after all
};

/// What a GPU host runs, natively or in a browser: the work of the dispatches as shaders and bindings.
struct GpuCode {
  std::vector<ShaderSource> shaders;
  bool emitted = false;  ///< whether the program is for a GPU at all: it may have no steps
  std::vector<GpuStep> steps;
  bool uses_f16 = false, uses_subgroups = false;
  std::vector<SubgroupMatrix> subgroup_matrices;  ///< used by its shaders
  /// The same work in one dispatch, for devices on which that is safe; null if there is none. Not stored in files.
  std::shared_ptr<const PersistentDispatch> persistent = {};
  bool foreign = false;  ///< not emitted by this process: only for devices that bounds-check every index in a shader
};

/// One compiled graph: its memory, and the code for each kind of host. A program loaded from a file has only the code
/// for the device that it was compiled for.
struct Program : ProgramMemory {
  CpuCode cpu;
  GpuCode gpu;
};

std::string print(const Program& program);

}  // namespace jerboa
