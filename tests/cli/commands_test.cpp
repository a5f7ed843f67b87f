#include <gtest/gtest.h>

#include "cli/chat_model.h"
#include "cli/command.h"
#include "support/bert_head.h"

// The output of the smaller commands on success.
namespace jerboa::test::commands_test {
namespace {

using Json = nlohmann::json;

class CommandsTest : public testing::Test {
 protected:
  static std::string output(const std::vector<std::string>& arguments, const std::string& input = "") {
    const Outcome outcome = run_command(arguments, {.input = input});
    EXPECT_EQ(outcome.code, 0) << arguments[0] << ": " << outcome.err;
    return outcome.out;
  }
  static std::vector<Json> lines_of(const std::string& text) {
    std::vector<Json> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  static std::int64_t load_bytes(const Json& json, std::size_t load) { return json["loads"][load]["loaded_bytes"]; }
  static std::string generated(const std::string& model) {
    return output({"generate", model, "Once", "--max-tokens", "8", "--greedy", "--device", "cpu"});
  }
  // The encoder with a head for classes.
  std::string classifier(const std::vector<std::string>& classes) const {
    write_bert_head(goldens / "bert", encoder_.path(), classes);
    return encoder_.path().string();
  }

  ChatModel model_{256};
  ModelFolder encoder_{"bert"};
  TempFolder folder_;
};

TEST_F(CommandsTest, MeasuresHowLongAModelTakesToLoad) {
  const Json json = Json::parse(output({"bench", "load", "--model", "llama8x512", "--weights", "f16", "int4", "--turns",
                                        "1", "--folder", folder_.path().string(), "--json"}));
  EXPECT_NEAR(json["file_gigabytes"], 0.116, 0.001);
  ASSERT_EQ(json["loads"].size(), 2u);
  for (const Json& load : json["loads"]) {
    for (const char* phase : {"reading", "converting", "weights", "compiling", "finishing", "opening"})
      EXPECT_GT(load[std::string(phase) + "_seconds"], 0) << phase;
    EXPECT_GT(load["whole_seconds"], load["weights_seconds"]);
    EXPECT_EQ(load["uploading_seconds"].get<double>() < 0.01, true) << "threads write where the engine reads";
    EXPECT_GE(load["share_in_page_cache"], 0);
  }
  EXPECT_LT(load_bytes(json, 1), load_bytes(json, 0));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path())) << "the model is removed";
  EXPECT_NE(output({"bench", "load", "--model", "llama8x512", "--weights", "int8", "--turns", "1", "--cold", "--folder",
                    folder_.path().string()})
                .find("int8"),
            std::string::npos);
}

TEST_F(CommandsTest, EmbedsComparesAndSearches) {
  const std::string encoder = encoder_.path().string();
  const auto vectors = lines_of(output({"embed", encoder, "abc", "hop", "--device", "cpu"}));
  ASSERT_EQ(vectors.size(), 2u);
  EXPECT_EQ(vectors[1]["text"], "hop");
  double squares = 0;
  for (const double value : vectors[0]["embedding"]) squares += value * value;
  EXPECT_NEAR(squares, 1, 1e-5);
  const std::string vector = output({"embed", encoder, "abc", "--device", "cpu"});
  EXPECT_EQ(output({"embed", encoder, "abc", "--json", "--device", "cpu"}), vector);
  EXPECT_NE(output({"embed", encoder, "abc", "--precision", "mixed", "--device", "cpu"}), vector);
  std::istringstream text(output({"embed", encoder, "--format", "text", "-f", "-", "--device", "cpu"}, "abc\n"));
  for (const double value : vectors[0]["embedding"]) {
    double printed = 0;
    text >> printed;
    EXPECT_NEAR(printed, value, 1e-6);
  }
  EXPECT_TRUE(
      output({"embed", encoder, "abc", "abc", "--similarities", "--device", "cpu"}).starts_with(" 1.0000  1.0"));
  EXPECT_TRUE(output({"embed", encoder, "abc", "abc", "--similarities", "--json", "--device", "cpu"})
                  .starts_with(R"({"text":"abc","similarities":[)"));
  write_text(folder_ / "lines.txt", "hop hop\nabc\n");
  const auto found = lines_of(
      output({"embed", encoder, "abc", "--search", (folder_ / "lines.txt").string(), "--top", "1", "--device", "cpu"}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["line"], 2);
  output({"embed", encoder, "abc", "--output", (folder_ / "v.npy").string(), "--device", "cpu"});
  EXPECT_EQ(read_text(folder_ / "v.npy").size(), 128 + 4 * vectors[0]["embedding"].size());
}

TEST_F(CommandsTest, Classifies) {
  const std::string model = classifier({"bad", "fair", "good"});
  const auto scores = lines_of(output({"classify", model, "abc", "--device", "cpu"}))[0]["scores"];
  EXPECT_NEAR(scores["bad"].get<double>() + scores["fair"].get<double>() + scores["good"].get<double>(), 1, 1e-5);
  std::string best = "bad";
  for (const auto& [name, score] : scores.items())
    if (score > scores[best]) best = name;
  const std::string text = output({"classify", model, "abc", "--format", "text", "--device", "cpu"});
  EXPECT_TRUE(text.ends_with("  " + best + "  abc\n")) << text;
}

TEST_F(CommandsTest, Reranks) {
  const std::string model = classifier({"relevant"});
  const std::vector<std::string> arguments{"rerank", model, "query", "one", "two words", "three", "--device", "cpu"};
  const auto matches = lines_of(output(arguments));
  ASSERT_EQ(matches.size(), 3u);
  EXPECT_GE(matches[0]["score"], matches[1]["score"]);
  EXPECT_GE(matches[1]["score"], matches[2]["score"]);
  auto as_text = arguments;
  as_text.insert(as_text.end(), {"--format", "text"});
  const std::string text = output(as_text);
  EXPECT_EQ(text.substr(text.find("  ") + 2, text.find('\n') - text.find("  ") - 2), matches[0]["text"]);
}

TEST_F(CommandsTest, MeasuresPerplexity) {
  write_text(folder_ / "text.txt", "some text that nobody trained it on");
  const std::vector<std::string> arguments{"perplexity", model_.name(), "-f",    (folder_ / "text.txt").string(),
                                           "--device",   "cpu",         "--json"};
  const auto result = Json::parse(output(arguments));
  EXPECT_EQ(result["tokens"], 34);
  EXPECT_GT(result["perplexity"], 100);  // of 256 tokens that are about equally likely
  EXPECT_LT(result["perplexity"], 1000);
  const auto of_input = Json::parse(output({"perplexity", model_.name(), "-f", "-", "--device", "cpu", "--json"},
                                           "some text that nobody trained it on"));
  EXPECT_EQ(of_input["perplexity"], result["perplexity"]);
  const auto perplexity_in = [&](const std::string& precision) {
    auto chosen = arguments;
    chosen.insert(chosen.end(), {"--precision", precision});
    return Json::parse(output(chosen))["perplexity"].get<double>();
  };
  EXPECT_EQ(perplexity_in("full"), result["perplexity"]);
  const double mixed = perplexity_in("mixed");
  EXPECT_NE(mixed, result["perplexity"]);
  EXPECT_NEAR(mixed, result["perplexity"], 0.01 * mixed);
}

TEST_F(CommandsTest, ConvertsAndQuantises) {
  const std::string copy = (folder_ / "copy").string(), small = (folder_ / "small").string();
  output({"convert", model_.name(), copy});
  EXPECT_EQ(generated(copy), generated(model_.name()));
  output({"quantise", model_.name(), small, "--weights", "int8"});
  EXPECT_EQ(generated(small), output({"generate", model_.name(), "Once", "--max-tokens", "8", "--greedy", "--device",
                                      "cpu", "--weights", "int8"}));
  const Outcome again = run_command({"quantise", model_.name(), small});
  EXPECT_EQ(again.code, 1);
  EXPECT_NE(again.err.find("already exists"), std::string::npos) << again.err;
}

TEST_F(CommandsTest, ConvertsNothingThatItsConfigDoesNotDescribe) {
  const auto original = goldens / "llama";
  const auto refusal = [&](const std::string& key, const Json& value) {
    const auto changed = folder_ / "changed";
    std::filesystem::create_directories(changed);
    Json config = Json::parse(read_text(original / "config.json"));
    config.erase("rope_parameters");
    config[key] = value;
    write_text(changed / "config.json", config.dump());
    if (!std::filesystem::exists(changed / "model.safetensors"))
      std::filesystem::copy(original / "model.safetensors", changed / "model.safetensors");
    const Outcome outcome = run_command({"convert", changed.string(), (folder_ / "copy").string()});
    EXPECT_EQ(outcome.code, 1) << outcome.out;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "copy"));
    return outcome.err;
  };
  EXPECT_NE(refusal("rope_theta", 0).find("rope_theta"), std::string::npos);
  EXPECT_NE(refusal("num_hidden_layers", 61).find("num_hidden_layers is 61"), std::string::npos);
  EXPECT_NE(refusal("vocab_size", 1000000).find("config.json requires [1000000"), std::string::npos);
}

