#!/usr/bin/env python3
"""Writes tests/data/goldens/cohere: a tiny random Command R model, and the logits and greedy tokens that this file computes.

The evaluation follows transformers' CohereForCausalLM, in Python's own numbers (float64) and without any library, so that
it shares nothing with what it checks.

    python3 tools/goldens/cohere.py tests/data/goldens/cohere
"""
import array
import math
import pathlib
import sys

from evaluation import (
    added, causal_attention, gated_mlp, heads_of, product, random_weights, rotated_neighbours, write_golden
)

CONFIG = {
    "architectures": ["CohereForCausalLM"],
    "model_type": "cohere",
    "attention_bias": True,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 80,
    "layer_norm_eps": 1e-05,
    "logit_scale": 0.25,
    "max_position_embeddings": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": True,
    "use_qk_norm": True,
    "vocab_size": 160,
}
WIDTH, MLP, VOCABULARY = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
HEADS, KEY_HEADS, SIZE = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"], CONFIG["head_dim"]


def shapes():
    yield "model.embed_tokens.weight", (VOCABULARY, WIDTH)
    for layer in range(CONFIG["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        yield name + "input_layernorm.weight", (WIDTH,)
        for part, heads in (("q", HEADS), ("k", KEY_HEADS), ("v", KEY_HEADS)):
            yield f"{name}self_attn.{part}_proj.weight", (heads * SIZE, WIDTH)
            yield f"{name}self_attn.{part}_proj.bias", (heads * SIZE,)
        yield name + "self_attn.o_proj.weight", (WIDTH, HEADS * SIZE)
        yield name + "self_attn.o_proj.bias", (WIDTH,)
        yield name + "self_attn.q_norm.weight", (HEADS, SIZE)
        yield name + "self_attn.k_norm.weight", (KEY_HEADS, SIZE)
        yield name + "mlp.gate_proj.weight", (MLP, WIDTH)
        yield name + "mlp.up_proj.weight", (MLP, WIDTH)
        yield name + "mlp.down_proj.weight", (WIDTH, MLP)
    yield "model.norm.weight", (WIDTH,)


def around_one(weights):
    """Moves the heads' norms to the range of trained ones: small scores would hide rotations and norms."""
    for name in weights:
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            weights[name] = [list(array.array("f", (1 + w for w in head))) for head in weights[name]]
    return weights


def layer_norm(weight, x):
    mean = sum(x) / len(x)
    variance = sum((value - mean) ** 2 for value in x) / len(x)
    return [w * (value - mean) / math.sqrt(variance + CONFIG["layer_norm_eps"]) for w, value in zip(weight, x)]


def rotated(head, position):
    return rotated_neighbours(head, position, CONFIG["rope_parameters"]["rope_theta"], SIZE)


def linear(weights, name, x):
    return added(product(weights[name + ".weight"], x), weights[name + ".bias"])


def normed_and_rotated(norms, x, position):
    """Every head has its own norm weights."""
    return [rotated(layer_norm(norm, head), position) for norm, head in zip(norms, heads_of(x, SIZE))]


def attention(weights, name, rows):
    queries, keys, values = [], [], []
    for position, x in enumerate(rows):
        q, k, v = (linear(weights, f"{name}{part}_proj", x) for part in "qkv")
        queries.append(normed_and_rotated(weights[name + "q_norm.weight"], q, position))
        keys.append(normed_and_rotated(weights[name + "k_norm.weight"], k, position))
        values.append(heads_of(v, SIZE))
    return [linear(weights, name + "o_proj", seen) for seen in causal_attention(queries, keys, values)]


def logits_of(weights, tokens):
    table = weights["model.embed_tokens.weight"]
    rows = [table[token] for token in tokens]
    for layer in range(CONFIG["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        read = [layer_norm(weights[name + "input_layernorm.weight"], x) for x in rows]
        seen = attention(weights, name + "self_attn.", read)
        more = [gated_mlp(weights, name + "mlp.", x) for x in read]
        rows = [added(added(x, y), z) for x, y, z in zip(rows, seen, more)]
    logits = [product(table, layer_norm(weights["model.norm.weight"], x)) for x in rows]
    return [[CONFIG["logit_scale"] * value for value in row] for row in logits]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: cohere.py FOLDER")
    random_ones = around_one(random_weights(shapes(), seed=1))
    write_golden(pathlib.Path(sys.argv[1]), CONFIG, list(shapes()), random_ones, lambda ids: logits_of(random_ones, ids))
