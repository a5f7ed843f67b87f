#pragma once

#include <vector>

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// The live range of a buffer: the first and last dispatch that use it.
struct Life {
  int first = 0, last = -1;
};

/// For every buffer. A buffer that is read after the run is live to its end; an unused buffer's last is before its
/// first.
std::vector<Life> lives_of(const Program& program);
/// Stores the result of lives_of in the buffers.
void find_lives(Program& program);

/// Whether two live ranges overlap. They are the `first` and `last` of a buffer, or of a Life.
template <class A, class B>
bool lives_overlap(const A& a, const B& b) {
  return a.first <= b.last && b.first <= a.last;
}

/// The peak bytes of live activations: a lower bound for every plan.
std::int64_t max_live_bytes(const Program& program);

/// Which of its bindings a kernel reads.
std::vector<bool> read_bindings(const KernelSpec& kernel);

}  // namespace jerboa::detail
