// A program file is untrusted code: whatever it holds, it is refused with an Error, or runs on the CPU engine without
// accessing memory outside its buffers; one for GPUs is proved to stay within them, or refused. An input of one byte
// selects one of the programs that are compiled here; mutations change the JSON of a file's sections and recompute the
// checksums, so that they get past those.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include <jerboa/backend/cpu.h>
#include <jerboa/base/error.h>
#include <jerboa/ir/packed_cache.h>
#include <jerboa/lower/lower.h>
#include <jerboa/lower/program_file.h>
#include <jerboa/ops/ops.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "compile/initialize.h"
#include "lower/entry_checks.h"
#include "lower/input_indices.h"
#include "lower/program_sections.h"
#include "runtime/index_checks.h"
#include "runtime/rate_checks.h"
#include "runtime/run_checks.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using namespace jerboa;
using Json = nlohmann::ordered_json;

// Seeds

void perceptron() {
  const Tensor x = tensor_input("x", {5, 6}), w = param_input("w", {6, 4}), b = param_input("b", {4});
  const Tensor y = log_softmax(relu(matmul(x, w) + b));
  output("loss", mean(sum(y * y, {0})));
  output("best", argmax(y, 1));
  const Tensor state = state_input("state", {4});
  update(state, state * 0.5 + sum(y, {0}));
}

void lookups() {
  const Dim t = Dim::symbol("T", 6);
  const Tensor ids = tensor_input("ids", {2, t}, DType::i32), table = param_input("table", {9, 4});
  const Tensor rows = embedding(table, ids);
  const Tensor padded = pad(rows, {0, 1, 0}, {0, 2, 1}, 3);
  output("y", concat({padded, padded * 2}, 1));
  output("z", transpose(slice(rows, 2, 1, 3), {2, 0, 1}));
  output("part", embedding(table, reshape(slice(ids, 1, 0, 1), {2})));
  output("hot", one_hot(ids, 9));
}

void attention_over_a_cache() {
  const Dim t = Dim::symbol("T", 4);
  const Tensor q = tensor_input("q", {1, 2, t, 4}), k = tensor_input("k", {1, 1, t, 4});
  const Tensor positions = tensor_input("positions", {1, t}, DType::i32),
               lengths = tensor_input("lengths", {1}, DType::i32);
  const Tensor cache = state_input("cache", {1, 1, 8, 4});
  const Tensor next = cache_append(cache, k, positions);
  update(cache, next);
  output("y", attention(q, next, next, {.causal = true, .lengths = lengths, .positions = positions}));
}

void attention_over_a_paged_cache() {
  const Dim t = Dim::symbol("T", 4);
  const Tensor q = tensor_input("q", {2, 2, t, 4}), k = tensor_input("k", {2, 1, t, 4});
  const Tensor positions = tensor_input("positions", {2, t}, DType::i32),
               lengths = tensor_input("lengths", {2}, DType::i32), table = tensor_input("table", {2, 3}, DType::i32);
  const Tensor cache = state_input("cache", {5, 1, 4, 4}, DType::f16);
  const Tensor next = cache_append(cache, cast(k, DType::f16), positions, {.table = table});
  update(cache, next);
  output("y", attention(cast(q, DType::f16), next, next,
                        {.causal = true, .lengths = lengths, .positions = positions, .table = table}));
}

void images() {
  const Tensor x = tensor_input("x", {2, 3, 6, 5}), w = param_input("w", {4, 3, 3, 2});
  const Tensor y = conv2d(x, w, {}, {.stride = {1, 2}, .padding = {1, 1}});
  output("pooled", max_pool2d(y, {.kernel = {2, 2}, .stride = {1, 1}}));
  output("means", avg_pool2d(y, {.kernel = {2, 2}, .stride = {2, 1}}));
}

void sorts() {
  const Tensor x = tensor_input("x", {3, 7}), ids = tensor_input("ids", {3, 2}, DType::i32);
  output("sums", cumsum(x, 0));
  output("order", argsort(x, 1));
  output("top", top_k(x, 3, 1).values);
  output("put", scatter_add(x, ids, slice(x, 1, 0, 2), 1));
  output("taken", take_along_axis(x, ids, 1));
  output("squares", sum_squares({x, x * 2}));
}

