#include <fmt/format.h>

#include <jerboa/ops/ops.h>
#include <jerboa/ops/tensor.h>

namespace jerboa {
namespace {

thread_local Graph* traced = nullptr;

// Makes a graph the traced one, and the outer one again at the end.
class TraceScope {
 public:
  explicit TraceScope(Graph& graph) : outer_(traced) { traced = &graph; }
  ~TraceScope() { traced = outer_; }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Graph* outer_;
};

thread_local std::string scoped_site;

std::string at(const CallSite& site) {
  const std::string text = detail::site_text(site);
  return text.empty() ? "" : " (" + text + ")";
}

const TensorInfo& look_up(const Tensor& tensor, std::string_view what) {
  const Graph& graph = current_graph(what);
  if (!tensor) throw GraphError(fmt::format("{}: the tensor is empty", what));
  if (tensor.graph() != graph.identity())
    throw GraphError(fmt::format("{}: the tensor belongs to another graph", what));
  if (tensor.id() >= static_cast<TensorId>(graph.tensors.size()))
    throw GraphError(fmt::format("{}: the tensor is not in the graph: its trace failed", what));
  return graph.tensor(tensor.id());
}

Tensor parameter_tensor(const Parameter& parameter, const CallSite& site) {
  Graph& graph = current_graph("a parameter", site);
  if (parameter.path.empty())
    throw GraphError(
        fmt::format("{}{} has no name: list it in JERBOA_FIELDS of the struct that holds it, and hand the model "
                    "to a Trainer or to assign_paths{}",
                    parameter.owner.empty() ? "a parameter" : parameter.owner,
                    parameter.site.line > 0 ? " made at " + parameter.site.str() : "", at(site)));
  const TensorId known = graph.find(parameter.path);
  if (known == no_tensor || graph.tensor(known).storage == Storage::activation)
    return param_input(parameter.path, parameter.shape,
                       {.init = parameter.init, .trainable = parameter.trainable, .decay = parameter.decay}, site.file,
                       site.line);
  if (graph.tensor(known).storage != Storage::param || graph.shape(known) != parameter.shape)
    throw GraphError(
        fmt::format("parameter {}: the graph already has another tensor of that name{}", parameter.path, at(site)));
  return {graph.identity(), known};
}

}  // namespace

Shape Tensor::shape() const { return look_up(*this, "shape").type.shape; }
int Tensor::rank() const { return static_cast<int>(shape().size()); }
DType Tensor::dtype() const { return look_up(*this, "dtype").type.dtype; }
std::string Tensor::name() const { return look_up(*this, "name").name; }

Dim Tensor::dim(int axis, const char* file, int line) const {
  const Shape own = shape();
  const int resolved = axis < 0 ? axis + rank() : axis;
  if (resolved < 0 || resolved >= rank())
    throw ShapeError(fmt::format("dim: axis {} is out of range for {}{}", axis, to_string(own), at({file, line})));
  return own[static_cast<std::size_t>(resolved)];
}

Tensor Tensor::named(const std::string& name) const {
  if (look_up(*this, "named").storage == Storage::activation) current_graph("named").rename(id_, name);
  return *this;
}

Operand::Operand(const Parameter& parameter, const char* file, int line) : site_{file, line} {
  tensor_ = parameter_tensor(parameter, site_);
}

Tensor Operand::tensor(DType dtype) const {
  if (is_number_) return scalar(number_, dtype, site_.file, site_.line);
  return tensor_;
}

SiteScope::SiteScope(CallSite site) : SiteScope(site.str()) {}
SiteScope::SiteScope(std::string site) : outermost_(scoped_site.empty()) {
  if (outermost_) scoped_site = std::move(site);
}
SiteScope::~SiteScope() {
  if (outermost_) scoped_site.clear();
}

std::string detail::site_text(const CallSite& site) { return scoped_site.empty() ? site.str() : scoped_site; }

Graph& current_graph(std::string_view what, const CallSite& site) {
  if (traced == nullptr)
    throw GraphError(
        fmt::format("{}: ops work only inside trace(), a model's forward function or a loss{}", what, at(site)));
  return *traced;
}

bool is_tracing() { return traced != nullptr; }

Graph trace(const std::function<void()>& body) {
  Graph graph;
  {
    const TraceScope scope(graph);
    body();
  }
  verify(graph);
  return graph;
}

void trace_into(Graph& graph, const std::function<void()>& body) {
  Graph work = graph;
  {
    const TraceScope scope(work);
    body();
  }
  verify(work);
  graph = std::move(work);
}

}  // namespace jerboa
