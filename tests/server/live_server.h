#pragma once

#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "language/model_folder.h"
#include "server/fields.h"
#include "server/server.h"
#include "server/socket_client.h"

namespace jerboa::server::test {

inline constexpr const char* simple_template =
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant: ";

/// A small model with a chat template.
class ChatFolder : public jerboa::test::ModelFolder {
 public:
  ChatFolder() : ModelFolder("llama") {
    auto config = nlohmann::json::parse(jerboa::test::read_text(path() / "config.json"));
    config["max_position_embeddings"] = 2048;
    write("config.json", config.dump());
    write("chat_template.jinja", simple_template);
  }
};

/// A server with that model under several names, accessed over sockets.
class Live {
 public:
  explicit Live(ServerOptions options = {}, const std::vector<std::string>& names = {"tiny"}, int drafts = 0)
      : server_(models(names, drafts), prepared(std::move(options))), thread_([this] { server_.run(); }) {}
  ~Live() {
    server_.drain();
    thread_.join();
  }
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  int port() const { return server_.port(); }
  std::string ask(const std::string& request) const {
    SocketClient client(port());
    client.send(request);
    return client.read();
  }
  std::string ask(const std::string& path, const Json& body) const {
    return ask(post(path, dump(body), "Connection: close\r\n"));
  }
  Json json(const std::string& path, const Json& body) const {
    const std::string answer = ask(path, body);
    EXPECT_EQ(status_of(answer), 200) << answer;
    return Json::parse(body_of(answer));
  }
  const ChatFolder& folder() const { return folder_; }

 private:
  // The model drafts for itself, so that drafts are right.
  std::vector<ServedModel> models(const std::vector<std::string>& names, int drafts) const {
    std::vector<ServedModel> out;
    for (const std::string& name : names)
      out.push_back({name, folder_.path(), drafts, drafts > 0 ? folder_.path() : ""});
    return out;
  }
  static ServerOptions prepared(ServerOptions options) {
    options.http.port = 0;
    options.model.device = Device::cpu(2);
    return options;
  }

  ChatFolder folder_;
  Server server_;
  std::thread thread_;
};

inline const Json question = {
    {"messages", {{{"role", "user"}, {"content", "Hello"}}}}, {"max_tokens", 12}, {"temperature", 0}};

inline Json with(Json body, const std::string& key, const Json& value) {
  body[key] = value;
  return body;
}

/// A tokenizer whose tokens are the words w0, w1, …
inline std::string word_tokenizer() {
  Json vocabulary;
  for (int i = 0; i < 256; ++i) vocabulary["w" + std::to_string(i)] = i;
  return Json{{"version", "1.0"},
              {"added_tokens", Json::array()},
              {"normalizer", nullptr},
              {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
              {"post_processor", nullptr},
              {"decoder", nullptr},
              {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "w9"}}}}
      .dump();
}

}  // namespace jerboa::server::test
