#!/usr/bin/env python3
"""Writes tests/data/goldens/olmo: a tiny random OLMo model, and the logits and greedy tokens that this file computes.

The evaluation follows transformers' OlmoForCausalLM, in Python's own numbers (float64) and without any library, so that
it shares nothing with what it checks.

    python3 tools/goldens/olmo.py tests/data/goldens/olmo
"""
import math
import pathlib
import sys

from evaluation import added, causal_attention, gated_mlp, heads_of, product, random_weights, write_golden

CONFIG = {
    "architectures": ["OlmoForCausalLM"],
    "model_type": "olmo",
    "attention_bias": False,
    "clip_qkv": 1.25,
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 80,
    "max_position_embeddings": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": False,
    "vocab_size": 160,
}
WIDTH, MLP, VOCABULARY = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
HEADS, KEY_HEADS = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
SIZE = WIDTH // HEADS


def shapes():
    yield "model.embed_tokens.weight", (VOCABULARY, WIDTH)
    for layer in range(CONFIG["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        yield name + "self_attn.q_proj.weight", (WIDTH, WIDTH)
        yield name + "self_attn.k_proj.weight", (KEY_HEADS * SIZE, WIDTH)
        yield name + "self_attn.v_proj.weight", (KEY_HEADS * SIZE, WIDTH)
        yield name + "self_attn.o_proj.weight", (WIDTH, WIDTH)
        yield name + "mlp.gate_proj.weight", (MLP, WIDTH)
        yield name + "mlp.up_proj.weight", (MLP, WIDTH)
        yield name + "mlp.down_proj.weight", (WIDTH, MLP)
    yield "lm_head.weight", (VOCABULARY, WIDTH)


def layer_norm(x):
    mean = sum(x) / len(x)
    variance = sum((value - mean) ** 2 for value in x) / len(x)
    return [(value - mean) / math.sqrt(variance + 1e-5) for value in x]


def clipped(x):
    limit = CONFIG["clip_qkv"]
    return [min(max(value, -limit), limit) for value in x]


def rotated(head, position):
    half = SIZE // 2
    result = [0.0] * SIZE
    for i in range(half):
        angle = position / CONFIG["rope_parameters"]["rope_theta"] ** (2 * i / SIZE)
        first, second = head[i], head[half + i]
        result[i] = first * math.cos(angle) - second * math.sin(angle)
        result[half + i] = second * math.cos(angle) + first * math.sin(angle)
    return result


def attention(weights, name, rows):
    queries, keys, values = [], [], []
    for position, x in enumerate(rows):
        q, k, v = (clipped(product(weights[f"{name}{part}_proj.weight"], x)) for part in "qkv")
        queries.append([rotated(head, position) for head in heads_of(q, SIZE)])
        keys.append([rotated(head, position) for head in heads_of(k, SIZE)])
        values.append(heads_of(v, SIZE))
    return [product(weights[name + "o_proj.weight"], seen) for seen in causal_attention(queries, keys, values)]


def logits_of(weights, tokens):
    rows = [weights["model.embed_tokens.weight"][token] for token in tokens]
    for layer in range(CONFIG["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        seen = attention(weights, name + "self_attn.", [layer_norm(x) for x in rows])
        rows = [added(x, y) for x, y in zip(rows, seen)]
        rows = [added(x, gated_mlp(weights, name + "mlp.", layer_norm(x))) for x in rows]
    return [product(weights["lm_head.weight"], layer_norm(x)) for x in rows]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: olmo.py FOLDER")
    random_ones = random_weights(shapes(), seed=1)
    write_golden(pathlib.Path(sys.argv[1]), CONFIG, list(shapes()), random_ones, lambda ids: logits_of(random_ones, ids))