TEST_F(CommandsTest, ListsDevices) {
  EXPECT_TRUE(output({"devices"}).starts_with("cpu     "));
  EXPECT_EQ(Json::parse(output({"devices", "--json"}))[0]["device"], "cpu");
}

TEST_F(CommandsTest, RendersTemplates) {
  EXPECT_EQ(output({"template", "render", model_.name()}, R"([{"role": "user", "content": "hi"}])"), "<u>hi<a>");
}

TEST_F(CommandsTest, DescribesTokensForPrograms) {
  EXPECT_EQ(output({"tokenizer", "encode", model_.name(), "--json", "--null", "--offsets"}, std::string("a\0bc", 4)),
            "{\"ids\":[97],\"offsets\":[[0,1]]}\n{\"ids\":[98,99],\"offsets\":[[0,1],[1,2]]}\n");
  const auto info = Json::parse(output({"tokenizer", "info", model_.name(), "--json"}));
  EXPECT_EQ(info["model"], "BPE");
  EXPECT_EQ(info["vocabulary"], 256);
}

TEST_F(CommandsTest, VerifiesForPrograms) {
  const auto report = Json::parse(output({"verify", (goldens / "llama").string(), "--device", "cpu", "--json"}));
  EXPECT_GE(report["passed"], 1);
  EXPECT_EQ(report["failed"], 0);
  EXPECT_TRUE(report["failures"].empty());
}

}  // namespace
}  // namespace jerboa::test::commands_test
