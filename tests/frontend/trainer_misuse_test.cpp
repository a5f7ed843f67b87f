#include <gtest/gtest.h>
#include <sys/resource.h>

#include <jerboa/jerboa.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"

// Mistakes in training that must not go unnoticed.
namespace jerboa::trainer_misuse_test {
namespace {

using test::expect_error;
using test::message_of;

struct Net {
  nn::Linear up{3, 6}, down{6, 1};
  nn::Dropout dropout{0.3};
  JERBOA_FIELDS(up, down, dropout)
  Tensor operator()(Tensor x) const { return squeeze(down(dropout(tanh(up(x)))), {-1}); }
};

constexpr auto squared_error = [](const auto& model, const Inputs& in) {
  return mean(square(model(in["x"]) - in["y"]));
};

Batch rows(double shift = 0) {
  HostTensor x(DType::f32, {4, 3}), y(DType::f32, {4});
  for (std::int64_t i = 0; i < 12; ++i) x.set_number(i, 0.25 * static_cast<double>((i * 5) % 7) - 0.5 + shift);
  for (std::int64_t i = 0; i < 4; ++i) y.set_number(i, static_cast<double>(i) - 1.5);
  return {{"x", x}, {"y", y}};
}

const TrainerOptions plain{.optimizer = Adam{.lr = 0.05}, .device = Device::reference(), .seed = 4};

// Copies

static_assert(!std::is_copy_constructible_v<Trainer<Net>> && !std::is_copy_assignable_v<Trainer<Net>>);
static_assert(std::is_move_constructible_v<Trainer<Net>> && std::is_move_assignable_v<Trainer<Net>>);

TEST(TrainerMisuse, ATrainerMovesWithAllItHas) {
  Trainer whole(Net{}, squared_error, plain), first(Net{}, squared_error, plain);
  first.step(rows());
  Trainer moved = std::move(first);
  moved.step(rows());
  for (int i = 0; i < 2; ++i) whole.step(rows());
  EXPECT_EQ(moved.steps(), 2);
  EXPECT_EQ(moved.session().download_params(), whole.session().download_params());
}

// Checkpoints

TEST(TrainerMisuse, SaveBeforeThereIsSomething) {
  const test::TempFolder folder;
  Trainer trainer(Net{}, squared_error, plain);
  expect_error<UsageError>([&] { trainer.save(folder / "run"); },
                           "save: there is nothing to save yet; call step, prepare(batch) or load first");
  expect_error<UsageError>([&] { trainer.session().save(folder / "run"); },
                           "save: the session has no parameters or states");
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  trainer.prepare(rows());
  trainer.save(folder / "run");
}

TEST(TrainerCheckpoint, LoadNeedsNoPrepare) {
  const test::TempFolder folder;
  Trainer whole(Net{}, squared_error, plain);
  for (int i = 0; i < 3; ++i) whole.step(rows());
  whole.save(folder / "run");
  const TensorMap saved = whole.session().download_params();

  Trainer resumed(Net{}, squared_error, {.optimizer = plain.optimizer, .device = Device::reference(), .seed = 5});
  const LoadReport report = resumed.load(folder / "run");
  EXPECT_TRUE(report.complete());
  EXPECT_EQ(report.waiting, std::vector<std::string>{"rng"});  // dropout's random state, which the step will create
  EXPECT_EQ(resumed.steps(), 3);
  EXPECT_EQ(resumed.session().download_params(), saved);
  resumed.save(folder / "again");  // nothing is lost
  ForwardPass forward = resumed.compile_forward("x");
  EXPECT_EQ(forward({{"x", rows().at("x")}}).get("output"),
            whole.compile_forward("x")({{"x", rows().at("x")}}).get("output"));

  Trainer third(Net{}, squared_error, plain);
  third.load(folder / "again");
  for (int i = 0; i < 3; ++i) {
    const double loss = whole.step(rows()).loss();
    EXPECT_EQ(resumed.step(rows()).loss(), loss);
    EXPECT_EQ(third.step(rows()).loss(), loss);
  }
  EXPECT_EQ(resumed.session().download_params(), whole.session().download_params());
}

TEST(TrainerCheckpoint, OfAnotherOptimizerGivesTheParametersAndSaysWhatItLeft) {
  const test::TempFolder folder;
  Trainer adam(Net{}, squared_error, plain);
  for (int i = 0; i < 3; ++i) adam.step(rows());
  adam.save(folder / "adam");
  const TensorMap saved = adam.session().download_params();
  const std::vector<std::string> moments{"adam_m/down.bias", "adam_m/down.weight", "adam_m/up.bias",
                                         "adam_m/up.weight", "adam_v/down.bias",   "adam_v/down.weight",
                                         "adam_v/up.bias",   "adam_v/up.weight"};
  for (const bool prepared : {false, true}) {
    Trainer sgd(Net{}, squared_error, {.optimizer = Sgd{.lr = 0.1, .momentum = 0.9}, .device = Device::reference()});
    if (prepared) sgd.prepare(rows());
    const LoadReport report = sgd.load(folder / "adam");
    EXPECT_FALSE(report.complete());
    auto left = report.left;
    std::sort(left.begin(), left.end());
    std::vector<std::string> expected = moments;
    expected.emplace_back("step");
    EXPECT_EQ(left, expected);
    EXPECT_EQ(report.initial, (std::vector<std::string>{"step", "velocity/down.bias", "velocity/down.weight",
                                                        "velocity/up.bias", "velocity/up.weight"}));
    EXPECT_EQ(sgd.session().download_params(), saved);
    EXPECT_EQ(sgd.steps(), 0);
    EXPECT_EQ(sgd.step(rows()).step, 1);
    EXPECT_EQ(sgd.session().download_state("step").item(), 1);
  }
  // A counter alone is a state of another optimizer, too: fresh moments need the bias correction of the first steps.
  Trainer counting(Net{}, squared_error, {.optimizer = Sgd{.lr = 0.1}, .device = Device::reference()});
  for (int i = 0; i < 4; ++i) counting.step(rows());
  counting.save(folder / "sgd");
  Trainer fresh(Net{}, squared_error, plain);
  EXPECT_EQ(fresh.load(folder / "sgd").left, std::vector<std::string>{"step"});
  EXPECT_EQ(fresh.steps(), 0);
  EXPECT_EQ(fresh.session().download_params(), counting.session().download_params());
}

struct Wider {
  nn::Linear up{3, 6}, down{6, 1}, extra{1, 1};
  JERBOA_FIELDS(up, down, extra)
  Tensor operator()(Tensor x) const { return squeeze(extra(down(tanh(up(x)))), {-1}); }
};

TEST(TrainerCheckpoint, OfAnotherModelIsRefused) {
  const test::TempFolder folder;
  Trainer net(Net{}, squared_error, plain);
  net.step(rows());
  net.save(folder / "net");
  Trainer wider(Wider{}, squared_error, plain);
  wider.load(folder / "net");  // missing parameters are noticed once the loss is traced
  expect_error<FileError>([&] { wider.step(rows()); },
                          "does not match the model: missing: extra.weight, extra.bias; unknown: none");
  Trainer prepared(Wider{}, squared_error, plain);
  prepared.prepare(rows());
  const TensorMap before = prepared.session().download_params();
  expect_error<FileError>([&] { prepared.load(folder / "net"); },
                          "does not match the session: missing: extra.bias, extra.weight; unknown: none");
  EXPECT_EQ(prepared.session().download_params(), before);

  prepared.save(folder / "wider");
  Trainer narrow(Net{}, squared_error, plain);
  narrow.load(folder / "wider");
  expect_error<FileError>([&] { narrow.step(rows()); }, "missing: none; unknown: extra.bias, extra.weight");
  expect_error<FileError>([&] { narrow.load(folder / "nowhere"); }, "nowhere");
}

// Batches and options

TEST(TrainerMisuse, ABatchWithSomethingThatIsNotUsed) {
  Trainer trainer(Net{}, squared_error, plain);
  Batch batch = rows();
  batch["weight"] = HostTensor(1.0f);
  batch["lr"] = HostTensor(0.1f);
  const int line = __LINE__ - 4;
  const std::string message = message_of<UsageError>([&] { trainer.step(batch); });
  EXPECT_NE(message.find("the loss does not use lr, weight of the batch"), std::string::npos) << message;
  EXPECT_NE(message.find("trainer_misuse_test.cpp:" + std::to_string(line)), std::string::npos) << message;
  EXPECT_EQ(trainer.step(rows()).step, 1);
}

TEST(TrainerMisuse, AnEmptyBatch) {
  Trainer trainer(Net{}, squared_error, plain);
  expect_error<UsageError>([&] { trainer.step({}); }, "the batch is empty: it holds no tensor");
  expect_error<UsageError>(
      [&] {
        trainer.step({{"x", HostTensor(DType::f32, {0, 3})}, {"y", HostTensor(DType::f32, {0})}});
      },
      "the batch is empty: x is f32[0, 3]");
  expect_error<UsageError>([&] { trainer.prepare({}); }, "the batch is empty");
}

struct Twice {
  nn::Linear up{3, 3}, down{3, 1};
  JERBOA_FIELDS(up, down, up)
};

TEST(TrainerMisuse, AFieldThatIsListedTwice) {
  Twice model;
  expect_error<UsageError>([&] { assign_paths(model); },
                           "JERBOA_FIELDS lists a field twice: up.weight of nn::Linear(3, 3)");
  std::vector<Twice> list(2);
  expect_error<UsageError>([&] { assign_paths(list); }, "0.up.weight");
}

TEST(TrainerMisuse, ARateThatIsNegativeOrNotFinite) {
  expect_error<UsageError>([] { (void)Adam{.lr = -0.1}; }, "a learning rate must be 0 or more and finite, not -0.1");
  expect_error<UsageError>([] { (void)Sgd{.lr = std::numeric_limits<double>::quiet_NaN()}; }, "not nan");
  expect_error<UsageError>([] { warmup_cosine(-1e-3, 2, 10); }, "not -0.001");
  expect_error<UsageError>([] { warmup_linear(1e-3, 2, 10, -1e-4); }, "not -0.0001");
  Trainer trainer(Net{}, squared_error, {.optimizer = Sgd{.lr = HostRate{}}, .device = Device::reference()});
  Batch batch = rows();
  batch["lr"] = HostTensor(-0.5f);
  expect_error<UsageError>([&] { trainer.step(batch); }, "not -0.5");
  batch["lr"] = HostTensor(0.5f);
  EXPECT_EQ(trainer.step(batch).step, 1);
  Trainer clipped(Net{}, squared_error, {.optimizer = Sgd{.clip_norm = -1}, .device = Device::reference()});
  expect_error<UsageError>([&] { clipped.step(rows()); }, "clip_norm is -1");
}

TEST(TrainerMisuse, OptionsOfOptimizersOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<Optimizer, std::string>> cases = {
      {AdamW{.weight_decay = -1}, "weight_decay is -1, but must be 0 or more and finite"},
      {AdamW{.weight_decay = -1, .decay = [](const std::string&) { return false; }}, "weight_decay is -1"},
      {Adam{.beta1 = 1}, "beta1 is 1, but must be at least 0 and less than 1"},
      {Adam{.beta1 = -0.1}, "beta1 is -0.1"},
      {AdamW{.beta2 = 2}, "beta2 is 2, but must be at least 0 and less than 1"},
      {Adam{.eps = -1}, "eps is -1, but must be 0 or more and finite"},
      {Adam{.eps = nan}, "eps is nan"},
      {Sgd{.momentum = -1}, "momentum is -1, but must be at least 0 and less than 1"},
      {Sgd{.weight_decay = nan}, "weight_decay is nan"},
      {Sgd{.clip_norm = nan}, "clip_norm is nan, but must be 0 or more and finite"}};
  for (const auto& [optimizer, text] : cases) {
    Trainer trainer(Net{}, squared_error, {.optimizer = optimizer, .device = Device::reference()});
    const std::string message = message_of<UsageError>([&] { trainer.step(rows()); });
    EXPECT_NE(message.find("append_optimizer: " + text), std::string::npos) << message;
    EXPECT_NE(message.find("(trainer_misuse_test.cpp:"), std::string::npos) << message;
  }
}

// Without a trainer the session knows which inputs are rates.
TEST(TrainerMisuse, ARateOfASessionThatIsNegativeOrNotFinite) {
  for (const Optimizer& optimizer : {Optimizer(Sgd{.lr = HostRate{"rate"}}), Optimizer(Adam{.lr = HostRate{"rate"}})}) {
    Session session = create_session({{"step", trace([&] {
                                         const Tensor w = param_input("w", {2});
                                         append_optimizer(append_grad(sum(square(w - 1))), optimizer);
                                       })}},
                                     {.device = Device::reference()});
    const TensorMap before = session.download_params();
    expect_error<UsageError>(
        [&] {
          session.step({{"rate", HostTensor(-1.0f)}});
        },
        "entry step: input rate: a learning rate must be 0 or more and finite, not -1");
    expect_error<UsageError>(
        [&] {
          session.step({{"rate", HostTensor(std::numeric_limits<float>::infinity())}});
        },
        "not inf");
    EXPECT_EQ(session.download_params(), before);
    session.step({{"rate", HostTensor(0.0f)}});
  }
}

// What a custom optimizer computes with its rate is its own matter, but nothing good comes from NaN or infinity.
TEST(TrainerMisuse, ARateOfACustomOptimizerThatIsNotFinite) {
  const Optimizer climber{.lr = HostRate{"rate"}, .update = [](ParamUpdate& p) { return p.param + 2 * p.lr * p.grad; }};
  const Graph graph = trace([&] {
    const Tensor w = param_input("w", {2}), x = tensor_input("x", {});
    append_optimizer(append_grad(sum(square(w - 1)) * x), climber);
  });
  Session session =
      create_session({{"step", graph}, {"again", from_json(to_json(graph))}}, {.device = Device::reference()});
  const TensorMap before = session.download_params();
  for (const std::string entry : {"step", "again"}) {
    const auto run = [&](float rate) { session.run(entry, {{"rate", HostTensor(rate)}, {"x", HostTensor(1.0f)}}); };
    expect_error<UsageError>([&] { run(std::numeric_limits<float>::quiet_NaN()); },
                             "entry " + entry + ": input rate: a learning rate must be finite, not nan");
    expect_error<UsageError>([&] { run(-std::numeric_limits<float>::infinity()); }, "not -inf");
  }
  EXPECT_EQ(session.download_params(), before);
  session.run("step", {{"rate", HostTensor(-0.5f)}, {"x", HostTensor(1.0f)}});  // downhill
  EXPECT_EQ(session.download_param("w"), HostTensor({2}, std::vector<float>{2, 2}));
  // Other inputs of an update are data.
  session.run("step", {{"rate", HostTensor(0.0f)}, {"x", HostTensor(std::numeric_limits<float>::infinity())}});
}

// Memory

// The allocators of sanitizers end the process instead.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(OutOfMemory, NamesTheTensor) {
  for (const Device& device : {Device::cpu(1), Device::reference()}) {
    const Graph graph = trace([] { output("z", zeros({1 << 20, 1 << 20}).named("a_large_one")); });
    expect_error<OutOfMemoryError>(
        [&] {
          Module module = compile(graph, {.device = device});
          module.run({});
        },
        "not enough host memory for a_large_one (f32[1048576, 1048576], 4398046511104 bytes)");
    expect_error<OutOfMemoryError>(
        [&] {
          compile(trace([] { output("w", sum(param_input("large.weight", {1 << 20, 1 << 20}))); }), {.device = device});
        },
        "large.weight (f32[1048576, 1048576])");
  }
}

TEST(OutOfMemory, NamesTheLargestActivation) {
  const auto message_of_graph = [](const std::function<void()>& build) {
    Session session(Device::cpu(1));
    const Graph graph = trace(build);
    EXPECT_THROW((void)session.prepare_entry("run", graph).program, OutOfMemoryError) << "or no error";
    std::string message = message_of<OutOfMemoryError>([&] { session.add_entry("run", graph); });
    EXPECT_EQ(message.find("entry run: "), 0u) << message;
    EXPECT_EQ(message.rfind("entry run: "), 0u) << message;
    EXPECT_TRUE(session.entries().empty());
    return message;
  };
  constexpr std::int64_t large = 1 << 20;
  const auto expect_in = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect_in(message_of_graph([] {
              output("y", (zeros({large, large}) + 1).named("a_large_one"));
            }),
            "not enough memory for a_large_one (f32[1048576, 1048576], trainer_misuse_test.cpp:");
  expect_in(message_of_graph([] {
              const Tensor x = tensor_input("x", {large, 1}), y = matmul(x, tensor_input("y", {1, large}));
              output("y", sum(cumsum(tanh(y).named("bent"), -1)));
            }),
            "(f32[1048576, 1048576], trainer_misuse_test.cpp:");
  // Each would fit by itself.
  expect_in(message_of_graph([] {
              const Tensor x = tensor_input("x", {large, 1}) * tensor_input("y", {1, 3 * (large >> 4)});
              output("y", sum(cumsum(x, -1) + cumsum(x, 0) + cumsum(exp(x), -1) + cumsum(exp(x), 0)));
              for (int i = 0; i < 8; ++i) output("y" + std::to_string(i), cumsum(sin(x + i), -1));
            }),
            "; the activations take ");
}

// Limits this process's memory until the end of the scope.
class LimitedMemory {
 public:
  explicit LimitedMemory(rlim_t bytes) {
    getrlimit(RLIMIT_AS, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
  }
  ~LimitedMemory() { setrlimit(RLIMIT_AS, &before_); }
  LimitedMemory(const LimitedMemory&) = delete;
  LimitedMemory& operator=(const LimitedMemory&) = delete;

 private:
  rlimit before_{};
};

TEST(OutOfMemory, NamesTheLargestActivationThatTheHostHasNoRoomFor) {
  const LimitedMemory limited(rlim_t{64} << 30);
  Session session(Device::cpu(1));
  const std::string message = message_of<OutOfMemoryError>([&] {
    session.add_entry("run", trace([] {
                        const Tensor x = tensor_input("x", {1 << 18, 1}) * tensor_input("y", {1, 1 << 18});
                        output("y", sum(cumsum(capture(exp(x), "table"), -1)));
                      }));
  });
  EXPECT_EQ(message.rfind("entry run: not enough host memory for "), 0u) << message;
  EXPECT_NE(message.find(" (274877906944 bytes); the activations take "), std::string::npos) << message;
}

TEST(OutOfMemory, NamesTheTypeAndShapeOfAHostTensor) {
  expect_error<OutOfMemoryError>(
      [] {
        const HostTensor tensor(DType::f32, {1 << 20, 1 << 20});
      },
      "not enough host memory for a tensor f32[1048576, 1048576] (4398046511104 bytes)");
}
#endif

TEST(OutOfMemory, SizesThatCannotBeCountedAreAShapeError) {
  trace([] {
    const std::int64_t large = std::int64_t{1} << 32;
    const int line = __LINE__ + 1;
    const std::string message = message_of<ShapeError>([&] { zeros({large, large}); });
    EXPECT_NE(message.find("has more elements than 64 bits can count (trainer_misuse_test.cpp:" + std::to_string(line)),
              std::string::npos)
        << message;
    expect_error<ShapeError>([&] { param_input("w", {large, large}); }, "param_input: f32[4294967296, 4294967296]");
    expect_error<ShapeError>([&] { tensor_input("x", {Dim::symbol("N", large), large}); }, "more elements than");
    const Tensor row = zeros({1, large}), column = zeros({large, 1});
    expect_error<ShapeError>([&] { row + column; }, "add: ");
    output("y", scalar(0));
  });
}

// Gradients of an update that failed

// The reference, whose runs can be made to fail.
class FailingBackend final : public Backend {
 public:
  explicit FailingBackend(std::shared_ptr<bool> fails) : fails_(std::move(fails)) {}
  std::string name() const override { return inner_.name(); }
  std::shared_ptr<DeviceTensor> allocate(DType dtype, const Sizes& sizes, const std::string& name) override {
    return inner_.backend().allocate(dtype, sizes, name);
  }
  std::unique_ptr<Executable> compile(const Graph& graph, const FindStorage& storage) override {
    return std::make_unique<Failing>(inner_.backend().compile(graph, storage), fails_);
  }

