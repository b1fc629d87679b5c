"""Products of a matrix with one pixel: every weight is used once, so that reading them takes the time.

They lie as a few long streams, one for each vector of a tile, which are read at the same time: a processor fetches each ahead on its own. Several
input channels are summed at once where vectors are too few to keep multiply-adds from waiting for one another.
"""

from __future__ import annotations

import numpy as np

from codegen.kernels.tiles import LATENCY, Channels, channels_in, vectors
from codegen.kernels.unit import Unit
from codegen.writer import Writer

STREAMS = 4  # vectors of output channels in a tile, at most
CHUNK = 128  # channels that are summed before they are added to the rest, at most


def vector_product(out: Writer, unit: Unit, source: int, weights: np.ndarray, bias: np.ndarray) -> None:
    """The kernel of a unit whose rows are one pixel; `source`: the map that it reads, `weights`: (output channels, input channels), `bias`: (output
    channels,).
    """
    made, inputs = unit.images(unit.result), weights.shape[1]
    across = channels_in(vectors(made.channels, unit.target), STREAMS)
    for k, channels in enumerate(across):
        _tile(out, unit, f"{unit.name}_{k}", channels, inputs)
    with out.kernel(unit.name):
        out(f"const float *a = {unit.address(source, 'r')};")
        out.all(unit.declarations())
        out(f"float *y = {unit.address(unit.result, 'r')};")
        for k, channels in enumerate(unit.tiles(out, across, "t", split=True)):
            first, width = channels.first, channels.width
            streams, start = unit.blob.add(_packed(weights, channels)), unit.blob.add(bias[first : first + width * channels.tiles])
            out(f"const int c = {first} + t * {width};")
            out(f"const float *w = {streams} + (size_t)t * {inputs * channels.lanes[0]};")
            out(f"{unit.name}_{k}(a, w, {start} + t * {width}, y + c{unit.arguments('0', 'c', made.channels)});")


def _packed(weights: np.ndarray, channels: Channels) -> np.ndarray:
    """The streams of a run of tiles, (vectors of a tile, tiles, input channels, lanes) as one row. Of several tiles, all vectors are equal."""
    width, found = channels.width, list[np.ndarray]()
    part = weights[channels.first : channels.first + width * channels.tiles].reshape(channels.tiles, width, -1)
    for k, lanes in enumerate(channels.lanes):
        first = sum(channels.lanes[:k])
        found.append(part[:, first : first + lanes].transpose(0, 2, 1).ravel())
    return np.concatenate(found)


def _tile(out: Writer, unit: Unit, name: str, channels: Channels, inputs: int) -> None:
    """The function of a tile. Sums of sums lose less: what some input channels add up to is added to the rest."""
    lanes = channels.lanes
    streams, offsets = range(len(lanes)), [sum(lanes[:k]) for k in range(len(lanes))]
    together = min(-(-LATENCY // len(lanes)), inputs)  # input channels that are summed apart
    whole = inputs - inputs % together
    chunk = whole if whole <= CHUNK * together else CHUNK * together
    head = f"APART void {name}(const float *restrict a, const float *restrict w, const float *restrict b, float *restrict y{unit.parameters})"

    def product(k: int, at: str) -> str:
        return f"*(const u{lanes[k]} *)(w + {offsets[k] * channels.tiles * inputs} + ({at}) * {lanes[k]})"

    with out.block(head):
        out.all(f"v{lanes[k]} t_{k} = *(const u{lanes[k]} *)(b + {offsets[k]});" for k in streams)
        with out.block(f"for (int from = 0; from < {whole}; from += {chunk})" if chunk < whole else ""):
            out.all(f"v{lanes[k]} s{j}_{k} = SPLAT_{lanes[k]}(0.0f);" for j in range(together) for k in streams)
            first, stop = ("from", f"smaller(from + {chunk}, {whole})") if chunk < whole else ("0", str(whole))
            with out.block(f"for (int i = {first}, stop = {stop}; i < stop; i += {together})"):
                for j in range(together):
                    out(f"const float a{j} = a[i + {j}];")
                    out.all(f"s{j}_{k} += a{j} * {product(k, f'i + {j}')};" for k in streams)
            out.all(f"t_{k} += {' + '.join(f's{j}_{k}' for j in range(together))};" for k in streams)
        for i in range(whole, inputs):
            out.all(f"t_{k} += a[{i}] * {product(k, str(i))};" for k in streams)
        unit.store(out, 1, lanes, unit.images(unit.result).channels, "t_{k}")
    out("")
