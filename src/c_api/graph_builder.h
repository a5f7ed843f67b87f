#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/ops/ops.h>

#include "c_api/fields.h"

namespace jerboa::c_api {

/// A graph that is built call by call.
struct GraphBuilder {
  Graph graph;
  std::map<std::string, std::int64_t> symbols = {};  ///< bounds, which the inputs have declared

  /// Adds the nodes of a function and returns its results. `text` is described in jerboa/c_api/graph.h. Throws
  /// ShapeError or GraphError that names the function, and UsageError for a call that is malformed.
  std::vector<Tensor> call(std::string_view text);
};

/// One call: what its function reads.
class GraphCall {
 public:
  GraphCall(GraphBuilder& builder, Fields& call);

  const std::string& function() const { return function_; }
  GraphBuilder& builder() const { return builder_; }
  const std::vector<Operand>& operands() const { return operands_; }
  /// Throws UsageError if it is absent.
  Operand operand(std::size_t index) const;
  /// Absent, or a tensor.
  Tensor optional(std::size_t index) const;
  Fields& options() { return options_; }
  /// The same for an op: its attributes.
  nlohmann::json attributes() const { return attributes_.is_null() ? nlohmann::json::object() : attributes_; }
  Shape shape(const char* key);
  DType dtype(DType otherwise);

 private:
  Operand read_operand(const nlohmann::json& json) const;

  GraphBuilder& builder_;
  std::string function_;
  nlohmann::json attributes_;
  Fields options_;
  std::vector<Operand> operands_;
};

/// A function that is not just an op with its attributes; null if the name is not one of them.
using GraphFunction = std::vector<Tensor> (*)(GraphCall& call);
GraphFunction graph_function(std::string_view name);

}  // namespace jerboa::c_api