 private:
  class Failing final : public Executable {
   public:
    Failing(std::unique_ptr<Executable> inner, std::shared_ptr<bool> fails)
        : inner_(std::move(inner)), fails_(std::move(fails)) {}
    std::unique_ptr<RunResults> run(const RunRequest& request) override {
      if (*fails_ && request.inputs.empty()) throw DeviceError("the update fails");  // apply has no inputs
      return inner_->run(request);
    }
    int kernel_count() const override { return inner_->kernel_count(); }

   private:
    std::unique_ptr<Executable> inner_;
    std::shared_ptr<bool> fails_;
  };

  Device inner_ = Device::reference();
  std::shared_ptr<bool> fails_;
};

struct Steady {
  nn::Linear map{3, 1};
  JERBOA_FIELDS(map)
  Tensor operator()(Tensor x) const { return squeeze(map(x), {-1}); }
};

TEST(TrainerMisuse, AnUpdateThatFailsLeavesNoGradientsBehind) {
  const auto fails = std::make_shared<bool>(false);
  const Device failing(std::make_shared<FailingBackend>(fails));
  Trainer trainer(Steady{}, squared_error, {.optimizer = Sgd{.lr = 0.1}, .device = failing, .accumulate = 2});
  Trainer clean(Steady{}, squared_error, {.optimizer = Sgd{.lr = 0.1}, .device = Device::reference(), .accumulate = 2});
  trainer.step(rows(3));
  *fails = true;
  expect_error<DeviceError>([&] { trainer.step(rows(5)); }, "the update fails");
  *fails = false;
  EXPECT_EQ(trainer.steps(), 0);
  for (Trainer<Steady>* each : {&trainer, &clean}) {
    each->step(rows(0));
    EXPECT_EQ(each->steps(), 0);
    each->step(rows(1));
    EXPECT_EQ(each->steps(), 1);
  }
  EXPECT_EQ(trainer.session().download_params(), clean.session().download_params());
}

// However the batch is wrong.
TEST(TrainerMisuse, ABatchThatIsRefusedDiscardsTheUpdate) {
  const auto trainer_with = [](const Optimizer& optimizer) {
    return Trainer(Steady{}, squared_error, {.optimizer = optimizer, .device = Device::reference(), .accumulate = 2});
  };
  const auto with_rate = [](Batch batch) {
    batch["lr"] = HostTensor(0.1f);
    return batch;
  };
  Batch unknown = rows(), wrong_rate = with_rate(rows());
  unknown["z"] = HostTensor(1.0f);
  wrong_rate["lr"] = HostTensor(-1.0f);
  for (const Batch& refused : {unknown, Batch{}, Batch{{"x", rows().at("x")}}, rows(), wrong_rate}) {
    const bool takes_rate = refused.contains("lr") || refused == rows();
    const auto good = [&](double shift) { return takes_rate ? with_rate(rows(shift)) : rows(shift); };
    const Optimizer optimizer = takes_rate ? Sgd{.lr = HostRate{}} : Sgd{.lr = 0.1};
    auto trainer = trainer_with(optimizer), clean = trainer_with(optimizer);
    trainer.step(good(3));
    EXPECT_THROW(trainer.step(refused), UsageError);
    for (auto* each : {&trainer, &clean}) {
      EXPECT_EQ(each->step(good(0)).step, 0);
      EXPECT_EQ(each->step(good(1)).step, 1);
    }
    EXPECT_EQ(trainer.session().download_params(), clean.session().download_params());
  }
}

struct TwoHeads {
  nn::Linear one{3, 1}, two{3, 1};
  JERBOA_FIELDS(one, two)
};

// One optimizer counts the steps of all parameters.
TEST(TrainerMisuse, BatchesThatTrainOtherParameters) {
  const auto loss = [](const TwoHeads& model, const Inputs& in) {
    const Tensor first = mean(square(model.one(in["x"])));
    return in.has("z") ? first + mean(square(model.two(in["z"]))) : first;
  };
  const Batch fewer{{"x", rows().at("x")}}, more{{"x", rows().at("x")}, {"z", rows().at("x")}};
  Trainer each(TwoHeads{}, loss, {.optimizer = Adam{}, .device = Device::reference()});
  each.step(fewer);
  expect_error<UsageError>([&] { each.step(more); }, "two.bias is updated by entry step x:f32[4, 3] z:f32[4, 3] alone");
  Trainer parts(TwoHeads{}, loss, {.optimizer = Adam{}, .device = Device::reference(), .accumulate = 2});
  parts.step(fewer);
  expect_error<UsageError>([&] { parts.step(more); },
                           "entry grad x:f32[4, 3] z:f32[4, 3]: the loss trains two.weight, which it did not for the "
                           "first batch");
  Trainer whole_first(TwoHeads{}, loss, {.optimizer = Adam{}, .device = Device::reference(), .accumulate = 2});
  whole_first.step(more);
  EXPECT_EQ(whole_first.step(fewer).step, 1);  // a gradient of 0 for the rest
}

// Forward passes

TEST(TrainerForward, RefusesInputsThatItDoesNotUse) {
  Trainer trainer(Net{}, squared_error, plain);
  trainer.step(rows());
  ForwardPass forward = trainer.compile_forward("x");
  const std::string message = message_of<UsageError>([&] { forward(rows()); });
  EXPECT_EQ(message.substr(0, message.rfind(':')),
            "the forward pass does not use y of its inputs; leave out what is not needed, or check for a misspelt name "
            "(trainer_misuse_test.cpp");
  forward({{"x", rows().at("x")}});
  const auto predict = [](const Net& model, const Inputs& in) { return model(in["x"]); };
  const InputSpecs specs{{"x", {2, 3}}, {"positions", {2}}};
  expect_error<UsageError>([&] { compile_forward(Net{}, predict, specs, {.device = Device::reference()}); },
                           "does not use positions of its inputs");
  expect_error<UsageError>([&] { compile_forward(Net{}, predict, specs, trainer.session()); },
                           "does not use positions of its inputs");
}

TEST(TrainerForward, GivesSeveralOutputs) {
  Trainer trainer(Net{}, squared_error, plain);
  trainer.step(rows());
  ForwardPass forward = trainer.compile_forward([](const Net& model, const Inputs& in) -> Outputs {
    const Tensor hidden = tanh(model.up(in["x"]));
    return {{"hidden", hidden}, {"prediction", squeeze(model.down(hidden), {-1})}};
  });
  const Result result = forward({{"x", rows().at("x")}});
  EXPECT_EQ(result.names(), (std::vector<std::string>{"hidden", "prediction"}));
  EXPECT_EQ(result.shape_of("hidden"), (Sizes{4, 6}));
  EXPECT_EQ(result.get("prediction"), trainer.compile_forward("x")({{"x", rows().at("x")}}).get("output"));

  Module module = compile_forward(Net{},
                                  [](const Net& model, const Inputs& in) {
                                    return Outputs{{"a", model(in["x"])}, {"b", in["x"] * 2}};
                                  },
                                  {{"x", {2, 3}}}, {.device = Device::reference()});
  EXPECT_EQ(module.output_shape("b"), (Shape{2, 3}));
  expect_error<UsageError>(
      [] {
        forward_graph({{"x", {2}}},
                      [](const Inputs&) { return Outputs(std::vector<std::pair<std::string, Tensor>>{}); });
      },
      "the forward pass returns no outputs");
}

TEST(TrainerForward, EntriesListWhatASessionCanRun) {
  Trainer trainer(Net{}, squared_error, plain);
  EXPECT_TRUE(trainer.session().entries().empty());
  trainer.prepare(rows());
  const std::vector<EntryInfo> entries = trainer.session().entries();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].name, "step x:f32[4, 3] y:f32[4]");
  ASSERT_EQ(entries[0].inputs.size(), 2u);
  EXPECT_EQ(entries[0].inputs[0].name, "x");
  EXPECT_EQ(entries[0].inputs[0].type, (TensorType{DType::f32, {4, 3}}));
  EXPECT_EQ(print(entries), "step x:f32[4, 3] y:f32[4]: x f32[4, 3], y f32[4] -> loss f32[], lr f32[]\n");
}

