/*
 * Jerboa's compiler as plain C: JSON and bytes in, JSON and bytes out. It needs no device, no file and no thread, so
 * that the same functions serve the browser (compiled to WASM) and other languages (libjerboa_c.so).
 *
 * - Every function that can fail returns a jerboa_status. If it is not JERBOA_OK, jerboa_last_error() describes what
 * went wrong, and the function has changed nothing: results are not written.
 * - Text is UTF-8 with an explicit length; it need not end with a zero.
 * - What a function returns through a `**` argument belongs to the caller, who frees it with the function named after
 * its type. Freeing NULL does nothing. Arguments are never kept: they can be freed as soon as the call returns.
 * - Calls may come from several threads, but not at the same time with the same handle. The last error belongs to the
 *   thread.
 */
#ifndef JERBOA_C_API_JERBOA_C_H
#define JERBOA_C_API_JERBOA_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a function changes its meaning or disappears; new functions do not raise it. */
#define JERBOA_ABI_VERSION 2

typedef enum jerboa_status {
  JERBOA_OK = 0,
  JERBOA_USAGE_ERROR = 1, /* a wrong call: an unknown option, a value out of range */
  JERBOA_FILE_ERROR = 2,  /* content that is malformed or that does not match: config.json, a tokenizer, a program */
  JERBOA_GRAPH_ERROR = 3, /* a graph that cannot be built, differentiated or compiled */
  JERBOA_SHAPE_ERROR = 4, /* sizes or types that do not fit an op */
  JERBOA_OUT_OF_MEMORY = 5,
  JERBOA_OTHER_ERROR = 6
} jerboa_status;

/* Bytes that a function returned. */
typedef struct jerboa_buffer jerboa_buffer;
const uint8_t* jerboa_buffer_data(const jerboa_buffer* buffer);
size_t jerboa_buffer_size(const jerboa_buffer* buffer);
void jerboa_buffer_free(jerboa_buffer* buffer);

/* The version of the interface that the library was built with, to compare with JERBOA_ABI_VERSION. */
uint32_t jerboa_abi_version(void);
/* The version of the library, "0.1.0". */
const char* jerboa_version(void);
/* What went wrong in this thread's last call that failed; valid until its next call. */
const char* jerboa_last_error(void);

/*
 * Compiling. A device is described by a JSON object, as WebGPU reports it; an absent or empty one stands for the limits
 * that every WebGPU device has:
 *
 *   {"limits": {"maxBufferSize": 268435456, "maxStorageBufferBindingSize": 134217728, …},
 *    "features": ["shader-f16", "subgroups"],
 *    "info": {"vendor": "", "architecture": "", "device": "", "description": "", "subgroupMinSize": 4,
 *             "subgroupMaxSize": 128, "isFallbackAdapter": false}}
 *
 * Programs are the bytes of a program file (docs/program-files.md). The same arguments give the same bytes on every
 * platform.
 */

/*
 * The entries of a language model from its config.json. `options` is a JSON object; every key has a default:
 *
 *   {"weights": "f32", "cache": "f32",          types: f32, f16, bf16, int8, int4; the cache f32, f16 or int8
 *    "blocks": 4, "block": 32, "slots": 0,      the paged cache, and the slots of recurrent states
 *    "context": 0,                              the longest text; 0: what the largest table holds
 *    "carried_rows": 0, "precision": "full",    or "mixed_f16"
 *    "device": {…},
 *    "entries": [{"rows": 1, "time": 1, "table": 4, "outputs": 1, "is_prompt": false,
 *                 "drawing": "none", "masked": false}]}      or "greedy", "sampled"
 *
 * With "is_prompt" an entry takes any number of tokens up to "time"; "outputs" are the positions at the end whose
 * logits are computed, 0 for all. An entry
 *
 *   {"encoder": true, "rows": 1, "time": 1, "pooling": "none", "normalise": false}
 *
 * reads whole texts of up to "time" tokens without a cache: ids and for families that are encoders token_types
 * i32[rows, time], padded at the end, and lengths i32[rows]. Its outputs are "hidden", with the pooling "cls", "last",
 * "mean" or "max" also "pooled", whose vectors have the length 1 with "normalise", and of a model that classifies texts
 * "logits".
 */
jerboa_status jerboa_compile_model(const char* config, size_t config_size, const char* options, size_t options_size,
                                   jerboa_buffer** program);

