"""Rare operators, which have no row of their own, as operators that have one.

Source: the ONNX operators of these names.
"""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
from onnx import NodeProto

from lfopt.frontend.builder import Builder
from lfopt.frontend.ngrams import tf_idf
from lfopt.frontend.qdq import MICROSOFT
from lfopt.frontend.qoperators import OF_MICROSOFT, STANDARD, Lowering
from lfopt.frontend.recurrent import recurrent
from lfopt.frontend.sampling import grid_sample
from lfopt.frontend.values import options
from lfopt.ir import InvalidModel, UnsupportedModel

LONGEST_TRANSFORM = 1 << 12  # elements of a DFT, which is a product with a matrix


def _constant(build: Builder, name: str, what: str) -> np.ndarray:
    """The values of an operand that must be a constant. Raises UnsupportedModel."""
    value = build.known(name)
    if value is None:
        raise UnsupportedModel(f"its {what} is computed; lfopt reads a constant")
    return value


def _batch_normalization(build: Builder, node: NodeProto) -> list[str]:
    """In training mode: with the batch's own statistics, and the running ones after it."""
    x, scale, bias, mean, variance = node.input
    told = options(node)
    dtype = build.dtype(x)
    rank = len(build.shape(x))
    axes = np.array([axis for axis in range(rank) if axis != 1], np.int64)
    now = build.run("ReduceMean", x, axes, keepdims=1)
    centred = build.run("Sub", x, now)
    spread = build.run("ReduceMean", build.run("Mul", centred, centred), axes, keepdims=1)
    column = [1, build.shape(x)[1], *[1] * (rank - 2)]
    deviation = build.run("Sqrt", build.run("Add", spread, np.array(told.get("epsilon", 1e-5), dtype)))
    normal = build.run("Div", build.run("Mul", centred, build.reshape(scale, *column)), deviation)
    results = [build.run("Add", normal, build.reshape(bias, *column))]
    share = float(told.get("momentum", 0.9))
    for before, of_batch in ((mean, now), (variance, spread)):
        kept = build.run("Mul", before, np.array(share, build.dtype(before)))
        new = build.cast(build.reshape(of_batch, *build.shape(before)), build.dtype(before))
        results.append(
            build.run("Add", kept, build.run("Mul", new, np.array(1 - share, build.dtype(before))))
        )
    return results


def _one_hot(build: Builder, node: NodeProto) -> list[str]:
    indices, depth, values = node.input
    count = int(_constant(build, depth, "depth").reshape(()))
    build.reserve(max(count, 0))
    axis = int(options(node).get("axis", -1)) % (len(build.shape(indices)) + 1)
    places = build.cast(indices, "int64")
    behind = build.run("Add", places, np.array(count, np.int64))
    places = build.run("Where", build.run("Less", places, np.array(0, np.int64)), behind, places)
    places = build.unsqueeze(places, axis)
    every = np.arange(count).reshape(-1, *(1,) * (len(build.shape(places)) - axis - 1))
    off, on = build.split(values, 0, 2)
    return [build.run("Where", build.run("Equal", places, every), on, off)]


def _eye_like(build: Builder, node: NodeProto) -> list[str]:
    told, (rows, columns) = options(node), build.shape(node.input[0])
    if "dtype" in told:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(told["dtype"])
    else:
        dtype = np.dtype(build.dtype(node.input[0]))
    build.reserve(rows, columns, dtype=dtype.name)
    return [build.constant(np.eye(rows, columns, k=int(told.get("k", 0)), dtype=dtype))]


def _compress(build: Builder, node: NodeProto) -> list[str]:
    x, condition = node.input
    selected = _constant(build, condition, "condition")
    build.reserve(selected.size)
    told = options(node)
    kept = np.flatnonzero(selected)
    if "axis" in told:
        return [build.run("Gather", x, kept, axis=told["axis"])]
    return [build.run("Gather", build.reshape(x, prod(build.shape(x))), kept, axis=0)]


