#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
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

#include "wgsl/product/tuned.h"

namespace jerboa {
namespace {

using wgsl::ProductForm;
using wgsl::ProductShape;
using wgsl::TunedFile;

// Forms that are less than this much faster are not worth an entry: measurements vary by as much.
constexpr double worthwhile = 0.97;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

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

// One product in several forms.
class Contest {
 public:
  using Skipped = std::function<void(const std::string& form, const std::string& reason)>;
  Contest(Backend& backend, const ProductShape& shape, const Skipped& skipped)
      : backend_(backend),
        shape_(shape),
        skipped_(skipped),
        graph_(graph_of(shape)),
        parameters_(parameters_of(graph_, backend)) {}

  // Compiles a form; none: the one that is chosen without measuring. Returns whether the product is computed in it.
  bool add(const std::optional<ProductForm>& form) {
    bool is_computed = false;
    attempt(form, [&] { is_computed = compile(form); });
    return is_computed;
  }

  // Times all of them, the first of which is the form chosen without measuring. Returns the fastest whose results agree
  // with those of the first.
  TunedFile::Product run(double seconds) {
    const HostTensor expected = result_of(entrants_.front());
    for (Entrant& entrant : entrants_)
      attempt(entrant.form, [&] {
        if (&entrant == &entrants_.front() || agree(result_of(entrant), expected)) measure(entrant, seconds);
      });
    const Entrant& first = entrants_.front();
    const Entrant* best = &first;
    for (const Entrant& entrant : entrants_)
      if (entrant.seconds < best->seconds) best = &entrant;
    if (best->seconds > worthwhile * first.seconds) best = &first;
    TunedFile::Product product{shape_, {}, best->seconds, first.seconds};
    if (best->form) product.form = *best->form;
    is_improved = best != &first;
    return product;
  }

  int forms() const { return static_cast<int>(entrants_.size()) - 1; }
  bool is_improved = false;

 private:
  struct Entrant {
    std::optional<ProductForm> form;
    std::unique_ptr<Executable> executable;
    double seconds;
  };

  static constexpr std::size_t least_samples = 3, most_samples = 15;
  static constexpr double unmeasured = std::numeric_limits<double>::infinity();

  // What fails in one form alone must not cost what was measured of the others; a lost device has no others.
  template <class Try>
  void attempt(const std::optional<ProductForm>& form, const Try& run) const try {
    run();
  } catch (const DeviceLostError&) {
    throw;
  } catch (const Error& error) {
    if (!form) throw;
    const std::string reason = error.what();  // of which the rest may be the text of a shader
    if (skipped_) skipped_(describe(*form), reason.substr(0, reason.find('\n')));
  }

  bool compile(const std::optional<ProductForm>& form) {
    Target target = webgpu_target(backend_);
    target.tuned = nullptr;
    if (form) target.tuned = std::make_shared<wgsl::TunedForms>(std::map<ProductShape, ProductForm>{{shape_, *form}});
    Program program = lower(graph_, target);
    const std::vector<ProductShape> shapes = wgsl::product_shapes(program, target);
    if (std::find(shapes.begin(), shapes.end(), shape_) == shapes.end()) return false;
    emit_wgsl(program, target);
    // Forms that come to the same are measured once.
    if (!texts_.insert(print_gpu(program)).second) return false;
    entrants_.push_back(
        {form, backend_.load(program, [&](const std::string& name) { return parameters_.at(name); }), unmeasured});
    return true;
  }

  // All of the product.
  static HostTensor result_of(const Entrant& entrant) {
    return entrant.executable->run({{}, {}, {"all"}})->read("all");
  }

  void measure(Entrant& entrant, double seconds) const {
    Executable& executable = *entrant.executable;
    const std::map<std::string, HostTensor> inputs;
    const auto run = [&] { executable.run({inputs, {}, {}})->read("some"); };
    run();  // the first run of a kernel takes longer
    std::vector<double> samples;
    const double end = now() + seconds;
    while (samples.size() < least_samples || (now() < end && samples.size() < most_samples)) {
      executable.set_profiling(true);
      const double start = now();
      run();
      const double waited = now() - start;
      double total = 0;
      for (const KernelTime& time : executable.profile()) total += time.seconds;
      samples.push_back(total > 0 ? total : waited);  // a device may have no timestamps
      executable.set_profiling(false);
    }
    std::nth_element(samples.begin(), samples.begin() + samples.size() / 2, samples.end());
    entrant.seconds = samples[samples.size() / 2];
  }

  // Sums are taken in another order, and some forms round to f16 where others do not.
  bool agree(const HostTensor& a, const HostTensor& b) const {
    const bool rounded = shape_.a == DType::f16 || shape_.is_quantised();
    double largest = 1e-6;
    for (std::int64_t i = 0; i < b.size(); ++i) largest = std::max(largest, std::abs(b.number(i)));
    const double limit = (rounded ? 2e-2 : 1e-4) * largest;
    for (std::int64_t i = 0; i < a.size(); ++i)
      if (!(std::abs(a.number(i) - b.number(i)) <= limit)) return false;  // NaN included
    return true;
  }

  Backend& backend_;
  ProductShape shape_;
  const Skipped& skipped_;
  Graph graph_;
  std::map<std::string, std::shared_ptr<DeviceTensor>> parameters_;
  std::set<std::string> texts_;
  std::vector<Entrant> entrants_;
};

std::vector<ProductShape> shapes_of(const std::vector<Graph>& graphs, Target target) {
  target.tuned = nullptr;
  std::vector<ProductShape> all;
  for (const Graph& graph : graphs)
    for (const ProductShape& shape : wgsl::product_shapes(lower(graph, target), target))
      if (std::find(all.begin(), all.end(), shape) == all.end()) all.push_back(shape);
  return all;
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
    Contest contest(backend, shape, options.skipped);
    if (!contest.add(std::nullopt)) continue;  // fusion makes something else of the product alone
    for (const ProductForm& form : forms) contest.add(form);
    if (options.warm) options.warm();
    const TunedFile::Product best = contest.run(options.seconds);
    if (contest.is_improved) file.products.push_back(best);
    if (options.report)
      options.report({shape.str(), contest.is_improved ? describe(best.form) : "as chosen without measuring",
                      contest.forms(), best.seconds, best.untuned_seconds});
  }
  return to_json(file);
}

}  // namespace jerboa
