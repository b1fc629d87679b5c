"""Parts of a nest that a constraint may ask for, such as `rows outermost, weights held`."""

from __future__ import annotations

from collections.abc import Callable

from lfopt.ir import InvalidConfig
from lfopt.planning.nest.tree import BlockLoop, GroupNest, RowLeaf, Seq
from lfopt.planning.passes.tree import Nest


def _rows_outermost(nest: GroupNest) -> bool:
    root = nest.root
    if isinstance(root, BlockLoop):
        return root.axis == "rows"
    return isinstance(root, RowLeaf) and not root.at_once


def _columns_outermost(nest: GroupNest) -> bool:
    return isinstance(nest.root, BlockLoop) and nest.root.axis == "columns"


def _in_turn(nest: GroupNest) -> bool:
    return isinstance(nest.root, Seq)


def _weights_streamed(nest: GroupNest) -> bool:
    return any(stream.constants for stream in nest.streams)


def _weights_held(nest: GroupNest) -> bool:
    return not _weights_streamed(nest)


PARTS: dict[str, Callable[[GroupNest], bool]] = {
    "rows outermost": _rows_outermost,  # rows of the results come first: line buffers, bands, patches
    "columns outermost": _columns_outermost,  # strips
    "in turn": _in_turn,  # one operator after the other
    "weights held": _weights_held,  # from beginning to end
    "weights streamed": _weights_streamed,  # block by block
}


def parts_of(text: str, where: str) -> frozenset[str]:
    """The parts that a text asks for. Raises InvalidConfig that begins with `where`."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if part not in PARTS:
            raise InvalidConfig(f"{where}: found {part[:60]!r}; accepted: {', '.join(PARTS)}")
    return frozenset(parts)


def has_parts(nest: Nest | None, parts: frozenset[str]) -> bool:
    """Whether a group's nest has all of these parts; of several passes, each of them.

    Weights are streamed if some pass streams any. Without a nest a group has no parts.
    """
    if nest is None:
        return not parts
    passes = (nest,) if isinstance(nest, GroupNest) else nest.passes
    streamed = "weights streamed" in parts and any(map(_weights_streamed, passes))
    others = parts - {"weights streamed"} if streamed else parts
    return all(PARTS[part](one) for part in others for one in passes)
