#include "wgsl/implicit_product.h"
#include "wgsl/whole_kernels.h"

// Convolutions and their gradients as matrix products, group by group, over taps (a channel and an offset in the
// kernel) or positions (an image and a pixel in it).
namespace jerboa::wgsl {
namespace {

using Texts = std::vector<std::string>;

// One axis of a window, and where it overlaps the image.
struct Window {
  int stride, padding, dilation;

  // Wraps around before the start of the image, so that one comparison checks both ends.
  std::string first(const std::string& position) const {
    return fmt::format("{} * {}u - {}u", position, stride, padding);
  }
  std::string tap(const std::string& offset) const {
    return dilation == 1 ? offset : fmt::format("{} * {}u", offset, dilation);
  }
};

class Convolution {
 public:
  template <class A>
  Convolution(KernelWriter& writer, const A& attrs, const TensorAccess& x, const TensorAccess& weight,
              const TensorAccess& y)
      : writer_(writer),
        x_(x),
        weight_(weight),
        y_(y),
        vertical_{attrs.stride[0], attrs.padding[0], attrs.dilation[0]},
        horizontal_{attrs.stride[1], attrs.padding[1], attrs.dilation[1]},
        groups_(attrs.groups),
        channels_(weight.shape[1]),
        out_channels_(floor_divide(weight.shape[0], attrs.groups)),
        taps_{channels_, weight.shape[2], weight.shape[3]} {}

  // y[o, position] = sum over taps of weight[o, tap] * x[tap at position].
  void write_forward(const TensorAccess* bias) const {
    ImplicitProduct product = product_of("conv2d", out_channels_, positions(y_), taps_);
    product.a = {
        [this](Shader& shader, const std::string& row) { return weight_taps(shader, out_channel(shader, row)); }, true};
    product.b.at = [this](Shader& shader, const std::string& column) -> ImplicitProduct::Element {
      const Texts at = shader.split_index(column, positions(y_));
      const std::string top = shader.let("top", vertical_.first(at[1])),
                        left = shader.let("left", horizontal_.first(at[2]));
      return [=, this, &shader](const std::string& k) {
        const Texts tap = shader.split_index(k, taps_);
        return image(shader, at[0], in_channel(shader, tap[0]), top + " + " + vertical_.tap(tap[1]),
                     left + " + " + horizontal_.tap(tap[2]));
      };
    };
    product.finish = [this, bias](Shader& shader, const std::string& batch, const std::string& row,
                                  const std::string& column, const std::string& sum) {
      const Texts at = shader.split_index(column, positions(y_));
      const std::string channel =
          shader.let("channel", fmt::format("{} * {} + {}", batch, shader.size(out_channels_), row));
      shader.store(y_, {at[0], channel, at[1], at[2]},
                   bias == nullptr ? sum : fmt::format("{} + {}", sum, shader.load(*bias, {channel})));
    };
    write_product(writer_, product);
  }

  // x[c, position] = sum over output channels and places in the kernel of weight[o, c, place] * y[o] there.
  void write_input_grad() const {
    const std::vector<Dim> inner{out_channels_, taps_[1], taps_[2]};
    ImplicitProduct product = product_of("conv2d_input_grad", channels_, positions(x_), inner);
    product.a.at = [&](Shader& shader, const std::string& row) -> ImplicitProduct::Element {
      return [&shader, &inner, row, this](const std::string& k) {
        const Texts tap = shader.split_index(k, inner);
        return shader.load(weight_, {out_channel(shader, tap[0]), row, tap[1], tap[2]});
      };
    };
    product.b.at = [&](Shader& shader, const std::string& column) -> ImplicitProduct::Element {
      const Texts at = shader.split_index(column, positions(x_));
      return [=, this, &shader, &inner](const std::string& k) {
        const Texts tap = shader.split_index(k, inner);
        // The element's distance from the first window's place; it belongs to the window that many strides on, if there
        // is one.
        const auto far = [&](const Window& window, const std::string& position, const std::string& offset) {
          return shader.let("far", fmt::format("{} + {}u - {}", position, window.padding, window.tap(offset)));
        };
        const std::string down = far(vertical_, at[1], tap[1]), across = far(horizontal_, at[2], tap[2]);
        const std::string row = shader.let("window_row", fmt::format("{} / {}u", down, vertical_.stride));
        const std::string column_in_window =
            shader.let("window_column", fmt::format("{} / {}u", across, horizontal_.stride));
        std::string value = shader.var("value", "f32", "0.0");
        shader.open("if ({0} % {1}u == 0u && {2} % {3}u == 0u && {4} < {5} && {6} < {7}) {{", down, vertical_.stride,
                    across, horizontal_.stride, row, shader.size(y_.shape[2]), column_in_window,
                    shader.size(y_.shape[3]));
        shader.line("{} = {};", value, shader.load(y_, {at[0], out_channel(shader, tap[0]), row, column_in_window}));
        shader.close();
        return value;
      };
    };
    product.finish = [this](Shader& shader, const std::string& batch, const std::string& row, const std::string& column,
                            const std::string& sum) {
      const Texts at = shader.split_index(column, positions(x_));
      const std::string channel =
          shader.let("channel", fmt::format("{} * {} + {}", batch, shader.size(channels_), row));
      shader.store(x_, {at[0], channel, at[1], at[2]}, sum);
    };
    write_product(writer_, product);
  }

