#pragma once

#include <functional>
#include <string>

#include <jerboa/lower/program.h>

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// Text of a value as u32 that order as the values do, or the other way round.
std::string ordered_key(Shader& shader, DType dtype, const std::string& value, bool descending);

/// Text of the key (u32) of an element of a line, by the numbers of both; may write lines before.
using LineKey = std::function<std::string(Shader& shader, const std::string& line, const std::string& place)>;

/// The keys of each line in ascending order and the places where they stood, equal ones in order: both u32, at
/// line * length + rank.
struct SortedLines {
  int keys = -1, places = -1;
};
SortedLines sort_lines(KernelWriter& writer, const Dim& lines, const Dim& length, const LineKey& key);

/// Calls `use` with texts for each of the `k` elements of each line that have the lowest keys, of equal ones the first:
/// the line, the rank and the place. `k` is at most the length.
using RankedElement =
    std::function<void(Shader& shader, const std::string& line, const std::string& rank, const std::string& place)>;
void select_lowest(KernelWriter& writer, const Dim& lines, const Dim& length, const Dim& k, const LineKey& key,
                   const RankedElement& use);

}  // namespace jerboa::wgsl
