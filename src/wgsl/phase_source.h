#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <jerboa/lower/program.h>

#include "wgsl/shader_text.h"

namespace jerboa::wgsl {

/// The code of phases that differ only in their memory.
struct PhaseText {
  const ShaderText* text = nullptr;
  int threads = 0;                           ///< per workgroup; a workgroup of the dispatch may contain several
  std::vector<int> bindings;                 ///< of the dispatch, by the text's buffer; -1: passed words
  std::size_t first_size = 0;                ///< where its sizes begin in the table, in vectors
  std::map<int, Combination> combined = {};  ///< by buffer: parts of attention that are combined while they are staged
};

inline constexpr std::size_t row_header = 2;  ///< numbers in a row before the locations of buffers

/// A buffer that a dispatch binds after the control words and the passed words.
struct PhaseBinding {
  std::string element;  ///< of the array
  bool written = false;
};

/// The shader of a dispatch that runs phases as a table says. The table is an array of vec4u. First come the number of
/// workgroups, the number of phases, how many times at most a workgroup polls for the others to finish a phase, and a
/// thread for a word to be written; then, for each phase, the start of its row. A row has the number of its text, the
/// number of the text's workgroups and, for each of the text's buffers, where reads and writes begin; for a buffer
/// whose parts are combined, where the sums and the rows begin. A row that names no text is the probe's.
///
/// The second control word is an error code: 1: workgroups did not arrive, 2: a probe read a word that was not written,
/// 3: a word was never written.
ShaderSource phases_source(const std::vector<PhaseText>& texts, const std::vector<PhaseBinding>& bindings,
                           std::size_t table_vectors, int threads);

}  // namespace jerboa::wgsl
