#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <jerboa/generate/sampler.h>

#include "server/fields.h"

// Requests in OpenAI's formats as structs. Parsing needs no model: what depends on one is checked later.
namespace jerboa::server {

struct RequestLimits {
  int max_tokens = 0;     ///< limit of what a request may ask for; 0: the model's context
  int choices = 16;       ///< limit of a request: prompts times n
  double seconds = 600;   ///< for an answer, including waiting
  int stops = 16;         ///< stop strings
  int tools = 128;        ///< of one request
  int top_logprobs = 20;  ///< alternatives of each token
  int embedding_texts = 2048;
};

/// The fields that all kinds of generation share.
struct GenerationRequest {
  std::string model = {};  ///< "": the first model
  std::optional<int> max_tokens = {};
  std::optional<float> temperature = {}, top_p = {}, min_p = {};
  std::optional<float> repetition_penalty = {}, presence_penalty = {}, frequency_penalty = {};
  std::optional<int> top_k = {};
  std::optional<std::uint64_t> seed = {};
  std::vector<std::pair<int, float>> logit_bias = {};
  std::vector<std::string> stop = {};
  int choices = 1;
  bool stream = false, include_usage = false;
  std::optional<int> logprobs = {};  ///< how many alternatives of each token to list
  std::optional<Json> schema = {};   ///< that the answer must conform to

  /// A model's recommended options, overridden by those of the request; the seed is random unless it is given.
  SamplerOptions sampling(const SamplerOptions& recommended) const;
};

struct Tool {
  std::string name;
  Json parameters;  ///< a JSON schema
};

enum class ToolChoice : std::uint8_t { none, automatic, required };

struct ChatRequest : GenerationRequest {
  Json messages = {};            ///< as templates expect them: contents are strings, arguments of calls are objects
  Json tools_json = {};          ///< as templates expect them; null if there are none or none may be called
  std::vector<Tool> tools = {};  ///< that may be called; only one if the request names it
  ToolChoice tool_choice = ToolChoice::none;
  bool parallel_calls = true;
  Json variables = {};  ///< for the template
};

using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

struct CompletionRequest : GenerationRequest {
  std::vector<Prompt> prompts = {};
  bool echo = false;
};

/// The body of a request. Throws ApiError 400 if it is not valid JSON.
Json parse_body(const std::string& body);

ChatRequest parse_chat_request(const Json& body, const RequestLimits& limits);
CompletionRequest parse_completion_request(const Json& body, const RequestLimits& limits);
/// The format of /v1/responses.
ChatRequest parse_responses_request(const Json& body, const RequestLimits& limits);

/// A prompt, or a list of prompts: a string, strings, tokens or lists of tokens.
std::vector<Prompt> parse_prompts(const Fields& fields, std::string_view name, int most);

}  // namespace jerboa::server
