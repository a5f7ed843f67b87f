#pragma once

#include <vector>

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// The dispatches from which on and up to which a buffer is in use.
struct Life {
  int first = 0, last = -1;
};

/// Of every buffer. What is read after the run lives to its end; one that nothing uses has a last before its first.
std::vector<Life> lives_of(const Program& program);
/// What lives_of finds, written into the buffers.
void find_lives(Program& program);

bool lives_overlap(const Buffer& a, const Buffer& b);

/// The most bytes of activations that are in use at one time: no plan needs less.
std::int64_t max_live_bytes(const Program& program);

/// Which of its bindings a kernel reads.
std::vector<bool> read_bindings(const KernelSpec& kernel);

}  // namespace jerboa::detail
