"""Convolutions along one axis, and what stands around them, as operators on maps [n, c, l, 1].

A map [n, c, l] has its channels for rows, all of which a convolution reads; one of shape [n, c, l, 1] has its
positions for rows, a window of which is enough. Elementwise operators and pools beside a convolution, or
behind one that works on [n, c, l, 1] as it stands, take the same form. So does a Transpose between [n, c, l]
and [n, l, c], as one between [n, c, l, 1] and [n, 1, l, c], which has the same rows: nothing but the ends of
such a part of the network needs a view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from lfopt.ir import Attribute, Graph, Operator
from lfopt.ops import spec
from lfopt.ops.call import Shape
from lfopt.rewrite.mutable_graph import MutableGraph
from lfopt.rewrite.views import add_view, behind, new_tensor, skip_views, view_of

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
POOLS = frozenset({"MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool"})
PER_AXIS: dict[str, int] = {
    "kernel_shape": 1,
    "strides": 1,
    "dilations": 1,
    "output_padding": 0,
    "output_shape": 1,
}  # attributes, and what a second axis has of them
SWAP = (0, 2, 1)  # from channels first to channels last, or back
BY_CHANNEL = frozenset({"BatchNormalization", "PRelu"})  # elementwise, with an axis of their own


def on_positions(graph: Graph) -> Graph:
    """Convolutions of maps [n, c, l], and what stands beside them, as operators on [n, c, l, 1].

    Views stand where such a part begins and ends.
    """
    mutable = MutableGraph(graph)
    part = dict[str, None]()
    for operator in graph.operators:
        if (
            operator.name not in part
            and (operator.kind in CONVOLUTIONS or _behind_column(mutable, operator))
            and _takes_part(mutable, operator)
        ):
            part |= _around(mutable, operator)
    if not part:
        return graph
    for operator in graph.operators:
        if operator.name in part:
            _convert(mutable, operator)
    for operator in [*mutable.operators.values()]:
        skip_views(mutable, operator)
    mutable.drop_dead()
    return mutable.finish()


# -- what takes part -----------------------------------------------------------------------------------------


def _takes_part(mutable: MutableGraph, operator: Operator) -> bool:
    """Whether it may work on [n, c, l, 1]: along one axis, elementwise, or as a Transpose of [n, c, l].

    That is a convolution or pool along one axis; what works element by element on maps of one shape; what
    transposes such maps.
    """
    if not mutable.is_plain(operator) or len(shape := mutable.tensors[operator.outputs[0]].shape) != 3:
        return False
    maps = [name for name in operator.inputs if name and name not in mutable.constants]
    if operator.kind in CONVOLUTIONS:
        return maps == [operator.inputs[0]]
    if operator.kind in POOLS:
        return True
    if operator.kind == "Transpose":
        return operator.attributes.get("perm") == SWAP
    return (
        spec(operator.kind).elementwise
        and operator.kind not in BY_CHANNEL
        and all(mutable.tensors[name].shape == shape for name in maps)
    )


def _behind_column(mutable: MutableGraph, operator: Operator) -> bool:
    """Whether it reads the result [n, c, l, 1] of a convolution as [n, c, l]."""
    for name in operator.inputs:
        for source in behind(mutable, name)[1:] if name else ():
            maker = mutable.maker(source)
            if (
                maker is not None
                and maker.kind in CONVOLUTIONS
                and mutable.tensors[source].shape == _as_column(mutable.tensors[name].shape)
            ):
                return True
    return False


def _around(mutable: MutableGraph, first: Operator) -> dict[str, None]:
    """An operator and what stands around it.

    Behind a map that is turned round, it ends where another map comes in.
    """
    members = {first.name: None}
    todo = [first]
    while todo:
        operator = todo.pop()
        if operator.kind == "Transpose":
            members |= dict.fromkeys(_behind_turn(mutable, operator))
            continue
        near = [maker for name in operator.inputs if name and (maker := mutable.maker(name)) is not None]
        near += [mutable.operators[name] for name in mutable.readers.get(operator.outputs[0], ())]
        for other in near:
            if other.name not in members and _takes_part(mutable, other):
                members[other.name] = None
                todo.append(other)
    return members


def _behind_turn(mutable: MutableGraph, operator: Operator) -> Iterator[str]:
    """Elementwise operators on the result of an operator, and on what comes of it, with no other map."""
    for name in mutable.readers.get(operator.outputs[0], ()):
        reader = mutable.operators[name]
        maps = {given for given in reader.inputs if given and given not in mutable.constants}
        if (
            reader.kind not in BY_CHANNEL
            and spec(reader.kind).elementwise
            and maps == {*operator.outputs}
            and _takes_part(mutable, reader)
        ):
            yield name
            yield from _behind_turn(mutable, reader)


# -- what becomes of it --------------------------------------------------------------------------------------


def _convert(mutable: MutableGraph, operator: Operator) -> None:
    """Let an operator work on [n, c, l, 1], with views around it."""
    (result_name,), tensor = operator.outputs, mutable.tensors[operator.outputs[0]]
    if operator.kind == "Transpose":
        _turn(mutable, operator)
        return
    # a convolution or pool works along columns, whatever its operand is a view of
    turned = spec(operator.kind).elementwise and any(
        _is_view(mutable, name, _as_row) for name in operator.inputs if name and name not in mutable.constants
    )
    form = _as_row if turned else _as_column
    result = new_tensor(mutable, f"{result_name}.column", form(tensor.shape), tensor.dtype)
    inputs = tuple(_input(mutable, index, operator, form) for index in range(len(operator.inputs)))
    if spec(operator.kind).elementwise:
        attributes = operator.attributes
    else:
        attributes = _with_second_axis(operator.attributes)
    mutable.change(replace(operator, inputs=inputs, outputs=(result,), attributes=attributes))
    add_view(mutable, operator, result, result_name)


def _with_second_axis(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """Attributes of a convolution or pool along one axis, for two of them, the second of extent 1."""
    widened = dict(attributes)
    for name, neutral in PER_AXIS.items():
        match widened.get(name):
            case (int(along),):
                widened[name] = (along, neutral)
            case _:
                pass
    match widened.get("pads"):
        case (int(first), int(last)):
            widened["pads"] = (first, 0, last, 0)
        case _:
            pass
    return widened


def _input(mutable: MutableGraph, index: int, operator: Operator, form: Callable[[Shape], Shape]) -> str:
    """An operand in the form that goes with the result."""
    name = operator.inputs[index]
    if not name or (operator.kind in CONVOLUTIONS and index > 1):
        return name
    tensor = mutable.tensors[name]
    if name not in mutable.constants:
        return view_of(mutable, name, form(tensor.shape), f"{name}.column", operator)
    if index in spec(operator.kind).parameters or len(tensor.shape) < (3 if form is _as_row else 1):
        return name
    value = mutable.constants[name]
    shape = form(tensor.shape)
    return mutable.add_constant(
        f"{name}.column",
        shape,
        tensor.dtype,
        None if value is None else value.reshape(shape),
        of=("reshape", name),
    )


def _turn(mutable: MutableGraph, operator: Operator) -> None:
    """Let a Transpose from [n, c, l] to [n, l, c], or back, work on [n, c, l, 1] and [n, 1, l, c].

    Both have l rows.
    """
    (source,), (turned,) = operator.inputs, operator.outputs
    forward = _is_view(mutable, source, _as_column)
    before, after = (_as_column, _as_row) if forward else (_as_row, _as_column)
    result = new_tensor(
        mutable, f"{turned}.turned", after(mutable.tensors[turned].shape), mutable.tensors[turned].dtype
    )
    given = view_of(mutable, source, before(mutable.tensors[source].shape), f"{source}.row", operator)
    mutable.change(replace(operator, inputs=(given,), outputs=(result,), attributes={"perm": (0, 3, 2, 1)}))
    add_view(mutable, operator, result, turned)


def _is_view(mutable: MutableGraph, name: str, form: Callable[[Shape], Shape]) -> bool:
    """Whether a map is a view of one in this form by now."""
    maker = mutable.plain_maker(name)
    return (
        maker is not None
        and maker.kind == "Reshape"
        and mutable.tensors[maker.inputs[0]].shape == form(mutable.tensors[name].shape)
    )


def _as_column(shape: Shape) -> Shape:
    return (*shape, 1)


def _as_row(shape: Shape) -> Shape:
    return (shape[0], 1, *shape[1:])
