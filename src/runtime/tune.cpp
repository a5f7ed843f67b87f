#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/base/random.h>
#include <jerboa/compile/graphs.h>
#include <jerboa/lower/lower.h>
#include <jerboa/ops/ops.h>
#include <jerboa/runtime/tune.h>
#include <jerboa/transform/grad.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "runtime/form_contest.h"
#include "wgsl/tuning/tuned_file.h"

namespace jerboa {
namespace {

using detail::CompiledKernel;
using detail::FormContest;
using detail::MeasuredForm;
using wgsl::AttentionPart;
using wgsl::AttentionShape;
using wgsl::ColumnShape;
using wgsl::KernelForm;
using wgsl::KernelShape;
using wgsl::ProductShape;
using wgsl::RowShape;
using wgsl::TunedFile;

// Captures the whole result, and outputs the few rows of it that are read when it is timed.
void give(Tensor y) {
  constexpr std::int64_t rows_read = 8;
  const auto axis = static_cast<int>(y.shape().size()) - 2;
  const std::int64_t rows = axis < 0 ? 1 : y.dim(axis).value(), step = std::max<std::int64_t>(1, rows / rows_read);
  y = capture(y, "all");
  output("some", step == 1 ? y : slice(y, axis, 0, rows, step));
}

// The graphs of a single kernel, by shape.
void trace_kernel(const ProductShape& shape) {
  const Tensor a = param_input("a", shape.transpose_a ? Shape{shape.inner, shape.rows} : Shape{shape.rows, shape.inner},
                               {.dtype = shape.a});
  const auto product = [&](const std::string& name) {
    if (!shape.is_quantised()) {
      const Tensor b =
          param_input(name, shape.transpose_b ? Shape{shape.columns, shape.inner} : Shape{shape.inner, shape.columns},
                      {.dtype = shape.b});
      return matmul(a, b, {.transpose_a = shape.transpose_a, .transpose_b = shape.transpose_b});
    }
    const Shape groups{shape.columns, shape.inner / quantised_group};
    const Tensor weight = param_input(name, {shape.columns, shape.inner}, {.dtype = shape.b});
    const Tensor scales = param_input(name + ".scales", groups, {.dtype = DType::f16});
    if (!shape.mins) return matmul_quantised(a, weight, scales);
    return matmul_quantised(a, weight, scales, param_input(name + ".mins", groups, {.dtype = DType::f16}));
  };
  Tensor y = product("b");
  if (shape.products == 2) {
    const Tensor other = product("c");
    y = mul(silu(y), other);
  }
  give(y);
}

// With caches, each sequence sees all keys up to its queries, which are the last.
AttentionOptions options_of(const AttentionShape& shape) {
  AttentionOptions options;
  options.causal = shape.causal;
  if (!shape.cached) return options;
  const Dim batch(shape.batch);
  const Tensor times = arange(Dim(shape.time)) + static_cast<double>(shape.keys - shape.time);
  options.positions = broadcast_to(times, {batch, Dim(shape.time)});
  options.lengths = arange(batch) * 0 + static_cast<double>(shape.keys);
  if (shape.page_size > 0) {
    const std::int64_t pages = shape.keys / shape.page_size;
    options.table = reshape(arange(Dim(shape.batch * pages)), {batch, Dim(pages)});
  }
  return options;
}

void trace_kernel(const AttentionShape& shape) {
  const auto keys = [&](std::int64_t size) {
    return shape.page_size > 0
               ? Shape{shape.batch * (shape.keys / shape.page_size), shape.key_heads, shape.page_size, size}
               : Shape{shape.batch, shape.key_heads, shape.keys, size};
  };
  // In the layout of projections: the features of all heads are adjacent.
  const auto of_queries = [&](const std::string& name, std::int64_t size) {
    const Tensor rows = param_input(name, {shape.batch, shape.time, shape.heads * size}, {.dtype = shape.dtype});
    return split_heads(rows, static_cast<int>(shape.heads));
  };
  const Tensor q = of_queries("q", shape.size);
  const Tensor k = param_input("k", keys(shape.size), {.dtype = shape.key_dtype});
  const Tensor v = param_input("v", keys(shape.value_size), {.dtype = shape.key_dtype});
  const Tensor out = attention(q, k, v, options_of(shape));
  if (shape.part == AttentionPart::forward) return give(out);
  const Tensor dout = of_queries("dout", shape.value_size);
  const auto gradients = vector_jacobian({out}, {dout}, {q, k, v});
  give(shape.part == AttentionPart::dq ? gradients[0] : concat({gradients[1], gradients[2]}, 3));
}

void trace_kernel(const RowShape& shape) {
  const Tensor x = param_input("x", {shape.rows, shape.columns});
  const Tensor weight = param_input("weight", {shape.columns}), bias = param_input("bias", {shape.columns});
  give(layer_norm(x, weight, bias));
}

void trace_kernel(const ColumnShape& shape) {
  const Tensor x = param_input("x", {shape.rows, shape.columns});
  give(sum(x, {0}));
}

Graph graph_of(const KernelShape& shape) {
  return trace([&] { std::visit([](const auto& one) { trace_kernel(one); }, shape); });
}

// Random values for every parameter of such a graph, on the device.
std::map<std::string, std::shared_ptr<DeviceTensor>> parameters_of(const Graph& graph, Backend& backend) {
  std::map<std::string, std::shared_ptr<DeviceTensor>> tensors;
  SplitMix random(1);
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.storage != Storage::param) continue;
    const DType dtype = tensor.type.dtype;
    Sizes sizes;
    for (const Dim& dim : tensor.type.shape) sizes.push_back(dim.value());
    HostTensor values(dtype, sizes);
    if (bits(dtype) <= 8) {
      for (std::byte& byte : values.bytes()) byte = static_cast<std::byte>(random.next());
    } else {
      const double scale = tensor.name.ends_with(".scales") ? 0.01 : 1;
      for (std::int64_t i = 0; i < values.size(); ++i) values.set_number(i, scale * (random.uniform() - 0.5));
    }
    auto& stored = tensors[tensor.name] = backend.allocate(dtype, sizes, tensor.name);
    stored->upload(values);
  }
  return tensors;
}

