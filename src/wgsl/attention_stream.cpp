#include "wgsl/attention_stream.h"

#include <cmath>

#include "base/integers.h"
#include "wgsl/attention_tiles.h"

namespace jerboa::wgsl {
namespace {

constexpr std::int64_t least_keys = 32;

// In a phase, combining one part costs about a third of a pass over keys, so p parts take n / p + p / 3 passes, which
// is minimal for p = √(3n).
std::int64_t wanted_workgroups(const Target& target, std::int64_t blocks, std::int64_t passes) {
  if (target.fixed_threads == 0) return 128;
  const auto parts = static_cast<std::int64_t>(std::lround(std::sqrt(3.0 * static_cast<double>(passes))));
  return std::min<std::int64_t>(blocks * parts, std::max(1, target.persistent_workgroups));
}

// Each key takes registers of a thread, as queries do. On an H200 four are faster with f32 caches that it also writes
// to, otherwise eight.
int keys_at_a_time(const KernelWriter& writer, const Attention& attention, int queries, int vectors) {
  const bool appends_f32 = !writer.folded().appends.empty() && attention.k->dtype == DType::f32;
  return queries > 4 || appends_f32 || vectors > 1 ? 4 : 8;
}

// Adds a few parts if each workgroup then needs one pass fewer over its keys: every pass waits for memory once.
std::int64_t parts_in_whole_passes(std::int64_t parts, const Dim& keys, std::int64_t pass) {
  const std::int64_t passes = std::max<std::int64_t>(1, keys.upper_bound() / (parts * pass));
  return std::max(parts, (keys.upper_bound() + passes * pass - 1) / (passes * pass));
}

}  // namespace

int AttentionStream::queries_for(const Attention& attention) {
  constexpr int most = 8;
  int queries = 1;
  while (queries < most && queries < attention.rows().upper_bound()) queries *= 2;
  return queries;
}

bool AttentionStream::suits(const Target& target, const Attention& attention) {
  if (!attention.size.is_constant() || !(attention.size == attention.value_size)) return false;
  const std::int64_t size = attention.size.value();
  const bool power_of_two = size >= 4 && (size & (size - 1)) == 0;
  return power_of_two && size <= 256 && attention.rows().upper_bound() <= 16 &&
         size / 4 / vectors_for(attention) >= queries_for(attention) && threads_for(target) <= target.max_invocations;
}

bool AttentionStream::can_append(const Attention& attention, const AttentionForm& form) {
  // Sequences may share the blocks of a paged cache; an 8-bit row is rounded as a whole, by a separate shader.
  return attention.time == Dim(1) && !is_packed(*attention.k) && attention.rows().upper_bound() <= form.queries &&
         (attention.table == nullptr || attention.batch == Dim(1));
}

AttentionForm AttentionStream::form_for(const KernelWriter& writer, const Attention& attention) {
  AttentionForm form{.kind = AttentionForm::Kind::stream};
  const int vectors = vectors_for(attention);
  form.queries = queries_for(attention);
  form.keys_at_a_time = keys_at_a_time(writer, attention, form.queries, vectors);
  const std::int64_t slots = threads_for(writer.target()) / (attention.size.value() / 4 / vectors);
  const std::int64_t pass = slots * form.keys_at_a_time;
  const Dim blocks = attention.batch * attention.key_heads * groups_of(attention.rows(), form.queries);
  const std::int64_t wanted =
      wanted_workgroups(writer.target(), blocks.upper_bound(), detail::divide_up(attention.keys.upper_bound(), pass));
  form.parts = parts_in_whole_passes(parts_of(blocks, wanted, attention.keys, least_keys), attention.keys, pass);
  return form;
}

AttentionStream::AttentionStream(KernelWriter& writer, const Attention& attention, const AttentionForm& form)
    : writer_(writer),
      attention_(attention),
      threads_(threads_for(writer.target())),
      queries_(form.queries),
      vectors_(vectors_for(attention)),
      lanes_(static_cast<int>(attention.size.value() / 4 / vectors_)),
      slots_(threads_ / lanes_),
      at_a_time_(form.keys_at_a_time),
      blocks_(groups_of(attention.rows(), queries_)),
      parts_(writer, attention, form.parts),
      shader_(writer.shader("attention_stream", threads_)) {}

void AttentionStream::write() {
  write_score_functions(shader_, attention_);
  if (!writer_.folded().computed.contains(attention_.q->binding))
    write_fetch(shader_, attention_, {attention_.q, TileRows::Of::queries, "fetch_q"});
  write_fetch(shader_, attention_, {attention_.k, TileRows::Of::keys, "fetch_k"});
  write_fetch(shader_, attention_, {attention_.v, TileRows::Of::keys, "fetch_v"});
  write_take();
  const auto index =
      shader_.split_index("group", {attention_.batch, attention_.key_heads, blocks_, Dim(parts_.count())});
  shader_.line("let batch = {}; let key_head = {}; let first_row = {} * {}u; let part = {};", index[0], index[1],
               index[2], queries_, index[3]);
  shader_.line("let slot = lane / {0}u; let feature_lane = lane % {0}u; let feature = feature_lane * 4u;", lanes_);
  write_range();
  write_loads();
  write_queries();
  write_appends();
  write_thread_query();
  shader_.open("for (var tile = first; tile < end; tile += {}u) {{", slots_ * at_a_time_);
  write_keys();
  write_newest_key();
  write_products();
  write_weights();
  write_sums();
  shader_.close();
  write_results();
  writer_.add(shader_, attention_.batch * attention_.key_heads * blocks_ * Dim(parts_.count()), all_operations);
  parts_.write_combine(writer_);
}

// Declares `take`, which returns the value of another thread among those that share a key.
void AttentionStream::write_take() {
  if (lanes_ == 1) return;
  const int size = shader_.target().subgroup_size;
  const bool by_subgroups = size >= lanes_ && size % lanes_ == 0;
  if (by_subgroups)
    shader_.use_subgroups();
  else
    shader_.shared_array("lane_values", "f32", threads_);
  shader_.begin_function("fn take(lane: u32, value: f32, other: u32) -> f32");
  if (by_subgroups) {
    shader_.line("return subgroupShuffle(value, other % {}u);", size);
  } else {
    shader_.line("lane_values[lane] = value;");
    shader_.barrier();
    shader_.line("let result = lane_values[other];");
    shader_.barrier();
    shader_.line("return result;");
  }
  shader_.end_function();
}

std::string AttentionStream::vector_of(const std::string& name, int vector) const {
  return vector == 0 ? name : fmt::format("{}_and_{}", name, vector);
}

// Adjacent threads have adjacent vectors.
std::string AttentionStream::feature_of(int vector) const {
  return vector == 0 ? "feature" : fmt::format("(feature + {}u)", vector * lanes_ * 4);
}

// The positions of a thread's vectors of a row in memory, by the row's indices.
std::vector<std::string> AttentionStream::places_of(const TensorAccess& tensor, std::vector<std::string> indices) {
  indices.emplace_back();
  std::vector<std::string> places;
  for (int vector = 0; vector < vectors_; ++vector) {
    indices.back() = feature_of(vector);
    places.push_back(shader_.place(tensor.offset, tensor.strides, indices));
  }
  return places;
}

std::string AttentionStream::take(const std::string& value, const std::string& from) const {
  return lanes_ == 1 ? value : fmt::format("take(lane, {}, {})", value, from);
}

void AttentionStream::write_queries() {
  for (int i = 0; i < queries_; ++i) {
    std::vector<std::string> query;
    if (computed_queries_.empty())
      for (int vector = 0; vector < vectors_; ++vector)
        query.push_back(fmt::format("fetch_q(batch, key_head, first_row + {}u, {})", i, feature_of(vector)));
    else
      query = computed_queries_[static_cast<std::size_t>(i)].finish(
          [&](const std::string& part) { return sum_of_lanes(part); });
    for (int vector = 0; vector < vectors_; ++vector)
      shader_.line("let {} = {};", vector_of(fmt::format("q_{}", i), vector), query[static_cast<std::size_t>(vector)]);
    for (int vector = 0; vector < vectors_; ++vector)
      shader_.line("var {} = vec4f();", vector_of(fmt::format("sum_{}", i), vector));
  }
}

// Declares the range of keys that the queries see, and this workgroup's part of it.
void AttentionStream::write_range() {
  const std::string rows = shader_.size(attention_.rows()), time = shader_.size(attention_.time);
  shader_.line("var least = 0x7fffffff; var most = 0;");
  for (int i = 0; i < queries_; ++i) {
    shader_.open("if (first_row + {}u < {}) {{", i, rows);
    shader_.line("let seen = visible_range(batch, (first_row + {}u) % {});", i, time);
    shader_.line("least = min(least, seen.x); most = max(most, seen.y);");
    shader_.close();
  }
  shader_.line("let range = key_range(batch, least, most);");
  parts_.write_range(shader_, "range.x", "range.y", "part");
}

// Loads the inputs of everything that is computed here, all at once.
void AttentionStream::write_loads() {
  const FoldedKernels& folded = writer_.folded();
  const auto loop_of = [&](int memory) {
    const auto found = folded.computed.find(memory);
    return found == folded.computed.end() ? nullptr : &found->second;
  };
  if (const KernelSpec* loop = loop_of(attention_.q->binding))
    for (int i = 0; i < queries_; ++i) computed_queries_.push_back(computed_query(*loop, i));
  for (const KernelSpec& append : folded.appends) {
    const TensorAccess& values = append.operands[1];
    const KernelSpec* loop = loop_of(values.binding);
    computed_appends_.emplace_back();
    if (loop != nullptr)
      computed_appends_.back().emplace(shader_, *loop, places_of(values, {"batch", "key_head", "0u"}));
    loaded_appends_.push_back(loop == nullptr ? appended(append) : std::vector<std::string>());
  }
}

// The thread's features of a query. Rows past the last see no keys, so that their values do not matter.
ComputedFours AttentionStream::computed_query(const KernelSpec& loop, int number) {
  const std::string time = shader_.size(attention_.time);
  const std::string row =
      shader_.let("query_row", fmt::format("min(first_row + {}u, {} - 1u)", number, shader_.size(attention_.rows())));
  const std::string head = fmt::format("(key_head * {} + {} / {})", shader_.size(attention_.group), row, time);
  return {shader_, loop, places_of(*attention_.q, {"batch", head, fmt::format("({} % {})", row, time)})};
}

std::string AttentionStream::sum_of_lanes(const std::string& value) {
  std::string sum = shader_.let("sum", value);
  for (int step = lanes_ / 2; step > 0; step /= 2)
    sum = shader_.let("sum", fmt::format("{} + {}", sum, take(sum, fmt::format("(lane ^ {}u)", step))));
  return sum;
}

// The thread's features of the values to append, as they are in memory.
std::vector<std::string> AttentionStream::appended(const KernelSpec& append) {
  const TensorAccess& values = append.operands[1];
  const std::vector<std::string> places = places_of(values, {"batch", "key_head", "0u"});
  std::vector<std::string> loaded;
  for (int vector = 0; vector < vectors_; ++vector) {
    if (can_load_four(shader_, values)) {
      loaded.push_back(
          shader_.let("appended", shader_.load_four(values.binding, places[static_cast<std::size_t>(vector)])));
      continue;
    }
    std::string parts[4];
    for (int k = 0; k < 4; ++k)
      parts[k] = shader_.load(values, {"batch", "key_head", "0u", fmt::format("({} + {}u)", feature_of(vector), k)});
    loaded.push_back(
        shader_.let("appended", fmt::format("vec4f({}, {}, {}, {})", parts[0], parts[1], parts[2], parts[3])));
  }
  return loaded;
}

// Writes this step's key and value into the caches. Only one workgroup does: the one whose part holds the new key or,
// if no query sees it, the first. Others may load the slot in the meantime, but give it no weight.
void AttentionStream::write_appends() {
  const std::vector<KernelSpec>& appends = writer_.folded().appends;
  if (appends.empty()) return;
  const TensorAccess& positions = appends.front().operands[2];
  const bool ring = std::get<CacheAppendAttrs>(appends.front().attrs).ring;
  const std::string keys = shader_.size(attention_.keys);
  shader_.line("let position = u32({});", shader_.load(positions, {"batch", "0u"}));
  shader_.line("let new_key = {};", ring ? fmt::format("position % max({}, 1u)", keys) : "position");
  shader_.line("let is_seen = new_key >= range.x && new_key < range.y;");
  shader_.line(
      "var appends = position < 0x80000000u && new_key < {} && select(part == 0u, new_key >= first && new_key < "
      "end, is_seen);",
      keys);
  std::vector<std::string> place{"batch", "key_head", "new_key", "feature"};
  if (attention_.table != nullptr) {
    const std::string block = shader_.size(attention_.k->shape[2]);
    shader_.line("var block = 0u;");
    shader_.open("if (appends) {{");
    shader_.line("block = u32({});", shader_.load(*attention_.table, {"batch", fmt::format("(new_key / {})", block)}));
    shader_.line("appends = block < {};", shader_.size(attention_.k->shape[0]));
    shader_.close();
    place[0] = "block";
    place[2] = fmt::format("(new_key % {})", block);
  }
  std::vector<std::vector<std::string>> values;
  for (std::size_t i = 0; i < appends.size(); ++i)
    values.push_back(computed_appends_[i]
                         ? computed_appends_[i]->finish([&](const std::string& part) { return sum_of_lanes(part); })
                         : loaded_appends_[i]);
  shader_.open("if (appends && slot == 0u) {{");
  for (std::size_t i = 0; i < appends.size(); ++i)
    for (int vector = 0; vector < vectors_; ++vector) {
      const TensorAccess& cache = appends[i].results[0];
      const std::string& value = values[i][static_cast<std::size_t>(vector)];
      place[3] = feature_of(vector);
      if (can_load_four(shader_, cache)) {
        shader_.store_four(cache.binding, shader_.place(cache.offset, cache.strides, place), value);
        continue;
      }
      for (int k = 0; k < 4; ++k) {
        place[3] = fmt::format("({} + {}u)", feature_of(vector), k);
        shader_.store(cache, place, fmt::format("{}.{}", value, "xyzw"[k]));
      }
    }
  shader_.close();
  for (const auto& [name, cache] : appended_operands())
    for (std::size_t i = 0; i < appends.size(); ++i)
      for (int vector = 0; vector < vectors_ && appends[i].results[0].binding == cache->binding; ++vector)
        shader_.line("let {} = {};", vector_of(fmt::format("newest_{}", name), vector),
                     rounded_four(values[i][static_cast<std::size_t>(vector)], cache->dtype));
}

// The caches of keys and values, which may be the same, by their names in the shader.
std::array<std::pair<const char*, const TensorAccess*>, 2> AttentionStream::appended_operands() const {
  return {{{"k", attention_.k}, {"v", attention_.v}}};
}

// Four values as they would be read back from a cache of this type. Some drivers optimise away a conversion to f16 and
// back; quantizeToF16 is slow on others, but this runs only once.
std::string AttentionStream::rounded_four(const std::string& four, DType dtype) {
  if (dtype == DType::f16) return fmt::format("quantizeToF16({})", four);
  if (dtype == DType::bf16) shader_.use("round_bf16");
  std::string text = "vec4f(";
  for (int k = 0; k < 4; ++k)
    text += (k == 0 ? "" : ", ") + rounded_value(fmt::format("{}.{}", four, "xyzw"[k]), dtype);
  return text + ")";
}

// The newest key and value may not be in the caches yet when they are loaded.
void AttentionStream::write_newest_key() {
  if (writer_.folded().appends.empty()) return;
  shader_.open("if (appends) {{");
  for (int u = 0; u < at_a_time_; ++u) {
    const std::string is_newest = shader_.let("is_newest", fmt::format("tile + {}u + slot == new_key", u * slots_));
    for (const auto& operand : appended_operands())
      for (int vector = 0; vector < vectors_; ++vector)
        shader_.line("{0} = select({0}, {1}, {2});", vector_of(fmt::format("{}_{}", operand.first, u), vector),
                     vector_of(fmt::format("newest_{}", operand.first), vector), is_newest);
  }
  shader_.close();
}

// Declares the query whose weights a thread computes. Rows past the last see no keys.
void AttentionStream::write_thread_query() {
  const std::string rows = shader_.size(attention_.rows()), time = shader_.size(attention_.time);
  shader_.line("let thread_query = feature_lane / {}u; let thread_row = min(first_row + thread_query, {} - 1u);",
               query_lanes(), rows);
  shader_.line("let thread_head = key_head * {} + thread_row / {}; let thread_time = thread_row % {};",
               shader_.size(attention_.group), time, time);
  shader_.line("let visible = select(vec2i(), visible_range(batch, thread_time), first_row + thread_query < {});",
               rows);
  // With fewer products than threads, some threads have the same product, of which only one counts.
  const int alike = std::max(1, lanes_ / products());
  shader_.line("let thread_key = feature_lane % {}u / {}u * {}u; let counts = feature_lane % {}u == 0u;", query_lanes(),
               alike, thread_products(), alike);
  shader_.line("var top = {}; var total = 0.0;", unseen_score);
}

void AttentionStream::write_keys() {
  const std::string keys = shader_.size(attention_.keys);
  for (const char* name : {"k", "v"})
    for (int u = 0; u < at_a_time_; ++u)
      for (int vector = 0; vector < vectors_; ++vector)
        shader_.line("var {} = fetch_{}(batch, key_head, min(tile + {}u + slot, {} - 1u), {});",
                     vector_of(fmt::format("{}_{}", name, u), vector), name, u * slots_, keys, feature_of(vector));
}

// Computes `product_0` …: the products of all keys with all queries that end up in this thread. In each step two
// threads, which have different halves of the features, exchange half of their partial products.
void AttentionStream::write_products() {
  std::vector<std::string> values;
  for (int i = 0; i < queries_; ++i)
    for (int u = 0; u < at_a_time_; ++u) {
      std::string dots;
      for (int vector = 0; vector < vectors_; ++vector)
        dots += fmt::format("{}dot({}, {})", vector == 0 ? "" : " + ", vector_of(fmt::format("k_{}", u), vector),
                            vector_of(fmt::format("q_{}", i), vector));
      values.push_back(shader_.let("part_of", dots));
    }
  for (int step = lanes_ / 2; step > 0; step /= 2) {
    const std::string other = fmt::format("(lane ^ {}u)", step);
    if (values.size() == 1) {
      values[0] = shader_.let("part_of", fmt::format("{} + {}", values[0], take(values[0], other)));
      continue;
    }
    const std::string upper = shader_.let("upper", fmt::format("(lane & {}u) != 0u", step));
    const std::size_t half = values.size() / 2;
    for (std::size_t j = 0; j < half; ++j) {
      const std::string given = fmt::format("select({}, {}, {})", values[j + half], values[j], upper);
      const std::string kept = fmt::format("select({}, {}, {})", values[j], values[j + half], upper);
      values[j] = shader_.let("part_of", fmt::format("{} + {}", kept, take(given, other)));
    }
    values.resize(half);
  }
  for (std::size_t j = 0; j < values.size(); ++j) shader_.line("let product_{} = {};", j, values[j]);
}

void AttentionStream::write_query_reduction(const std::string& name, bool is_sum) {
  for (int step = query_lanes() / 2; step > 0; step /= 2) {
    const std::string other = take(name, fmt::format("(lane ^ {}u)", step));
    shader_.line("{0} = {1};", name,
                 is_sum ? fmt::format("{} + {}", name, other) : fmt::format("max({}, {})", name, other));
  }
}

// Turns scores into weights, each in one thread.
void AttentionStream::write_weights() {
  const std::string keys = shader_.size(attention_.keys);
  shader_.line("var new_top = top;");
  for (int j = 0; j < thread_products(); ++j) {
    shader_.line("let wanted_{0} = tile + (thread_key + {0}u) * {1}u + slot; let key_{0} = min(wanted_{0}, {2} - 1u);",
                 j, slots_, keys);
    shader_.line(
        "let score_{0} = select({1}, score(visible, batch, thread_head, thread_time, key_{0}, key_position(batch, "
        "key_{0}), product_{0}).x, wanted_{0} < end);",
        j, unseen_score);
    shader_.line("new_top = max(new_top, score_{});", j);
  }
  write_query_reduction("new_top", false);
  shader_.line("let shrink = exp(top - new_top);");
  shader_.line("top = new_top; total *= shrink;");
  for (int j = 0; j < thread_products(); ++j) {
    shader_.line("let weight_{0} = select(0.0, exp(score_{0} - top), score_{0} > {1});", j, unseen_score);
    shader_.line("total += select(0.0, weight_{}, counts);", j);
  }
}

void AttentionStream::write_sums() {
  const int alike = std::max(1, lanes_ / products());
  shader_.line("let first_lane = lane - feature_lane;");
  for (int i = 0; i < queries_; ++i) {
    const int query_lane = i * query_lanes();
    const std::string shrink = shader_.let("shrunk", take("shrink", fmt::format("first_lane + {}u", query_lane)));
    const auto sum = [&](int vector) { return vector_of(fmt::format("sum_{}", i), vector); };
    for (int vector = 0; vector < vectors_; ++vector) shader_.line("{} *= {};", sum(vector), shrink);
    for (int u = 0; u < at_a_time_; ++u) {
      const std::string weight =
          shader_.let("taken", take(fmt::format("weight_{}", u % thread_products()),
                                    fmt::format("first_lane + {}u", query_lane + u / thread_products() * alike)));
      for (int vector = 0; vector < vectors_; ++vector)
        shader_.line("{} += {} * {};", sum(vector), weight, vector_of(fmt::format("v_{}", u), vector));
    }
  }
}

// Combines the results of the threads of all slots, for as many queries at a time as memory allows.
void AttentionStream::write_results() {
  write_query_reduction("total", true);
  shader_.shared_array("slot_tops", "f32", std::int64_t{queries_} * slots_);
  shader_.shared_array("slot_totals", "f32", std::int64_t{queries_} * slots_);
  const std::int64_t bytes_of_query = std::int64_t{threads_} * vectors_ * 16;
  const auto most =
      static_cast<int>(std::clamp<std::int64_t>(shader_.target().workgroup_bytes / 4 / bytes_of_query, 1, queries_));
  const int rounds = (queries_ + most - 1) / most, at_once = (queries_ + rounds - 1) / rounds;
  shader_.shared_array("slot_sums", "vec4f", std::int64_t{at_once} * threads_ * vectors_);
  shader_.open("if (feature_lane % {}u == 0u) {{", query_lanes());
  shader_.line("slot_tops[thread_query * {0}u + slot] = top; slot_totals[thread_query * {0}u + slot] = total;", slots_);
  shader_.close();
  shader_.barrier();
  for (int first = 0; first < queries_; first += at_once) {
    const int count = std::min(at_once, queries_ - first);
    for (int i = 0; i < count; ++i) write_slot_sums(first + i, i);
    shader_.barrier();
    write_rows(first, count);
    if (first + count < queries_) shader_.barrier();
  }
}

// Declares the head and time of a query, and `all_top`, the greatest score of all slots.
void AttentionStream::write_top_of(const std::string& query) {
  const std::string rows = shader_.size(attention_.rows()), time = shader_.size(attention_.time);
  shader_.line("let row = min(first_row + {}, {} - 1u);", query, rows);
  shader_.line("let head = key_head * {} + row / {}; let time = row % {};", shader_.size(attention_.group), time, time);
  shader_.line("let first_top = {};", parts_.first_top(shader_, "head", "part"));
  shader_.line("var all_top = first_top;");
  shader_.line("for (var i = 0u; i < {}; i++) {{ all_top = max(all_top, slot_tops[{} * {}u + i]); }}",
               shader_.loop_end(fmt::format("{}u", slots_)), query, slots_);
}

// Stores a thread's sums of a query at index `place` among those that are combined together.
void AttentionStream::write_slot_sums(int query, int place) {
  shader_.open("{{");
  write_top_of(fmt::format("{}u", query));
  shader_.line("let shrink = exp(slot_tops[{}u + slot] - all_top);", query * slots_);
  for (int vector = 0; vector < vectors_; ++vector)
    shader_.line("slot_sums[{}u + lane] = {} * shrink;", (place * vectors_ + vector) * threads_,
                 vector_of(fmt::format("sum_{}", query), vector));
  shader_.close();
}

// Each thread sums one feature of a query at a time.
void AttentionStream::write_rows(int first, int count) {
  const int size = lanes_ * vectors_ * 4;
  shader_.open("for (var number = lane; number < {}u; number += {}u) {{", count * size, threads_);
  shader_.line("let query = {}u + number / {}u; let row_feature = number % {}u;", first, size, size);
  write_top_of("query");
  shader_.line("let at = number / {0}u * {1}u + row_feature / {2}u * {3}u + row_feature / 4u % {4}u;", size,
               vectors_ * threads_, lanes_ * 4, threads_, lanes_);
  shader_.line("var row_sum = 0.0;");
  shader_.line("for (var i = 0u; i < {}u; i++) {{ row_sum += slot_sums[at + i * {}u][row_feature & 3u]; }}", slots_,
               lanes_);
  // Parts are divided by their sum where they are combined.
  const bool needs_total = parts_.count() == 1;
  if (needs_total) write_total();
  shader_.open("if (first_row + query < {}) {{", shader_.size(attention_.rows()));
  parts_.store_sum(shader_, "batch", "head", "time", "part", "row_feature", "row_sum", "all_total");
  shader_.open("if (row_feature == 0u) {{");
  if (!needs_total) write_total();
  parts_.store_row(shader_, "batch", "head", "time", "part", "all_top", "all_total");
  shader_.close();
  shader_.close();
  shader_.close();
}

void AttentionStream::write_total() {
  shader_.line("var all_total = {} * exp(first_top - all_top);", parts_.first_total("part"));
  shader_.line("for (var i = query * {0}u; i < (query + 1u) * {0}u; i++) {{", slots_);
  shader_.line("  all_total += slot_totals[i] * exp(slot_tops[i] - all_top);");
  shader_.line("}}");
}

}  // namespace jerboa::wgsl
