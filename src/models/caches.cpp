#include "models/caches.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/ir/packed_cache.h>
#include <jerboa/ops/ops.h>

namespace jerboa::models {

namespace {

Dim packed_row(const Dim& size) {
  if (!can_pack(size.value()))
    throw UsageError(fmt::format("a cache of int8 needs heads of a multiple of {} features, not of {}; use f16",
                                 features_per_word, size.str()));
  return packed_words(size.value());
}

}  // namespace

std::string table_name(int window) { return fmt::format("table.{}", window); }

std::string cache_name(int layer, const std::string& name) { return fmt::format("cache.{}.{}", layer, name); }

Caches::Caches(const GraphInputs& inputs)
    : options_(inputs.cache),
      positions_(inputs.find("positions")),
      lengths_(inputs.find("lengths")),
      table_(inputs.find("table")),
      slots_(inputs.find("slots")),
      specs_(inputs.cache_specs) {
  check(inputs);
  for (const WindowedBlocks& layers : options_.windowed)
    windowed_tables_.push_back(inputs.find(table_name(layers.window)));
}

void Caches::check(const GraphInputs& inputs) const {
  if (options_.capacity < 0 || options_.chunk < 1)
    throw UsageError(
        fmt::format("a cache of {} positions is not valid for chunks of {}", options_.capacity, options_.chunk));
  if (options_.capacity == 0) return;
  if (!(positions_ && lengths_))
    throw UsageError("a decoder with a cache needs positions and lengths, which say where the tokens go");
  if (options_.dtype != DType::f32 && options_.dtype != DType::f16 && options_.dtype != DType::i8)
    throw UsageError(fmt::format("a cache can be f32, f16 or int8, not {}", name(options_.dtype)));
  if (options_.block < 0 || options_.blocks < 0 || (options_.block > 0 && options_.capacity % options_.block != 0))
    throw UsageError(fmt::format("a cache of {} positions per sequence cannot be made of blocks of {}",
                                 options_.capacity, options_.block));
  if (options_.block > 0 && !table_)
    throw UsageError("a decoder with a paged cache needs a table, which says where each sequence's blocks are");
  for (const WindowedBlocks& layers : options_.windowed) {
    if (options_.block == 0)
      throw UsageError(
          fmt::format("layers with a window of {} have blocks of their own in a paged cache only", layers.window));
    if (layers.window < 1)
      throw UsageError(fmt::format("layers with blocks of their own need a window, which {} is not", layers.window));
    if (layers.blocks < 1)
      throw UsageError(fmt::format("layers with a window of {} cannot have {} blocks", layers.window, layers.blocks));
    if (!inputs.find(table_name(layers.window)))
      throw UsageError(fmt::format("layers with a window of {} need the input {}, which says where their blocks are",
                                   layers.window, table_name(layers.window)));
  }
  if (options_.slots < 0 || (options_.slots > 0 && !slots_))
    throw UsageError("a decoder with slots for recurrent states needs the input slots, which says whose is where");
  // A paged cache has a fixed size, whatever the batch.
  if ((options_.block == 0 || options_.blocks == 0) && !inputs.find("ids").dim(0).is_constant())
    throw UsageError("a decoder with a cache needs a batch of a fixed size, because the cache is kept between runs");
}

Tensor Caches::allocate(const std::string& name, CacheKind kind, const Shape& shape, DType dtype, int window) const {
  if (specs_) specs_->push_back({name, kind, dtype, shape, window});
  return state_input(name, shape, dtype);
}

Caches::Paged Caches::paged(int window) const {
  for (std::size_t group = 0; group < options_.windowed.size(); ++group)
    if (options_.windowed[group].window == window) return {options_.windowed[group], windowed_tables_[group]};
  return {{0, options_.blocks}, table()};
}

Tensor Caches::appended(const std::string& name, const Tensor& values, int capacity, CacheKind kind,
                        const Paged& paged) const {
  const bool packs = options_.dtype == DType::i8 && kind != CacheKind::latent;
  // Latent vectors serve as both keys and values and are never packed: instead of 8 bits they use f16.
  const DType dtype = packs ? packed_cache : options_.dtype == DType::i8 ? DType::f16 : options_.dtype;
  const Tensor stored = packs ? values : cast(values, dtype);
  CacheAppendOptions append{.ring = kind == CacheKind::ring};
  Shape shape{values.dim(0), values.dim(1), capacity, packs ? packed_row(values.dim(3)) : values.dim(3)};
  if (options_.block > 0) {
    append.table = paged.table;
    shape[0] = paged.blocks.blocks > 0 ? Dim(paged.blocks.blocks) : values.dim(0) * Dim(capacity / options_.block);
    shape[2] = options_.block;
  }
  const Tensor cache = allocate(name, kind, shape, dtype, paged.blocks.window);
  const Tensor next = cache_append(cache, stored, positions_, append);
  update(cache, next);
  return next;
}

Caches::KeysAndValues Caches::append(int layer, const Tensor& keys, const Tensor& values, int window) const {
  const int reach = window + options_.chunk - 1;
  const bool ring = options_.ring && options_.block == 0 && window > 0 && reach < options_.capacity;
  const int capacity = ring ? reach : options_.capacity;
  const CacheKind kind = ring ? CacheKind::ring : CacheKind::kv;
  const Paged layer_blocks = paged(window);
  const Tensor all_keys = appended(cache_name(layer, "k"), keys, capacity, kind, layer_blocks);
  const Tensor all_values = appended(cache_name(layer, "v"), values, capacity, kind, layer_blocks);
  return {all_keys, all_values, ring, layer_blocks.table};
}

Tensor Caches::append_latent(int layer, const Tensor& values) const {
  return appended(cache_name(layer, "latent"), values, options_.capacity, CacheKind::latent, paged(0));
}

Tensor Caches::state_of(const std::string& name, const Dim& size) const {
  Graph& graph = current_graph("state");
  const TensorId known = graph.find(name);
  if (known != no_tensor) return {graph.identity(), known};
  const Dim rows = options_.slots > 0 ? Dim(options_.slots) : batch();
  return allocate(name, CacheKind::state, {rows, 1, 1, size}, DType::f32);
}

Tensor Caches::state(int layer, const std::string& name, const Shape& shape) const {
  const Dim size = element_count(shape);
  const Tensor all = state_of(cache_name(layer, name), size);
  const Tensor flat = reshape(all, {all.dim(0), size});
  const Tensor rows = options_.slots > 0 ? embedding(flat, slots_) : flat;
  // A slot still holds the state of the sequence that used it before.
  const Tensor count = sum(cast(greater_equal(positions_, 0), DType::i32), {1}, true);
  const Tensor goes_on = greater(unsqueeze(lengths_, {1}), count);
  Shape whole{batch()};
  whole.insert(whole.end(), shape.begin(), shape.end());
  return reshape(where(goes_on, rows, 0.0), whole);
}

void Caches::set_state(int layer, const std::string& name, const Tensor& after) const {
  const Tensor flat = reshape(after, {batch(), 1, 1, -1});
  const Tensor all = state_of(cache_name(layer, name), flat.dim(3));
  // Appends to a cache with one position per sequence, or one with blocks of a single position; padding is not written.
  const Tensor first = minimum(max(positions_, {1}, true), 0);
  CacheAppendOptions append;
  if (options_.slots > 0) append.table = unsqueeze(slots_, {1});
  update(all, cache_append(all, flat, first, append));
}

RecurrentOptions Caches::recurrent(int layer, const std::string& name, const Shape& shape) const {
  RecurrentOptions options;
  options.positions = positions_;
  if (!any()) return options;
  Shape whole{options_.slots > 0 ? Dim(options_.slots) : batch()};
  whole.insert(whole.end(), shape.begin(), shape.end());
  options.state = allocate(cache_name(layer, name), CacheKind::state, whole, DType::f32);
  if (options_.slots > 0) options.slots = slots_;
  return options;
}

void Caches::set_recurrent(const RecurrentOptions& before, const Recurrent& result) const {
  if (before.state) update(before.state, result.state);
}

}  // namespace jerboa::models
