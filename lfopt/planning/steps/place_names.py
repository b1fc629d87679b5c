"""What follows the name of a tensor in that of a place which is not called after the tensor alone."""

from __future__ import annotations

IN_BLOCKS = " in blocks"  # blocks of a map that is there whole as well, or comes again later
BESIDE = " beside"  # a second place of a map that one operator reads in two ways
ACROSS = " across"  # columns that later patches of the same rows read
DOWN_FIRST = " down first"  # rows that the patches below read, of the first patch of a row
DOWN = " down"  # and of the others


def used_as(use: str) -> str:
    """Of an operand of attention: `use` is queries, keys, values or scores."""
    return f" as {use}"


def tensor_in(name: str) -> str:
    """The tensor that a place of this name is called after; the name itself where it has no suffix.

    >>> tensor_in("conv.out beside"), tensor_in("conv.out~")
    ('conv.out', 'conv.out~')
    """
    for suffix in SUFFIXES:
        if name.rstrip("~").endswith(suffix):
            return name.rstrip("~").removesuffix(suffix)
    return name


SUFFIXES = (
    IN_BLOCKS,
    BESIDE,
    ACROSS,
    DOWN,
    DOWN_FIRST,
    *(used_as(use) for use in ("queries", "keys", "values", "scores")),
)
