#include <memory>

#include "c_api/call.h"
#include "c_api/language_handle.h"
#include "c_api/sampling_options.h"

using namespace jerboa::c_api;

jerboa_status jerboa_language_create(const uint8_t* model, size_t model_size, jerboa_language** language) {
  return guarded([&] {
    auto& place = handle(language, "the place for the result");
    place = std::make_unique<jerboa_language>(read_language(read_bundle(bytes_of(model, model_size, "model"), "model")))
                .release();
  });
}

void jerboa_language_free(jerboa_language* language) { delete language; }

jerboa_status jerboa_language_describe(const jerboa_language* language, jerboa_buffer** description) {
  return guarded([&] { give(description, handle(language, "language").describe().dump()); });
}

jerboa_status jerboa_language_program(const jerboa_language* language, const char* entry, size_t entry_size,
                                      jerboa_buffer** program) {
  return guarded(
      [&] { give(program, handle(language, "language").program(std::string(text_of(entry, entry_size, "entry")))); });
}

jerboa_status jerboa_language_parameter(const jerboa_language* language, const uint8_t* tensors, size_t tensors_size,
                                        jerboa_buffer** parameters) {
  return guarded([&] {
    give(parameters,
         handle(language, "language").parameter(read_bundle(bytes_of(tensors, tensors_size, "tensors"), "tensors")));
  });
}

jerboa_status jerboa_language_submit(jerboa_language* language, const char* request, size_t request_size, double now,
                                     jerboa_buffer** submitted) {
  return guarded([&] {
    give(submitted, handle(language, "language")
                        .submit(Fields(text_of(request, request_size, "request"), "the request"), now)
                        .dump());
  });
}

jerboa_status jerboa_language_next(jerboa_language* language, double now, jerboa_buffer** step) {
  return guarded([&] { give(step, handle(language, "language").next(now)); });
}

jerboa_status jerboa_language_complete(jerboa_language* language, double step, const uint8_t* results,
                                       size_t results_size, double now, jerboa_buffer** events) {
  return guarded([&] {
    const Bundle read = read_bundle(bytes_of(results, results_size, "results"), "results");
    give(events, handle(language, "language").complete(static_cast<std::int64_t>(step), read, now).dump());
  });
}

jerboa_status jerboa_language_fail(jerboa_language* language, double step, const char* message, size_t message_size,
                                   int out_of_memory, double now, jerboa_buffer** events) {
  return guarded([&] {
    give(events, handle(language, "language")
                     .fail(static_cast<std::int64_t>(step), std::string(text_of(message, message_size, "message")),
                           out_of_memory != 0, now)
                     .dump());
  });
}

jerboa_status jerboa_language_cancel(jerboa_language* language, double id, double now, jerboa_buffer** events) {
  return guarded([&] { give(events, handle(language, "language").cancel(static_cast<std::int64_t>(id), now).dump()); });
}

jerboa_status jerboa_language_encode(const jerboa_language* language, const char* request, size_t request_size,
                                     jerboa_buffer** tokens) {
  return guarded([&] {
    Fields fields(text_of(request, request_size, "request"), "the request");
    const auto ids = handle(language, "language").prompt_of(fields);
    fields.finish();
    give(tokens, nlohmann::json(ids).dump());
  });
}
