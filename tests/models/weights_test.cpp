#include <gtest/gtest.h>
#include <map>

#include <jerboa/base/error.h>
#include <jerboa/base/float16.h>
#include <jerboa/base/random.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/models/family.h>
#include <jerboa/models/quantise.h>
#include <jerboa/ops/ops.h>

#include "base/in_parallel.h"
#include "support/expect_error.h"

// Reads parameters in pieces, on all threads, the next one while one is in use.
namespace jerboa::models::weights_test {
namespace {

using test::expect_error;

constexpr std::int64_t rows = 1501, columns = 256;  // more than a piece, and not a whole number of them

// Matrices in bf16, and one in f32.
class File {
 public:
  File() {
    SplitMix random(1);
    for (const char* name : {"a", "b", "c", "d", "e"}) {
      auto& halves = halves_[name];
      for (std::int64_t i = 0; i < rows * columns; ++i)
        halves.push_back(f32_to_bf16(static_cast<float>(random.uniform() - 0.5)));
      if (std::string(name) == "e")
        for (const std::uint16_t half : halves) wide_.push_back(bf16_to_f32(half));
    }
    std::vector<TensorView> views{{"e", StoredType::F32, {rows, columns}, std::as_bytes(std::span(wide_))}};
    for (const char* name : {"a", "b", "c", "d"})
      views.push_back({name, StoredType::BF16, {rows, columns}, std::as_bytes(std::span(halves_.at(name)))});
    bytes_ = encode_safetensors(views);
  }
  SafeTensors open() const { return SafeTensors::from_bytes(bytes_); }
  std::vector<float> values(const std::string& name) const {
    std::vector<float> values;
    for (const std::uint16_t half : halves_.at(name)) values.push_back(bf16_to_f32(half));
    return values;
  }
  const std::vector<std::uint16_t>& halves(const std::string& name) const { return halves_.at(name); }

 private:
  std::map<std::string, std::vector<std::uint16_t>> halves_;
  std::vector<float> wide_;
  std::vector<std::byte> bytes_;
};

// A source whose tensors can only be read as a whole, and optionally one of them not at all.
class WholeTensors : public TensorSource {
 public:
  explicit WholeTensors(const SafeTensors& file, std::string broken = "") : file_(file), broken_(std::move(broken)) {}
  std::vector<std::string> names() const override { return file_.names(); }
  bool contains(std::string_view name) const override { return file_.contains(name); }
  const TensorEntry& entry(std::string_view name) const override { return file_.entry(name); }
  const std::filesystem::path& path() const override { return file_.path(); }
  void read(std::string_view name, std::span<std::byte> bytes) const override {
    check(name);
    file_.read(name, bytes);
  }
  void read_f32(std::string_view name, std::span<float> values) const override {
    check(name);
    file_.read_f32(name, values);
  }

 private:
  void check(std::string_view name) const {
    if (name == broken_) throw FileError("it is broken");
  }
  const SafeTensors& file_;
  std::string broken_;
};

// A source with whole blocks of 256 elements, as in a file that keeps them packed.
class TensorsInBlocks final : public WholeTensors {
 public:
  using WholeTensors::WholeTensors;
  bool reads_parts(std::string_view) const override { return true; }

