#include <array>

#include "wgsl/body.h"
#include "wgsl/lines.h"
#include "wgsl/whole_kernels.h"

// One thread per result: a window in the forward pass, an element of the image in the backward pass, which visits all
// windows that contain it.
namespace jerboa::wgsl {
namespace {

struct Pooling {
  std::array<int, 2> kernel, stride, padding;
  const TensorAccess &x, &y;  // only their shapes count: one of them may be a gradient

  template <class A>
  Pooling(const A& attrs, const TensorAccess& image, const TensorAccess& windows)
      : kernel{attrs.kernel[0], attrs.kernel[1]},
        stride{attrs.stride[0], attrs.stride[1]},
        padding{attrs.padding[0], attrs.padding[1]},
        x(image),
        y(windows) {}

  std::string share() const { return literal(1.0 / (static_cast<double>(kernel[0]) * kernel[1]), DType::f32); }

  // Opens two loops over the elements (row, column) of window (window_row, window_column) that are inside the image.
  void open_window(Shader& shader, const std::string& window_row, const std::string& window_column) const {
    const std::array<const char*, 2> names{"row", "column"};
    const std::array<std::string, 2> windows{window_row, window_column};
    for (std::size_t i = 0; i < 2; ++i) {
      // Both ends are relative to the start of the padding, so that they are never negative.
      shader.line("let first_{} = {} * {}u;", names[i], windows[i], stride[i]);
      shader.open(
          "for (var {0} = max(first_{0}, {1}u) - {1}u; {0} < clamp(first_{0} + {2}u, {1}u, {3} + {1}u) - {1}u; {0}++) "
          "{{",
          names[i], padding[i], kernel[i], shader.size(x.shape[i + 2]));
    }
  }
  // Opens two loops over the windows that contain element (row, column) of the image.
  void open_windows_of(Shader& shader, const std::string& row, const std::string& column) const {
    const std::array<const char*, 2> names{"window_row", "window_column"};
    const std::array<std::string, 2> at{row, column};
    for (std::size_t i = 0; i < 2; ++i) {
      shader.line("let end_{0} = min(({1} + {2}u) / {3}u + 1u, {4});", names[i], at[i], padding[i], stride[i],
                  shader.size(y.shape[i + 2]));
      shader.open(
          "for (var {0} = (max({1} + {2}u, {3}u - 1u) - ({3}u - 1u) + {4}u - 1u) / {4}u; {0} < end_{0}; {0}++) {{",
          names[i], at[i], padding[i], kernel[i], stride[i]);
    }
  }
};

void close_two(Shader& shader) {
  shader.close();
  shader.close();
}

void write_forward(KernelWriter& writer, bool largest) {
  const TensorAccess &x = writer.kernel().operands[0], &y = writer.kernel().results[0];
  const Pooling pooling(std::get<PoolAttrs>(writer.kernel().attrs), x, y);
  const Dim count = element_count(y.shape);
  Shader shader = shader_of_elements(writer, largest ? "max_pool2d" : "avg_pool2d", count);
  const auto at = shader.split_index("element", y.shape);
  shader.line("var total = {};", largest ? neutral(Op::max, DType::f32) : "0.0");
  pooling.open_window(shader, at[2], at[3]);
  const std::string value = shader.load(x, {at[0], at[1], "row", "column"});
  shader.line("total = {};", combine(largest ? Op::max : Op::sum, DType::f32, "total", value));
  close_two(shader);
  shader.store(y, at, largest ? "total" : "total * " + pooling.share());
  add_shader_of_elements(writer, std::move(shader), count);
}

}  // namespace

template <>
void write_whole_op<Op::max_pool2d>(KernelWriter& writer) {
  write_forward(writer, true);
}

template <>
void write_whole_op<Op::avg_pool2d>(KernelWriter& writer) {
  write_forward(writer, false);
}

template <>
void write_whole_op<Op::max_pool2d_grad>(KernelWriter& writer) {
  const KernelSpec& kernel = writer.kernel();
  const TensorAccess &x = kernel.operands[0], &dy = kernel.operands[1], &dx = kernel.results[0];
  const Pooling pooling(std::get<PoolGradAttrs>(kernel.attrs), x, dy);
  const Dim count = element_count(dx.shape);
  Shader shader = shader_of_elements(writer, "max_pool2d_grad", count);
  const auto at = shader.split_index("element", dx.shape);
  shader.line("let value = {};", shader.load(x, at));
  shader.line("var sum = 0.0;");
  pooling.open_windows_of(shader, at[2], at[3]);
  // The element is the window's largest if none is larger and no earlier one is equal.
  shader.line("var is_largest = true;");
  pooling.open_window(shader, "window_row", "window_column");
  shader.line("let other = {};", shader.load(x, {at[0], at[1], "row", "column"}));
  shader.line("let before = row < {0} || (row == {0} && column < {1});", at[2], at[3]);
  shader.line("if (other > value || (before && other == value)) {{ is_largest = false; }}");
  close_two(shader);
  shader.line("if (is_largest) {{ sum += {}; }}", shader.load(dy, {at[0], at[1], "window_row", "window_column"}));
  close_two(shader);
  shader.store(dx, at, "sum");
  add_shader_of_elements(writer, std::move(shader), count);
}

template <>
void write_whole_op<Op::avg_pool2d_grad>(KernelWriter& writer) {
  const KernelSpec& kernel = writer.kernel();
  const TensorAccess &dy = kernel.operands[0], &dx = kernel.results[0];
  const Pooling pooling(std::get<PoolGradAttrs>(kernel.attrs), dx, dy);
  const Dim count = element_count(dx.shape);
  Shader shader = shader_of_elements(writer, "avg_pool2d_grad", count);
  const auto at = shader.split_index("element", dx.shape);
  shader.line("var sum = 0.0;");
  pooling.open_windows_of(shader, at[2], at[3]);
  shader.line("sum += {};", shader.load(dy, {at[0], at[1], "window_row", "window_column"}));
  close_two(shader);
  shader.store(dx, at, "sum * " + pooling.share());
  add_shader_of_elements(writer, std::move(shader), count);
}

}  // namespace jerboa::wgsl
