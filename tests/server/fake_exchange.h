#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/http.h"

namespace jerboa::server::test {

/// Records the answer.
class FakeExchange final : public Exchange {
 public:
  void respond(HttpResponse given) override {
    response = std::move(given);
    is_finished = true;
  }
  void start(HttpResponse head) override { response = std::move(head); }
  void write(std::string data) override { response.body += data; }
  void finish() override { is_finished = true; }
  void abort() override { is_finished = true; }
  bool is_closed() const override { return is_gone; }

  nlohmann::json json() const { return nlohmann::json::parse(response.body); }
  /// The data of the events, except "[DONE]".
  std::vector<nlohmann::json> events() const {
    std::vector<nlohmann::json> out;
    for (std::size_t at = 0; (at = response.body.find("data: ", at)) != std::string::npos;) {
      const std::size_t end = response.body.find("\n\n", at);
      const std::string data = response.body.substr(at + 6, end - at - 6);
      if (data != "[DONE]") out.push_back(nlohmann::json::parse(data));
      at = end;
    }
    return out;
  }
  bool ends_with(const std::string& text) const {
    return response.body.size() >= text.size() && response.body.substr(response.body.size() - text.size()) == text;
  }

  HttpResponse response;
  bool is_finished = false, is_gone = false;
};

}  // namespace jerboa::server::test
