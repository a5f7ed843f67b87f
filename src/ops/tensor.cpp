#include <fmt/format.h>
#include <optional>
#include <utility>

#include <jerboa/ops/ops.h>
#include <jerboa/ops/tensor.h>
#include <jerboa/ops/trace_scope.h>

namespace jerboa {
namespace {

thread_local Graph* traced = nullptr;

// The user's line from the outermost SiteScope; empty outside of one.
thread_local std::optional<std::string> scoped_site;
thread_local std::string_view scoped_call;  // a literal
thread_local std::string scoped_module;

std::string at(const CallSite& site) {
  const std::string text = detail::site_text(site);
  return text.empty() ? "" : " (" + text + ")";
}

const TensorInfo& look_up(const Tensor& tensor, std::string_view what, const CallSite& site) {
  const Graph& graph = current_graph(what, site);
  const auto fail = [&](const char* problem) {
    throw GraphError(
        fmt::format("{}{}: the tensor {}{}", detail::module_prefix(), detail::called(what), problem, at(site)));
  };
  if (!tensor) fail("is empty");
  if (tensor.graph() != graph.identity()) fail("belongs to another graph");
  if (tensor.id() >= static_cast<TensorId>(graph.tensors.size())) fail("is not in the graph: its trace failed");
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
    return param_input(
        parameter.path, parameter.shape,
        {.init = parameter.init, .trainable = parameter.trainable, .decay = parameter.decay, .dtype = parameter.dtype},
        site.file, site.line);
  if (graph.tensor(known).storage != Storage::param ||
      graph.type(known) != TensorType{parameter.dtype, parameter.shape})
    throw GraphError(
        fmt::format("parameter {}: the graph already has another tensor of that name{}", parameter.path, at(site)));
  return {graph.identity(), known};
}

}  // namespace

TraceScope::TraceScope(Graph& graph) : outer_(traced) { traced = &graph; }
TraceScope::~TraceScope() { traced = outer_; }

Shape Tensor::shape(const char* file, int line) const { return look_up(*this, "shape", {file, line}).type.shape; }
int Tensor::rank(const char* file, int line) const {
  return static_cast<int>(look_up(*this, "rank", {file, line}).type.shape.size());
}
DType Tensor::dtype(const char* file, int line) const { return look_up(*this, "dtype", {file, line}).type.dtype; }
std::string Tensor::name(const char* file, int line) const { return look_up(*this, "name", {file, line}).name; }

Dim Tensor::dim(int axis, const char* file, int line) const {
  const Shape shape = look_up(*this, "dim", {file, line}).type.shape;
  const int rank = static_cast<int>(shape.size()), resolved = axis < 0 ? axis + rank : axis;
  if (resolved < 0 || resolved >= rank)
    throw ShapeError(fmt::format("{}{}: axis {} is out of range for {}{}", detail::module_prefix(),
                                 detail::called("dim"), axis, to_string(shape), at({file, line})));
  return shape[static_cast<std::size_t>(resolved)];
}

Tensor Tensor::named(const std::string& name, const char* file, int line) const {
  if (look_up(*this, "named", {file, line}).storage == Storage::activation) current_graph("named").rename(id_, name);
  return *this;
}

Operand::Operand(const Parameter& parameter, const char* file, int line) : site_{file, line} {
  tensor_ = parameter_tensor(parameter, site_);
}

Tensor Operand::tensor(DType dtype) const {
  if (is_number_) return scalar(number_, dtype, site_.file, site_.line);
  return tensor_;
}

SiteScope::SiteScope(const CallSite& site, std::string_view called) : SiteScope(site.str(), called) {}
SiteScope::SiteScope(std::string site, std::string_view called) : outermost_(!scoped_site) {
  if (!outermost_) return;
  scoped_site = std::move(site);
  scoped_call = called;
}
SiteScope::~SiteScope() {
  if (!outermost_) return;
  scoped_site.reset();
  scoped_call = {};
}

ModuleScope::ModuleScope(std::string module) : outer_(std::exchange(scoped_module, std::move(module))) {}
ModuleScope::~ModuleScope() { scoped_module = std::move(outer_); }

std::string detail::site_text(const CallSite& site) {
  // The library's losses and forward pass are templates in its headers.
  const bool is_ours = std::string_view(site.file).find("include/jerboa/") != std::string_view::npos;
  return scoped_site.value_or(is_ours ? "" : site.str());
}
std::string_view detail::called(std::string_view op) { return scoped_call.empty() ? op : scoped_call; }
std::string detail::module_prefix() { return scoped_module.empty() ? "" : scoped_module + ": "; }

Graph& current_graph(std::string_view what, const CallSite& site) {
  if (traced == nullptr)
    throw GraphError(fmt::format("{}{}: ops work only inside trace(), a model's forward function or a loss{}",
                                 detail::module_prefix(), detail::called(what), at(site)));
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
