#include "server/embeddings.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace jerboa::server {
Json vector_json(std::span<const float> row, bool as_base64) {
  if (!as_base64) return std::vector<float>(row.begin(), row.end());
  std::string bytes(row.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), row.data(), bytes.size());
  return base64(bytes);
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    unsigned group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i) out += i <= count ? alphabet[group >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

EmbeddingRequest parse_embedding_request(const Json& body, const RequestLimits& limits) {
  const Fields fields(body);
  EmbeddingRequest out;
  out.model = fields.text("model").value_or("");
  out.inputs = parse_prompts(fields, "input", limits.embedding_texts);
  out.dimensions = static_cast<int>(fields.integer("dimensions", 1, INT32_MAX).value_or(0));
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") fields.fail("encoding_format", "must be float or base64");
  out.as_base64 = format == "base64";
  return out;
}

RerankRequest parse_rerank_request(const Json& body, const RequestLimits& limits) {
  const Fields fields(body);
  RerankRequest out;
  out.model = fields.text("model").value_or("");
  out.query = fields.required_text("query");
  const Json& documents = fields.require("documents");
  if (!documents.is_array() || documents.empty()) fields.fail("documents", "must be a list of strings");
  if (documents.size() > static_cast<std::size_t>(limits.embedding_texts))
    fields.fail("documents", fmt::format("may list at most {} texts", limits.embedding_texts));
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const Json& one = documents[i];
    out.documents.push_back(one.is_string() ? one.get<std::string>()
                                            : Fields(one, fmt::format("documents[{}]", i)).required_text("text"));
  }
  out.most = static_cast<int>(fields.integer("top_n", 1, INT32_MAX).value_or(0));
  out.returns_documents = fields.boolean("return_documents").value_or(false);
  return out;
}

}  // namespace jerboa::server
