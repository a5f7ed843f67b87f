#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>

#include <jerboa/ir/graph.h>

namespace jerboa::detail {

/// The bytes of all parameters and states of these graphs; graphs share those of the same name.
inline std::int64_t storage_bytes(std::initializer_list<const Graph*> graphs) {
  std::set<std::string> names;
  std::int64_t bytes = 0;
  for (const Graph* graph : graphs)
    for (const TensorInfo& tensor : graph->tensors)
      if ((tensor.storage == Storage::param || tensor.storage == Storage::state) && names.insert(tensor.name).second)
        bytes += element_count(tensor.type.shape).value() * bits(tensor.type.dtype) / 8;
  return bytes;
}

}  // namespace jerboa::detail