  // weight[o, tap] = sum over positions of y[o, position] * x[tap at position].
  void write_weight_grad() const {
    ImplicitProduct product = product_of("conv2d_weight_grad", out_channels_, taps_, positions(y_));
    product.a = {[this](Shader& shader, const std::string& row) -> ImplicitProduct::Element {
                   const std::string channel = out_channel(shader, row);
                   return [=, this, &shader](const std::string& k) {
                     const Texts at = shader.split_index(k, positions(y_));
                     return shader.load(y_, {at[0], channel, at[1], at[2]});
                   };
                 },
                 true};
    product.b = {[this](Shader& shader, const std::string& column) -> ImplicitProduct::Element {
                   const Texts tap = shader.split_index(column, taps_);
                   const std::string channel = in_channel(shader, tap[0]);
                   return [=, this, &shader](const std::string& k) {
                     const Texts at = shader.split_index(k, positions(y_));
                     return image(shader, at[0], channel, vertical_.first(at[1]) + " + " + vertical_.tap(tap[1]),
                                  horizontal_.first(at[2]) + " + " + horizontal_.tap(tap[2]));
                   };
                 },
                 true};
    product.finish = [this](Shader& shader, const std::string& batch, const std::string& row, const std::string& column,
                            const std::string& sum) {
      const Texts tap = shader.split_index(column, taps_);
      const std::string channel =
          shader.let("channel", fmt::format("{} * {} + {}", batch, shader.size(out_channels_), row));
      shader.store(weight_, {channel, tap[0], tap[1], tap[2]}, sum);
    };
    write_product(writer_, product);
  }

 private:
  static std::vector<Dim> positions(const TensorAccess& image) {
    return {image.shape[0], image.shape[2], image.shape[3]};
  }

  ImplicitProduct product_of(const char* name, const Dim& rows, const std::vector<Dim>& columns,
                             const std::vector<Dim>& inner) const {
    ImplicitProduct product;
    product.name = name;
    product.batch = groups_;
    product.rows = rows;
    product.columns = element_count(columns);
    product.inner = element_count(inner);
    return product;
  }

  std::string out_channel(Shader& shader, const std::string& in_group) const {
    return groups_ == 1 ? in_group
                        : shader.let("channel", fmt::format("batch * {} + {}", shader.size(out_channels_), in_group));
  }
  std::string in_channel(Shader& shader, const std::string& in_group) const {
    return groups_ == 1 ? in_group
                        : shader.let("channel", fmt::format("batch * {} + {}", shader.size(channels_), in_group));
  }

  ImplicitProduct::Element weight_taps(Shader& shader, const std::string& channel) const {
    return [this, &shader, channel](const std::string& k) {
      const Texts tap = shader.split_index(k, taps_);
      return shader.load(weight_, {channel, tap[0], tap[1], tap[2]});
    };
  }

  // The element of x, 0 in the padding.
  std::string image(Shader& shader, const std::string& n, const std::string& channel, const std::string& row,
                    const std::string& column) const {
    const std::string y = shader.let("y", row), x = shader.let("x", column);
    std::string value = shader.var("value", "f32", "0.0");
    shader.open("if ({} < {} && {} < {}) {{", y, shader.size(x_.shape[2]), x, shader.size(x_.shape[3]));
    shader.line("{} = {};", value, shader.load(x_, {n, channel, y, x}));
    shader.close();
    return value;
  }

  KernelWriter& writer_;
  const TensorAccess &x_, &weight_, &y_;
  Window vertical_, horizontal_;
  int groups_;
  Dim channels_, out_channels_;  // of a group
  std::vector<Dim> taps_;
};

}  // namespace

template <>
void write_whole_op<Op::conv2d>(KernelWriter& writer) {
  const KernelSpec& kernel = writer.kernel();
  const bool has_bias = kernel.operands.size() > 2 && kernel.operands[2].binding >= 0;
  Convolution(writer, std::get<Conv2dAttrs>(kernel.attrs), kernel.operands[0], kernel.operands[1], kernel.results[0])
      .write_forward(has_bias ? &kernel.operands[2] : nullptr);
}

template <>
void write_whole_op<Op::conv2d_input_grad>(KernelWriter& writer) {
  const KernelSpec& kernel = writer.kernel();
  Convolution(writer, std::get<Conv2dGradAttrs>(kernel.attrs), kernel.results[0], kernel.operands[1],
              kernel.operands[0])
      .write_input_grad();
}

template <>
void write_whole_op<Op::conv2d_weight_grad>(KernelWriter& writer) {
  const KernelSpec& kernel = writer.kernel();
  Convolution(writer, std::get<Conv2dGradAttrs>(kernel.attrs), kernel.operands[0], kernel.results[0],
              kernel.operands[1])
      .write_weight_grad();
}

}  // namespace jerboa::wgsl
