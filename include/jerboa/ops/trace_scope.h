#pragma once

#include <jerboa/ir/graph.h>

namespace jerboa {

/// While in scope, ops on this thread append to this graph, as within trace(). For graphs that are built call by call:
/// nothing is copied or verified, so that a call costs no more than its op; an op that fails may leave unused nodes
/// behind.
class TraceScope {
 public:
  explicit TraceScope(Graph& graph);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Graph* outer_;
};

}  // namespace jerboa