def _reverse_sequence(build: Builder, node: NodeProto) -> list[str]:
    x, lengths = node.input
    told = options(node)
    shape = build.shape(x)
    time = int(told.get("time_axis", 0))
    batch = int(told.get("batch_axis", 1))
    build.reserve(shape[time])
    step = np.arange(shape[time]).reshape([-1 if axis == time else 1 for axis in range(len(shape))])
    until = build.reshape(lengths, *(extent if axis == batch else 1 for axis, extent in enumerate(shape)))
    mirrored = build.run("Sub", build.run("Sub", until, np.array(1, np.int64)), step)
    places = build.run("Where", build.run("Less", step, until), mirrored, step)
    return [build.run("GatherElements", x, build.run("Expand", places, np.array(shape, np.int64)), axis=time)]


def _max_unpool(build: Builder, node: NodeProto) -> list[str]:
    x, places = node.input[:2]
    told = options(node)
    shape = build.shape(x)
    kernel = told["kernel_shape"]
    rank = len(shape) - 2
    strides = told.get("strides", [1] * rank)
    pads = told.get("pads", [0] * 2 * rank)
    spatial = [
        (n - 1) * s + k - pads[i] - pads[i + rank]
        for i, (n, s, k) in enumerate(zip(shape[2:], strides, kernel, strict=True))
    ]
    shape_out = [*shape[:2], *spatial]
    nothing = build.filled((prod(shape_out),), 0, build.dtype(x))
    filled = build.run(
        "ScatterElements", nothing, build.reshape(places, prod(shape)), build.reshape(x, prod(shape)), axis=0
    )
    filled = build.reshape(filled, *shape_out)
    # indices are of the map without output_shape, which stands in a corner of the larger
    if len(node.input) > 2 and node.input[2]:
        wanted = _constant(build, node.input[2], "output shape")
        filled = build.run(
            "Pad", filled, np.concatenate([np.zeros(len(shape_out), np.int64), wanted - shape_out])
        )
    return [filled]


def _tensor_scatter(build: Builder, node: NodeProto) -> list[str]:
    past, update, first = [*node.input, ""][:3]
    told = options(node)
    shape = build.shape(update)
    axis = int(told.get("axis", -2)) % len(shape)
    build.reserve(shape[axis])
    places = build.constant(
        np.arange(shape[axis]).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    )
    if first:
        places = build.run(
            "Add", places, build.reshape(first, *(n if k == 0 else 1 for k, n in enumerate(shape)))
        )
    if told.get("mode", "linear") == "circular":
        places = build.run("Mod", places, np.array(build.shape(past)[axis], np.int64))
    return [
        build.run(
            "ScatterElements", past, build.run("Expand", places, np.array(shape, np.int64)), update, axis=axis
        )
    ]


