#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/compile/export.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/ops/ops.h>
#include <jerboa/transform/optimizer.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"

// Optimizers side by side over one session, as in an adversarial pair: each counts its own steps.
namespace jerboa::several_optimizers_test {
namespace {

using test::expect_error;

// Adam in f64 with a schedule, as in its paper.
struct ExactAdam {
  Schedule lr;
  double beta1 = 0.9, beta2 = 0.999;
  double value = 0, m = 0, v = 0;
  int step = 0;

  void update(double gradient) {
    ++step;
    m = beta1 * m + (1 - beta1) * gradient;
    v = beta2 * v + (1 - beta2) * gradient * gradient;
    const double corrected_m = m / (1 - std::pow(beta1, step)), corrected_v = v / (1 - std::pow(beta2, step));
    value -= lr.at(step) * corrected_m / (std::sqrt(corrected_v) + 1e-8);
  }
};

const Schedule generator_rate = warmup_linear(0.05, 4, 12), critic_rate = warmup_cosine(0.08, 7, 30);
const Adam generator{.lr = generator_rate, .name = "generator"}, critic{.lr = critic_rate, .beta1 = 0.5};

// The generator is trained to match the critic's output for x; the critic to differ from it, but stay small.
Tensor generator_param() { return param_input("generator.w", {}, {.init = Init::constant(0.7)}); }
Tensor critic_param() { return param_input("critic.w", {}, {.init = Init::constant(-0.4)}); }
Tensor generator_loss(const Tensor& g, const Tensor& c, const Tensor& x) { return square(g - c * x); }
Tensor critic_loss(const Tensor& g, const Tensor& c, const Tensor& x) { return square(c) - 0.5 * square(g - c * x); }
double generator_gradient(double g, double c, double x) { return 2 * (g - c * x); }
double critic_gradient(double g, double c, double x) { return 2 * c + (g - c * x) * x; }

auto belongs_to(const std::string& module) {
  return [module](const std::string& name) { return name.starts_with(module + "."); };
}

Graph step_graph(bool with_generator, bool with_critic, const Optimizer& of_generator, const Optimizer& of_critic) {
  return trace([&] {
    const Tensor x = tensor_input("x", {});
    const Tensor g = generator_param(), c = critic_param();
    if (with_generator) {
      const Tensor loss = generator_loss(g, c, x);
      output("generator_lr", append_optimizer(append_grad(loss, belongs_to("generator")), of_generator));
    }
    if (with_critic) {
      const Tensor loss = critic_loss(g, c, x);
      output("critic_lr", append_optimizer(append_grad(loss, belongs_to("critic")), of_critic));
    }
  });
}

double input(int i) { return 1 + 0.5 * std::sin(i); }
TensorMap batch(int i) { return {{"x", HostTensor(static_cast<float>(input(i)))}}; }

std::vector<Device> engines() { return {Device::reference(), Device::cpu(1)}; }

TEST(SeveralOptimizers, CountTheirOwnStepsInEntriesOfOneSession) {
  for (const Device& device : engines()) {
    Session session = create_session({{"generator", step_graph(true, false, generator, critic)},
                                      {"critic", step_graph(false, true, generator, critic)}},
                                     {.device = device});
    ExactAdam g{.lr = generator_rate, .value = 0.7}, c{.lr = critic_rate, .beta1 = 0.5, .value = -0.4};
    for (int i = 0; i < 24; ++i) {
      const bool generates = i % 3 == 2;  // the critic takes two steps per step of the generator
      const Result result = session.run(generates ? "generator" : "critic", batch(i));
      if (generates)
        g.update(generator_gradient(g.value, c.value, input(i)));
      else
        c.update(critic_gradient(g.value, c.value, input(i)));
      const ExactAdam& exact = generates ? g : c;
      ASSERT_NEAR(result.get(generates ? "generator_lr" : "critic_lr").item(), exact.lr.at(exact.step), 1e-7);
      ASSERT_NEAR(session.download_param("generator.w").item(), g.value, 2e-5) << i << ' ' << device.name();
      ASSERT_NEAR(session.download_param("critic.w").item(), c.value, 2e-5) << i << ' ' << device.name();
    }
    EXPECT_EQ(session.download_state("generator/step").item(), 8);
    EXPECT_EQ(session.download_state("step").item(), 16);
    EXPECT_EQ(session.state_names(),
              (std::vector<std::string>{"adam_m/critic.w", "adam_v/critic.w", "generator/adam_m/generator.w",
                                        "generator/adam_v/generator.w", "generator/step", "step"}));
  }
}

TEST(SeveralOptimizers, WorkInOneGraph) {
  for (const Device& device : engines()) {
    Session session = create_session({{"step", step_graph(true, true, generator, critic)}}, {.device = device});
    ExactAdam g{.lr = generator_rate, .value = 0.7}, c{.lr = critic_rate, .beta1 = 0.5, .value = -0.4};
    for (int i = 0; i < 20; ++i) {
      session.step(batch(i));
      // Both from the parameters before the step.
      const double of_g = generator_gradient(g.value, c.value, input(i));
      c.update(critic_gradient(g.value, c.value, input(i)));
      g.update(of_g);
      ASSERT_NEAR(session.download_param("generator.w").item(), g.value, 2e-5) << i << ' ' << device.name();
      ASSERT_NEAR(session.download_param("critic.w").item(), c.value, 2e-5) << i << ' ' << device.name();
    }
    EXPECT_EQ(session.download_state("generator/step").item(), 20);
    EXPECT_EQ(session.download_state("step").item(), 20);
  }
}

TEST(SeveralOptimizers, MayTakeOneRateFromTheHost) {
  const Sgd of_g{.lr = HostRate{}, .name = "generator"}, of_c{.lr = HostRate{}};
  Session session = create_session({{"step", step_graph(true, true, of_g, of_c)}}, {.device = Device::reference()});
  TensorMap inputs = batch(0);
  inputs["lr"] = HostTensor(0.25f);
  session.step(inputs);
  EXPECT_NEAR(session.download_param("generator.w").item(), 0.7 - 0.25 * generator_gradient(0.7, -0.4, 1), 1e-6);
  EXPECT_NEAR(session.download_param("critic.w").item(), -0.4 - 0.25 * critic_gradient(0.7, -0.4, 1), 1e-6);
}

TEST(SeveralOptimizers, SaveAndLoadSeparateStates) {
  const test::TempFolder folder;
  const auto make = [] {
    return create_session({{"generator", step_graph(true, false, generator, critic)},
                           {"critic", step_graph(false, true, generator, critic)}},
                          {.device = Device::reference()});
  };
  Session whole = make(), resumed = make();
  for (int i = 0; i < 5; ++i) whole.run(i % 2 == 0 ? "generator" : "critic", batch(i));
  whole.save(folder / "run");
  resumed.load(folder / "run");
  for (int i = 5; i < 9; ++i)
    for (Session* session : {&whole, &resumed}) session->run(i % 2 == 0 ? "generator" : "critic", batch(i));
  EXPECT_EQ(resumed.download_params(), whole.download_params());
  EXPECT_EQ(resumed.download_state("generator/step").item(), 5);
  EXPECT_EQ(resumed.download_state("step").item(), 4);
}

TEST(SeveralOptimizers, OfOneNameAreRefused) {
  const Adam plain, also_plain{.lr = 0.1};
  expect_error<UsageError>(
      [&] { step_graph(true, true, plain, also_plain); },
      "append_optimizer: the graph already has an optimizer without a name; give each its own name");
  const Adam twice{.name = "both"};
  expect_error<UsageError>([&] { step_graph(true, true, twice, twice); }, "already has an optimizer named both");

  const std::string shared_counter = "both count their steps in the state step; give each its own name";
  const Graph of_generator = step_graph(true, false, plain, plain), of_critic = step_graph(false, true, plain, plain);
  Session session = create_session({{"generator", of_generator}}, {.device = Device::reference()});
  expect_error<UsageError>([&] { session.add_entry("critic", of_critic); }, shared_counter);
  EXPECT_FALSE(session.has_entry("critic"));
  Session sibling = session.sibling();
  expect_error<UsageError>([&] { sibling.add_entry("critic", of_critic); }, shared_counter);
  // The same parameters by another rule are another optimizer.
  expect_error<UsageError>([&] { session.add_entry("sgd", step_graph(true, false, Sgd{.momentum = 0.9}, plain)); },
                           shared_counter);
  expect_error<UsageError>(
      [&] {
        compile_program({{"generator", of_generator}, {"critic", of_critic}}, Target::cpu());
      },
      shared_counter);
  session.add_entry("again", of_generator);  // the same optimizer is fine
  session.add_entry("critic", step_graph(false, true, plain, Adam{.name = "critic"}));
}

// A step that trains the parameters p0, p1, … of a batch of any size.
Graph shared_step(int params, const Optimizer& optimizer, int batch = 1, Precision precision = Precision::full) {
  const Loss loss = [&](const Inputs& in) {
    Tensor total = scalar(0);
    for (int i = 0; i < params; ++i) total = total + mean(param_input("p" + std::to_string(i), {1}) * in["x"]);
    return total;
  };
  return training_graph({{"x", {batch}}}, loss, optimizer, {}, {.precision = precision});
}

std::string refusal_of(const Graph& first, const Graph& second) {
  Session session = create_session({{"a", first}}, {.device = Device::reference()});
  return test::message_of<UsageError>([&] { session.add_entry("b", second); });
}

// A counter says for all parameters of an optimizer how many steps they have made.
TEST(SeveralOptimizers, OfOtherParametersOrSettingsDoNotShareACounter) {
  const Adam adam{.lr = 1};
  const auto differs = [](const std::string& how) {
    return "entry b: its optimizer differs from that of entry a: " + how +
           ", but both count their steps in the state step; give each its own name: Adam{.name = \"generator\"}";
  };
  EXPECT_EQ(refusal_of(shared_step(1, adam), shared_step(2, adam)), differs("p1 is updated by entry b alone"));
  EXPECT_EQ(refusal_of(shared_step(2, adam), shared_step(1, adam)), differs("p1 is updated by entry a alone"));
  const std::string settings = differs("they update p0 with different settings");
  EXPECT_EQ(refusal_of(shared_step(1, adam), shared_step(1, Adam{.lr = 1, .beta1 = 0.5})), settings);
  EXPECT_EQ(refusal_of(shared_step(1, adam), shared_step(1, Adam{.lr = 0.5})), settings);
  EXPECT_EQ(refusal_of(shared_step(1, Adam{.lr = warmup_cosine(1, 2, 9)}),
                       shared_step(1, Adam{.lr = warmup_cosine(1, 3, 9)})),
            settings);
}

TEST(SeveralOptimizers, TheSameOneMayBeInSeveralEntries) {
  const Loss loss = [](const Inputs& in) { return mean(param_input("p0", {1}) * in["x"]); };
  for (const Optimizer& optimizer :
       {Optimizer(AdamW{.lr = warmup_cosine(1, 2, 9), .clip_norm = 1}), Optimizer(Adam{.lr = HostRate{}}),
        Optimizer(Sgd{.lr = warmup_linear(1, 2, 9), .momentum = 0.9}), Optimizer(Sgd{})}) {
    const Graph parts = accumulation_graph({{"x", {2}}}, loss, 2);
    create_session({{"one", shared_step(1, optimizer)},
                    {"three", shared_step(1, optimizer, 3)},
                    {"mixed", shared_step(1, optimizer, 3, Precision::mixed_f16)},
                    {"parts", parts},
                    {"apply", apply_graph(parts, optimizer)},
                    {"evaluate", forward_graph({{"x", {3}}}, [&](const Inputs& in) { return loss(in); })}},
                   {.device = Device::reference()});
  }
}

TEST(SeveralOptimizers, MayDifferInWhatDoesNotDependOnTheirCounter) {
  create_session({{"plain", shared_step(1, Adam{.lr = 1})},
                  {"decaying", shared_step(1, AdamW{.lr = 1, .weight_decay = 0.1, .clip_norm = 1})}},
                 {.device = Device::reference()});
}

// Names by which sessions know the library's own states.

Graph descent(const std::string& param, const Optimizer& optimizer) {
  return trace([&] { append_optimizer(append_grad(sum(square(param_input(param, {2})))), optimizer); });
}

TEST(ReservedNames, AreRefusedForOptimizers) {
  for (const char* name : {"grad", "f16", "grad/critic", "jerboa.state"}) {
    const std::string message = test::message_of<UsageError>([&] { descent("w", Adam{.name = name}); });
    EXPECT_NE(message.find("the optimizer's name " + std::string(name) + " is reserved: names that begin with "),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("several_optimizers_test.cpp:"), std::string::npos) << message;
  }
  for (const char* name : {"gradual", "f16_critic", "step", "rng"}) descent("w", Adam{.name = name});
}

TEST(ReservedNames, AreRefusedForParametersAndStates) {
  const auto of_gradients =
      "the name grad/x is reserved: names that begin with grad/ are those of gradients; choose "
      "another (several_optimizers_test.cpp:";
  expect_error<GraphError>([] { descent("grad/x", Sgd{}); }, std::string("param_input: ") + of_gradients);
  expect_error<GraphError>([] { trace([] { state_input("grad/x", {2}); }); },
                           std::string("state_input: ") + of_gradients);
  for (const char* name : {"f16/x", "step", "critic/step", "jerboa.state/x", "loss_scale", "loss_scale_age"}) {
    const std::string reserved = "the name " + std::string(name) + " is reserved: ";
    expect_error<GraphError>([&] { descent(name, Adam{}); }, reserved);
    expect_error<GraphError>([&] { trace([&] { state_input(name, {2}); }); }, reserved);
  }
  expect_error<GraphError>([] { descent("rng", Adam{}); },
                           "the name rng is reserved: it is that of the state of random");
  descent("steps", Adam{});
  descent("blocks.0.step", Adam{});
}

TEST(ReservedNames, AreRefusedForStatesOfCustomOptimizers) {
  const auto keeps = [](const std::string& state) {
    return Optimizer{.update = [state](ParamUpdate& p) -> Tensor {
      p.set_state(state, p.state(state) + p.grad);
      return p.param;
    }};
  };
  expect_error<GraphError>([&] { descent("w", keeps("grad")); }, "state_input: the name grad/w is reserved");
  descent("w", keeps("gradients"));
}

// Only a state is a counter: an intermediate result may have any name.
TEST(ReservedNames, AreFreeForActivations) {
  trace([] {
    const Tensor w = param_input("w", {2});
    append_optimizer(append_grad(sum(square(w).named("step"))), Adam{});
  });
}

}  // namespace
}  // namespace jerboa::several_optimizers_test
