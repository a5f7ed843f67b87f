#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/request.h"

namespace jerboa::server {

struct EmbeddingRequest {
  std::string model = {};
  std::vector<Prompt> inputs = {};
  int dimensions = 0;  ///< 0: all
  bool as_base64 = false;
};
EmbeddingRequest parse_embedding_request(const Json& body, const RequestLimits& limits);

/// In the format of Jina's and Cohere's rerankers.
struct RerankRequest {
  std::string model = {}, query = {};
  std::vector<std::string> documents = {};
  int most = 0;  ///< 0: all
  bool returns_documents = false;
};
RerankRequest parse_rerank_request(const Json& body, const RequestLimits& limits);

/// An embedding as numbers, or as their bytes in base64.
Json vector_json(std::span<const float> row, bool as_base64);
std::string base64(std::string_view bytes);

}  // namespace jerboa::server
