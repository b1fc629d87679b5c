"""TfIdfVectorizer as comparisons with its n-grams, whose hits are added up.

Source: ONNX operator TfIdfVectorizer. Weights are those of outputs, as ONNX Runtime has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from onnx import NodeProto

from lfopt.frontend.builder import Builder
from lfopt.frontend.values import options
from lfopt.ir import InvalidModel, UnsupportedModel

MOST_OUTPUTS = 1 << 24
MOST_SKIPS = 1 << 10  # numbers passed over


def tf_idf(build: Builder, node: NodeProto) -> list[str]:
    """The one output, [outputs] or [rows, outputs]. Raises InvalidModel, UnsupportedModel."""
    told = options(node)
    shape = build.shape(node.input[0])
    if len(shape) > 2 or not told.get("pool_int64s"):
        raise UnsupportedModel(
            f"numbers of shape {[*shape]}, or n-grams that are no numbers; "
            "lfopt reads [c] and [n, c] in int32 and int64"
        )
    if (
        not told["ngram_indexes"]
        or max(told["ngram_indexes"]) >= MOST_OUTPUTS
        or min(told["max_skip_count"], prod(shape)) >= MOST_SKIPS
    ):
        raise UnsupportedModel(
            f"no ngram_indexes, or beyond {MOST_OUTPUTS}, or {MOST_SKIPS} skips; lfopt reads fewer"
        )
    if told["mode"] not in ("TF", "IDF", "TFIDF"):
        raise InvalidModel(f"mode {told['mode']!r}; accepted: TF, IDF, TFIDF")
    rows, width = (1, *shape)[-2:] if shape else (1, 1)
    x = build.reshape(node.input[0], rows, width)
    grams = _grams(told)
    outputs = max(told["ngram_indexes"]) + 1
    counted, places = list[str](), np.full(outputs, -1)  # where the count of an output stands
    for length in sorted({len(gram) for gram in grams.values()}):
        of_length = {output: gram for output, gram in grams.items() if len(gram) == length}
        places[[*of_length]] = np.arange(len(of_length)) + (places >= 0).sum()
        counted.append(
            _counts(
                build, x, np.array([*of_length.values()]), told["max_skip_count"] + 1 if length > 1 else 1
            )
        )
    nothing = build.constant(build.filled((rows, 1), 0, "float32"))
    counts = build.concat([*counted, nothing], 1)
    places[places < 0] = build.shape(counts)[1] - 1
    counts = build.run("Gather", counts, places, axis=1)
    if told["mode"] == "IDF":
        counts = build.cast(build.run("Greater", counts, np.array(0, np.float32)), "float32")
    weights = [] if told["mode"] == "TF" else told.get("weights", [])
    if weights:
        if len(weights) < outputs:
            raise InvalidModel(f"{len(weights)} weights for {outputs} outputs")
        counts = build.run("Mul", counts, np.array(weights[:outputs], np.float32))
    return [build.reshape(counts, *shape[:-1], outputs)]


def _grams(told: Mapping[str, Any]) -> dict[int, tuple[int, ...]]:
    """The n-grams that are asked for, by the output that counts them; of equal ones, the last."""
    pool = told["pool_int64s"]
    starts = told["ngram_counts"]
    indexes = told["ngram_indexes"]
    outputs: dict[tuple[int, ...], int] = {}
    number = 0
    for length, (start, stop) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        for first in range(start, stop - length + 1, length):
            if number >= len(indexes) or not indexes[number] >= 0:
                raise InvalidModel(
                    f"{len(indexes)} ngram_indexes, from {min(indexes, default=0)}; "
                    "accepted: from 0 on, one for each n-gram"
                )
            if told["min_gram_length"] <= length <= told["max_gram_length"]:
                outputs[tuple(pool[first : first + length])] = indexes[number]
            number += 1
    if len({*outputs.values()}) < len(outputs):
        raise UnsupportedModel("several n-grams of one output; lfopt reads one of each")
    return {output: gram for gram, output in outputs.items()}


def _counts(build: Builder, x: str, grams: np.ndarray, skips: int) -> str:
    """[rows, n-grams] float32: how often each n-gram is in a row; grams: (n-grams, length).

    `skips`: the most steps from one number of an n-gram to the next.
    """
    rows, width = build.shape(x)
    total = build.constant(build.filled((rows, len(grams)), 0, "float32"))
    for step in range(1, min(skips, width) + 1):
        build.reserve(width, grams.shape[1])
        places = np.arange(width - step * (grams.shape[1] - 1))[:, None] + step * np.arange(grams.shape[1])
        if places.size:
            windows = build.unsqueeze(build.run("Gather", x, places, axis=1), 2)  # [rows, places, 1, length]
            equal = build.cast(build.run("Equal", windows, grams.astype(build.dtype(x))), "float32")
            hits = build.run("ReduceMin", equal, np.array([3]), keepdims=0)
            total = build.run("Add", total, build.run("ReduceSum", hits, np.array([1]), keepdims=0))
    return total
