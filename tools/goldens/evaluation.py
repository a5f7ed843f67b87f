"""Shared by the evaluations in this folder: plain products in Python's own numbers (float64), attention, greedy
decoding, and a Hugging Face folder with the results. No library, so that nothing is shared with the code that they
check."""
import array
import json
import math
import random
import struct
import sys

PROMPT_TOKENS, GREEDY_TOKENS = 21, 16


def random_weights(shapes, seed):
    generator = random.Random(seed)
    weights = {}
    for name, shape in shapes:
        rows, columns = shape if len(shape) == 2 else (1, shape[0])
        # Rounded to f32, so that the file holds exactly the values used in the computation.
        matrix = [array.array("f", (generator.gauss(0, 0.2) for _ in range(columns))) for _ in range(rows)]
        weights[name] = [list(row) for row in matrix] if len(shape) == 2 else list(matrix[0])
    return weights


def product(matrix, x):
    return [sum(w * value for w, value in zip(row, x)) for row in matrix]


def added(x, y):
    return [a + b for a, b in zip(x, y)]


def silu(x):
    return x / (1 + math.exp(-x))


def heads_of(x, size):
    return [x[i : i + size] for i in range(0, len(x), size)]


def rotated_neighbours(head, position, theta, turning):
    """Rotates adjacent pairs of the first `turning` features."""
    result = list(head)
    for i in range(0, turning, 2):
        angle = position / theta ** (i / turning)
        first, second = head[i], head[i + 1]
        result[i] = first * math.cos(angle) - second * math.sin(angle)
        result[i + 1] = second * math.cos(angle) + first * math.sin(angle)
    return result


def gated_mlp(weights, name, x):
    gate, up = (product(weights[f"{name}{part}_proj.weight"], x) for part in ("gate", "up"))
    hidden = [silu(g) * u for g, u in zip(gate, up)]
    return product(weights[name + "down_proj.weight"], hidden)


def causal_attention(queries, keys, values):
    """The result of every position; queries, keys and values are lists of heads per position."""
    results = []
    for position, heads in enumerate(queries):
        seen = []
        for head, query in enumerate(heads):
            shared = head // (len(heads) // len(keys[0]))
            scores = [
                sum(a * b for a, b in zip(query, keys[other][shared])) / math.sqrt(len(query))
                for other in range(position + 1)
            ]
            top = max(scores)
            exponentials = [math.exp(score - top) for score in scores]
            total = sum(exponentials)
            seen += [
                sum(e / total * values[other][shared][i] for other, e in enumerate(exponentials))
                for i in range(len(query))
            ]
        results.append(seen)
    return results


def greedy(logits_of, prompt):
    tokens, least_margin = list(prompt), math.inf
    for _ in range(GREEDY_TOKENS):
        last = logits_of(tokens)[-1]
        best = sorted(last, reverse=True)
        least_margin = min(least_margin, best[0] - best[1])
        tokens.append(last.index(best[0]))
    if least_margin < 1e-3:
        sys.exit(f"two tokens are {least_margin} apart: choose another seed")
    return tokens


def flat(rows):
    return [value for row in rows for value in (row if isinstance(row, list) else [row])]


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        raw = array.array("f" if dtype == "F32" else "i", values).tobytes()
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_golden(folder, config, shapes, weights, logits_of):
    """`logits_of(tokens)` returns the logits of every position."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(2)
    prompt = [generator.randrange(config["vocab_size"]) for _ in range(PROMPT_TOKENS)]
    tokens = greedy(logits_of, prompt)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_safetensors(
        folder / "model.safetensors",
        {name: ("F32", list(shape), flat(weights[name])) for name, shape in shapes},
    )
    write_safetensors(
        folder / "golden.safetensors",
        {
            "input_ids": ("I32", [1, PROMPT_TOKENS], prompt),
            "logits": ("F32", [1, PROMPT_TOKENS, config["vocab_size"]], flat(logits_of(prompt))),
            "greedy": ("I32", [1, len(tokens)], tokens),
        },
    )
