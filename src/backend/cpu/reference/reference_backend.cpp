#include <fmt/format.h>
#include <map>

#include <jerboa/backend/backend.h>
#include <jerboa/backend/reference.h>
#include <jerboa/base/error.h>

// The reference evaluator as a device, so that everything above it can run on the oracle.
namespace jerboa {
namespace {

class ReferenceTensor final : public DeviceTensor {
 public:
  ReferenceTensor(DType dtype, const Sizes& sizes)
      : value{dtype, sizes, std::vector<double>(static_cast<std::size_t>(element_count(sizes)), 0.0)} {}
  HostTensor download() const override { return to_host(value); }
  std::int64_t bytes() const override { return bytes_of(value.dtype, element_count(value.shape)); }

  Value value;

 private:
  void write(std::span<const std::byte> bytes) override {
    HostTensor values(value.dtype, value.shape);
    std::copy(bytes.begin(), bytes.end(), values.bytes().begin());
    value = to_value(values);
  }
};

class ReferenceResults final : public RunResults {
 public:
  explicit ReferenceResults(std::map<std::string, Value> values) : values_(std::move(values)) {}
  HostTensor read(const std::string& name) override { return to_host(values_.at(name)); }

 private:
  std::map<std::string, Value> values_;
};

class ReferenceExecutable final : public Executable {
 public:
  ReferenceExecutable(Graph graph, const FindStorage& storage, ReferencePrecision precision)
      : graph_(std::move(graph)), precision_(precision) {
    for (const TensorInfo& tensor : graph_.tensors)
      if (tensor.storage == Storage::param || tensor.storage == Storage::state)
        storage_[tensor.name] = std::static_pointer_cast<ReferenceTensor>(storage(tensor.name));
  }

  int kernel_count() const override { return static_cast<int>(graph_.nodes.size()); }

  std::unique_ptr<RunResults> run(const RunRequest& request) override {
    std::vector<NamedTensor> wanted = graph_.outputs;
    for (const NamedTensor& capture : graph_.captures)
      if (std::find(request.captures.begin(), request.captures.end(), capture.name) != request.captures.end())
        wanted.push_back(capture);
    std::vector<TensorId> keep;
    for (const NamedTensor& named : wanted) keep.push_back(named.tensor);
    for (const Update& update : graph_.updates) keep.push_back(update.value);
    const auto leaf = [&](const TensorInfo& tensor) {
      if (tensor.storage == Storage::input) return to_value(request.inputs.at(tensor.name));
      return storage_.at(tensor.name)->value;
    };
    auto values = evaluate_reference(graph_, keep, leaf, request.symbols, precision_);
    std::map<std::string, Value> named;
    for (std::size_t i = 0; i < wanted.size(); ++i) named[wanted[i].name] = values[i];
    for (std::size_t i = 0; i < graph_.updates.size(); ++i)
      storage_.at(graph_.tensor(graph_.updates[i].target).name)->value = std::move(values[wanted.size() + i]);
    return std::make_unique<ReferenceResults>(std::move(named));
  }

 private:
  Graph graph_;
  ReferencePrecision precision_;
  std::map<std::string, std::shared_ptr<ReferenceTensor>> storage_;
};

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(ReferencePrecision precision) : precision_(precision) {}
  std::string name() const override { return precision_ == ReferencePrecision::f32 ? "reference" : "reference64"; }
  std::shared_ptr<DeviceTensor> allocate(DType dtype, const Sizes& sizes, const std::string&) override {
    return std::make_shared<ReferenceTensor>(dtype, sizes);
  }
  std::unique_ptr<Executable> compile(const Graph& graph, const FindStorage& storage) override {
    return std::make_unique<ReferenceExecutable>(graph, storage, precision_);
  }

 private:
  ReferencePrecision precision_;
};

}  // namespace

std::shared_ptr<Backend> make_reference_backend(ReferencePrecision precision) {
  return std::make_shared<ReferenceBackend>(precision);
}

}  // namespace jerboa
