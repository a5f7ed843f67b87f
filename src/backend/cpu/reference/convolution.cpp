#include <algorithm>

#include "backend/cpu/reference/evaluate.h"
#include "backend/cpu/reference/loops.h"
#include "backend/cpu/reference/scalar_ops.h"

// Convolutions and pooling of [batch, channels, height, width].
namespace jerboa::reference {
namespace {

// Where one window of a convolution or pool overlaps the input: at most one element for each offset inside the window.
struct Axis {
  std::int64_t stride, padding, dilation;

  std::int64_t at(std::int64_t window, std::int64_t offset) const {
    return window * stride - padding + offset * dilation;
  }
};

struct Image {
  std::int64_t channels, height, width;

  explicit Image(const Sizes& shape) : channels(shape[1]), height(shape[2]), width(shape[3]) {}
  std::int64_t at(std::int64_t n, std::int64_t c, std::int64_t y, std::int64_t x) const {
    return ((n * channels + c) * height + y) * width + x;
  }
  bool holds(std::int64_t y, std::int64_t x) const { return 0 <= y && y < height && 0 <= x && x < width; }
};

// Calls visit(x, weight, y) with the three flat indices for every product that a convolution sums: y += x * weight.
template <class A, class Visit>
void for_each_product(const A& attrs, const Sizes& x_shape, const Sizes& weight_shape, const Sizes& y_shape,
                      Visit visit) {
  const Image x(x_shape), weight(weight_shape), y(y_shape);
  const Axis vertical{attrs.stride[0], attrs.padding[0], attrs.dilation[0]};
  const Axis horizontal{attrs.stride[1], attrs.padding[1], attrs.dilation[1]};
  const std::int64_t group_outputs = y.channels / attrs.groups;
  const Sizes taps{weight.channels, weight.height, weight.width};
  for_each_index(y_shape, [&](const Sizes& index) {
    const std::int64_t n = index[0], o = index[1], first_channel = o / group_outputs * weight.channels;
    for_each_index(taps, [&](const Sizes& tap) {
      const std::int64_t row = vertical.at(index[2], tap[1]), column = horizontal.at(index[3], tap[2]);
      if (!x.holds(row, column)) return;
      visit(x.at(n, first_channel + tap[0], row, column), weight.at(o, tap[0], tap[1], tap[2]),
            y.at(n, o, index[2], index[3]));
    });
  });
}

// Calls visit(y, xs) for each window of a pool: its flat index, and those of the elements in it, in order.
template <class A, class Visit>
void for_each_window(const A& attrs, const Sizes& x_shape, const Sizes& y_shape, Visit visit) {
  const Image x(x_shape);
  const Axis vertical{attrs.stride[0], attrs.padding[0], 1}, horizontal{attrs.stride[1], attrs.padding[1], 1};
  std::int64_t y = 0;
  std::vector<std::int64_t> elements;
  for_each_index(y_shape, [&](const Sizes& index) {
    elements.clear();
    for (std::int64_t i = 0; i < attrs.kernel[0]; ++i)
      for (std::int64_t j = 0; j < attrs.kernel[1]; ++j) {
        const std::int64_t row = vertical.at(index[2], i), column = horizontal.at(index[3], j);
        if (x.holds(row, column)) elements.push_back(x.at(index[0], index[1], row, column));
      }
    visit(y++, elements);
  });
}

// The index of the first maximum of some elements, or of the first NaN.
std::int64_t largest(const Value& x, const std::vector<std::int64_t>& elements) {
  return *std::max_element(elements.begin(), elements.end(),
                           [&](std::int64_t a, std::int64_t b) { return comes_before(x.data[a], x.data[b]); });
}

template <class A>
double window_area(const A& attrs) {
  return static_cast<double>(attrs.kernel[0]) * attrs.kernel[1];
}

}  // namespace

template <>
void evaluate<Op::conv2d>(const Call& call) {
  const Value &x = call.in(0), &weight = call.in(1);
  Value& out = call.out();
  for_each_product(call.as<Conv2dAttrs>(), x.shape, weight.shape, out.shape,
                   [&](std::int64_t i, std::int64_t w, std::int64_t o) { out.data[o] += x.data[i] * weight.data[w]; });
  if (!call.has(2)) return;
  const Image image(out.shape);
  for_each_index(out.shape, [&](const Sizes& index) {
    out.data[image.at(index[0], index[1], index[2], index[3])] += call.in(2).data[index[1]];
  });
}

template <>
void evaluate<Op::conv2d_input_grad>(const Call& call) {
  const Value &dy = call.in(0), &weight = call.in(1);
  Value& dx = call.out();
  for_each_product(call.as<Conv2dGradAttrs>(), dx.shape, weight.shape, dy.shape,
                   [&](std::int64_t i, std::int64_t w, std::int64_t o) { dx.data[i] += dy.data[o] * weight.data[w]; });
}

template <>
void evaluate<Op::conv2d_weight_grad>(const Call& call) {
  const Value &x = call.in(0), &dy = call.in(1);
  Value& dw = call.out();
  for_each_product(call.as<Conv2dGradAttrs>(), x.shape, dw.shape, dy.shape,
                   [&](std::int64_t i, std::int64_t w, std::int64_t o) { dw.data[w] += dy.data[o] * x.data[i]; });
}

template <>
void evaluate<Op::max_pool2d>(const Call& call) {
  const Value& x = call.in(0);
  for_each_window(call.as<PoolAttrs>(), x.shape, call.out().shape,
                  [&](std::int64_t y, const std::vector<std::int64_t>& elements) {
                    call.out().data[y] = x.data[largest(x, elements)];
                  });
}

template <>
void evaluate<Op::max_pool2d_grad>(const Call& call) {
  const Value &x = call.in(0), &dy = call.in(1);
  for_each_window(call.as<PoolGradAttrs>(), x.shape, dy.shape,
                  [&](std::int64_t y, const std::vector<std::int64_t>& elements) {
                    call.out().data[largest(x, elements)] += dy.data[y];
                  });
}

template <>
void evaluate<Op::avg_pool2d>(const Call& call) {
  const Value& x = call.in(0);
  const double area = window_area(call.as<PoolAttrs>());
  for_each_window(call.as<PoolAttrs>(), x.shape, call.out().shape,
                  [&](std::int64_t y, const std::vector<std::int64_t>& elements) {
                    for (const std::int64_t element : elements) call.out().data[y] += x.data[element];
                    call.out().data[y] /= area;
                  });
}

template <>
void evaluate<Op::avg_pool2d_grad>(const Call& call) {
  const Value& dy = call.in(0);
  const double area = window_area(call.as<PoolGradAttrs>());
  for_each_window(call.as<PoolGradAttrs>(), call.out().shape, dy.shape,
                  [&](std::int64_t y, const std::vector<std::int64_t>& elements) {
                    for (const std::int64_t element : elements) call.out().data[element] += dy.data[y] / area;
                  });
}

}  // namespace jerboa::reference