void narrow_types() {
  const Tensor x = tensor_input("x", {3, 64}, DType::f16);
  const Tensor w = param_input("w", {5, 64}, {.dtype = DType::i8}),
               scales = param_input("scales", {5, 2}, {.dtype = DType::f16});
  output("y", matmul_quantised(x, w, scales));
  output("whole", dequantise(w, scales));
  const Tensor nibbles = param_input("nibbles", {5, 64}, {.dtype = DType::i4}),
               mins = param_input("mins", {5, 2}, {.dtype = DType::f16});
  output("more", matmul_quantised(x, nibbles, scales, mins));
  output("values", dequantise(nibbles, scales, mins));
  output("product", matmul(x, x, {.transpose_b = true}));
  output("wide", cast(x, DType::f32) * 2);
  output("bits", bit_and(cast(x, DType::i32), 3));
}

void attention_over_an_8_bit_cache() {
  const Dim t = Dim::symbol("T", 4);
  const Tensor q = tensor_input("q", {2, 2, t, 8}), k = tensor_input("k", {2, 1, t, 8});
  const Tensor positions = tensor_input("positions", {2, t}, DType::i32),
               lengths = tensor_input("lengths", {2}, DType::i32), table = tensor_input("table", {2, 3}, DType::i32);
  const Tensor cache = state_input("cache", {5, 1, 4, packed_words(8)}, packed_cache);
  const Tensor next = cache_append(cache, k, positions, {.table = table});
  update(cache, next);
  output("y", attention(q, next, next, {.causal = true, .lengths = lengths, .positions = positions, .table = table}));
}

void recurrences() {
  const Dim t = Dim::symbol("T", 3);
  const Tensor positions = tensor_input("positions", {2, t}, DType::i32),
               slots = tensor_input("slots", {2}, DType::i32);
  const auto from = [&](const char* name, const Shape& shape) {
    return RecurrentOptions{.state = state_input(name, shape), .positions = positions, .slots = slots};
  };
  const RecurrentOptions before = from("before", {3, 2, 8});
  const Recurrent mixed = causal_conv1d(tensor_input("x", {2, t, 8}), param_input("taps", {8, 3}), before);
  update(before.state, mixed.state);
  const Tensor heads = reshape(mixed.y, {2, t, 2, 4});
  const RecurrentOptions memory = from("memory", {3, 2, 4, 4});
  const Recurrent remembered =
      linear_attention(heads, heads, heads, tensor_input("decay", {2, t, 2}), tensor_input("beta", {2, t, 2}), memory);
  update(memory.state, remembered.state);
  output("y", remembered.y);
}

void grouped_products() {
  const Tensor x = tensor_input("x", {6, 32}), offsets = tensor_input("offsets", {4}, DType::i32);
  output("y", matmul_grouped(x, param_input("w", {3, 32, 5}), offsets));
  output("narrow", matmul_grouped_quantised(x, param_input("nibbles", {3, 5, 32}, {.dtype = DType::i4}),
                                            param_input("scales", {3, 5, 1}, {.dtype = DType::f16}),
                                            param_input("mins", {3, 5, 1}, {.dtype = DType::f16}), offsets));
}

void update_with_checks() {
  const Tensor w = param_input("w", {9, 4}), rows = embedding(w, cast(tensor_input("x", {3}), DType::i32));
  update(w, sgd_update(w, w * sum(log(rows)), tensor_input("lr", {}), {}, {}).param);
  output("rows", rows);
}

std::string compile(void (*body)(), const Target& target, const Checks& checks = {}) {
  const Graph graph = trace(body);
  ProgramFile file;
  file.target = target.name;
  const CheckedGraph checked = with_checks(graph, checks);
  ProgramEntry entry{"run", {}, detail::find_input_indices(graph), lower(checked.graph, target), checked.checks};
  if (target.name == Target::webgpu_default().name) emit_wgsl(entry.program, target);
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const TensorInfo& tensor = graph.tensors[i];
    if (tensor.storage == Storage::param || tensor.storage == Storage::state)
      file.storage.push_back(
          {tensor.name, tensor.type.dtype, tensor.type.shape, tensor.storage == Storage::param, tensor.init});
    if (tensor.storage == Storage::input)
      entry.inputs.push_back(
          {tensor.name, tensor.type.dtype, tensor.type.shape, detail::rate_of(graph, static_cast<TensorId>(i))});
  }
  file.entries.push_back(std::move(entry));
  return encode_program(file);
}

