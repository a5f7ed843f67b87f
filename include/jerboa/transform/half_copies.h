#pragma once

#include <optional>
#include <string>

#include <jerboa/ir/graph.h>

namespace jerboa {

/// The states "f16/NAME" are f16 copies of the f32 parameters NAME, which products in mixed precision read. They are
/// derived from the parameters: sessions neither list nor save them, and refresh those whose parameter was changed by
/// anything but a graph that also updates the copy.
std::string half_copy_of(const std::string& param);
/// The parameter of such a state; none for other states.
std::optional<std::string> half_copy_source(const std::string& state);

/// A training graph in which the f16 copies of parameters that products read are kept between runs: each becomes a
/// state that the parameter's update also writes, instead of a conversion in every run.
Graph with_half_copies(const Graph& graph);

/// Inside a trace: makes the updates of parameters write their copies in `with` too.
void update_half_copies(const Graph& with);

}  // namespace jerboa