/*
 * Entries that share parameters and states by name, from graphs as written by to_json:
 * {"device": {…}, "entries": {"step": GRAPH, …}}, compiled in alphabetical order. With "check_finite": true
 * hosts of the program check that the tensors are finite that a run computes.
 */
jerboa_status jerboa_compile_graphs(const char* request, size_t request_size, jerboa_buffer** program);

/*
 * Several byte strings with a description, as functions below take and give them: 8 bytes with the length of a JSON
 * text (little-endian), the text {"parts": [sizes], "value": …}, and the parts, each beginning at a multiple of 8 bytes
 * from the start.
 */

/* Tokenizers. The files of a model's folder are a bundle whose value is the list of their names: tokenizer.json,
   tokenizer.model or tokenizer.bin, and where there is one tokenizer_config.json. Tokens are 32-bit integers. */
typedef struct jerboa_tokenizer jerboa_tokenizer;
jerboa_status jerboa_tokenizer_create(const uint8_t* files, size_t files_size, jerboa_tokenizer** tokenizer);
void jerboa_tokenizer_free(jerboa_tokenizer* tokenizer);
jerboa_status jerboa_tokenizer_encode(const jerboa_tokenizer* tokenizer, const char* text, size_t text_size,
                                      int add_special, jerboa_buffer** tokens);
jerboa_status jerboa_tokenizer_decode(const jerboa_tokenizer* tokenizer, const int32_t* tokens, size_t count,
                                      int skip_special, jerboa_buffer** text);

/* Decodes tokens one after another: each call gives the text that is final with its token, whole characters. It keeps
   what it needs of the tokenizer, which may be freed before. */
typedef struct jerboa_decoder jerboa_decoder;
jerboa_status jerboa_decoder_create(const jerboa_tokenizer* tokenizer, jerboa_decoder** decoder);
void jerboa_decoder_free(jerboa_decoder* decoder);
jerboa_status jerboa_decoder_push(jerboa_decoder* decoder, int32_t token, jerboa_buffer** text);
jerboa_status jerboa_decoder_finish(jerboa_decoder* decoder, jerboa_buffer** text);

/* Chat templates, from the same kind of bundle: tokenizer_config.json, chat_template.jinja. A request is
   {"messages": […], "tools": […], "variables": {…}, "add_generation_prompt": true}. */
typedef struct jerboa_template jerboa_template;
jerboa_status jerboa_template_create(const uint8_t* files, size_t files_size, jerboa_template** chat_template);
void jerboa_template_free(jerboa_template* chat_template);
jerboa_status jerboa_template_render(const jerboa_template* chat_template, const char* request, size_t request_size,
                                     jerboa_buffer** text);

/* Samplers. Options: {"sampling": {"temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty",
   "presence_penalty", "frequency_penalty", "penalty_window", "logit_bias": [[token, bias], …],
   "banned_tokens": [tokens], "seed"}, "schema": {…} or "regex": "…", "end_tokens": […],
   "vocabulary": 0}. A schema or a pattern, to which the text is held, needs the tokenizer; it may be NULL otherwise. */
typedef struct jerboa_sampler jerboa_sampler;
jerboa_status jerboa_sampler_create(const char* options, size_t options_size, const jerboa_tokenizer* tokenizer,
                                    jerboa_sampler** sampler);
void jerboa_sampler_free(jerboa_sampler* sampler);
jerboa_status jerboa_sampler_observe(jerboa_sampler* sampler, const int32_t* tokens, size_t count);
jerboa_status jerboa_sampler_sample(jerboa_sampler* sampler, const float* logits, size_t count, int32_t* token);

/* A matrix as int8 or int4 weights (docs/quantised-weights.md): a bundle with the list of what its parts are, "weight",
   "scales" and for int4 "mins". */
jerboa_status jerboa_quantise(const float* values, size_t rows, size_t columns, const char* type, size_t type_size,
                              jerboa_buffer** quantised);

/*
 * A language model without its device. It decides everything: the sizes of the cache, which tensors of a checkpoint
 * make a parameter, what a step computes, which token follows where the device does not draw it, and when a text ends.
 * The caller does it: it compiles the entries that it is given (jerboa_language_program), keeps their storage, runs
 * them, and says what came out. Times are in seconds on any clock that does not go backwards.
 */