// Whose line and whose module

TEST(Sites, ATensorMadeOutsideATraceBlamesTheUser) {
  const auto at = [](int line) { return "(trainer_misuse_test.cpp:" + std::to_string(line) + ")"; };
  int line = 0;
  const auto blames = [&](auto&& action, std::string_view what) {
    const std::string message = message_of<GraphError>(action);
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_NE(message.find(at(line)), std::string::npos) << message;
  };
  const Tensor none;
  line = __LINE__ + 1;
  blames([&] { zeros({2}); }, "zeros: ops work only inside");
  line = __LINE__ + 1;
  blames([&] { full({2}, 1); }, "ops work only inside");
  line = __LINE__ + 1;
  blames([&] { none.shape(); }, "shape: ops work only inside");
  line = __LINE__ + 1;
  blames([&] { none.dim(0); }, "dim: ops work only inside");
  line = __LINE__ + 1;
  blames([&] { append_optimizer({}, Adam{}); }, "append_optimizer: ops work only inside");
  trace([&] {
    line = __LINE__ + 1;
    blames([&] { zeros_like(none); }, "the tensor is empty");
    line = __LINE__ + 1;
    blames([&] { broadcast_to(none, {2}); }, "the tensor is empty");
    line = __LINE__ + 1;
    blames([&] { split<2>(none); }, "the tensor is empty");
    line = __LINE__ + 1;
    blames([&] { cast(none, DType::f16); }, "cast: the operand x is missing");
    output("y", scalar(0));
  });
}

