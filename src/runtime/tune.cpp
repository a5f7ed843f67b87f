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
#include <jerboa/wgsl/emit_wgsl.h>

#include "runtime/form_contest.h"
#include "wgsl/product/tuned.h"

namespace jerboa {
namespace {

using detail::CompiledProduct;
using detail::FormContest;
using detail::MeasuredForm;
using wgsl::ProductForm;
using wgsl::ProductShape;
using wgsl::TunedFile;

// A product of this shape alone. All of it is computed, but only some rows are read where it is timed.
Graph graph_of(const ProductShape& shape) {
  constexpr std::int64_t rows_read = 8;
  return trace([&] {
    const Tensor a = param_input(
        "a", shape.transpose_a ? Shape{shape.inner, shape.rows} : Shape{shape.rows, shape.inner}, {.dtype = shape.a});
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
    const std::int64_t step = std::max<std::int64_t>(1, shape.rows / rows_read);
    y = capture(y, "all");
    output("some", step == 1 ? y : slice(y, 0, 0, shape.rows, step));
  });
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

// A product on a device, of which only some rows are read where it is timed.
class LoadedProduct final : public CompiledProduct {
 public:
  explicit LoadedProduct(std::unique_ptr<Executable> executable) : executable_(std::move(executable)) {}

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

// One product, to be compiled in several forms.
class ProductCompiler {
 public:
  ProductCompiler(Backend& backend, const ProductShape& shape)
      : backend_(backend), shape_(shape), graph_(graph_of(shape)), parameters_(parameters_of(graph_, backend)) {}

  // Without a form: in the one that is chosen without measuring. Null if something else is computed instead, or the
  // same as in a form before.
  std::unique_ptr<CompiledProduct> compile(const std::optional<ProductForm>& form) {
    Target target = webgpu_target(backend_);
    target.tuned = nullptr;
    if (form) target.tuned = std::make_shared<wgsl::TunedForms>(std::map<ProductShape, ProductForm>{{shape_, *form}});
    Program program = lower(graph_, target);
    const std::vector<ProductShape> shapes = wgsl::product_shapes(program, target);
    if (std::find(shapes.begin(), shapes.end(), shape_) == shapes.end()) return nullptr;
    emit_wgsl(program, target);
    if (!texts_.insert(print_gpu(program)).second) return nullptr;
    return std::make_unique<LoadedProduct>(
        backend_.load(program, [&](const std::string& name) { return parameters_.at(name); }));
  }

 private:
  Backend& backend_;
  ProductShape shape_;
  Graph graph_;
  std::map<std::string, std::shared_ptr<DeviceTensor>> parameters_;
  std::set<std::string> texts_;
};

// What fails in one form alone must not cost what was measured of the others; a lost device has no others.
void measure(ProductCompiler& compiler, FormContest& contest, const ProductForm& form, const TuneOptions& options) try {
  if (std::unique_ptr<CompiledProduct> product = compiler.compile(form)) contest.measure(form, std::move(product));
} catch (const DeviceLostError&) {
  throw;
} catch (const Error& error) {
  const std::string reason = error.what();  // of which the rest may be the text of a shader
  if (options.skipped) options.skipped(describe(form), reason.substr(0, reason.find('\n')));
}

// Sums are taken in another order, and some forms round to f16 where others do not.
double tolerance_of(const ProductShape& shape) { return shape.a == DType::f16 || shape.is_quantised() ? 2e-2 : 1e-4; }

std::vector<ProductShape> shapes_of(const std::vector<Graph>& graphs, Target target) {
  target.tuned = nullptr;
  std::vector<ProductShape> all;
  for (const Graph& graph : graphs)
    for (const ProductShape& shape : wgsl::product_shapes(lower(graph, target), target))
      if (std::find(all.begin(), all.end(), shape) == all.end()) all.push_back(shape);
  return all;
}

TunedProduct reported(const ProductShape& shape, FormContest& contest, const MeasuredForm* best) {
  const auto forms = static_cast<int>(contest.measured().size());
  if (best != nullptr) return {shape.str(), describe(best->form), forms, best->seconds, best->untuned_seconds};
  const double seconds = contest.untuned_seconds();
  return {shape.str(), "as chosen without measuring", forms, seconds, seconds};
}

}  // namespace

std::string tune_products(const Device& device, const std::vector<Graph>& graphs, const TuneOptions& options) {
  Backend& backend = device.backend();
  const Target& target = webgpu_target(backend);
  const AdapterInfo& adapter = webgpu_adapter(backend);
  TunedFile file{adapter.name, adapter.driver, {}};
  for (const ProductShape& shape : shapes_of(graphs, target)) {
    const std::vector<ProductForm> forms = wgsl::candidates(target, shape);
    if (forms.empty()) continue;
    ProductCompiler compiler(backend, shape);
    std::unique_ptr<CompiledProduct> untuned = compiler.compile(std::nullopt);
    if (!untuned) continue;  // fusion makes something else of the product alone
    FormContest contest(std::move(untuned), {tolerance_of(shape), options.seconds, options.warm});
    for (const ProductForm& form : forms) measure(compiler, contest, form, options);
    const MeasuredForm* best = best_of(contest.measured());
    if (best != nullptr) file.products.push_back({shape, best->form, best->seconds, best->untuned_seconds});
    if (options.report) options.report(reported(shape, contest, best));
  }
  return to_json(file);
}

}  // namespace jerboa