 private:
  void read_checked_part(std::string_view name, std::span<std::byte> bytes, std::size_t from) const override {
    const TensorEntry& tensor = entry(name);
    const std::size_t block = 256 * size_of(tensor.type), end = from + bytes.size();
    if (from % block != 0 || (end % block != 0 && end != tensor.bytes)) throw FileError("a part of a block");
    TensorSource::read_checked_part(name, bytes, from);
  }
};

Graph graph_of_all() {
  return trace([] {
    const auto frozen = [](const char* name, Shape shape, DType dtype) {
      output(name, param_input(name, std::move(shape), {.trainable = false, .dtype = dtype}));
    };
    frozen("a", {rows, columns}, DType::f16);
    frozen("b", {rows, columns}, DType::bf16);
    frozen("c", {rows, columns}, DType::f32);
    frozen("d.quantised", {rows, columns}, DType::i4);
    frozen("d.scales", {rows, columns / 32}, DType::f16);
    frozen("d.mins", {rows, columns / 32}, DType::f16);
    frozen("e", {rows, columns}, DType::f32);
  });
}

const Family& family() { return family_of(Config::parse(R"({"model_type": "llama"})")); }

TEST(Weights, AreTheSameInPiecesAndAsAWhole) {
  const File file;
  const SafeTensors parts = file.open();
  EXPECT_TRUE(parts.reads_parts("a"));
  const Graph graph = graph_of_all();
  const auto params = read_params(parts, graph, family());
  EXPECT_EQ(read_params(WholeTensors(parts), graph, family()), params);
  EXPECT_EQ(read_params(TensorsInBlocks(parts), graph, family()), params);
  ASSERT_EQ(params.size(), 7u);
  HostTensor a(DType::f16, {rows, columns}), b(DType::bf16, {rows, columns});
  for (std::size_t i = 0; i < file.halves("a").size(); ++i) {
    a.as<std::uint16_t>()[i] = f32_to_f16(bf16_to_f32(file.halves("a")[i]));
    b.as<std::uint16_t>()[i] = file.halves("b")[i];
  }
  EXPECT_EQ(params.at("a"), a);
  EXPECT_EQ(params.at("b"), b);
  EXPECT_EQ(params.at("c"), HostTensor({rows, columns}, std::span<const float>(file.values("c"))));
  EXPECT_EQ(params.at("e"), HostTensor({rows, columns}, std::span<const float>(file.values("e"))));
  const Quantised d = quantise(file.values("d"), rows, columns, DType::i4);
  EXPECT_EQ(params.at("d.quantised"), d.weight);
  EXPECT_EQ(params.at("d.scales"), d.scales);
  EXPECT_EQ(params.at("d.mins"), d.mins);
}

TEST(Weights, AreReadWhereTheyAreWanted) {
  const File file;
  const SafeTensors parts = file.open();
  std::map<std::string, HostTensor> memory;
  memory.emplace("a", HostTensor(DType::f16, {rows, columns}));
  memory.emplace("d.scales", HostTensor(DType::f16, {rows, columns / 32}));
  const auto params = read_params(parts, graph_of_all(), family());
  std::vector<std::string> order, in_place;
  ReadSeconds seconds;
  for_each_param(parts, graph_of_all(), family(),
                 [&](const ParamValues& values) {
                   order.push_back(values.name);
                   if (values.is_in_place) in_place.push_back(values.name);
                   EXPECT_EQ(std::vector(values.bytes.begin(), values.bytes.end()),
                             std::vector(params.at(values.name).bytes().begin(), params.at(values.name).bytes().end()));
                 },
                 {.memory =
                      [&](const std::string& name) {
                        const auto found = memory.find(name);
                        return found == memory.end() ? std::span<std::byte>() : found->second.bytes();
                      },
                  .seconds = &seconds});
  EXPECT_EQ(order, (std::vector<std::string>{"a", "b", "c", "d.quantised", "d.scales", "d.mins", "e"}));
  EXPECT_EQ(in_place, (std::vector<std::string>{"a", "d.scales"}));
  EXPECT_EQ(memory.at("a"), params.at("a"));
  EXPECT_EQ(memory.at("d.scales"), params.at("d.scales"));
  EXPECT_GT(seconds.reading, 0);
  EXPECT_GT(seconds.converting, 0);
}

// Even from the thread that reads ahead, and whatever is being read when the caller gives up.
TEST(Weights, ErrorsComeToTheCaller) {
  const File file;
  const SafeTensors parts = file.open();
  std::vector<std::string> used;
  expect_error<FileError>(
      [&] {
        for_each_param(WholeTensors(parts, "c"), graph_of_all(), family(),
                       [&](const ParamValues& values) { used.push_back(values.name); });
      },
      "it is broken");
  EXPECT_EQ(used, (std::vector<std::string>{"a", "b"}));
  expect_error<UsageError>(
      [&] { for_each_param(parts, graph_of_all(), family(), [](const ParamValues&) { throw UsageError("enough"); }); },
      "enough");
}

TEST(InParallel, GivesEveryPartToOneThread) {
  std::vector<int> seen(1000);
  detail::in_parallel(1000, 7, [&](std::int64_t first, std::int64_t end) {
    EXPECT_GE(end - first, 7);
    for (std::int64_t i = first; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
  });
  EXPECT_EQ(seen, std::vector<int>(1000, 1));
  expect_error<UsageError>(
      [] { detail::in_parallel(64, 1, [](std::int64_t, std::int64_t) { throw UsageError("no"); }); }, "no");
}

}  // namespace
}  // namespace jerboa::models::weights_test
