#include <algorithm>

#include "backend/cpu/reference/evaluate.h"
#include "backend/cpu/reference/loops.h"
#include "backend/cpu/reference/packed_rows.h"

// Gathers and scatters. An out-of-range read is clamped to the nearest element, an out-of-range write is dropped.
namespace jerboa::reference {
namespace {

std::int64_t nearest(double index, std::int64_t size) {
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(index), 0, size - 1);
}

bool in_range(std::int64_t index, std::int64_t size) { return 0 <= index && index < size; }

// out = x, then put(out element, update) for each index in order.
template <class Put>
void scatter_with(const Call& call, Put put) {
  const Value &indices = call.in(1), &updates = call.in(2);
  const int axis = call.as<AxisAttrs>().axis;
  const AlongAxis out(call.out().shape, axis), along(indices.shape, axis);
  call.out().data = call.in(0).data;
  along.for_each_line([&](std::int64_t o, std::int64_t i) {
    for (std::int64_t p = 0; p < along.size; ++p) {
      const std::int64_t from = along.at(o, p, i);
      const auto to = static_cast<std::int64_t>(indices.data[from]);
      if (in_range(to, out.size)) put(call.out().data[out.at(o, to, i)], updates.data[from]);
    }
  });
}

}  // namespace

template <>
void evaluate<Op::embedding>(const Call& call) {
  const Value &table = call.in(0), &ids = call.in(1);
  const std::int64_t rows = table.shape[0], width = table.shape[1];
  if (rows == 0) return;
  for (std::size_t i = 0; i < ids.data.size(); ++i)
    std::copy_n(table.data.begin() + nearest(ids.data[i], rows) * width, width,
                call.out().data.begin() + static_cast<std::int64_t>(i) * width);
}

template <>
void evaluate<Op::embedding_quantised>(const Call& call) {
  const Value &weight = call.in(0), &scales = call.in(1), &ids = call.in(3);
  const std::int64_t rows = weight.shape[0], width = weight.shape[1];
  if (rows == 0) return;
  for (std::size_t i = 0; i < ids.data.size(); ++i)
    for (std::int64_t j = 0; j < width; ++j) {
      const std::int64_t at = nearest(ids.data[i], rows) * width + j, group = at / quantised_group;
      call.out().data[static_cast<std::int64_t>(i) * width + j] =
          weight.data[at] * scales.data[group] + (call.has(2) ? call.in(2).data[group] : 0);
    }
}

template <>
void evaluate<Op::embedding_grad>(const Call& call) {
  const Value &ids = call.in(0), &dy = call.in(1);
  const std::int64_t rows = call.out().shape[0], width = call.out().shape[1];
  for (std::size_t i = 0; i < ids.data.size(); ++i) {
    const auto row = static_cast<std::int64_t>(ids.data[i]);
    if (!in_range(row, rows)) continue;
    for (std::int64_t j = 0; j < width; ++j)
      call.out().data[row * width + j] += dy.data[static_cast<std::int64_t>(i) * width + j];
  }
}

template <>
void evaluate<Op::take_along_axis>(const Call& call) {
  const Value &x = call.in(0), &indices = call.in(1);
  const int axis = call.as<AxisAttrs>().axis;
  const AlongAxis along(x.shape, axis), out(indices.shape, axis);
  if (along.size == 0) return;
  out.for_each_line([&](std::int64_t o, std::int64_t i) {
    for (std::int64_t p = 0; p < out.size; ++p) {
      const std::int64_t at = out.at(o, p, i);
      call.out().data[at] = x.data[along.at(o, nearest(indices.data[at], along.size), i)];
    }
  });
}

template <>
void evaluate<Op::scatter>(const Call& call) {
  scatter_with(call, [](double& element, double update) { element = update; });
}

template <>
void evaluate<Op::scatter_add>(const Call& call) {
  const DType dtype = call.out().dtype;
  scatter_with(call, [dtype](double& element, double update) { element = wrapped(element + update, dtype); });
}

template <>
void evaluate<Op::one_hot>(const Call& call) {
  const Value& ids = call.in(0);
  const std::int64_t depth = call.out().shape.back();
  for (std::size_t i = 0; i < ids.data.size(); ++i) {
    const auto id = static_cast<std::int64_t>(ids.data[i]);
    if (in_range(id, depth)) call.out().data[static_cast<std::int64_t>(i) * depth + id] = 1;
  }
}

template <>
void evaluate<Op::cache_append>(const Call& call) {
  const Value &values = call.in(1), &positions = call.in(2);
  const Sizes& cache = call.out().shape;
  const std::int64_t blocks = cache[0], heads = cache[1], block = cache[2], width = cache[3];
  const std::int64_t batch = values.shape[0], time = values.shape[2], size = values.shape[3];
  const bool packs = call.out().dtype == packed_cache && is_float(values.dtype);
  const Value* table = call.has(3) ? &call.in(3) : nullptr;
  const std::int64_t capacity = table != nullptr ? table->shape[1] * block : block;
  call.out().data = call.in(0).data;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < time; ++t) {
      auto slot = static_cast<std::int64_t>(positions.data[b * time + t]);
      if (slot < 0 || capacity == 0) continue;
      if (call.as<CacheAppendAttrs>().ring) slot %= capacity;
      if (slot >= capacity) continue;
      const std::int64_t number =
          table != nullptr ? static_cast<std::int64_t>(table->data[b * table->shape[1] + slot / block]) : b;
      if (!in_range(number, blocks)) continue;
      for (std::int64_t h = 0; h < heads; ++h) {
        const double* from = values.data.data() + ((b * heads + h) * time + t) * size;
        double* to = call.out().data.data() + ((number * heads + h) * block + slot % block) * width;
        if (packs)
          pack_row(from, size, to);
        else
          std::copy_n(from, width, to);
      }
    }
}

}  // namespace jerboa::reference
