#!/usr/bin/env python3
"""Adds the second results of attention (log-sum-exp of each row) and top_k (indices) to ops.safetensors.

Computed in float64 from the file's inputs, without an engine; the first results in the file must agree.
"""
import array
import json
import math
import pathlib
import struct

FILE = pathlib.Path(__file__).resolve().parents[2] / "tests/data/goldens/ops.safetensors"


class Tensors:
    def __init__(self, content):
        size = struct.unpack("<Q", content[:8])[0]
        self.header = json.loads(content[8 : 8 + size])
        self.data = content[8 + size :]

    def read(self, name):
        begin, end = self.header[name]["data_offsets"]
        return self.header[name]["shape"], array.array("f", self.data[begin:end])

    def add(self, name, dtype, shape, values):
        begin = len(self.data)
        self.data += values.tobytes()
        self.header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, len(self.data)]}

    def content(self):
        header = json.dumps(self.header, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)
        return struct.pack("<Q", len(header)) + header + self.data


def attention_row(query, keys, values, time, attrs):
    """The log-sum-exp of a query's scores, and its result."""
    first = max(0, time - attrs["window"] + 1) if attrs["window"] else 0
    seen = range(first, time + 1 if attrs["causal"] else len(keys))
    scores = [attrs["scale"] * sum(a * b for a, b in zip(query, keys[s])) for s in seen]
    if attrs["soft_cap"]:
        scores = [attrs["soft_cap"] * math.tanh(score / attrs["soft_cap"]) for score in scores]
    top = max(scores)
    total = top + math.log(sum(math.exp(score - top) for score in scores))
    out = [0.0] * len(values[0])
    for score, s in zip(scores, seen):
        out = [o + math.exp(score - total) * v for o, v in zip(out, values[s])]
    return total, out


def rows(values, width):
    return [values[i : i + width] for i in range(0, len(values), width)]


def add_attention(tensors, case, attrs):
    (batch, heads, time, size), query = tensors.read(case + "/in0")
    (_, shared, count, _), key = tensors.read(case + "/in1")
    value, wanted = tensors.read(case + "/in2")[1], tensors.read(case + "/out")[1]
    keys, values = rows(rows(key, size), count), rows(rows(value, size), count)
    sums = array.array("f")
    for i, (one, out) in enumerate(zip(rows(query, size), rows(wanted, size))):
        b, h, t = i // (heads * time), i // time % heads, i % time
        group = b * shared + h // (heads // shared)
        total, computed = attention_row(one, keys[group], values[group], t, attrs)
        assert all(abs(x - y) < 1e-6 for x, y in zip(computed, out)), case
        sums.append(total)
    tensors.add(case + "/out1", "F32", [batch, heads, time], sums)


def add_top_k(tensors, case, attrs):
    shape, values = tensors.read(case + "/in0")
    wanted = tensors.read(case + "/out")[1]
    indices = array.array("i")
    for row, out in zip(rows(values, shape[-1]), rows(wanted, attrs["k"])):
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))[: attrs["k"]]
        assert [row[i] for i in order] == list(out), case
        indices.extend(order)
    tensors.add(case + "/out1", "I32", shape[:-1] + [attrs["k"]], indices)


def main():
    tensors = Tensors(FILE.read_bytes())
    for case, description in json.loads(tensors.header["__metadata__"]["cases"]).items():
        add = {"attention": add_attention, "top_k": add_top_k}.get(description["op"])
        if add and case + "/out1" not in tensors.header:
            add(tensors, case, description["attrs"])
    FILE.write_bytes(tensors.content())


main()