// A kernel on a device, whose timed runs read only some rows of the results.
class LoadedKernel final : public CompiledKernel {
 public:
  explicit LoadedKernel(std::unique_ptr<Executable> executable) : executable_(std::move(executable)) {}

  HostTensor result() override { return executable_->run({{}, {}, {"all"}})->read("all"); }

  double run() override {
    executable_->set_profiling(true);
    const double start = detail::steady_seconds();
    executable_->run({{}, {}, {}})->read("some");
    const double waited = detail::steady_seconds() - start;
    double total = 0;
    for (const KernelTime& time : executable_->profile()) total += time.seconds;
    executable_->set_profiling(false);
    return total > 0 ? total : waited;  // a device may have no timestamps
  }

 private:
  std::unique_ptr<Executable> executable_;
};

// One kernel, to be compiled in several forms.
class KernelCompiler {
 public:
  KernelCompiler(Backend& backend, const KernelShape& shape)
      : backend_(backend), shape_(shape), graph_(graph_of(shape)), parameters_(parameters_of(graph_, backend)) {}

  // Without a form: in the one that is chosen without measuring. Null if something else is computed instead, or the
  // same as in a form before.
  std::unique_ptr<CompiledKernel> compile(const std::optional<KernelForm>& form) {
    Target target = webgpu_target(backend_);
    target.tuned = nullptr;
    if (form) target.tuned = std::make_shared<wgsl::FormTable>(wgsl::FormTable::Forms{{shape_, *form}});
    Program program = lower(graph_, target);
    const std::vector<KernelShape> shapes = wgsl::kernel_shapes(program, target);
    if (std::find(shapes.begin(), shapes.end(), shape_) == shapes.end()) return nullptr;
    emit_wgsl(program, target);
    if (!texts_.insert(print_gpu(program)).second) return nullptr;
    return std::make_unique<LoadedKernel>(
        backend_.load(program, [&](const std::string& name) { return parameters_.at(name); }));
  }

