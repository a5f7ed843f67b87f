#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

#include <jerboa/base/error.h>
#include <jerboa/ir/graph.h>

namespace jerboa {

/// A handle to a tensor of the graph that is being traced. Small, copied freely, and useless outside its trace.
class Tensor {
 public:
  Tensor() = default;
  Tensor(std::uint64_t graph, TensorId id) : graph_(graph), id_(id) {}

  TensorId id() const { return id_; }
  std::uint64_t graph() const { return graph_; }
  /// Whether it refers to a tensor at all.
  explicit operator bool() const { return id_ != no_tensor; }

  // These read the graph, so they work only while it is being traced.
  Shape shape(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const;
  Dim dim(int axis, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const;
  int rank(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const;
  DType dtype(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const;
  std::string name(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const;
  /// Names the tensor for printing, dumps and profiles.
  Tensor named(const std::string& name, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const;

 private:
  std::uint64_t graph_ = 0;
  TensorId id_ = no_tensor;
};

/// The description of a parameter in a model: its shape and type, its initial value, whether weight decay applies. It
/// becomes a tensor of the graph when an op uses it; its path, assigned when a Trainer takes the model, decides which.
struct Parameter {
  Shape shape;
  Init init;
  DType dtype = DType::f32;  ///< f32, f16 or bf16
  bool decay = true;
  bool trainable = true;
  std::string owner;  ///< the module it belongs to, for errors: "nn::Linear(256, 768)"
  CallSite site;      ///< where that module was made
  std::string path;   ///< "blocks.0.qkv.weight"; empty until assigned
};

/// The operand of an op: a tensor, a parameter or a number, together with the user's file and line, which default
/// arguments record at the call site, also for operators. A number takes the type of the other operand.
class Operand {
 public:
  Operand() = default;
  Operand(Tensor tensor, const char* file = __builtin_FILE(), int line = __builtin_LINE())  // NOLINT
      : tensor_(tensor), site_{file, line} {}
  Operand(const Parameter& parameter, const char* file = __builtin_FILE(), int line = __builtin_LINE());  // NOLINT
  template <class T>
  requires std::is_arithmetic_v<T> Operand(T number, const char* file = __builtin_FILE(),
                                           int line = __builtin_LINE())  // NOLINT
      : number_(static_cast<double>(number)), is_number_(true), site_{file, line} {}

  bool is_number() const { return is_number_; }
  bool is_absent() const { return !is_number_ && !tensor_; }
  double number() const { return number_; }
  /// The tensor; a number becomes a const_scalar of the given type.
  Tensor tensor(DType dtype = DType::f32) const;
  const CallSite& site() const { return site_; }

 private:
  Tensor tensor_;
  double number_ = 0;
  bool is_number_ = false;
  CallSite site_;
};

/// Runs `body` with a new graph as the one that ops on this thread append to, and returns that graph, verified.
Graph trace(const std::function<void()>& body);
/// The same, appending to an existing graph; handles into it stay valid. On an error the graph is as it was.
void trace_into(Graph& graph, const std::function<void()>& body);
/// The graph that ops on this thread append to; throws GraphError outside a trace, naming `what` and the site.
Graph& current_graph(std::string_view what, const CallSite& site = {});
bool is_tracing();

/// While in scope, ops are attributed to this line of user code: this is how a module or a composite op keeps library
/// lines out of errors. The outermost scope wins; an empty site means that the user's line is unknown. With `called`,
/// the name of a composite op that the user calls there, errors name that instead of the ops that it consists of.
class SiteScope {
 public:
  explicit SiteScope(const CallSite& site, std::string_view called = {});
  explicit SiteScope(std::string site, std::string_view called = {});
  ~SiteScope();
  SiteScope(const SiteScope&) = delete;
  SiteScope& operator=(const SiteScope&) = delete;

 private:
  bool outermost_;
};

/// While in scope, errors of ops begin with the name of this module: "blocks.3.qkv: matmul: …". The innermost wins.
class ModuleScope {
 public:
  explicit ModuleScope(std::string module);
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  std::string outer_;
};

namespace detail {
/// The line that errors of an op at this site report: the scope's if there is one, otherwise the site itself.
std::string site_text(const CallSite& site);
/// "blocks.3.qkv: " inside a ModuleScope, otherwise empty: the prefix of errors.
std::string module_prefix();
/// The op that errors name: the composite op that the user called, or the op itself.
std::string_view called(std::string_view op);
}  // namespace detail

}  // namespace jerboa
