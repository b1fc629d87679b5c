"""Groups of the same structure, in the same network or another, share one price and one plan.

Networks with other copies differ in a few blocks, and many blocks of a network are alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterator

from lfopt.fusion.cost_model import Adapted
from lfopt.ir import Cost, Tensor
from lfopt.ops import Dataflow, bits
from lfopt.ops.alike import Numbers, operator_key
from lfopt.ops.attention import window_of
from lfopt.planning.costs.group_costs import GroupCosts
from lfopt.planning.modes.mode import is_single
from lfopt.planning.steps.renamed import Renaming


class Structures:
    """Structures of the groups of one dataflow."""

    def __init__(self, flow: Dataflow, numbers: dict[Hashable, int] | None = None) -> None:
        """`numbers`: of operators that are alike, where several dataflows share them."""
        self.flow = flow
        self._numbers: dict[Hashable, int] = {} if numbers is None else numbers
        self._operators: dict[int, int] = {}
        uses = Counter(
            name for weights in flow.weights for name in {w.name for w in weights if not w.gathered}
        )
        self._shared = [
            tuple(dict.fromkeys(w.name for w in weights if uses[w.name] > 1)) for weights in flow.weights
        ]
        self._read = [tuple(self._maps_read(i)) for i in range(len(flow))]

    def _maps_read(self, op: int) -> Iterator[Hashable]:
        """Maps that an operator reads, and views of them that it sees."""
        flow = self.flow
        inputs = flow.calls[op].inputs
        for operand in flow.operands[op]:
            yield operand.map
            if inputs[operand.input] != flow.maps[operand.map].name:
                yield inputs[operand.input]

    def key(self, group: int, stores: int | None = None) -> Hashable:
        """Structure of a group: equal for groups that differ in names and constant data alone.

        `stores`: mask of the maps that it stores; None: those that are needed outside.
        """
        flow = self.flow
        maps = Numbers()
        constants = Numbers()
        key: list[Hashable] = []
        for i in bits(group):
            key.append(self._operator(i))
            key += [maps[m] for m in self._read[i]]
            for m in flow.results[i]:
                key.append(maps[m])
                if stores is None:
                    key.append(flow.is_output[m] or bool(flow.readers[m] & ~group))
                else:
                    key.append(bool(stores >> m & 1))
            key += [constants[name] for name in self._shared[i]]
        return tuple(key)

    def positions(self, group: int, maps: Container[int]) -> tuple[int, ...]:
        """Where these maps stand among those that a group touches, in the order in which it does."""
        order = dict[int, int]()
        for i in bits(group):
            for m in (*(operand.map for operand in self.flow.operands[i]), *self.flow.results[i]):
                order.setdefault(m, len(order))
        return tuple(number for m, number in order.items() if m in maps)

    def _operator(self, op: int) -> int:
        if op not in self._operators:
            self._operators[op] = self._numbers.setdefault(_operator(self.flow, op), len(self._numbers))
        return self._operators[op]

    def renaming(self, group: int, other: int) -> Renaming:
        """Names of operators and tensors in another group of the same structure, by those in a group."""
        return Renaming(
            dict(zip(self._operators_of(group), self._operators_of(other), strict=True)),
            dict(zip(self._tensors_of(group), self._tensors_of(other), strict=True)),
        )

    def _operators_of(self, group: int) -> Iterator[str]:
        for i in bits(group):
            call = self.flow.calls[i]
            yield from (part.operator.name for part in (call, *call.parts))

    def _tensors_of(self, group: int) -> Iterator[str]:
        flow = self.flow
        for i in bits(group):
            call = flow.calls[i]
            for part in (call, *call.parts):
                yield from (*part.operator.inputs, *part.operator.outputs)
            yield from (flow.maps[m].name for m in (*(o.map for o in flow.operands[i]), *flow.results[i]))


class Prices:
    """Prices by structure, on one chip."""

    def __init__(self) -> None:
        self.operators: dict[Hashable, int] = {}  # numbers of those that are alike
        self.groups: dict[Hashable, Cost | None] = {}

    def of(self, costs: GroupCosts) -> Alike:
        """A cost model with these prices.

        All that is given here is of one chip, one kind of traffic, and epilogues or none.
        """
        return Alike(costs, self)


class Alike(Adapted[object]):
    """A cost model of one dataflow whose prices are shared."""

    def __init__(self, costs: GroupCosts, prices: Prices) -> None:
        super().__init__(costs)
        self.costs = costs
        self.prices = prices
        self._space = costs.scheme, costs.max_recompute
        self._structures = Structures(costs.dataflow, prices.operators)
        self._known: dict[int, Cost | None] = {}

    @property
    def simpler(self) -> Alike | None:
        """The simpler model, with shared prices too."""
        simpler = self.costs.simpler
        if simpler is None:
            return None
        return Alike(simpler, self.prices)

    def price(self, group: int, /) -> Cost | None:
        """See `CostModel`."""
        if group & self.costs.rules.touched:
            return self.costs.price(group)
        if group not in self._known:
            key = self.key(group)
            groups = self.prices.groups
            if key not in groups:
                groups[key] = self.costs.price(group)
            self._known[group] = groups[key]
        return self._known[group]

    def key(self, group: int) -> Hashable:
        """Equal for groups of the same structure; of single operators, if as many are read through."""
        through = is_single(group) and bool(group & self.costs.bounds.through)
        return self._space, through, self._structures.key(group)


def _operator(flow: Dataflow, op: int) -> Hashable:
    """Structure of an operator and what follows it in flight, whatever it is joined to."""
    names = Numbers()
    call = flow.calls[op]
    parts = tuple(operator_key(part, names) for part in call.parts)
    operands = tuple((o.input, _tensor(flow.maps[o.map]), o.reads) for o in flow.operands[op])
    results = tuple(_tensor(flow.maps[m]) for m in flow.results[op])
    weights = tuple((w.elements, w.bias, w.gathered, w.pieces) for w in flow.weights[op])
    window = window_of(call)
    seen = None if window is None else tuple(ends.tobytes() for ends in window)
    return parts, operands, results, weights, flow.running >> op & 1, seen


def _tensor(tensor: Tensor) -> Hashable:
    return tensor.shape, tensor.dtype, tensor.quantization
