"""Prices that several dataflows share: a group costs what one of the same structure costs, in the same or in another network.

Networks with other copies differ in a few blocks, and many of their blocks are alike.
"""

from __future__ import annotations

from collections.abc import Hashable

from lfopt.fusion.cost_model import Adapted
from lfopt.ir import Cost, Tensor
from lfopt.ops import Dataflow, bits
from lfopt.ops.alike import Numbers, operator_key
from lfopt.planning.costs import GroupCosts


class Prices:
    """Prices by structure, on one chip."""

    def __init__(self) -> None:
        self.operators: dict[Hashable, int] = {}  # numbers of those that are alike
        self.groups: dict[Hashable, Cost | None] = {}

    def of(self, costs: GroupCosts) -> Alike:
        """The same costs, with these prices. All that is given here is of one chip, one kind of traffic, and epilogues or none."""
        return Alike(costs, self)


class Alike(Adapted[object]):
    """A cost model of one dataflow whose prices are shared."""

    def __init__(self, costs: GroupCosts, prices: Prices) -> None:
        super().__init__(costs)
        self.costs, self.prices = costs, prices
        flow = costs.dataflow
        self._space = costs.scheme, costs.max_recompute
        self._operators = [prices.operators.setdefault(_operator(flow, i), len(prices.operators)) for i in range(len(flow))]
        self._maps = [tuple(o.map for o in operands) for operands in flow.operands]
        shared = costs.groups.shared
        self._shared = [tuple(name for name, _ in names) for names in shared]
        self._known: dict[int, Cost | None] = {}

    @property
    def simpler(self) -> Alike | None:
        """With shared prices too."""
        simpler = self.costs.simpler
        return None if simpler is None else Alike(simpler, self.prices)

    def price(self, group: int, /) -> Cost | None:
        """See `CostModel`."""
        if group & self.costs.rules.touched:
            return self.costs.price(group)
        if group not in self._known:
            key, groups = self.key(group), self.prices.groups
            if key not in groups:
                groups[key] = self.costs.price(group)
            self._known[group] = groups[key]
        return self._known[group]

    def key(self, group: int) -> Hashable:
        """Equal for groups of the same structure."""
        flow, maps, constants = self.dataflow, Numbers(), Numbers()
        key: list[Hashable] = [self._space]
        for i in bits(group):
            key.append(self._operators[i])
            key += [maps[m] for m in self._maps[i]]
            for m in flow.results[i]:
                key.append(maps[m])
                key.append(flow.is_output[m] or bool(flow.readers[m] & ~group))
            key += [constants[name] for name in self._shared[i]]
        return tuple(key)


def _operator(flow: Dataflow, op: int) -> Hashable:
    """What an operator is, with what follows it in flight, whatever it is joined to."""
    names, call = Numbers(), flow.calls[op]
    parts = tuple(operator_key(part, names) for part in call.parts)
    operands = tuple((o.input, _tensor(flow.maps[o.map]), o.reads) for o in flow.operands[op])
    results = tuple(_tensor(flow.maps[m]) for m in flow.results[op])
    weights = tuple((w.elements, w.bias, w.gathered, w.pieces) for w in flow.weights[op])
    return parts, operands, results, weights, flow.running >> op & 1


def _tensor(tensor: Tensor) -> Hashable:
    return tensor.shape, tensor.dtype, tensor.quantization
