#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <jerboa/ir/shapes.h>

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// A tensor as lines along one axis, numbered by the indices of its other axes.
struct Lines {
  std::size_t axis = 0;
  std::vector<Dim> others;
  Dim length;

  Lines(const Shape& shape, int given)
      : axis(static_cast<std::size_t>(axis_of(given, static_cast<int>(shape.size())))) {
    others = shape;
    length = shape[axis];
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(axis));
  }
  Dim count() const { return element_count(others); }
  /// The indices of an element of a line, from the numbers of both.
  std::vector<std::string> indices(Shader& shader, const std::string& line, const std::string& place) const {
    std::vector<std::string> all = shader.split_index(line, others);
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(axis), place);
    return all;
  }
};

/// Begins a shader with one thread for each of `count` elements; the thread's is `element`.
Shader shader_of_elements(const KernelWriter& writer, const std::string& name, const Dim& count);
/// Ends it.
void add_shader_of_elements(KernelWriter& writer, Shader shader, const Dim& count, OperationShare operations = {});

/// A shader that copies one tensor to another of the same shape.
void write_copy(KernelWriter& writer, const TensorAccess& from, const TensorAccess& to);

}  // namespace jerboa::wgsl
