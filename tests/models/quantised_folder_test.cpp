#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/models/family.h>
#include <jerboa/models/quantise.h>
#include <jerboa/ops/ops.h>

#include "models/golden_families.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

// Folders of quantised weights: written, and loaded again without being quantised.
namespace jerboa::models::quantised_folder_test {
namespace {

const std::filesystem::path goldens = JERBOA_SOURCE_DIR "/tests/data/goldens";

std::map<std::string, HostTensor> params_of(const std::filesystem::path& folder, DType weights) {
  const Config config = Config::open(folder);
  const Family& family = family_of(config);
  const Graph graph = trace([&] {
    const GraphInputs inputs{.tensors = {{"ids", tensor_input("ids", {1, 1}, DType::i32)}}, .weights = weights};
    const auto results = family.graphs.decoder ? family.graphs.decoder(config, inputs) : family.encode(config, inputs);
    for (const auto& [name, tensor] : results) output(name, tensor);
  });
  const SafeTensors file = SafeTensors::open(folder);
  check_layers(file, config, family);
  return read_params(file, graph, family);
}

class QuantisedFolder : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, QuantisedFolder, testing::ValuesIn(test::golden_families()), test::name_of);
INSTANTIATE_TEST_SUITE_P(Encoders, QuantisedFolder, testing::ValuesIn(test::golden_encoders()), test::name_of);

TEST_P(QuantisedFolder, LoadsWhatTheOriginalWouldGive) {
  for (const DType weights : {DType::i8, DType::i4}) {
    const test::TempFolder folder;
    const auto original = goldens / GetParam(), copy = folder / "copy";
    EXPECT_EQ(quantised_type(SafeTensors::open(original)), std::nullopt);
    quantise_folder(original, copy, weights);
    EXPECT_EQ(quantised_type(SafeTensors::open(copy)), weights);
    EXPECT_EQ(test::read_text(copy / "config.json"), test::read_text(original / "config.json"));
    EXPECT_EQ(params_of(copy, weights), params_of(original, weights));
  }
}

// A file with one thing changed: its tensors and metadata go through `change`.
template <class Change>
void rewrite(const std::filesystem::path& from, const std::filesystem::path& to, const Change& change) {
  std::filesystem::create_directories(to);
  std::filesystem::copy_file(from / "config.json", to / "config.json");
  const SafeTensors file = SafeTensors::open(from);
  std::vector<TensorView> tensors;
  for (const std::string& name : file.names()) tensors.push_back(file.view(name));
  SafeTensors::Metadata metadata = file.metadata();
  change(tensors, metadata);
  write_safetensors(to / "model.safetensors", tensors, metadata);
}

TEST(QuantisedFile, RefusesWhatDoesNotFit) {
  const test::TempFolder folder;
  const auto int4 = folder / "int4";
  quantise_folder(goldens / "llama", int4, DType::i4);
  const std::string weight = "model.layers.0.self_attn.q_proj.weight";
  test::expect_error<FileError>([&] { params_of(int4, DType::i8); },
                                "holds int4 weights, but int8 ones were asked for");
  test::expect_error<FileError>([&] { params_of(int4, DType::f32); },
                                "its weights are int4 and cannot be had in another type");
  test::expect_error<UsageError>([&] { quantise_folder(int4, folder / "again", DType::i4); },
                                 "holds int4 weights already");
  test::expect_error<UsageError>([&] { quantise_folder(int4, int4, DType::i4); }, "name another folder");
  test::expect_error<UsageError>([&] { quantise_folder(goldens / "llama", folder / "f16", DType::f16); },
                                 "to int8 or int4, not to f16");

  using Tensors = std::vector<TensorView>;
  using Metadata = SafeTensors::Metadata;
  const auto at = [](Tensors& tensors, const std::string& name) {
    return std::find_if(tensors.begin(), tensors.end(), [&](const TensorView& tensor) { return tensor.name == name; });
  };
  rewrite(int4, folder / "no_scales",
          [&](Tensors& tensors, Metadata&) { tensors.erase(at(tensors, weight + ".scales")); });
  test::expect_error<FileError>([&] { params_of(folder / "no_scales", DType::i4); },
                                "has no " + weight + ".scales, which belongs to a quantised weight");
  rewrite(int4, folder / "no_mins", [&](Tensors& tensors, Metadata&) { tensors.erase(at(tensors, weight + ".mins")); });
  test::expect_error<FileError>([&] { params_of(folder / "no_mins", DType::i4); }, "has no " + weight + ".mins");
  rewrite(int4, folder / "shape", [&](Tensors& tensors, Metadata&) {
    TensorView& tensor = *at(tensors, weight + ".quantised");
    tensor.shape = {tensor.shape[1], tensor.shape[0]};
  });
  test::expect_error<FileError>([&] { params_of(folder / "shape", DType::i4); },
                                weight + ".quantised is U8[32, 64], but must be U8[64, 32]");
  rewrite(int4, folder / "version", [](Tensors&, Metadata& metadata) { metadata["jerboa.quantised.format"] = "1"; });
  test::expect_error<FileError>([&] { params_of(folder / "version", DType::i4); },
                                "in format 1, but this version of Jerboa reads format 2");
  rewrite(int4, folder / "type", [](Tensors&, Metadata& metadata) { metadata["jerboa.quantised.type"] = "int3"; });
  test::expect_error<FileError>([&] { params_of(folder / "type", DType::i4); }, "must be int8 or int4, not int3");
  rewrite(int4, folder / "unmarked", [](Tensors&, Metadata& metadata) { metadata.clear(); });
  test::expect_error<FileError>([&] { params_of(folder / "unmarked", DType::i4); }, "holds quantised weights, but");
}

}  // namespace
}  // namespace jerboa::models::quantised_folder_test
