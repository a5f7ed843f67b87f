#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <jerboa/lower/program.h>

#include "wgsl/shader_text.h"

namespace jerboa::wgsl {

/// What phases of a dispatch run that differ in their memory alone.
struct PhaseText {
  const ShaderText* text = nullptr;
  int threads = 0;                           ///< of its workgroups; those of the dispatch may be several of them
  std::vector<int> bindings;                 ///< of the dispatch, by the text's buffer; -1: passed words
  std::size_t first_size = 0;                ///< where its sizes begin in the table, in vectors
  std::map<int, Combination> combined = {};  ///< by buffer: parts of attention that are put together as it is staged
};

inline constexpr std::size_t row_header = 2;  ///< numbers of a row before the places of buffers

/// A buffer that a dispatch binds behind the words that control it and those that are passed.
struct PhaseBinding {
  std::string element;  ///< of the array
  bool written = false;
};

/// The shader of a dispatch that runs phases as its table says. The table is an array of vec4u: first the number of
/// workgroups, that of phases, how often a workgroup looks whether the others have finished one, and how often a thread
/// looks whether a word was written; then, for each phase, the row where it begins. There are the number of its text,
/// that of the text's workgroups and, for each of the text's buffers, where what it reads begins and where what it
/// writes does; of one whose parts are put together, where the sums and the rows begin. A row that names no
/// text is the probe's.
///
/// The second control word says what went wrong: 1: workgroups did not arrive, 2: a probe read what was not written, 3:
/// a word was never written.
ShaderSource phases_source(const std::vector<PhaseText>& texts, const std::vector<PhaseBinding>& bindings,
                           std::size_t table_vectors, int threads);

}  // namespace jerboa::wgsl
