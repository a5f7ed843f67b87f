/*
 * Graphs that are built call by call, for languages that define models of their own. Each call adds the nodes of one
 * function and returns the types of its results, or fails with what is wrong with its operands.
 */
#ifndef JERBOA_C_API_GRAPH_H
#define JERBOA_C_API_GRAPH_H

#include <jerboa/c_api/jerboa_c.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct jerboa_graph jerboa_graph;

/* An empty graph. `options`: {"training": false}, which decides what dropout does. */
jerboa_status jerboa_graph_create(const char* options, size_t options_size, jerboa_graph** graph);
void jerboa_graph_free(jerboa_graph* graph);

/*
 * Calls a function: any op of docs/ops.md, or one of those below.
 *
 *   {"function": "matmul", "operands": [0, 3], "options": {"transpose_b": true},
 *    "site": "model.ts:41", "module": "blocks.0.qkv"}
 *
 * An operand is the id of a tensor, {"number": 2.5}, which takes the type of the other operands, or null where one is
 * absent. The options of an op are its attributes. "site" and "module" are what errors name. The reply lists the
 * results: {"tensors": [{"id": 4, "dtype": "f32", "shape": [8, "T"]}]}. A size is a number or text such as "2*T+1" over
 * symbols, whose bounds the inputs declare.
 *
 * A call that fails may leave nodes in the graph, but none that its results depend on.
 *
 *   function          operands                   options
 *   input                                        name, shape, dtype, symbols: {"T": 64}
 *   parameter                                    name, shape, dtype, init, trainable, decay; the same one again if the
 *                                                name is known; init: {"kind": "normal", "mean": 0, "width": 0.02}
 *   state                                        name, shape, dtype, init
 *   constant                                     dtype, shape, values: a list of numbers
 *   full                                         shape, value, dtype
 *   random_uniform                               shape
 *   random_normal                                shape
 *   output, capture   x                          name
 *   update            target value
 *   name              x                          name: for printing and profiles
 *   square, zeros_like, merge_heads   x
 *   split_heads       x                          heads
 *   split             x                          axis, sizes or parts
 *   attention         q k v mask sinks lengths   the attributes; heads, kv_heads: where time comes before heads;
 *                     positions table            capture: a name for the probabilities
 *   attention_weights q k mask sinks lengths     the same
 *                     positions table
 */
jerboa_status jerboa_graph_call(jerboa_graph* graph, const char* call, size_t call_size, jerboa_buffer** reply);

/*
 * The graph as JSON, for jerboa_compile_graphs. `options` is {"precision": "full"} or {"precision": "mixed_f16"}.
 */
jerboa_status jerboa_graph_forward(const jerboa_graph* graph, const char* options, size_t options_size,
                                   jerboa_buffer** json);

/*
 * The graph of a training step, as JSON, from a graph in training mode whose output "loss" is a scalar: with gradients,
 * the update of every parameter and the output "lr".
 *
 *   {"optimizer": {"kind": "adamw", "lr": 0.001, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01,
 *                  "clip_norm": 0},
 *    "precision": "full", "site": "train.ts:12"}
 *
 * "kind" is adam, adamw or sgd (with "momentum", "nesterov"); "lr" is a number, {"input": "lr"}, a rate that is an
 * input of every step, or {"schedule": "warmup_cosine", "peak": 0.001, "warmup": 100, "total": 1000, "floor": 0}, or
 * warmup_linear.
 */
jerboa_status jerboa_graph_training(const jerboa_graph* graph, const char* options, size_t options_size,
                                    jerboa_buffer** json);

#ifdef __cplusplus
}
#endif

#endif
