#!/usr/bin/env python3
"""Writes tests/data/goldens/glm: a tiny random GLM model, and the logits and greedy tokens that this file computes.

The evaluation follows transformers' GlmForCausalLM, in Python's own numbers (float64) and without any library, so that
it shares nothing with what it checks.

    python3 tools/goldens/glm.py tests/data/goldens/glm
"""
import math
import pathlib
import sys

from evaluation import (
    added, causal_attention, heads_of, product, random_weights, rotated_neighbours, silu, write_golden
)

CONFIG = {
    "architectures": ["GlmForCausalLM"],
    "model_type": "glm",
    "attention_bias": True,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 80,
    "max_position_embeddings": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1.5625e-07,
    "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": False,
    "vocab_size": 160,
}
WIDTH, MLP, VOCABULARY = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
HEADS, KEY_HEADS, SIZE = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"], CONFIG["head_dim"]
TURNING = int(SIZE * CONFIG["rope_parameters"]["partial_rotary_factor"])


def shapes():
    yield "model.embed_tokens.weight", (VOCABULARY, WIDTH)
    for layer in range(CONFIG["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        yield name + "input_layernorm.weight", (WIDTH,)
        for part, heads in (("q", HEADS), ("k", KEY_HEADS), ("v", KEY_HEADS)):
            yield f"{name}self_attn.{part}_proj.weight", (heads * SIZE, WIDTH)
            yield f"{name}self_attn.{part}_proj.bias", (heads * SIZE,)
        yield name + "self_attn.o_proj.weight", (WIDTH, HEADS * SIZE)
        yield name + "post_attention_layernorm.weight", (WIDTH,)
        yield name + "mlp.gate_up_proj.weight", (2 * MLP, WIDTH)
        yield name + "mlp.down_proj.weight", (WIDTH, MLP)
    yield "model.norm.weight", (WIDTH,)
    yield "lm_head.weight", (VOCABULARY, WIDTH)


def rms_norm(weight, x):
    scale = 1 / math.sqrt(sum(value * value for value in x) / len(x) + CONFIG["rms_norm_eps"])
    return [w * value * scale for w, value in zip(weight, x)]


def rotated(head, position):
    return rotated_neighbours(head, position, CONFIG["rope_parameters"]["rope_theta"], TURNING)


def attention(weights, name, rows):
    queries, keys, values = [], [], []
    for position, x in enumerate(rows):
        q, k, v = (
            added(product(weights[f"{name}{part}_proj.weight"], x), weights[f"{name}{part}_proj.bias"])
            for part in "qkv"
        )
        queries.append([rotated(head, position) for head in heads_of(q, SIZE)])
        keys.append([rotated(head, position) for head in heads_of(k, SIZE)])
        values.append(heads_of(v, SIZE))
    return [product(weights[name + "o_proj.weight"], seen) for seen in causal_attention(queries, keys, values)]


def gated_mlp(weights, name, x):
    both = product(weights[name + "gate_up_proj.weight"], x)
    hidden = [silu(gate) * up for gate, up in zip(both[:MLP], both[MLP:])]
    return product(weights[name + "down_proj.weight"], hidden)


def logits_of(weights, tokens):
    rows = [weights["model.embed_tokens.weight"][token] for token in tokens]
    for layer in range(CONFIG["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        before, between = (weights[f"{name}{norm}_layernorm.weight"] for norm in ("input", "post_attention"))
        seen = attention(weights, name + "self_attn.", [rms_norm(before, x) for x in rows])
        rows = [added(x, y) for x, y in zip(rows, seen)]
        rows = [added(x, gated_mlp(weights, name + "mlp.", rms_norm(between, x))) for x in rows]
    return [product(weights["lm_head.weight"], rms_norm(weights["model.norm.weight"], x)) for x in rows]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: glm.py FOLDER")
    random_ones = random_weights(shapes(), seed=1)
    write_golden(pathlib.Path(sys.argv[1]), CONFIG, list(shapes()), random_ones, lambda ids: logits_of(random_ones, ids))
