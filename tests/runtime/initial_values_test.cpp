#include <gtest/gtest.h>

#include <jerboa/base/error.h>

#include "runtime/regression.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

// Initial values are drawn when they are first needed, so that what is loaded before is written once.
namespace jerboa {
namespace {

using test::expect_error;
using test::regression_batch;
using test::regression_step;

// The reference, which counts how often each tensor is written from the host.
class CountingBackend final : public Backend {
 public:
  using Counts = std::map<std::string, int>;
  explicit CountingBackend(std::shared_ptr<Counts> counts) : counts_(std::move(counts)) {}

  std::string name() const override { return inner_.name(); }
  std::shared_ptr<DeviceTensor> allocate(DType dtype, const Sizes& sizes, const std::string& name) override {
    return std::make_shared<Counted>(inner_.backend().allocate(dtype, sizes, name), (*counts_)[name], counts_);
  }
  std::unique_ptr<Executable> compile(const Graph& graph, const FindStorage& storage) override {
    return inner_.backend().compile(
        graph, [&](const std::string& name) { return std::static_pointer_cast<Counted>(storage(name))->inner; });
  }

 private:
  struct Counted final : DeviceTensor {
    Counted(std::shared_ptr<DeviceTensor> tensor, int& number, std::shared_ptr<Counts> owner)
        : inner(std::move(tensor)), count(number), counts(std::move(owner)) {}
    HostTensor download() const override { return inner->download(); }
    std::int64_t bytes() const override { return inner->bytes(); }
    void write(std::span<const std::byte> bytes) override {
      ++count;
      inner->upload(bytes);
    }

    std::shared_ptr<DeviceTensor> inner;
    int& count;
    std::shared_ptr<Counts> counts;
  };

  Device inner_ = Device::reference();
  std::shared_ptr<Counts> counts_;
};

struct Counted {
  std::shared_ptr<CountingBackend::Counts> counts = std::make_shared<CountingBackend::Counts>();
  Session session{Device(std::make_shared<CountingBackend>(counts))};

  Counted() { session.add_entry("step", regression_step()); }
};

TEST(InitialValues, AreNotDrawnForUploadedParameters) {
  Counted made;
  EXPECT_EQ((*made.counts)["w"], 0);
  const HostTensor w({3}, {1, 2, 3});
  made.session.upload_param("w", w.bytes());
  made.session.step(regression_batch());
  EXPECT_EQ((*made.counts)["w"], 1);
  EXPECT_EQ((*made.counts)["b"], 1);  // its initial values
  Session whole(Device::reference());
  whole.add_entry("step", regression_step());
  whole.upload_params({{"w", w}}, {.partial = true});
  whole.step(regression_batch());
  EXPECT_EQ(made.session.download_params(), whole.download_params());

  expect_error<UsageError>([&] { made.session.upload_param("v", w.bytes()); },
                           "no parameter is named v; available: b, w");
  expect_error<UsageError>([&] { made.session.upload_param("b", w.bytes()); }, "b is f32[], 4 bytes, but was given 12");
}

TEST(InitialValues, AreNotDrawnForLoadedParameters) {
  const test::TempFolder folder;
  Session saved = test::regression_session(7);
  saved.step(regression_batch());
  saved.save(folder / "run");
  Counted made;
  made.session.load(folder / "run");
  made.session.step(regression_batch());
  for (const auto& [name, count] : *made.counts) EXPECT_EQ(count, 1) << name;
  saved.step(regression_batch());
  EXPECT_EQ(test::everything(made.session), test::everything(saved));
}

TEST(InitialValues, AreDrawnOnAnyAccess) {
  Session eager = test::regression_session(5);
  eager.reset();
  for (const char* name : {"w", "b"}) {
    Session lazy = test::regression_session(5);
    EXPECT_EQ(lazy.download_param(name), eager.download_param(name));
    EXPECT_EQ(lazy.storage(name)->download(), eager.download_param(name));
  }
  EXPECT_EQ(test::everything(test::regression_session(5)), test::everything(eager));
}

TEST(SessionStorage, IsDeclaredWithoutCompiling) {
  Session session(Device::reference(), {.seed = 5});
  session.declare(regression_step());
  EXPECT_TRUE(session.entries().empty());
  EXPECT_EQ(session.download_params(), test::regression_session(5).download_params());
  session.add_entry("step", regression_step());
  ASSERT_EQ(session.entries().size(), 1u);
  EXPECT_EQ(session.entries()[0].captures.size(), 2u);
}

}  // namespace
}  // namespace jerboa
