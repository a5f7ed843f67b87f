#pragma once

#include <array>
#include <string>
#include <vector>

#include "wgsl/body.h"

namespace jerboa::wgsl {

/// Writes the instructions of a kernel's body for four elements that are adjacent along one axis of its domain.
/// Elements adjacent in memory are read and written at once, and common values are computed once.
class FourWriter {
 public:
  /// `indices`: of the first element, whose index along `axis` is a multiple of 4. Memory in `separate` is accessed
  /// element by element.
  FourWriter(Shader& shader, const KernelSpec& kernel, std::size_t axis, std::vector<std::string> indices,
             std::vector<int> separate = {});

  /// From here on masked elements are loaded as well, from the beginning of the memory, and discarded: a load behind a
  /// branch waits for the condition.
  void load_without_branches() { branches_ = false; }

  /// Supplies the four values of an instruction, a vec4f.
  void set(int instruction, const std::string& four);
  /// Supplies the one value that an instruction has for all four.
  void set_common(int instruction, const std::string& text);
  /// WGSL expressions of an instruction's values.
  std::array<std::string, 4> values(int instruction);
  /// Writes these stores after everything that they read: one may be in place.
  void store(const std::vector<Store>& stores);

  /// Whether the load, or the store, is of four elements at once.
  bool is_adjacent(const Load& load) const;
  bool is_adjacent(const Store& store) const { return is_adjacent(store.binding, store.map); }

 private:
  bool is_adjacent(int binding, const IndexMap& map) const;
  std::string read_four(const Load& load);

  Shader& shader_;
  const KernelSpec& kernel_;
  std::size_t axis_;
  std::vector<std::string> first_;
  std::vector<int> separate_;
  bool branches_ = true;
  std::vector<bool> varies_;   // by instruction: whether its value depends on the index along the axis
  std::vector<bool> written_;  // by instruction
  std::vector<BodyWriter> bodies_;
};

/// By instruction: whether its value depends on the element's index along the axes from `first` to `end`, exclusive,
/// which are either all reduced or all kept. A product's value does.
std::vector<bool> varies_along(const KernelSpec& kernel, std::size_t first, std::size_t end);

/// Whether a kernel is better written for four elements along an axis at a time: the axis is a multiple of four, there
/// are enough elements to fill a device, and memory is accessed in fours. Reductions need more elements than loops,
/// because fewer threads then share one.
bool suits_fours(Shader& shader, const KernelSpec& kernel, std::size_t axis);

}  // namespace jerboa::wgsl