struct Block {
  nn::Linear qkv{4, 4};
  nn::LayerNorm norm{8};
  JERBOA_FIELDS(qkv, norm)
};
struct Deep {
  std::vector<Block> blocks = nn::stack<Block>(4, {});
  JERBOA_FIELDS(blocks)
};

TEST(Sites, AnErrorInAModuleNamesItAndTheUsersLine) {
  Deep deep;
  assign_paths(deep);
  trace([&] {
    const Tensor x = tensor_input("x", {2, 5});
    int line = __LINE__ + 1;
    const std::string message = message_of<ShapeError>([&] { deep.blocks[3].qkv(x); });
    EXPECT_EQ(message, "blocks.3.qkv: matmul: [2, 5] x [4, 4]: inner sizes 5 and 4 differ (trainer_misuse_test.cpp:" +
                           std::to_string(line) + ")");
    line = __LINE__ + 1;
    const std::string other = message_of<ShapeError>([&] { deep.blocks[1].norm(x); });
    EXPECT_TRUE(other.starts_with("blocks.1.norm: layer_norm: ")) << other;
    EXPECT_TRUE(other.ends_with("(trainer_misuse_test.cpp:" + std::to_string(line) + ")")) << other;
    output("y", x);
  });
}

struct Gpt {
  nn::Embedding tok{16, 8};
  nn::LayerNorm norm{8};
  nn::RMSNorm scale{8};
  nn::Linear qkv{8, 24}, out{8, 8};
  nn::Dropout dropout{0.1};
  JERBOA_FIELDS(tok, norm, scale, qkv, out, dropout)
  Tensor operator()(Tensor ids) const {
    const Tensor x = norm(tok(ids));
    const auto [q, k, v] = split<3>(qkv(x));
    return tok.logits(scale(dropout(x + out(attention(q, k, v, {.heads = 2, .causal = true, .capture = "seen"})))));
  }
};