const std::vector<std::string>& seeds() {
  static const std::vector<std::string> files = [] {
    std::vector<std::string> compiled;
    for (const Target& target : {Target::cpu(), Target::webgpu_default()})
      for (void (*body)() :
           {perceptron, lookups, attention_over_a_cache, images, sorts, narrow_types, attention_over_a_paged_cache,
            attention_over_an_8_bit_cache, recurrences, grouped_products})
        compiled.push_back(compile(body, target));
    for (const Target& target : {Target::cpu(), Target::webgpu_default()})
      compiled.push_back(compile(update_with_checks, target, {.finite = true, .indices = true}));
    return compiled;
  }();
  return files;
}

std::string file_of(const std::uint8_t* data, std::size_t size) {
  if (size == 1) return seeds()[data[0] % seeds().size()];
  return {reinterpret_cast<const char*>(data), size};
}

// Mutations

void collect(Json& json, std::vector<Json*>& nodes) {
  nodes.push_back(&json);
  if (json.is_structured())
    for (Json& item : json) collect(item, nodes);
}

void mutate(Json& root, std::mt19937& random) {
  std::vector<Json*> nodes;
  collect(root, nodes);
  const auto pick = [&](std::size_t count) { return static_cast<std::size_t>(random()) % count; };
  Json& node = *nodes[pick(nodes.size())];
  if (pick(8) == 0) {
    node = Json(*nodes[pick(nodes.size())]);
    return;
  }
  if (node.is_number_integer()) {
    // Small enough that computations with it here do not overflow.
    const auto value = std::clamp<std::int64_t>(node.get<std::int64_t>(), INT64_MIN / 4, INT64_MAX / 4);
    const std::array<std::int64_t, 14> choices{0,
                                               1,
                                               -1,
                                               value + 1,
                                               value - 1,
                                               -value,
                                               value * 2,
                                               value / 2,
                                               7,
                                               64,
                                               1 << 20,
                                               INT32_MAX,
                                               std::int64_t{1} << 40,
                                               INT64_MAX};
    node = choices[pick(choices.size())];
  } else if (node.is_string()) {
    for (int tries = 0; tries < 50; ++tries)
      if (const Json& other = *nodes[pick(nodes.size())]; other.is_string()) {
        node = Json(other);
        return;
      }
  } else if (node.is_boolean()) {
    node = !node.get<bool>();
  } else if (node.is_array() && !node.empty()) {
    const std::size_t at = pick(node.size());
    if (pick(2) == 0)
      node.erase(at);
    else
      node.push_back(Json(node[at]));
  } else if (node.is_number()) {
    constexpr std::array<double, 5> choices{0, -1.5, 1e10, 1e300, -1e300};
    node = choices[pick(choices.size())];
  }
}

// Runs

constexpr std::int64_t max_work = 1 << 18;

std::int64_t product(const Sizes& sizes) {
  std::int64_t total = 1;
  for (const std::int64_t size : sizes)
    total = std::min(max_work * 2, total) * std::min(max_work * 2, std::max<std::int64_t>(size, 1));
  return total;
}

// Whether a run ends soon: the file chooses the sizes, and large ones are not an error.
bool is_small(const ProgramFile& file, const ProgramEntry& entry, const SymbolValues& symbols) {
  std::int64_t work = 0;
  const auto add = [&](const Shape& shape) { work += product(evaluate(shape, symbols)); };
  for (const std::int64_t bytes : entry.program.arenas) work += bytes / 64;
  for (const PersistentTensor& tensor : file.storage) add(tensor.shape);
  for (const InputTensor& input : entry.inputs) add(input.shape);
  for (const InputIndices& indices : entry.indices)
    for (const InputIndices::View& view : indices.views) add(view.shape);
  for (const Dispatch& dispatch : entry.program.cpu.dispatches)
    for (const Dispatch::Part& part : dispatch.parts) {
      const KernelSpec& kernel = entry.program.cpu.kernels[static_cast<std::size_t>(part.kernel)];
      add(kernel.domain);
      for (const TensorAccess& access : kernel.operands) add(access.shape);
      for (const TensorAccess& access : kernel.results) add(access.shape);
      if (work > max_work) return false;
    }
  for (const KernelSpec& kernel : entry.program.cpu.kernels) add(kernel.domain);
  return work <= max_work;
}

