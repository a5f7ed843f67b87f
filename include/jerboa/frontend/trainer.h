#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <jerboa/frontend/compile.h>
#include <jerboa/ops/ops.h>

namespace jerboa {

/// The data of one step, by input name.
using Batch = TensorMap;

struct TrainerOptions {
  Optimizer optimizer = AdamW{};
  std::optional<Device> device = {};  ///< by default Device::best()
  std::uint64_t seed = 0;
  int accumulate = 1;          ///< batches per update
  bool check_finite = false;   ///< as in SessionOptions
  bool check_indices = false;  ///< as in SessionOptions
  Precision precision = Precision::full;
  LossScaling loss_scaling = {};  ///< of mixed precision
};

struct StepResult : Result {
  std::int64_t step = 0;  ///< updates so far, including this step's if it made one
};

/// The part of a Trainer that does not depend on the model's type.
class TrainerCore {
 public:
  /// `site` is the user's line that made the trainer, for errors.
  TrainerCore(Loss loss, std::vector<Parameter> parameters, TrainerOptions options, const CallSite& site);
  TrainerCore(const TrainerCore&) = delete;
  TrainerCore& operator=(const TrainerCore&) = delete;
  TrainerCore(TrainerCore&&) = default;
  TrainerCore& operator=(TrainerCore&&) = default;

  StepResult step(const Batch& batch, const RunOptions& options = {});
  std::int64_t steps() const { return steps_; }
  Session& session() { return session_; }
  Precision precision() const { return options_.precision; }
  void save(const std::filesystem::path& path) const;
  LoadReport load(const std::filesystem::path& path);
  void reset(std::optional<std::uint64_t> seed);
  /// Allocates storage for batches like this one without running a step, so that parameters can be inspected.
  void prepare(const Batch& batch);

 private:
  /// Removes a host-provided learning rate from the batch: it belongs to the optimizer, not to the model's inputs.
  Batch take_rate(Batch& data) const;
  std::string entry_for(const Batch& batch);
  void add_entry(const std::string& entry, const Graph& graph);
  /// Allocates storage for the model's parameters that a checkpoint holds, and for their optimizer.
  void declare_like(const std::filesystem::path& path);
  StepResult accumulate(const Batch& batch, const RunOptions& options);

  Loss loss_;
  std::vector<Parameter> parameters_;
  TrainerOptions options_;
  CallSite site_;
  Session session_;
  std::int64_t steps_ = 0;
  int parts_done_ = 0;
  bool stale_ = false;     // storage holds gradients of a failed update
  bool prepared_ = false;  // there is an entry
  bool loaded_ = false;    // parameters came from a file before there was an entry
};

/// A forward pass that shares a trainer's parameters. It is compiled for the shapes of the first inputs, and again when
/// they change.
class ForwardPass {
 public:
  ForwardPass(Forward forward, Session session, const CallSite& site = {}, Precision precision = Precision::full)
      : forward_(std::move(forward)), session_(std::move(session)), site_(site), precision_(precision) {}

  Result operator()(const TensorMap& inputs, const RunOptions& options = {});
  Session& session() { return session_; }

 private:
  Forward forward_;
  Session session_;
  CallSite site_;
  Precision precision_ = Precision::full;
};

/// Trains a model: takes a copy of it, gives its parameters their names, and compiles the step for the shapes of the
/// first batch. A batch with different shapes compiles another step over the same parameters.
///
///   Trainer gpt(Gpt{.layers = 6}, next_token_loss, {.optimizer = AdamW{.lr = 3e-4}});
///   auto r = gpt.step(batch);
///   std::cout << r.step << ' ' << r.loss() << '\n';
///
/// A trainer can be moved, not copied: a copy would train the same parameters.
template <class Model>
class Trainer {
 public:
  /// `loss(model, inputs)` returns a scalar; `inputs["name"]` are the tensors of the batch, each of which it must use.
  template <class LossFunction>
  Trainer(Model model, LossFunction loss, TrainerOptions options = {}, const char* file = __builtin_FILE(),
          int line = __builtin_LINE())
      : model_(named(std::move(model))),
        core_([shared = model_, loss](const Inputs& in) { return loss(std::as_const(*shared), in); },
              parameters_of(*model_), std::move(options), CallSite{file, line}) {}

  /// Returns immediately; the result's loss() waits for the device.
  StepResult step(const Batch& batch, const RunOptions& options = {}) { return core_.step(batch, options); }
  std::int64_t steps() const { return core_.steps(); }
  void prepare(const Batch& batch) { core_.prepare(batch); }
  /// Saves a checkpoint for load. Call it between updates: gradients still being accumulated are not saved. Throws
  /// UsageError before parameters exist; step(), prepare() and load() create them.
  void save(const std::filesystem::path& path) const { core_.save(path); }
  /// Continues where a trainer was saved. If the checkpoint was saved with another optimizer, only the parameters are
  /// loaded and the optimizer starts afresh; the report lists what was ignored. Throws FileError if the parameters do
  /// not match.
  LoadReport load(const std::filesystem::path& path) { return core_.load(path); }
  void reset(std::optional<std::uint64_t> seed = {}) { core_.reset(seed); }
  Session& session() { return core_.session(); }
  const Model& model() const { return *model_; }

  /// function(model, inputs) in evaluation mode over the parameters that are being trained. It returns a tensor, the
  /// output "output", or several Outputs by name.
  template <class Function>
  requires std::is_invocable_r_v<Outputs, Function, const Model&, const Inputs&> ForwardPass
  compile_forward(Function function, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {[shared = model_, function](const Inputs& in) -> Outputs { return function(std::as_const(*shared), in); },
            core_.session().sibling(), CallSite{file, line}, core_.precision()};
  }
  /// The model itself as the function, on one input.
  ForwardPass compile_forward(const std::string& input = "ids", const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
    return compile_forward([input](const Model& model, const Inputs& in) { return model(in[input]); }, file, line);
  }

 private:
  static std::shared_ptr<Model> named(Model model) {
    auto copy = std::make_shared<Model>(std::move(model));
    assign_paths(*copy);
    return copy;
  }
  static std::vector<Parameter> parameters_of(const Model& model) {
    std::vector<Parameter> list;
    for_each_parameter(model, [&](const std::string&, const Parameter& parameter) { list.push_back(parameter); });
    return list;
  }

  std::shared_ptr<Model> model_;
  TrainerCore core_;
};

/// Mean cross-entropy of model(ids) against targets: for batches with "ids" and "targets".
inline constexpr auto next_token_loss = [](const auto& model, const Inputs& in) {
  const Tensor logits = model(in["ids"]);  // outside the scope, so that errors name the user's lines
  const SiteScope scope(in.site());
  return mean(cross_entropy(logits, in["targets"]));
};
/// Mean cross-entropy of model(images) against labels: for batches with "images" and "labels".
inline constexpr auto classification_loss = [](const auto& model, const Inputs& in) {
  const Tensor logits = model(in["images"]);
  const SiteScope scope(in.site());
  return mean(cross_entropy(logits, in["labels"]));
};

}  // namespace jerboa
