"""What exporters leave behind: operators that do nothing, repeat another, or that nothing reads.

No algebra is needed for it. Every function takes a mutable graph and a log, and says how many operators it
took out or changed.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace

import numpy as np

from lfopt.ir import Operator, Tensor
from lfopt.ops import spec
from lfopt.ops.parameters import pad_amounts, permutation, slice_steps
from lfopt.rewrite.draft import MAX_FOLDED, folded
from lfopt.rewrite.equal_constants import equal_constants
from lfopt.rewrite.log import Applied, Log
from lfopt.rewrite.mutable_graph import MutableGraph, signature

RANDOM = frozenset(
    "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split()
)
BROADCASTING = frozenset(
    """Add Sub Mul Div Pow Max Min Mean Sum And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual Where
    Mod""".split()
)


def drop_idle(mutable: MutableGraph, log: Log, but: Container[str] = ()) -> int:
    """Take out operators whose result is their operand; `but`: kinds that stay.

    Identity, Dropout, a Reshape to the same shape, a Transpose that moves nothing, ...
    """
    count = 0
    for name in tuple(mutable.operators):
        operator = mutable.operators.get(name)
        if (
            operator is None
            or operator.kind in but
            or operator.domain
            or not operator.inputs
            or not operator.outputs[0]
            or any(operator.outputs[1:])
        ):
            continue
        source = mutable.tensors[operator.inputs[0]]
        result = mutable.tensors[operator.outputs[0]]
        alike = (source.shape, source.dtype, source.quantization) == (
            result.shape,
            result.dtype,
            result.quantization,
        )
        if (
            not alike
            or not IDLE.get(operator.kind, _never)(mutable, operator)
            or _must_stay(mutable, operator)
        ):
            continue
        mutable.replace_and_erase(replace(operator, outputs=operator.outputs[:1]), source.name)
        log.applied.append(Applied(f"{operator.kind} that changes nothing", "clean-up", (name,), (), 0, 0))
        count += 1
    return count


def _must_stay(mutable: MutableGraph, operator: Operator) -> bool:
    """Whether an output of the graph would be an input, a constant or another output under a second name."""
    source = operator.inputs[0]
    result = operator.outputs[0]
    return result in mutable.outputs and (source not in mutable.makers or source in mutable.outputs)


def _always(mutable: MutableGraph, operator: Operator) -> bool:
    return True


def _never(mutable: MutableGraph, operator: Operator) -> bool:
    return False


def _alone(mutable: MutableGraph, operator: Operator) -> bool:
    return len(operator.inputs) == 1


def _pads_nothing(mutable: MutableGraph, operator: Operator) -> bool:
    amounts = pad_amounts(mutable.call(operator))
    return amounts is not None and all(pair == (0, 0) for pair in amounts)


def _slices_nothing(mutable: MutableGraph, operator: Operator) -> bool:
    steps = slice_steps(mutable.call(operator))
    return steps is not None and all(step == 1 for _, step in steps)


def _moves_nothing(mutable: MutableGraph, operator: Operator) -> bool:
    perm = permutation(mutable.call(operator))
    return perm == tuple(range(len(perm)))


# of operators whose result has the operand's shape and type
IDLE: dict[str, Callable[[MutableGraph, Operator], bool]] = {
    **dict.fromkeys(
        (
            "Cast",
            "CastLike",
            "Dropout",
            "Expand",
            "Flatten",
            "Identity",
            "Reshape",
            "Squeeze",
            "Tile",
            "Unsqueeze",
        ),
        _always,
    ),
    **dict.fromkeys(("Concat", "Max", "Mean", "Min", "Split", "Sum"), _alone),
    "Pad": _pads_nothing,
    "Slice": _slices_nothing,
    "Transpose": _moves_nothing,
}


def join_casts(mutable: MutableGraph, log: Log) -> int:
    """A Cast of a Cast that loses nothing is one Cast."""
    count = 0
    for operator in tuple(mutable.operators.values()):
        if operator.kind == "Cast" and mutable.is_plain(operator):
            inner = mutable.plain_maker(operator.inputs[0])
        else:
            inner = None
        if inner is None or inner.kind != "Cast":
            continue
        source = mutable.tensors[inner.inputs[0]].dtype
        between = mutable.tensors[inner.outputs[0]].dtype
        if not _is_number(source) or not _is_number(between) or not np.can_cast(source, between, "safe"):
            log.refuse("Cast of Cast", operator.name, f"from {source} to {between} digits may be lost")
            continue
        mutable.change(replace(operator, inputs=(inner.inputs[0],)))
        log.applied.append(Applied("Cast of Cast", "clean-up", (operator.name,), (operator.name,), 0, 0))
        count += 1
    return count


def _is_number(dtype: str) -> bool:
    return dtype.startswith(("float", "int", "uint", "bool")) and dtype not in (
        "int4",
        "uint4",
        "int2",
        "uint2",
        "float8e4m3fn",
    )


def drop_expands(mutable: MutableGraph, log: Log) -> int:
    """Leave out an Expand before an operator that broadcasts to the same shape without it."""
    count = 0
    for name in tuple(mutable.operators):
        operator = mutable.operators[name]
        if operator.kind not in BROADCASTING or not mutable.is_plain(operator):
            continue
        for place, tensor in enumerate(operator.inputs):
            maker = mutable.plain_maker(tensor)
            if maker is None or maker.kind != "Expand":
                continue
            inputs = (*operator.inputs[:place], maker.inputs[0], *operator.inputs[place + 1 :])
            if (
                np.broadcast_shapes(*(mutable.tensors[t].shape for t in inputs))
                == mutable.tensors[operator.outputs[0]].shape
            ):
                operator = replace(operator, inputs=inputs)
                mutable.change(operator)
                log.applied.append(Applied("Expand before a broadcast", "clean-up", (name,), (name,), 0, 0))
                count += 1
    return count


def merge_equal(mutable: MutableGraph, log: Log) -> int:
    """Common sub-expressions: of operators of equal kind, attributes and inputs, the first is read by all.

    Equal constants become one before.
    """
    for name, equal in equal_constants(mutable.tensors, mutable.constants, mutable.outputs).items():
        if mutable.readers.get(name):
            mutable.redirect(name, equal)
    count = 0
    first: dict[object, Operator] = {}
    for operator in mutable.finish().operators:
        operator = mutable.operators[operator.name]  # it may read something else by now
        if operator.kind in RANDOM or operator.domain:
            continue
        results = tuple(bool(name) for name in operator.outputs)
        types = tuple(
            (mutable.tensors[name].dtype, mutable.tensors[name].quantization)
            for name in operator.outputs
            if name
        )
        key = (signature(operator.kind, operator.inputs, operator.attributes), results, types)
        known = first.setdefault(key, operator)
        if known is operator or any(name in mutable.outputs for name in operator.outputs):
            continue
        mutable.remove(operator.name)
        for old, new in zip(operator.outputs, known.outputs, strict=True):
            if old:
                mutable.redirect(old, new)
        log.applied.append(Applied("common sub-expression", "clean-up", (operator.name,), (), 0, 0))
        count += 1
    return count


def fold_constants(mutable: MutableGraph, log: Log) -> int:
    """An operator whose operands are all constants becomes one; by shape alone where values are absent."""
    count = 0
    for operator in mutable.finish().operators:
        operator = mutable.operators[operator.name]
        given = [name for name in operator.inputs if name]
        foldable = (
            mutable.is_plain(operator)
            and operator.kind not in RANDOM
            and spec(operator.kind).kind == operator.kind
        )
        if (
            not foldable
            or not given
            or any(name not in mutable.constants for name in given)
            or operator.outputs[0] in mutable.outputs
        ):
            continue
        result = mutable.tensors[operator.outputs[0]]
        if result.elements > MAX_FOLDED:
            log.refuse(
                "constant folding", operator.name, f"{result.elements} elements; the limit is {MAX_FOLDED}"
            )
            continue
        value = folded(mutable, operator, result)
        mutable.remove(operator.name)
        mutable.add_folded(operator, Tensor(result.name, result.shape, result.dtype), value)
        log.applied.append(Applied("constant folding", "clean-up", (operator.name,), (), 0, 0))
        count += 1
    return count


def drop_dead(mutable: MutableGraph, log: Log) -> int:
    """Take out what no output depends on."""
    dead = mutable.drop_dead()
    log.applied.extend(
        Applied("nobody reads it", "clean-up", (operator.name,), (), 0, 0) for operator in dead
    )
    return len(dead)
