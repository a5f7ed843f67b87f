#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include <jerboa/base/host_tensor.h>
#include <jerboa/ir/op.h>

namespace jerboa {

using TensorId = int;
using NodeId = int;
/// Marks an absent optional operand in a node's inputs.
inline constexpr TensorId no_tensor = -1;

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;

  friend bool operator==(const TensorType&, const TensorType&) = default;
};
std::string to_string(const TensorType& type);

/// Where a tensor lives between steps.
enum class Storage : std::uint8_t { input, param, state, constant, activation };
std::string_view name(Storage storage);

/// How a parameter or a state is initialised.
struct Init {
  enum class Kind : std::uint8_t { constant, normal, uniform };
  Kind kind = Kind::constant;
  double mean = 0;   ///< the constant, or the mean
  double width = 0;  ///< standard deviation, or half the range

  static Init zeros() { return {}; }
  static Init ones() { return {Kind::constant, 1, 0}; }
  static Init constant(double value) { return {Kind::constant, value, 0}; }
  static Init normal(double deviation) { return {Kind::normal, 0, deviation}; }
  static Init uniform(double bound) { return {Kind::uniform, 0, bound}; }

  friend bool operator==(const Init&, const Init&) = default;
};
constexpr auto enum_names(Init::Kind) { return std::to_array<std::string_view>({"constant", "normal", "uniform"}); }

struct TensorInfo {
  std::string name;
  TensorType type;
  Storage storage = Storage::activation;
  NodeId producer = -1;
  bool is_rate = false;  ///< of an input: the learning rate of an optimizer
  // For parameters and states:
  Init init;
  bool trainable = false;
  bool decay = false;   ///< weight decay applies
  std::string tied_to;  ///< another parameter whose storage this one shares
};

struct Node {
  Op op = Op::add;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  Attrs attrs;
  std::string site;        ///< the user's "model.cpp:41"
  bool recompute = false;  ///< recomputed on purpose, to save memory: CSE leaves it alone

  template <class A>
  const A& as() const {
    return std::get<A>(attrs);
  }
};

/// A state's next version, which replaces it when the step is done.
struct Update {
  TensorId target = no_tensor;  ///< a param or state
  TensorId value = no_tensor;
};

struct NamedTensor {
  std::string name;
  TensorId tensor = no_tensor;
};

/// A purely functional program over tensors: nodes in execution order, each tensor written once. A state change is an
/// entry in `updates`; the memory plan decides whether it happens in place.
class Graph {
 public:
  std::vector<Node> nodes;
  std::vector<TensorInfo> tensors;
  std::vector<NamedTensor> outputs;
  std::vector<NamedTensor> captures;
  std::vector<Update> updates;
  std::vector<HostTensor> constants;
  bool training = false;

  /// Distinguishes one traced graph from another; copies keep it, so that handles into a graph are valid for its
  /// copies.
  std::uint64_t identity() const { return identity_; }

  /// Appends a node, infers its output types, names the outputs and returns their ids. Throws ShapeError with the site
  /// for operands that do not fit. `known_type`, if given, is the type of the only output, which is not inferred.
  /// With `named` off, the caller renames the outputs at once.
  std::vector<TensorId> add_node(Op op, std::vector<TensorId> inputs, Attrs attrs, std::string site,
                                 const TensorType* known_type = nullptr, Storage storage = Storage::activation,
                                 bool named = true);
  /// Gives a tensor a unique name; a number is appended if the name is taken. An activation yields its name to an
  /// input, a parameter or a state, which are found by their names.
  void rename(TensorId tensor, const std::string& name);

  const TensorInfo& tensor(TensorId id) const { return tensors[static_cast<std::size_t>(id)]; }
  TensorInfo& tensor(TensorId id) { return tensors[static_cast<std::size_t>(id)]; }
  const TensorType& type(TensorId id) const { return tensor(id).type; }
  const Shape& shape(TensorId id) const { return tensor(id).type.shape; }
  const Node& producer(TensorId id) const { return nodes[static_cast<std::size_t>(tensor(id).producer)]; }
  /// The tensor of that name, or no_tensor.
  TensorId find(const std::string& name) const;
  /// Every symbol with its bound.
  std::map<std::string, std::int64_t> symbols() const;

 private:
  static std::uint64_t next_identity();

  std::uint64_t identity_ = next_identity();
  std::unordered_map<std::string, TensorId> names_;
};

/// The types of the outputs of an op on operands of these types (null: absent). Throws ShapeError without a site.
std::vector<TensorType> infer(Op op, std::span<const TensorType* const> inputs, const Attrs& attrs);

/// Checks that a graph is well formed: operands are defined before use, types follow from the shape rules, names are
/// unique, updates fit their targets. Throws GraphError that names the first invalid node or tensor.
void verify(const Graph& graph);

/// One line per node: name, op, operands, attributes, type, the user's line.
std::string print(const Graph& graph);
/// Graphviz.
std::string to_dot(const Graph& graph);
std::string to_json(const Graph& graph);
/// Parses the output of to_json and verifies it; throws GraphError that says what is wrong.
Graph from_json(std::string_view text);

/// Attributes as {"axis": -1}: those that differ from the default, or all.
std::string attrs_to_json(const Attrs& attrs, bool all = true);
/// Fields by name over the op's defaults; throws GraphError that names an unknown field or a wrong type.
Attrs attrs_from_json(Op op, std::string_view text);

}  // namespace jerboa
