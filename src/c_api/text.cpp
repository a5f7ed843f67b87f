#include <cstring>
#include <memory>

#include <jerboa/models/quantise.h>

#include "c_api/bundle.h"
#include "c_api/call.h"
#include "c_api/sampling_options.h"
#include "c_api/text_files.h"
#include "steps/token_bytes.h"

using namespace jerboa;
using namespace jerboa::c_api;

struct jerboa_tokenizer {
  Tokenizer tokenizer;
};
struct jerboa_decoder {
  StreamDecoder decoder;
};
struct jerboa_template {
  ChatTemplate chat;
};
struct jerboa_sampler {
  Sampler sampler;
};

namespace {

Files files_of(const uint8_t* files, size_t size) {
  const Bundle bundle = read_bundle(bytes_of(files, size, "files"), "files");
  const auto names = texts_of(bundle.value, "the names of the files");
  if (names.size() != bundle.parts.size()) throw UsageError("files: there must be one name for each part");
  Files out;
  for (std::size_t i = 0; i < names.size(); ++i) out.emplace(names[i], bundle.parts[i]);
  return out;
}

}  // namespace

jerboa_status jerboa_tokenizer_create(const uint8_t* files, size_t files_size, jerboa_tokenizer** tokenizer) {
  return guarded([&] {
    auto& place = handle(tokenizer, "the place for the result");
    place = new jerboa_tokenizer{tokenizer_of(files_of(files, files_size))};
  });
}

void jerboa_tokenizer_free(jerboa_tokenizer* tokenizer) { delete tokenizer; }

jerboa_status jerboa_tokenizer_encode(const jerboa_tokenizer* tokenizer, const char* text, size_t text_size,
                                      int add_special, jerboa_buffer** tokens) {
  return guarded([&] {
    const auto ids =
        handle(tokenizer, "tokenizer").tokenizer.encode(text_of(text, text_size, "text"), {add_special != 0}).ids;
    give(tokens, std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(std::int32_t)));
  });
}

jerboa_status jerboa_tokenizer_decode(const jerboa_tokenizer* tokenizer, const int32_t* tokens, size_t count,
                                      int skip_special, jerboa_buffer** text) {
  return guarded([&] {
    if (tokens == nullptr && count > 0) throw UsageError("tokens is NULL");
    give(text, handle(tokenizer, "tokenizer").tokenizer.decode({tokens, count}, {.skip_special = skip_special != 0}));
  });
}

jerboa_status jerboa_decoder_create(const jerboa_tokenizer* tokenizer, jerboa_decoder** decoder) {
  return guarded([&] {
    auto& place = handle(decoder, "the place for the result");
    place = new jerboa_decoder{StreamDecoder(handle(tokenizer, "tokenizer").tokenizer)};
  });
}

void jerboa_decoder_free(jerboa_decoder* decoder) { delete decoder; }

jerboa_status jerboa_decoder_push(jerboa_decoder* decoder, int32_t token, jerboa_buffer** text) {
  return guarded([&] { give(text, handle(decoder, "decoder").decoder.push(token)); });
}

jerboa_status jerboa_decoder_finish(jerboa_decoder* decoder, jerboa_buffer** text) {
  return guarded([&] { give(text, handle(decoder, "decoder").decoder.finish()); });
}

jerboa_status jerboa_template_create(const uint8_t* files, size_t files_size, jerboa_template** chat_template) {
  return guarded([&] {
    auto& place = handle(chat_template, "the place for the result");
    auto chat = template_of(files_of(files, files_size));
    if (!chat) throw UsageError("the model has no chat template");
    place = new jerboa_template{std::move(*chat)};
  });
}

void jerboa_template_free(jerboa_template* chat_template) { delete chat_template; }

jerboa_status jerboa_template_render(const jerboa_template* chat_template, const char* request, size_t request_size,
                                     jerboa_buffer** text) {
  return guarded([&] {
    Fields fields(text_of(request, request_size, "request"), "the request");
    const auto json = [&](const char* key) { return JsonValue::parse(fields.value(key).dump(), key); };
    ChatTemplateOptions options;
    const JsonValue messages = json("messages");
    if (fields.has("tools")) options.tools = json("tools");
    if (fields.has("variables")) options.variables = json("variables");
    fields.value("tools");
    fields.value("variables");
    options.add_generation_prompt = fields.flag("add_generation_prompt", true);
    fields.finish();
    give(text, handle(chat_template, "chat_template").chat.render(messages, options));
  });
}

jerboa_status jerboa_sampler_create(const char* options, size_t options_size, const jerboa_tokenizer* tokenizer,
                                    jerboa_sampler** sampler) {
  return guarded([&] {
    auto& place = handle(sampler, "the place for the result");
    Fields fields(text_of(options, options_size, "options"), "options");
    auto made = std::make_unique<jerboa_sampler>(jerboa_sampler{Sampler(sampling_of(fields.value("sampling"), {}))});
    const std::vector<std::int32_t> ends =
        fields.has("end_tokens") ? tokens_of(fields.value("end_tokens"), "end_tokens") : std::vector<std::int32_t>();
    fields.value("end_tokens");
    const int vocabulary = fields.count("vocabulary", 0);
    if (const auto grammar = grammar_of(fields)) {
      const Tokenizer& tokens = handle(tokenizer, "tokenizer, which a grammar needs,").tokenizer;
      const std::int64_t count = vocabulary > 0 ? vocabulary : tokens.vocab_size();
      made->sampler.constrain(make_constraint(
          grammar, std::make_shared<const Vocabulary>(jerboa::detail::token_bytes(tokens, count), ends)));
    }
    fields.finish();
    place = made.release();
  });
}

void jerboa_sampler_free(jerboa_sampler* sampler) { delete sampler; }

jerboa_status jerboa_sampler_observe(jerboa_sampler* sampler, const int32_t* tokens, size_t count) {
  return guarded([&] {
    if (tokens == nullptr && count > 0) throw UsageError("tokens is NULL");
    handle(sampler, "sampler").sampler.observe({tokens, count});
  });
}

jerboa_status jerboa_sampler_sample(jerboa_sampler* sampler, const float* logits, size_t count, int32_t* token) {
  return guarded([&] {
    if (logits == nullptr) throw UsageError("logits is NULL");
    std::vector<float> scratch(logits, logits + count);
    handle(token, "the place for the token") = handle(sampler, "sampler").sampler.sample(scratch);
  });
}

jerboa_status jerboa_quantise(const float* values, size_t rows, size_t columns, const char* type, size_t type_size,
                              jerboa_buffer** quantised) {
  return guarded([&] {
    if (values == nullptr) throw UsageError("values is NULL");
    const std::string_view wanted = text_of(type, type_size, "type");
    if (wanted != "int8" && wanted != "int4") throw UsageError("weights can be quantised to int8 or int4");
    const models::Quantised made =
        models::quantise({values, rows * columns}, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns),
                         wanted == "int8" ? DType::i8 : DType::i4);
    BundleWriter out;
    nlohmann::json names = {"weight", "scales"};
    out.add(made.weight.bytes());
    out.add(made.scales.bytes());
    if (made.mins) {
      out.add(made.mins->bytes());
      names.push_back("mins");
    }
    give(quantised, std::move(out).finish(std::move(names)));
  });
}
