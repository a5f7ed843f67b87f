#pragma once

#include <functional>
#include <string>

#include <jerboa/lower/program.h>

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// WGSL expression of a u32 that orders like the value, or in reverse.
std::string ordered_key(Shader& shader, DType dtype, const std::string& value, bool descending);

/// WGSL expression of the key (u32) of an element of a line, by the indices of both; may emit lines before it.
using LineKey = std::function<std::string(Shader& shader, const std::string& line, const std::string& place)>;

/// The keys of each line in ascending order and their original positions, sorted stably: both u32, at
/// line * length + rank.
struct SortedLines {
  int keys = -1, places = -1;
};
SortedLines sort_lines(KernelWriter& writer, const Dim& lines, const Dim& length, const LineKey& key);

/// Calls `use` for each of the `k` elements of each line with the lowest keys, earlier ones first among equals, with
/// expressions of the line, the rank and the position. `k` is at most the length.
using RankedElement =
    std::function<void(Shader& shader, const std::string& line, const std::string& rank, const std::string& place)>;
void select_lowest(KernelWriter& writer, const Dim& lines, const Dim& length, const Dim& k, const LineKey& key,
                   const RankedElement& use);

}  // namespace jerboa::wgsl
