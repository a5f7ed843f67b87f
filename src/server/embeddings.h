#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/request.h"
#include "server/task.h"

namespace jerboa::server {

struct EmbeddingRequest {
  std::string model = {};
  std::vector<Prompt> inputs = {};
  int dimensions = 0;  ///< 0: all
  bool as_base64 = false;
};
EmbeddingRequest parse_embedding_request(const Json& body, const RequestLimits& limits);

/// The answer in OpenAI's format.
Json embed(LoadedModel& model, const EmbeddingRequest& request);

std::string base64(std::string_view bytes);

}  // namespace jerboa::server