HostTensor values(DType dtype, const Sizes& sizes, std::mt19937& random) {
  HostTensor tensor(dtype, sizes);
  // Arbitrary bits, including indices far out of range, NaN and infinity.
  for (std::byte& byte : tensor.bytes()) byte = static_cast<std::byte>(random() % 3 == 0 ? random() : random() % 4);
  return tensor;
}

void run(const ProgramFile& file, const ProgramEntry& entry, std::mt19937& random) {
  static const auto backend = make_cpu_backend({.threads = 1, .sentinel = {}});
  std::map<std::string, std::int64_t> bounds;
  for (const InputTensor& input : entry.inputs)
    for (const Dim& size : input.shape) size.collect_symbols(bounds);
  SymbolValues symbols;
  for (const auto& [name, bound] : bounds)
    symbols[name] =
        1 + static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(std::min<std::int64_t>(bound, 64)));
  for (auto& [name, value] : symbols) value = std::min(value, bounds.at(name));
  if (!is_small(file, entry, symbols)) return;
  std::map<std::string, std::shared_ptr<DeviceTensor>> storage;
  for (const PersistentTensor& tensor : file.storage) {
    const Sizes sizes = evaluate(tensor.shape, {});
    auto memory = backend->allocate(tensor.dtype, sizes, tensor.name);
    memory->upload(detail::initial_values(tensor.name, tensor.dtype, sizes, tensor.init, 1));
    memory->upload(values(tensor.dtype, sizes, random));
    if (!storage.emplace(tensor.name, std::move(memory)).second) return;
  }
  std::map<std::string, HostTensor> inputs;
  for (const InputTensor& input : entry.inputs)
    if (!inputs.emplace(input.name, values(input.dtype, evaluate(input.shape, symbols), random)).second) return;
  try {
    detail::check_input_indices(entry.indices, inputs, symbols);
    std::map<std::string, Rate> rates;
    for (const InputTensor& input : entry.inputs)
      if (input.rate != Rate::none) rates.emplace(input.name, input.rate);
    detail::check_rates(entry.name, rates, inputs);
  } catch (const UsageError&) {
    // A session would stop here, but kernels must be safe with any index.
  }
  const auto executable = backend->load(entry.program, [&](const std::string& name) { return storage.at(name); });
  std::vector<std::string> captures;
  for (const Readable& capture : entry.program.captures) captures.push_back(capture.name);
  for (int i = 0; i < 2; ++i) {
    const auto results = executable->run({inputs, symbols, captures});
    try {
      detail::throw_failed_checks(entry.checks, *executable, *results, symbols);
    } catch (const NotFiniteError&) {
    } catch (const UsageError&) {
    }
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
  std::mt19937 random(seed);
  std::string file = file_of(data, size);
  try {
    auto sections = detail::read_sections(file);
    const std::size_t chosen = random() % sections.size();
    std::string text;
    if (sections[chosen].kind != detail::section::data && random() % 20 != 0) {
      Json json = Json::parse(sections[chosen].bytes);
      for (std::size_t i = 1 + random() % 3; i > 0; --i) mutate(json, random);
      text = json.dump();
      sections[chosen].bytes = text;
      file = detail::write_sections(sections, detail::host_version);
      if (file.size() <= max_size) {
        std::copy(file.begin(), file.end(), data);
        return file.size();
      }
    }
  } catch (const std::exception&) {
    file = seeds()[random() % seeds().size()];
    if (file.size() <= max_size) {
      std::copy(file.begin(), file.end(), data);
      return file.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::mt19937 random(static_cast<std::uint32_t>(size));
  try {
    const ProgramFile file = decode_program(file_of(data, size), "file");
    // A decoded file survives being encoded and decoded again.
    const std::string again = encode_program(file);
    if (encode_program(decode_program(again, "again")) != again) std::abort();
    for (const ProgramEntry& entry : file.entries)
      if (file.target == "cpu") run(file, entry, random);
  } catch (const Error&) {
    // A program that is compiled here is not refused.
    if (size == 1) std::abort();
  }
  return 0;
}
