"""Products of a matrix with one pixel: every weight is used once, so that reading them takes the time.

They lie as a few long streams, one for each vector of a tile, which are read at the same time: a processor
fetches each ahead on its own. Several input channels, or pairs of them in bfloat16, are summed at once where
vectors are too few to keep multiply-adds from waiting for one another: as many in all tiles, so that sums
have the same order in all channels.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from codegen.elements import paired
from codegen.kernels.fused_kernel import FusedKernel
from codegen.kernels.pairs import first as lanes_of
from codegen.kernels.tiles import LATENCY, Channels, added, tiles_of, vectors
from codegen.kernels.window import KernelWindow
from codegen.target import Target
from codegen.writer import CModule, Writer

STREAMS = 4  # vectors of output channels in a tile, at most
CHUNK = 128  # channels that are summed before they are added to the rest, at most


def is_vector_product(fused: FusedKernel, window: KernelWindow) -> bool:
    """Whether rows of the result are one pixel, and a window of one tap reads one for each."""
    return (
        fused.images(fused.result).pixels == 1
        and window.kernel == (1, 1)
        and window.strides[0] == window.groups == 1
        and not any(window.pads)
    )


def vector_product(
    out: CModule, fused: FusedKernel, source: int, weights: np.ndarray, bias: np.ndarray
) -> None:
    """The kernel of rows that are one pixel; `source`: the map that it reads.

    `weights`: (output channels, input channels) float32, `bias`: (output channels,) float32.
    """
    output = fused.images(fused.result)
    inputs = weights.shape[1]
    across = _across(vectors(output.channels, fused.target))
    together = _together(across, inputs, fused.target)
    names = [f"{fused.name}_{k}" for k in range(len(across))]
    tiles = [
        out.function(name, _tile(fused, source, channels, inputs, together, name))
        for name, channels in zip(names, across, strict=True)
    ]
    in_pairs = not fused.stored(source).floats
    steps = -(-inputs // 2) if in_pairs else inputs
    with out.kernel(fused.name):
        out(f"const {fused.pointer(source)}a = {fused.address(source, 'r')};")
        fused.begin(out)
        for channels, name in zip(fused.tiles(out, across, "t", split=True), tiles, strict=True):
            first = channels.first
            width = channels.width
            packed = _packed(weights, channels, in_pairs=in_pairs)
            streams = out.constant(packed, packed.dtype.name)
            start = out.constant(bias[first : first + width * channels.tiles])
            out(f"const int c = {first} + t * {width};")
            out(
                f"const {'pair' if in_pairs else 'float'} *w = {_address(streams, in_pairs=in_pairs)} + "
                f"(size_t)t * {steps * channels.lanes[0]};"
            )
            out(f"{name}(a, w, {start} + t * {width}, y + c{fused.arguments('0', 'c', output.channels)});")


def _address(place: str, *, in_pairs: bool) -> str:
    if in_pairs:
        return f"(const pair *)(const void *){place}"
    return place


def _packed(weights: np.ndarray, channels: Channels, *, in_pairs: bool) -> np.ndarray:
    """The streams of a run of tiles as one row: (vectors of a tile, tiles, input channels or pairs, lanes).

    Of several tiles, all vectors are equal.
    """
    width = channels.width
    streams = list[np.ndarray]()
    part = weights[channels.first : channels.first + width * channels.tiles].reshape(
        channels.tiles, width, -1
    )
    for k, lanes in enumerate(channels.lanes):
        first = sum(channels.lanes[:k])
        stream = part[:, first : first + lanes].transpose(0, 2, 1)
        streams.append(paired(stream) if in_pairs else stream)
    packed = np.empty(sum(stream.size for stream in streams), streams[0].dtype if in_pairs else np.float32)
    at = 0
    for stream in streams:  # each is copied once: they may be hundreds of megabytes
        packed[at : at + stream.size].reshape(stream.shape)[...] = stream
        at += stream.size
    return packed


def _across(lanes: list[int]) -> list[Channels]:
    """Tiles of at most STREAMS vectors, nearly as many in each."""
    count = -(-len(lanes) // STREAMS)
    sizes = [len(lanes) // count + (k < len(lanes) % count) for k in range(count)]
    stops = [*accumulate(sizes)]
    return tiles_of([tuple(lanes[stop - size : stop]) for size, stop in zip(sizes, stops, strict=True)])


def _together(across: list[Channels], inputs: int, target: Target) -> int:
    """Input channels that all tiles sum apart: enough for the narrowest, where the widest has room."""
    vectors_of = [len(channels.lanes) for channels in across]
    room = target.accumulators // max(vectors_of)
    return max(1, min(-(-LATENCY // min(vectors_of)), room, inputs))


def _tile(
    fused: FusedKernel, source: int, channels: Channels, inputs: int, together: int, name: str
) -> Writer:
    """The function of a tile. `together`: input channels that are summed apart.

    Sums of sums lose less: what some input channels add up to is added to the rest.
    """
    out = Writer()
    lanes = channels.lanes
    in_pairs = not fused.stored(source).floats
    # input channels (or pairs of them) that weights are stored for, and those of whole pairs
    steps, inputs = (-(-inputs // 2), inputs // 2) if in_pairs else (inputs, inputs)
    streams = range(len(lanes))
    offsets = [sum(lanes[:k]) for k in range(len(lanes))]
    together = max(1, min(together, inputs))
    whole = inputs - inputs % together
    chunk = whole if whole <= CHUNK * together else CHUNK * together
    a = fused.pointer(source)
    w = "const pair *" if in_pairs else "const float *"
    y = fused.pointer(fused.result)
    head = (
        f"APART void {name}(const {a}restrict a, {w}restrict w, const float *restrict b, {y}restrict "
        f"y{fused.parameters})"
    )

    def add(s: str, value: str, k: int, at: str) -> str:
        place = f"(w + {offsets[k] * channels.tiles * steps} + ({at}) * {lanes[k]})"
        if in_pairs:
            return (
                f"{s} = dot_{lanes[k]}({s}, {lanes_of(value, max(lanes), lanes[k])}, *(const p{lanes[k]} "
                f"*){place});"
            )
        return added(s, value, f"*(const u{lanes[k]} *){place}", lanes[k])

    def read(at: str) -> str:
        if in_pairs:
            return f"const i{max(lanes)} a{{}} = EVERY_{max(lanes)}(pair_at(a + 2 * ({at})));"
        return f"const float a{{}} = a[{at}];"

    with out.block(head):
        out.all(f"v{lanes[k]} t_{k} = *(const u{lanes[k]} *)(b + {offsets[k]});" for k in streams)
        with out.block(f"for (int from = 0; from < {whole}; from += {chunk})" if chunk < whole else ""):
            out.all(
                f"v{lanes[k]} s{j}_{k} = SPLAT_{lanes[k]}(0.0f);" for j in range(together) for k in streams
            )
            first, stop = (
                ("from", f"smaller(from + {chunk}, {whole})") if chunk < whole else ("0", str(whole))
            )
            with out.block(f"for (int i = {first}, stop = {stop}; i < stop; i += {together})"):
                for j in range(together):
                    out(read(f"i + {j}").format(j))
                    out.all(add(f"s{j}_{k}", f"a{j}", k, f"i + {j}") for k in streams)
            out.all(f"t_{k} += {' + '.join(f's{j}_{k}' for j in range(together))};" for k in streams)
        for i in range(whole, inputs):
            with out.block(""):
                out(read(str(i)).format(0))
                out.all(add(f"t_{k}", "a0", k, str(i)) for k in streams)
        if steps > inputs:
            with out.block(""):
                out(f"const i{max(lanes)} a0 = EVERY_{max(lanes)}((pair)a[{2 * inputs}]);")
                out.all(add(f"t_{k}", "a0", k, str(inputs)) for k in streams)
        fused.store(out, 1, lanes, fused.images(fused.result).channels, "t_{k}")
    return out