 private:
  Backend& backend_;
  KernelShape shape_;
  Graph graph_;
  std::map<std::string, std::shared_ptr<DeviceTensor>> parameters_;
  std::set<std::string> texts_;
};

// A failure of one form must not lose the measurements of the others; a lost device has no others.
void measure(KernelCompiler& compiler, FormContest& contest, const KernelForm& form, const TuneOptions& options) try {
  if (std::unique_ptr<CompiledKernel> kernel = compiler.compile(form)) contest.measure(form, std::move(kernel));
} catch (const DeviceLostError&) {
  throw;
} catch (const Error& error) {
  const std::string reason = error.what();  // its other lines may be the text of a shader
  if (options.skipped) options.skipped(describe(form), reason.substr(0, reason.find('\n')));
}

// Sums are taken in different orders, and some forms round to f16 where others do not.
double tolerance_of(const KernelShape& shape) {
  constexpr double f32 = 1e-4, halves = 2e-2;
  if (const auto* product = std::get_if<ProductShape>(&shape))
    return product->a == DType::f16 || product->is_quantised() ? halves : f32;
  const auto* attention = std::get_if<AttentionShape>(&shape);
  return attention != nullptr && (attention->dtype == DType::f16 || attention->key_dtype == DType::f16) ? halves : f32;
}

TunedKind kind_of(const KernelShape& shape) {
  if (std::holds_alternative<ProductShape>(shape)) return TunedKind::products;
  if (std::holds_alternative<AttentionShape>(shape)) return TunedKind::attention;
  return std::holds_alternative<RowShape>(shape) ? TunedKind::rows : TunedKind::columns;
}

std::vector<KernelShape> shapes_of(const std::vector<Graph>& graphs, Target target, const std::set<TunedKind>& kinds) {
  target.tuned = nullptr;
  std::vector<KernelShape> all;
  for (const Graph& graph : graphs)
    for (const KernelShape& shape : wgsl::kernel_shapes(lower(graph, target), target))
      if (kinds.contains(kind_of(shape)) && std::find(all.begin(), all.end(), shape) == all.end()) all.push_back(shape);
  return all;
}

TunedKernel reported(const KernelShape& shape, FormContest& contest, const MeasuredForm* best) {
  const auto forms = static_cast<int>(contest.measured().size());
  if (best != nullptr) return {str(shape), describe(best->form), forms, best->seconds, best->untuned_seconds};
  const double seconds = contest.untuned_seconds();
  return {str(shape), "as chosen without measuring", forms, seconds, seconds};
}

}  // namespace

std::string tune_kernels(const Device& device, const std::vector<Graph>& graphs, const TuneOptions& options) {
  Backend& backend = device.backend();
  const Target& target = webgpu_target(backend);
  const AdapterInfo& adapter = webgpu_adapter(backend);
  TunedFile file{adapter.name, adapter.driver, {}};
  for (const KernelShape& shape : shapes_of(graphs, target, options.kinds)) {
    const std::vector<KernelForm> forms = wgsl::candidates(target, shape);
    if (forms.empty()) continue;
    KernelCompiler compiler(backend, shape);
    std::unique_ptr<CompiledKernel> untuned = compiler.compile(std::nullopt);
    if (!untuned) continue;  // compiled alone, the kernel is fused differently
    FormContest contest(std::move(untuned), {tolerance_of(shape), options.seconds, options.warm});
    for (const KernelForm& form : forms) measure(compiler, contest, form, options);
    const MeasuredForm* best = best_of(contest.measured());
    if (best != nullptr) file.kernels.push_back({shape, best->form, best->seconds, best->untuned_seconds});
    if (options.report) options.report(reported(shape, contest, best));
  }
  return to_json(file);
}

}  // namespace jerboa
