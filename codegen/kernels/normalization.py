"""Kernels that fold the channels of every pixel: softmax, layer normalisation, means and sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from codegen.elements import Element
from codegen.kernels.tiles import channels_in, vectors
from codegen.kernels.unit import Unit
from codegen.tails import number
from codegen.writer import Module, Writer


def softmax(out: Module, unit: Unit, source: int) -> None:
    """The kernel of a softmax over the channels of every pixel."""
    made = unit.images(unit.result)
    with out.kernel(unit.name), _each_pixel(out, unit, source):
        out(f"{unit.pointer(unit.result)}to = y + p * {made.pitch};")
        powers = "to" if unit.stored(unit.result).floats else "powers"
        if powers != "to":
            out(f"float *powers = {out.scratch(made.channels)};")
        for lanes in _fold(out, unit, "most", made.channels, "-INFINITY"):
            out(f"most{lanes} = max_{lanes}(most{lanes}, {unit.load(source, lanes, 'from + c')});")
        out(f"const float most = {_largest(unit, made.channels)};")
        for lanes in _fold(out, unit, "sum", made.channels, "0.0f"):
            out(f"v{lanes} e = exp_{lanes}({unit.load(source, lanes, 'from + c')} - SPLAT_{lanes}(most));", f"sum{lanes} += e;")
            out(f"*(u{lanes} *)({powers} + c) = e;")
        out(f"const float share = 1.0f / ({_sum(unit, made.channels)});")
        for lanes in unit.over(out, made.channels):
            out(f"v{lanes} s = *(const u{lanes} *)({powers} + c) * SPLAT_{lanes}(share);")
            out.all(unit.finish("s", lanes, "p", "c", made.channels))
            out(unit.put(lanes, "to + c", "s"))


def layer_normalization(
    out: Module, unit: Unit, source: int, vectors: Sequence[np.ndarray | str], held: Sequence[Element], epsilon: float
) -> None:  # fmt: skip
    """The kernel of a LayerNormalization over channels; `vectors`: scale and, if there is one, bias, as constants or by C expressions for their
    addresses, of elements `held`.
    """
    made, names = unit.images(unit.result), ("scale", "bias")[: len(vectors)]
    addresses = [value if isinstance(value, str) else out.constant(value) for value in vectors]
    with out.kernel(unit.name):
        out.all(f"const {element.ctype} *{name} = {address};" for element, name, address in zip(held, names, addresses, strict=True))
        with _each_pixel(out, unit, source):
            out(f"{unit.pointer(unit.result)}to = y + p * {made.pitch};")
            for lanes in _fold(out, unit, "sum", made.channels, "0.0f"):
                out(f"sum{lanes} += {unit.load(source, lanes, 'from + c')};")
            out(f"const float mean = ({_sum(unit, made.channels)}) * (1.0f / {made.channels}.0f);")
            for lanes in _fold(out, unit, "square", made.channels, "0.0f"):
                out(f"v{lanes} d = {unit.load(source, lanes, 'from + c')} - SPLAT_{lanes}(mean);", f"square{lanes} += d * d;")
            out(f"const float share = 1.0f / sqrtf(({_sum(unit, made.channels, 'square')}) * (1.0f / {made.channels}.0f) + {number(epsilon)});")
            for lanes in unit.over(out, made.channels):
                out(f"v{lanes} s = ({unit.load(source, lanes, 'from + c')} - SPLAT_{lanes}(mean)) * SPLAT_{lanes}(share);")
                loads = [element.load(lanes, f"{name} + c") for element, name in zip(held, names, strict=True)]
                out(f"s = s * {' + '.join(loads)};")
                out.all(unit.finish("s", lanes, "p", "c", made.channels))
                out(unit.put(lanes, "to + c", "s"))


def sums(out: Module, unit: Unit, source: int, factor: str) -> None:
    """The kernel of a sum over the channels of every pixel, times a factor in C."""
    read, made = unit.images(source), unit.images(unit.result)
    pixel, channel = ("p", "0") if made.channels == 1 else (f"p / {made.channels}", f"p % {made.channels}")
    with out.kernel(unit.name), _each_pixel(out, unit, source):
        for lanes in _fold(out, unit, "sum", read.channels, "0.0f"):
            out(f"sum{lanes} += {unit.load(source, lanes, 'from + c')};")
        out(f"float s = ({_sum(unit, read.channels)}) * {factor};")
        out.all(unit.finish("s", 1, pixel, channel, made.channels))
        out(unit.stored(unit.result).write(f"y[{f'{pixel} * {made.pitch} + {channel}' if made.apart else 'p'}]", "s"))


@contextmanager
def _each_pixel(out: Module, unit: Unit, source: int) -> Iterator[None]:
    """A loop over the pixels p of row r: `from` is where a pixel of the map lies, `y` where the row of the result does."""
    read = unit.images(source)
    out(f"const {unit.pointer(source)}a = {unit.address(source, 'r')};")
    out.all(unit.declarations(out))
    out(f"{unit.pointer(unit.result)}y = {unit.address(unit.result, 'r')};")
    with unit.each_pixel(out, read.pixels):
        out(f"const {unit.pointer(source)}from = a + p * {read.pitch};")
        yield


def _widths(unit: Unit, count: int) -> Sequence[int]:
    return [part.width for part in channels_in(vectors(count, unit.target), 1)]


def _fold(out: Writer, unit: Unit, name: str, count: int, start: str) -> Iterator[int]:
    """Loops over channels c from c = 0 on, as `Unit.over`, after the declaration of a vector for every width: `name` and its lanes."""
    out.all(f"v{lanes} {name}{lanes} = SPLAT_{lanes}({start});" for lanes in _widths(unit, count))
    yield from unit.over(out, count)


def _sum(unit: Unit, count: int, name: str = "sum") -> str:
    return " + ".join(f"sum_{lanes}({name}{lanes})" for lanes in _widths(unit, count))


def _largest(unit: Unit, count: int) -> str:
    found = ""
    for lanes in _widths(unit, count):
        part = f"largest_{lanes}(most{lanes})"
        found = f"max_1({found}, {part})" if found else part
    return found
