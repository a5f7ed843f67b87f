#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/ops/ops.h>

#include "c_api/fields.h"

namespace jerboa::c_api {

/// A graph under construction, one call at a time.
struct GraphBuilder {
  Graph graph;
  std::map<std::string, std::int64_t> symbols = {};  ///< upper bounds, as the inputs have declared them

  /// Adds the nodes of a function and returns its results. `text` is described in jerboa/c_api/graph.h. Throws
  /// ShapeError or GraphError that names the function, and UsageError for a malformed call.
  std::vector<Tensor> call(std::string_view text);
};

/// A call, as its function reads it.
class GraphCall {
 public:
  GraphCall(GraphBuilder& builder, Fields& call);

  const std::string& function() const { return function_; }
  GraphBuilder& builder() const { return builder_; }
  const std::vector<Operand>& operands() const { return operands_; }
  /// Throws UsageError if the operand is absent.
  Operand operand(std::size_t index) const;
  /// An operand that may be absent.
  Tensor optional(std::size_t index) const;
  Fields& options() { return options_; }
  /// The attributes, if the function is an op.
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

/// A function that is more than an op with its attributes; null if there is none of this name.
using GraphFunction = std::vector<Tensor> (*)(GraphCall& call);
GraphFunction graph_function(std::string_view name);

}  // namespace jerboa::c_api
