#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <jerboa/frontend/compile.h>
#include <jerboa/ops/ops.h>

namespace jerboa {

/// The data of one step, by input name.
using Batch = TensorMap;

struct TrainerOptions {
  Optimizer optimizer = AdamW{};
  std::optional<Device> device = {};  ///< by default Device::best()
  std::uint64_t seed = 0;
  int accumulate = 1;  ///< batches whose gradients make one update
};

struct StepResult : Result {
  std::int64_t step = 0;  ///< updates so far; this step's included, if it made one
};

/// The part of a Trainer that does not depend on the model's type.
class TrainerCore {
 public:
  TrainerCore(Forward loss, TrainerOptions options);

  StepResult step(const Batch& batch, const RunOptions& options = {});
  std::int64_t steps() const { return steps_; }
  Session& session() { return session_; }
  void save(const std::filesystem::path& path) const { session_.save(path); }
  void load(const std::filesystem::path& path);
  void reset(std::optional<std::uint64_t> seed);
  /// Declares storage for batches like this one without a step, so that parameters can be loaded or looked at.
  void prepare(const Batch& batch);

 private:
  /// Takes a rate from the host, which belongs to the optimizer and not to the model's inputs, out of the batch.
  Batch take_rate(Batch& data) const;
  std::string entry_for(const Batch& batch);

  Forward loss_;
  TrainerOptions options_;
  Session session_;
  std::int64_t steps_ = 0;
  int parts_done_ = 0;
};

/// A forward pass that shares a trainer's parameters. It is compiled for the first shapes it meets, and again for
/// others.
class ForwardPass {
 public:
  ForwardPass(Forward forward, Session session) : forward_(std::move(forward)), session_(std::move(session)) {}

  Result operator()(const TensorMap& inputs, const RunOptions& options = {});
  Session& session() { return session_; }

 private:
  Forward forward_;
  Session session_;
};

/// Trains a model: takes a copy of it, gives its parameters their names, and compiles the step for the shapes of the
/// first batch. A batch of other shapes compiles a step of its own over the same parameters.
///
///   Trainer gpt(Gpt{.layers = 6}, next_token_loss, {.optimizer = AdamW{.lr = 3e-4}});
///   auto r = gpt.step(batch);
///   std::cout << r.step << ' ' << r.loss() << '\n';
template <class Model>
class Trainer {
 public:
  /// `loss(model, inputs)` gives a scalar; `inputs["name"]` are the tensors of the batch.
  template <class Loss>
  Trainer(Model model, Loss loss, TrainerOptions options = {})
      : model_(std::make_shared<Model>(std::move(model))),
        core_((assign_paths(*model_),
               [shared = model_, loss](const Inputs& in) { return loss(std::as_const(*shared), in); }),
              std::move(options)) {}

  /// Returns at once; loss() of the result waits for it.
  StepResult step(const Batch& batch, const RunOptions& options = {}) { return core_.step(batch, options); }
  std::int64_t steps() const { return core_.steps(); }
  void prepare(const Batch& batch) { core_.prepare(batch); }
  /// For a later load: between updates, because gradients that wait for more batches are not saved.
  void save(const std::filesystem::path& path) const { core_.save(path); }
  /// Needs the storage, so a step or prepare() comes first.
  void load(const std::filesystem::path& path) { core_.load(path); }
  void reset(std::optional<std::uint64_t> seed = {}) { core_.reset(seed); }
  Session& session() { return core_.session(); }
  const Model& model() const { return *model_; }

  /// function(model, inputs) in evaluation mode over the parameters that are being trained.
  template <class Function>
  requires std::is_invocable_r_v<Tensor, Function, const Model&, const Inputs&> ForwardPass
  compile_forward(Function function) {
    return {[shared = model_, function](const Inputs& in) { return function(std::as_const(*shared), in); },
            core_.session().sibling()};
  }
  /// The model itself as the function, on one input.
  ForwardPass compile_forward(const std::string& input = "ids") {
    return compile_forward([input](const Model& model, const Inputs& in) { return model(in[input]); });
  }

 private:
  std::shared_ptr<Model> model_;
  TrainerCore core_;
};

/// Mean cross-entropy of model(ids) against targets: for batches with "ids" and "targets".
inline constexpr auto next_token_loss = [](const auto& model, const Inputs& in) {
  return mean(cross_entropy(model(in["ids"]), in["targets"]));
};
/// Mean cross-entropy of model(images) against labels: for batches with "images" and "labels".
inline constexpr auto classification_loss = [](const auto& model, const Inputs& in) {
  return mean(cross_entropy(model(in["images"]), in["labels"]));
};

}  // namespace jerboa