// Nodes of gradients, optimizers and losses have the user's lines or none.
TEST(Sites, NoNodeHasALineOfTheLibrary) {
  const auto check = [](const Graph& graph) {
    for (const Node& node : graph.nodes)
      EXPECT_TRUE(node.site.empty() || node.site.starts_with("trainer_misuse_test.cpp:"))
          << name(node.op) << " of " << graph.tensor(node.outputs[0]).name << " has " << node.site;
  };
  Gpt gpt;
  assign_paths(gpt);
  const InputSpecs specs{{"ids", {2, 4}, DType::i32}, {"targets", {2, 4}, DType::i32}};
  const Loss loss = [&](const Inputs& in) { return next_token_loss(gpt, in); };
  for (const Optimizer& optimizer :
       std::vector<Optimizer>{AdamW{.lr = warmup_cosine(0.1, 2, 10), .clip_norm = 1},
                              Sgd{.lr = HostRate{}, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1}}) {
    for (const CallSite& site : {CallSite{}, CallSite{__FILE__, __LINE__}}) {
      check(training_graph(specs, loss, optimizer, site));
      const Graph sums = accumulation_graph(specs, loss, 2, site);
      check(sums);
      check(apply_graph(sums, optimizer, site));
    }
  }
  Trainer trainer(gpt, next_token_loss, {.device = Device::reference()});
  const Batch batch{{"ids", HostTensor(DType::i32, {2, 4})}, {"targets", HostTensor(DType::i32, {2, 4})}};
  trainer.prepare(batch);
  for (const EntryInfo& entry : trainer.session().entries()) check(trainer.session().graph(entry.name));
  ForwardPass forward = trainer.compile_forward();
  forward({{"ids", batch.at("ids")}});
  for (const EntryInfo& entry : forward.session().entries()) check(forward.session().graph(entry.name));
}

}  // namespace
}  // namespace jerboa::trainer_misuse_test
