#pragma once

#include <jerboa/generate/constraint.h>
#include <jerboa/generate/sampler.h>

#include "c_api/fields.h"

namespace jerboa::c_api {

/// Reads {"temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty",
/// "frequency_penalty", "penalty_window", "logit_bias", "banned_tokens", "seed"}; absent fields stay as in `otherwise`.
SamplerOptions sampling_of(const nlohmann::json& json, SamplerOptions otherwise);

/// The grammar of "schema", a JSON schema, or of "regex"; null if both are absent.
std::shared_ptr<const Grammar> grammar_of(Fields& fields);

std::vector<std::int32_t> tokens_of(const nlohmann::json& json, const std::string& what);
std::vector<std::string> texts_of(const nlohmann::json& json, const std::string& what);

}  // namespace jerboa::c_api
