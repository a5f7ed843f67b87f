#include "server/embeddings.h"

#include <algorithm>
#include <cstring>

namespace jerboa::server {
namespace {

Json vector_json(std::span<const float> row, bool as_base64) {
  if (!as_base64) return std::vector<float>(row.begin(), row.end());
  std::string bytes(row.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), row.data(), bytes.size());
  return base64(bytes);
}

}  // namespace

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

Json embed(LoadedModel& model, const EmbeddingRequest& request) {
  TextEncoder& encoder = model.encoder();
  if (request.dimensions > encoder.dimensions())
    throw ApiError(400, "the model's embeddings have " + std::to_string(encoder.dimensions()) + " dimensions",
                   "dimensions");
  std::vector<std::string> texts;
  std::size_t tokens = 0;
  for (const Prompt& input : request.inputs) {
    const auto* text = std::get_if<std::string>(&input);
    texts.push_back(text ? *text : encoder.tokenizer().decode(std::get<std::vector<std::int32_t>>(input)));
    tokens += encoder.tokenizer().encode(texts.back()).size();
  }
  const Embeddings found = encoder.embed(texts, {.dimensions = request.dimensions});
  Json data = Json::array();
  for (std::int64_t i = 0; i < found.count; ++i)
    data.push_back(
        {{"object", "embedding"}, {"index", i}, {"embedding", vector_json(found.row(i), request.as_base64)}});
  return {{"object", "list"},
          {"data", data},
          {"model", model.name()},
          {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
}

}  // namespace jerboa::server