def _col2im(build: Builder, node: NodeProto) -> list[str]:
    x, image_shape, block_shape = node.input
    told = options(node)
    image, block = (
        _constant(build, name, what).tolist()
        for name, what in ((image_shape, "image shape"), (block_shape, "block shape"))
    )
    rank = len(image)
    dilations = told.get("dilations", [1] * rank)
    strides = told.get("strides", [1] * rank)
    pads = told.get("pads", [0] * 2 * rank)
    padded = [image[i] + pads[i] + pads[i + rank] for i in range(rank)]
    counts = [(padded[i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(rank)]
    if min(*counts, *block, *padded) < 1:
        raise InvalidModel(f"image {image} in blocks {block}: no block lies in the padded image {padded}")
    n = build.shape(x)[0]
    channels = build.shape(x)[1] // prod(block)
    build.reserve(n * channels, *block, *counts)
    nothing = build.filled((n * channels, prod(padded)), 0, build.dtype(x))
    at = np.zeros((), np.int64)  # [*block, *counts]: where each element of a column goes
    for i in range(rank):
        along = (np.arange(block[i])[:, None] * dilations[i] + np.arange(counts[i]) * strides[i]) * prod(
            padded[i + 1 :]
        )
        at = at + along.reshape([n if k in (i, rank + i) else 1 for k, n in enumerate((*block, *counts))])
    places = np.broadcast_to(at.reshape(1, -1), (n * channels, at.size))
    summed = build.run(
        "ScatterElements", nothing, places, build.reshape(x, n * channels, at.size), axis=1, reduction="add"
    )
    summed = build.reshape(summed, n, channels, *padded)
    for i in range(rank):
        summed = build.slice(summed, 2 + i, pads[i], pads[i] + image[i])
    return [summed]


def _dft(build: Builder, node: NodeProto) -> list[str]:
    signal, length, axis = [*node.input, "", ""][:3]
    told = options(node)
    rank = len(build.shape(signal))
    along = int(_constant(build, axis, "axis").reshape(())) % rank if axis else rank - 2
    count = int(_constant(build, length, "length").reshape(())) if length else build.shape(signal)[along]
    inverse = bool(told.get("inverse", 0))
    onesided = bool(told.get("onesided", 0))
    if onesided and inverse and not length:
        count = 2 * (build.shape(signal)[along] - 1)
    return [transform(build, signal, along, count, inverse=inverse, onesided=onesided)]


def transform(build: Builder, signal: str, axis: int, count: int, *, inverse: bool, onesided: bool) -> str:
    """Discrete Fourier transform along an axis of [..., 1 or 2 parts], as a product with a matrix.

    Raises UnsupportedModel if it is long.
    """
    if not 0 < count <= LONGEST_TRANSFORM:
        raise UnsupportedModel(f"a transform of {count} elements; lfopt reads 1 to {LONGEST_TRANSFORM}")
    *shape, parts = build.shape(signal)
    given = min(shape[axis], count)
    dtype = build.dtype(signal)
    order = [*(k for k in range(len(shape)) if k != axis), axis, len(shape)]
    moved = build.run("Transpose", build.slice(signal, axis, 0, given), perm=order)
    rows = prod(shape) // shape[axis]
    frequencies = count if inverse or not onesided else count // 2 + 1
    build.reserve(given, parts, frequencies, 2, dtype="float64")
    angles = 2 * np.pi * np.outer(np.arange(given), np.arange(frequencies)) / count * (1 if inverse else -1)
    real, imaginary = (function(angles) / (count if inverse else 1) for function in (np.cos, np.sin))
    # [index, part of the signal, frequency, part of the result]
    matrix = np.empty((given, parts, frequencies, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = real, imaginary
    if parts > 1:
        matrix[:, 1, :, 0], matrix[:, 1, :, 1] = -imaginary, real
    if inverse and onesided:  # what is not given is the conjugate of what is, and the result is real
        weight = np.where((np.arange(given) == 0) | (2 * np.arange(given) == count), 1, 2)[
            :, None, None, None
        ]
        matrix = (matrix * weight)[..., :1]
    spectrum = build.run(
        "MatMul", build.reshape(moved, rows, given * parts), matrix.reshape(given * parts, -1).astype(dtype)
    )
    spectrum = build.reshape(spectrum, *(shape[k] for k in order[:-2]), frequencies, matrix.shape[-1])
    return build.run("Transpose", spectrum, perm=[int(k) for k in np.argsort(order)])


def _stft(build: Builder, node: NodeProto) -> list[str]:
    signal, step, window, length = [*node.input, "", ""][:4]
    onesided = bool(options(node).get("onesided", 1))
    batch, extent, parts = build.shape(signal)
    hop = int(_constant(build, step, "step").reshape(()))
    count = int(_constant(build, length, "length").reshape(())) if length else build.shape(window)[0]
    frames = (extent - count) // hop + 1
    build.reserve(max(frames, 0), count)
    places = (np.arange(frames)[:, None] * hop + np.arange(count)).reshape(-1)
    framed = build.reshape(build.run("Gather", signal, places, axis=1), batch, frames, count, parts)
    if window:
        framed = build.run("Mul", framed, build.reshape(window, count, 1))
    return [transform(build, framed, 2, count, inverse=False, onesided=onesided)]


def _determinant(build: Builder, node: NodeProto) -> list[str]:
    """By rows, of matrices up to 3 x 3."""
    x = node.input[0]
    *_, rows, size = build.shape(x)
    rank = len(build.shape(x))
    if rows != size or size > 3:
        raise UnsupportedModel(f"a matrix of {rows} x {size}; lfopt reads determinants up to 3 x 3")
    cells = [
        [build.entry(row, rank - 2, k) for k in range(size)]
        for row in (build.entry(x, rank - 2, k) for k in range(size))
    ]

    def expanded(row: int, columns: list[int]) -> str:
        if not columns[1:]:
            return cells[row][columns[0]]
        total = ""
        for k, column in enumerate(columns):
            product = build.run("Mul", cells[row][column], expanded(row + 1, columns[:k] + columns[k + 1 :]))
            total = build.run("Sub" if k % 2 else "Add", total, product) if total else product
        return total

    return [expanded(0, list(range(size)))]


def _mel_weight_matrix(build: Builder, node: NodeProto) -> list[str]:
    """Triangles over the bins of a spectrum, whose corners are as far apart in mel."""
    names = "number of bands", "length", "sample rate", "lower edge", "upper edge"
    count, length, rate, lower, upper = (
        float(_constant(build, name, what).reshape(())) for name, what in zip(node.input, names, strict=True)
    )
    if not 0 < count * length <= LONGEST_TRANSFORM**2 or rate <= 0 or min(lower, upper) < 0:
        raise UnsupportedModel(
            f"{count:g} bands of {length:g} elements at {rate:g} Hz; "
            f"lfopt reads up to {LONGEST_TRANSFORM**2} in all"
        )
    build.reserve(int(length) // 2 + 1, int(count), dtype="float64")
    low, high = (2595 * np.log1p(edge / 700) / np.log(10) for edge in (lower, upper))
    mel = np.arange(count + 2) * ((high - low) / (count + 2)) + low
    corners = ((length + 1) * 700 * np.expm1(mel / 2595 * np.log(10)) // rate).astype(np.int64)
    first = corners[:-2]
    centre = corners[1:-1]
    last = corners[2:]
    k = np.arange(int(length) // 2 + 1)[:, None]  # bins of the spectrum
    rising = np.where(centre > first, (k - first) / np.maximum(centre - first, 1), 1)
    triangles = np.where((k >= first) & (k <= centre), rising, 0)
    triangles = np.where((k >= centre) & (k < last), (last - k) / np.maximum(last - centre, 1), triangles)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(
        int(options(node).get("output_datatype", onnx.TensorProto.FLOAT))
    )
    return [build.constant(triangles.astype(dtype))]


def _has_element(build: Builder, node: NodeProto) -> list[str]:
    """A tensor is there; what is absent is not."""
    return [build.constant(np.array(any(node.input)))]


LOWERINGS: dict[str, Lowering] = {
    **STANDARD,
    **dict.fromkeys(["GRU", "LSTM", "RNN"], recurrent),
    "BatchNormalization": _batch_normalization,
    "Col2Im": _col2im,
    "Compress": _compress,
    "DFT": _dft,
    "Det": _determinant,
    "EyeLike": _eye_like,
    "GridSample": grid_sample,
    "MaxUnpool": _max_unpool,
    "MelWeightMatrix": _mel_weight_matrix,
    "OneHot": _one_hot,
    "OptionalGetElement": lambda build, node: [node.input[0]],
    "OptionalHasElement": _has_element,
    "ReverseSequence": _reverse_sequence,
    "STFT": _stft,
    "TensorScatter": _tensor_scatter,
    "TfIdfVectorizer": tf_idf,
}


def lowering(node: NodeProto) -> Lowering | None:
    """What writes the operators that stand for this one; None where it stands for itself."""
    if node.domain:
        if node.domain == MICROSOFT:
            return OF_MICROSOFT.get(node.op_type)
        return None
    training = any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)
    if node.op_type == "BatchNormalization" and not training:
        return None
    return LOWERINGS.get(node.op_type)
