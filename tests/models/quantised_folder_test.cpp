#include <cmath>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <limits>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jerboa/base/error.h>
#include <jerboa/models/family.h>
#include <jerboa/models/quantise.h>
#include <jerboa/models/save_folder.h>
#include <jerboa/ops/ops.h>

#include "models/folder_files.h"
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

class SavedFolder : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, SavedFolder, testing::ValuesIn(test::golden_families()), test::name_of);

bool holds_floats(const TensorEntry& entry) { return entry.type != StoredType::U8; }

// Written files have the names and shapes of the golden's own file, whatever the graph's parameters are.
void expect_form_of_golden(const std::filesystem::path& folder, const std::string& golden) {
  const SafeTensors written = SafeTensors::open(folder), wanted = SafeTensors::open(goldens / golden);
  EXPECT_FALSE(quantised_type(written));
  for (const std::string& name : written.names()) {
    ASSERT_TRUE(wanted.contains(name)) << name;
    if (holds_floats(wanted.entry(name))) {
      EXPECT_EQ(written.entry(name).shape, wanted.entry(name).shape) << name;
    }
  }
}

TEST_P(SavedFolder, OfParametersIsTheGoldens) {
  const test::TempFolder folder;
  const auto params = params_of(goldens / GetParam(), DType::f32);
  save_folder(folder / "saved", make_model_folder(params, open_model_folder(goldens / GetParam()).files));
  expect_form_of_golden(folder / "saved", GetParam());
  EXPECT_EQ(params_of(folder / "saved", DType::f32), params);
}

TEST_P(SavedFolder, OfQuantisedWeightsIsInF32) {
  for (const DType weights : {DType::i8, DType::i4}) {
    const test::TempFolder folder;
    quantise_folder(goldens / GetParam(), folder / "narrow", weights);
    save_folder(folder / "saved", open_model_folder(folder / "narrow"));
    expect_form_of_golden(folder / "saved", GetParam());
    const auto original = params_of(goldens / GetParam(), DType::f32), saved = params_of(folder / "saved", DType::f32);
    ASSERT_EQ(saved.size(), original.size());
    for (const auto& [name, values] : original) {
      const HostTensor& found = saved.at(name);
      ASSERT_EQ(found.shape(), values.shape()) << name;
      double largest = 0, error = 0;
      for (std::int64_t i = 0; i < values.size(); ++i) {
        largest = std::max(largest, std::abs(values.number(i)));
        error = std::max(error, std::abs(values.number(i) - found.number(i)));
      }
      EXPECT_LE(error, largest * (weights == DType::i8 ? 0.01 : 0.15)) << name;
    }
  }
}

// transformers would take the setting for a description of the weights, which are f32 now.
TEST(SavedConfig, StatesTheTypeOfItsWeights) {
  const auto saved_from = [](const std::string& golden, const std::string& settings) {
    const test::TempFolder folder;
    ModelFolder model = open_model_folder(goldens / golden);
    std::string& config = model.files.at("config.json");
    config = "{" + settings + "," + config.substr(config.find('{') + 1);
    save_folder(folder / "saved", model);
    return Config::open(folder / "saved");
  };
  EXPECT_FALSE(saved_from("gpt_oss", R"("quantization_config": {"quant_method": "mxfp4"})").has("quantization_config"));
  EXPECT_TRUE(saved_from("bitnet", R"("quantization_config": {"quant_method": "bitnet"})").has("quantization_config"));
  EXPECT_EQ(saved_from("llama", R"("limits": [0.0, Infinity])").numbers("limits").back(),
            std::numeric_limits<double>::infinity());
}

TEST(SavedFiles, ThatCannotBeWrittenAreNamed) {
  const test::TempFolder folder;
  test::write_text(folder / "1_Pooling", "not a folder");
  test::expect_error<FileError>(
      [&] {
        write_model_files(folder.path(), {{"1_Pooling/config.json", "{}"}});
      },
      "1_Pooling: cannot create");
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

TEST(QuantisedFile, NeverReplacesAFolder) {
  const test::TempFolder folder;
  std::filesystem::create_directories(folder / "mine");
  test::write_text(folder / "mine" / "model.safetensors", "precious");
  test::expect_error<UsageError>([&] { quantise_folder(goldens / "llama", folder / "mine", DType::i8); },
                                 "mine already exists; remove it, or choose another folder");
  EXPECT_EQ(test::read_text(folder / "mine" / "model.safetensors"), "precious");
  // A folder that cannot be read leaves nothing behind.
  test::expect_error<FileError>([&] { quantise_folder(folder / "mine", folder / "new", DType::i8); }, "config.json");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator()),
            1);
}

TEST(QuantisedFile, RemovesWhatAKilledProcessLeft) {
  const test::TempFolder folder;
  const auto left_by = [&](const std::string& name) {
    std::filesystem::create_directories(folder / name);
    test::write_text(folder / name / "model.safetensors", "a part");
    return folder / name;
  };
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(gone, nullptr, 0), gone);
  const std::vector<std::filesystem::path> abandoned{left_by(".int8.0123456789abcdef.tmp"),
                                                     left_by(".int8." + std::to_string(::getppid()) + ".tmp")};
  // As a process in another container, whose number says nothing here.
  const auto being_written = left_by(".int8." + std::to_string(gone) + ".tmp");
  const int lock = ::open(being_written.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  const std::vector<std::filesystem::path> kept{being_written, left_by(".int4.0123456789abcdef.tmp"),
                                                left_by(".int8.mine.tmp")};
  quantise_folder(goldens / "llama", folder / "int8", DType::i8);
  for (const auto& path : abandoned) EXPECT_FALSE(std::filesystem::exists(path)) << path;
  for (const auto& path : kept) EXPECT_TRUE(std::filesystem::exists(path)) << path;
  ::close(lock);
}

TEST(QuantisedFile, KeepsTheModulesOfAnEncoder) {
  const test::TempFolder folder;
  std::filesystem::create_directories(folder / "bert" / "1_Pooling");
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy(goldens / "bert" / file, folder / "bert" / file);
  test::write_text(folder / "bert" / "modules.json", R"([{"path": ""}, {"path": "1_Pooling"}])");
  test::write_text(folder / "bert" / "1_Pooling" / "config.json", "{}");
  test::write_text(folder / "bert" / "jerboa.json", "{}");
  quantise_folder(folder / "bert", folder / "copy", DType::i8);
  EXPECT_EQ(test::read_text(folder / "copy" / "1_Pooling" / "config.json"), "{}");
  EXPECT_TRUE(std::filesystem::exists(folder / "copy" / "modules.json"));
  EXPECT_FALSE(std::filesystem::exists(folder / "copy" / "jerboa.json"));  // which is about the other folder
  test::write_text(folder / "bert" / "modules.json", R"([{"path": "../elsewhere"}])");
  test::expect_error<FileError>([&] { quantise_folder(folder / "bert", folder / "other", DType::i8); },
                                "the module \"../elsewhere\" is not in its folder");
}

TEST(QuantisedFile, RefusesWhatDoesNotFit) {
  const test::TempFolder folder;
  const auto int4 = folder / "int4";
  quantise_folder(goldens / "llama", int4, DType::i4);
  const std::string weight = "model.layers.0.self_attn.q_proj.weight";
  test::expect_error<FileError>([&] { params_of(int4, DType::i8); },
                                "holds int4 weights, but int8 ones were asked for");
  test::expect_error<FileError>([&] { params_of(int4, DType::f32); },
                                "its weights are int4 and cannot be converted to another type");
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