typedef struct jerboa_language jerboa_language;

/*
 * The model is a bundle whose parts are the files of its folder: config.json, a tokenizer, optionally
 * generation_config.json, tokenizer_config.json and chat_template.jinja, and of every safetensors file its beginning,
 * up to the end of the header. Its value is
 *
 *   {"files": [{"name": "config.json"}, {"name": "model.safetensors", "size": bytes of the whole file}, …],
 *    "device": {…}, "weights": "int4", "cache": "f16", "context": 0, "chunk": 0, "sequences": 0, "block": 0,
 *    "cache_tokens": 0, "deterministic": false, "pipelined": true or false, "device_sampling": true or false}
 *
 * where everything but the files may be left out. "pipelined" says whether a step begins before the tokens of the one
 * before are read, and "device_sampling" whether the device draws tokens or only finds the likeliest; by default both
 * are true, except on software drivers, where reading the logits is faster.
 */
jerboa_status jerboa_language_create(const uint8_t* model, size_t model_size, jerboa_language** language);
void jerboa_language_free(jerboa_language* language);

/*
 * JSON: the "version" of the library, the sizes of the model, the "entries" that nearly every text needs, and the
 * "reads" that its parameters are made from: [{"name", "tensors": [{"name", "file", "begin", "bytes"}], "rows"}]. If
 * "rows" is positive, the parameter can be made in parts, from some of its rows at a time.
 */
jerboa_status jerboa_language_describe(const jerboa_language* language, jerboa_buffer** description);

/* The program of an entry that jerboa_language_describe or jerboa_language_next named. */
jerboa_status jerboa_language_program(const jerboa_language* language, const char* entry, size_t entry_size,
                                      jerboa_buffer** program);

/*
 * What a parameter is uploaded as. `tensors` is a bundle of the tensors' bytes with the value
 * {"name": the parameter, "tensors": [names], "rows": 0 or how many rows the bytes are}. The result is a bundle with
 * the value [{"name", "dtype", "shape"}]: a quantised weight comes with its scales and minimums.
 */
jerboa_status jerboa_language_parameter(const jerboa_language* language, const uint8_t* tensors, size_t tensors_size,
                                        jerboa_buffer** parameters);

/*
 * Begins a text: {"prompt": "…"} or {"messages": […], "tools", "variables"} or {"tokens": […]}, with "max_tokens",
 * "sampling" as for samplers, "stop": [texts], "schema" or "regex", "seconds", "drafts", the most tokens to
 * guess per step from what the text has repeated so far, and "logprobs", how many of the likeliest tokens are listed
 * with each token's log-probability. Gives {"id", "prompt_tokens"}.
 */
jerboa_status jerboa_language_submit(jerboa_language* language, const char* request, size_t request_size, double now,
                                     jerboa_buffer** submitted);

/*
 * The next step, or no bytes if there is nothing to do until a step in flight is complete: a bundle with the value
 * {"step": number, "runs": [{"entry", "inputs": [{"name", "dtype", "shape"}], "reads": [names of outputs]}]}, whose
 * parts are the inputs of all runs in order. The runs are made in order; what is read of the last is given to
 * jerboa_language_complete.
 */
jerboa_status jerboa_language_next(jerboa_language* language, double now, jerboa_buffer** step);

/* Takes the results of the oldest step in flight, a bundle of the outputs that were to be read whose value is the list
   of their names, and gives what happened: [{"id", "text", "token", "logprobs": {"drawn", "likeliest": [[token,
   log-probability], …]}, "finished", "statistics", "error"}]. */
jerboa_status jerboa_language_complete(jerboa_language* language, double step, const uint8_t* results,
                                       size_t results_size, double now, jerboa_buffer** events);
/* The device could not run it: its texts end, or if memory was missing only the youngest. */
jerboa_status jerboa_language_fail(jerboa_language* language, double step, const char* message, size_t message_size,
                                   int out_of_memory, double now, jerboa_buffer** events);
jerboa_status jerboa_language_cancel(jerboa_language* language, double id, double now, jerboa_buffer** events);

/* The tokens of a prompt, of messages or of tokens, as a JSON list. */
jerboa_status jerboa_language_encode(const jerboa_language* language, const char* request, size_t request_size,
                                     jerboa_buffer** tokens);

#ifdef __cplusplus
}
#endif

#endif
