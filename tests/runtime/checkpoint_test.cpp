#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/io/safetensors.h>

#include "runtime/regression.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace jerboa {
namespace {

using test::everything;
using test::expect_error;
using test::regression_batch;
using test::regression_session;

TEST(SessionCheckpoint, ContinuesBitForBit) {
  for (const bool dropout : {false, true}) {
    const test::TempFolder folder;
    Session whole = regression_session(11, dropout);
    for (int i = 0; i < 3; ++i) whole.step(regression_batch());
    whole.save(folder / "run");

    Session resumed = regression_session(12, dropout);  // the seed comes from the file
    resumed.load(folder / "run");
    EXPECT_EQ(resumed.seed(), 11u);
    EXPECT_EQ(resumed.download_params(), whole.download_params());
    for (int i = 0; i < 4; ++i) {
      const HostTensor wanted = whole.step(regression_batch(), {.captures = {"prediction"}}).get("prediction");
      EXPECT_EQ(resumed.step(regression_batch(), {.captures = {"prediction"}}).get("prediction"), wanted);
    }
    EXPECT_EQ(everything(resumed), everything(whole));
  }
}

TEST(SessionCheckpoint, IsOneFileWithParametersUnderTheirOwnNames) {
  const test::TempFolder folder;
  Session session = regression_session();
  session.step(regression_batch());
  session.save(folder / "deep" / "run");
  const SafeTensors file = SafeTensors::open(folder / "deep" / "run" / "model.safetensors");
  const HostTensor w = session.download_param("w");
  EXPECT_EQ(to_f32(file.view("w")), std::vector<float>(w.f32().begin(), w.f32().end()));
  EXPECT_TRUE(file.contains("jerboa.state/adam_m/w"));
  EXPECT_FALSE(file.contains("jerboa.state/grad/w"));
  session.save(folder / "one.safetensors");
  EXPECT_TRUE(std::filesystem::is_regular_file(folder / "one.safetensors"));
  session.save(folder / "one.safetensors");  // replaces it
  session.load(folder / "one.safetensors");
}

// With gradient accumulation, a load must not leave old gradients to be added to the next ones.
TEST(SessionCheckpoint, ForgetsGradientsOnLoad) {
  const test::TempFolder folder;
  Session session = regression_session();
  session.save(folder / "run");
  session.step(regression_batch());
  session.load(folder / "run");
  for (const auto& [name, grad] : session.download_param_grads())
    EXPECT_EQ(grad, HostTensor(DType::f32, grad.shape())) << name;
}

TEST(SessionCheckpoint, ThatDoesNotFitIsRefusedAndChangesNothing) {
  const test::TempFolder folder;
  Session session = regression_session();
  session.step(regression_batch());
  session.save(folder / "good");
  const SafeTensors good = SafeTensors::open(folder / "good");
  session.step(regression_batch());
  const TensorMap before = everything(session);

  const auto refuses = [&](const std::function<void(std::vector<TensorView>&, SafeTensors::Metadata&)>& change,
                           std::string_view part) {
    std::vector<TensorView> views;
    for (const std::string& name : good.names()) views.push_back(good.view(name));
    auto metadata = good.metadata();
    change(views, metadata);
    write_safetensors(folder / "bad.safetensors", views, metadata);
    expect_error<FileError>([&] { session.load(folder / "bad.safetensors"); }, part);
    EXPECT_EQ(everything(session), before);
    EXPECT_EQ(session.seed(), 0u);
  };
  const auto without = [](const std::string& name) {
    return
        [name](auto& views, auto&) { std::erase_if(views, [&](const TensorView& view) { return view.name == name; }); };
  };
  const std::vector<float> four(4, 1);
  refuses(without("w"), "does not match the session: missing: w; unknown: none");
  refuses(without("jerboa.state/step"), "missing: step; unknown: none");
  refuses([&](auto& views, auto&) { views.push_back(view_of("extra", {4}, std::span<const float>(four))); },
          "missing: none; unknown: extra");
  refuses(
      [&](auto& views, auto&) {
        for (TensorView& view : views)
          if (view.name == "w") view = view_of("w", {4}, std::span<const float>(four));
      },
      "w is F32[4] but the session's is f32[3]");
  refuses(
      [&](auto& views, auto&) {
        for (TensorView& view : views)
          if (view.name == "b") view.type = StoredType::I32;
      },
      "b is I32[] but the session's is f32[]");
  refuses([](auto&, auto& metadata) { metadata.erase("format"); }, "not a checkpoint of a session");
  refuses([](auto&, auto& metadata) { metadata["seed"] = "7x"; }, "its metadata has no seed");

  const std::string bytes = test::read_text(folder / "good" / "model.safetensors");
  test::write_text(folder / "short.safetensors", std::string_view(bytes).substr(0, bytes.size() - 1));
  expect_error<FileError>([&] { session.load(folder / "short.safetensors"); }, "short.safetensors");
  expect_error<FileError>([&] { session.load(folder / "nothing"); }, "nothing");
  EXPECT_EQ(everything(session), before);
}

TEST(SessionCheckpoint, OfNothingIsRefused) {
  const test::TempFolder folder;
  Session session(Device::reference());
  const std::string nothing = "save: the session has no parameters or states to save";
  expect_error<UsageError>([&] { session.save(folder / "run"); }, nothing);
  session.add_entry("run", trace([] { output("y", zeros({2})); }));
  expect_error<UsageError>([&] { session.save(folder / "run"); }, nothing);
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(SessionCheckpoint, CannotBeWrittenBelowAFile) {
  const test::TempFolder folder;
  test::write_text(folder / "file", "x");
  expect_error<FileError>([&] { regression_session().save(folder / "file" / "run"); }, "file");
}

}  // namespace
}  // namespace jerboa
