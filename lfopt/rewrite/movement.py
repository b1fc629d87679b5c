"""Chains of Transpose and Reshape become the shortest chain that moves every element to the same place.

A tensor is looked at as a row of *atoms*: pieces of its axes that no operator of the chain takes apart. A
Reshape regroups atoms, and takes one apart where it must; a Transpose changes their order. What counts is the
order at the end: unchanged, and the chain is one Reshape or nothing; else it is one Transpose, with a Reshape
before or after it where axes are split or joined. Between them, elementwise functions of one map may stand:
they do not mind where elements lie.

    [1, 128, 12, 26] -Transpose-> [1, 12, 128, 26] -Reshape-> [12, 128, 26] -Transpose-> [12, 26, 128]
                     -Reshape-> [1, 12, 26, 128] = Transpose (0, 2, 3, 1)
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod

import numpy as np

from lfopt.ir import Operator, Tensor
from lfopt.ops import spec
from lfopt.ops.call import Shape
from lfopt.ops.parameters import permutation
from lfopt.rewrite.log import Applied, Log
from lfopt.rewrite.mutable_graph import MutableGraph

Atom = tuple[int, tuple[int, ...]]  # extent; path: which piece of which axis, in order of the input
VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
MOVES = VIEWS | {"Transpose"}
NAME = "chain of Transpose and Reshape"


def shorten_moves(mutable: MutableGraph, log: Log) -> int:
    """Replace every chain that has a shorter equal; the number of chains."""
    count = 0
    for name in tuple(mutable.operators):
        operator = mutable.operators.get(name)
        if operator is None or not _is_move(mutable, operator) or _continues(mutable, operator):
            continue
        chain = _chain(mutable, operator)
        count += len(chain) > 1 and _shortened(mutable, chain, log)
    return count


def _is_move(mutable: MutableGraph, operator: Operator) -> bool:
    return operator.kind in MOVES and mutable.is_plain(operator)


def _continues(mutable: MutableGraph, operator: Operator) -> bool:
    """Whether the chain goes on after it, so that it is looked at from there."""
    reader = mutable.only_reader(operator.outputs[0])
    while reader is not None and _is_pointwise(mutable, reader):
        reader = mutable.only_reader(reader.outputs[0])
    return reader is not None and _is_move(mutable, reader)


def _is_pointwise(mutable: MutableGraph, operator: Operator) -> bool:
    """Whether it is a function of one map, element by element, that knows no axes."""
    if (
        not spec(operator.kind).elementwise
        or not mutable.is_plain(operator)
        or operator.kind in ("BatchNormalization", "PRelu")
    ):
        return False
    maps = _maps(mutable, operator)
    return len(maps) == 1 and mutable.tensors[maps[0]].shape == mutable.tensors[operator.outputs[0]].shape


def _source(mutable: MutableGraph, operator: Operator) -> str:
    """The map that it moves or maps."""
    if operator.kind in MOVES:
        return operator.inputs[0]
    return _maps(mutable, operator)[0]


def _maps(mutable: MutableGraph, operator: Operator) -> list[str]:
    """Operands that are maps: all but scalar constants."""
    return [
        name
        for name in operator.inputs
        if name and not (name in mutable.constants and mutable.tensors[name].shape == ())
    ]


def _chain(mutable: MutableGraph, last: Operator) -> list[Operator]:
    """Moves and functions that nothing else reads, first to last; the first is a move."""
    chain = [last]
    while True:
        tensor = _source(mutable, chain[-1])
        maker = mutable.plain_maker(tensor)
        if (
            maker is None
            or mutable.only_reader(tensor) is None
            or not (_is_move(mutable, maker) or _is_pointwise(mutable, maker))
        ):
            break
        chain.append(maker)
    while not _is_move(mutable, chain[-1]):
        chain.pop()
    return chain[::-1]


def _shortened(mutable: MutableGraph, chain: list[Operator], log: Log) -> bool:
    start = chain[0].inputs[0]
    end = chain[-1].outputs[0]
    moves = [operator for operator in chain if operator.kind in MOVES]
    functions = [operator for operator in chain if operator.kind not in MOVES]
    steps = composed(
        mutable.tensors[start].shape,
        [
            (
                permutation(mutable.call(op)) if op.kind == "Transpose" else None,
                mutable.tensors[op.outputs[0]].shape,
            )
            for op in moves
        ],
    )
    if steps is None:
        log.refuse(NAME, chain[-1].name, "its Reshapes cut axes at places that have no common refinement")
        return False
    if len(steps) >= len(moves):
        return False
    position = mutable.position[chain[-1].name]
    for operator in chain:
        mutable.remove(operator.name)
    names: list[str] = []
    tensor = start
    dtype = mutable.tensors[start].dtype
    for place, step in enumerate(steps):
        last = place == len(steps) - 1 and not functions
        kind = "Reshape" if step[0] is None else "Transpose"
        name = mutable.fresh(moves[-1].name if kind == moves[-1].kind else f"{moves[-1].name}.{kind}")
        result = end if last else mutable.fresh(f"{end}.moved")
        mutable.tensors[result] = Tensor(result, step[1], dtype)
        mutable.add(replace(_move(mutable, name, tensor, result, *step), origin=moves[-1].origin), position)
        names.append(name)
        tensor = result
    for place, operator in enumerate(functions):
        result = end if place == len(functions) - 1 else mutable.fresh(f"{operator.outputs[0]}.moved")
        source = operator.inputs.index(_source(mutable, operator))
        inputs = (*operator.inputs[:source], tensor, *operator.inputs[source + 1 :])
        mutable.tensors[result] = Tensor(
            result, mutable.tensors[end].shape, mutable.tensors[operator.outputs[0]].dtype
        )
        mutable.add(replace(operator, inputs=inputs, outputs=(result,)), position)
        names.append(operator.name)
        tensor = result
    if tensor != end:
        mutable.redirect(end, tensor)
    log.applied.append(Applied(NAME, "clean-up", tuple(op.name for op in chain), tuple(names), 0, 0))
    return True


Step = tuple[Shape | None, Shape]  # permutation of a Transpose, None of a Reshape; shape of the result


def _move(
    mutable: MutableGraph, name: str, source: str, result: str, perm: Shape | None, shape: Shape
) -> Operator:
    if perm is not None:
        return Operator(name, "Transpose", (source,), (result,), {"perm": perm})
    wanted = mutable.add_constant(f"{result}.shape", (len(shape),), "int64", np.array(shape, np.int64))
    return Operator(name, "Reshape", (source, wanted), (result,))


def composed(shape: Shape, moves: list[Step]) -> list[Step] | None:
    """The shortest moves that do the same; None where axes are cut at places that have no common refinement.

    >>> first = [((0, 2, 1, 3), (1, 12, 128, 26)), (None, (12, 128, 26))]
    >>> composed((1, 128, 12, 26), [*first, ((0, 2, 1), (12, 26, 128)), (None, (1, 12, 26, 128))])
    [((0, 2, 3, 1), (1, 12, 26, 128))]
    >>> composed((4, 6), [(None, (24,)), (None, (4, 6))])
    []
    """
    joined = [
        step
        for step, after in zip(moves, [*moves[1:], ((), ())], strict=True)
        if step[0] is not None or after[0] is not None
    ]
    # per axis of the tensor as it stands
    atoms: list[list[Atom]] = [[(extent, (axis,))] for axis, extent in enumerate(shape)]
    for place, (perm, result) in enumerate(joined):
        if perm is not None:
            atoms = [atoms[axis] for axis in perm]
            continue
        flat = [atom for axis in atoms for atom in axis]
        regrouped = _regrouped(flat, result)
        # it cuts anew what has not moved yet: what follows may start from it
        if regrouped is None and _in_order(flat):
            rest = composed(result, joined[place + 1 :]) if joined[place + 1 :] else []
            if rest is None or (rest and rest[0][0] is None):
                return rest
            return [(None, result), *rest]
        if regrouped is None:
            if len(joined) < len(moves):
                return joined
            return None
        atoms = regrouped
    end = moves[-1][1]
    order = [atom for axis in atoms for atom in axis if atom[0] != 1]
    if _in_order(order):  # no element has moved
        if end == shape:
            return []
        return [(None, end)]
    return _with_transpose(shape, end, atoms, order)


def _in_order(atoms: list[Atom]) -> bool:
    places = [path for extent, path in atoms if extent != 1]
    return places == sorted(places)


def _regrouped(flat: list[Atom], shape: Shape) -> list[list[Atom]] | None:
    """Atoms by the axes of a new shape; an atom that lies across a border is cut in two."""
    todo = [atom for atom in flat if atom[0] != 1][::-1]
    axes: list[list[Atom]] = []
    for extent in shape:
        axis: list[Atom] = []
        left = extent
        while left > 1:
            atom = todo.pop()
            size, path = atom
            if left % size == 0:
                axis.append(atom)
                left //= size
                continue
            if size % left:
                return None
            first = (left, (*path, 0))
            second = (size // left, (*path, 1))
            axis.append(first)
            todo.append(second)
            left = 1
        axes.append(axis)
    return axes


def _with_transpose(shape: Shape, end: Shape, atoms: list[list[Atom]], order: list[Atom]) -> list[Step]:
    """Steps with one Transpose: of whole axes of the operand or result if possible, else of runs of atoms.

    A run is what moves as one. Reshapes come where shapes differ.
    """
    if (perm := _direct(shape, end, atoms)) is not None:
        return [(perm, end)]
    place = {path: i for i, (_, path) in enumerate(sorted(order, key=lambda atom: atom[1]))}
    axes = [[atom for atom in axis if atom[0] != 1] for axis in atoms]
    if all(_is_run([place[path] for _, path in axis]) for axis in axes):
        perm = _restored([place[axis[0][1]] if axis else None for axis in axes])
        return [(None, tuple(end[perm.index(i)] for i in range(len(end)))), (perm, end)]
    later = {path: i for i, (_, path) in enumerate(order)}
    axes = [sorted((path for _, path in order if path[0] == axis)) for axis in range(len(shape))]
    if all(_is_run([later[path] for path in axis]) for axis in axes):
        places = _restored([later[axis[0]] if axis else None for axis in axes])
        perm = tuple(places.index(i) for i in range(len(shape)))
        return [(perm, tuple(shape[axis] for axis in perm)), (None, end)]
    runs: list[list[Atom]] = []  # neighbours before and after
    for atom in order:
        if runs and place[runs[-1][-1][1]] + 1 == place[atom[1]]:
            runs[-1].append(atom)
        else:
            runs.append([atom])
    perm = _restored([place[run[0][1]] for run in runs])
    after = tuple(prod(extent for extent, _ in run) for run in runs)
    before = tuple(after[perm.index(i)] for i in range(len(runs)))
    steps: list[Step] = [] if before == shape else [(None, before)]
    steps.append((perm, after))
    if after == end:
        return steps
    return [*steps, (None, end)]


def _is_run(places: list[int]) -> bool:
    return all(b == a + 1 for a, b in pairwise(places))


def _restored(places: list[int | None]) -> Shape:
    """The permutation that takes axes, in order of places, to where they stand; those without one stay.

    >>> _restored([None, 2, 9, 1])
    (0, 2, 3, 1)
    """
    moving = [axis for axis, place in enumerate(places) if place is not None]
    ranked = sorted(place for place in places if place is not None)
    return tuple(axis if place is None else moving[ranked.index(place)] for axis, place in enumerate(places))


def _direct(shape: Shape, end: Shape, atoms: list[list[Atom]]) -> Shape | None:
    """The permutation of whole axes, if it is one; axes of extent 1 fill the places that are left."""
    if sorted(shape) != sorted(end):
        return None
    permuted: list[int | None] = []
    for axis, extent in zip(atoms, end, strict=True):
        pieces = [atom for atom in axis if atom[0] != 1]
        whole = (
            sorted(pieces, key=lambda atom: atom[1]) == pieces and len({atom[1][0] for atom in pieces}) == 1
        )
        if extent != 1 and not (whole and shape[pieces[0][1][0]] == extent):
            return None
        permuted.append(None if extent == 1 else pieces[0][1][0])
    ones = [axis for axis, extent in enumerate(shape) if extent == 1]
    return tuple(ones.pop(0) if axis is None else axis for axis in permuted)
