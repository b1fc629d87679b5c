"""Residency of factors and tables of quantised operators in their stores beside the buffer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lfopt.ir import Hardware, Node, Transfer, parameter_runs
from lfopt.isa.tables import Space
from lfopt.ops import Dataflow
from lfopt.ops.parameter_data import TABLE_BYTES
from lfopt.planning.accelerator.parameter_store import ParameterStore, parameter_space


class ParameterResidency:
    """Where an operator's parameters lie in their store, when they were loaded and last used, in cycles.

    Groups overwrite the parameters of those before.
    """

    def __init__(self, flow: Dataflow, index: dict[str, int], hardware: Hardware) -> None:
        self.flow = flow
        self.index = index
        self.hardware = hardware
        self.stores = {  # in bytes; tables have one of their own where their number is limited
            Space.FACTORS: ParameterStore(hardware.parameter_store_bytes),
            Space.TABLES: ParameterStore(hardware.parameter_tables * TABLE_BYTES),
        }
        # loads of the group whose parameters are needed together, by the id of the first
        self._together: dict[int, list[Transfer]] = {}
        self._lying: dict[int, tuple[Space, int, int]] = {}  # store, first byte, byte behind the last
        self._loaded: dict[int, int] = {}  # when all of them are there
        self._used: dict[int, int] = {}  # when the last command that reads them is done

    def ahead(self) -> ParameterResidency:
        """A copy of the residency as it is now."""
        fork = ParameterResidency(self.flow, self.index, self.hardware)
        for space, store in self.stores.items():
            fork.stores[space].free = store.free
        fork._lying = {**self._lying}
        fork._loaded = {**self._loaded}
        fork._used = {**self._used}
        return fork

    def begin(self, nodes: Sequence[Node]) -> None:
        """Begin the next group, which has these steps."""
        self._together = {id(run[0]): run for run in parameter_runs(nodes)}

    def load(self, transfer: Transfer) -> int:
        """Allocate a load; the cycle from which the bytes that it overwrites are free."""
        needed = Counter[Space]()
        for one in self._together.get(id(transfer), ()):
            needed[self._space(one)] += one.bytes
        for space, size in needed.items():
            self.stores[space].make_room(size)
        space = self._space(transfer)
        first, stop = self.stores[space].put(transfer.bytes)
        gone = [
            op
            for op, (other, start, end) in self._lying.items()
            if other is space and start < stop and first < end
        ]
        free = max((self._used.pop(op, 0) for op in gone), default=0)
        for op in gone:
            del self._lying[op]
        self._lying[self.index[transfer.tensor]] = space, first, stop
        return free

    def loaded(self, transfer: Transfer, done: int) -> None:
        """Note the cycle in which a load is done."""
        self._loaded[self.index[transfer.tensor]] = done

    def there(self, ops: Sequence[int]) -> int:
        """Cycle in which the parameters of all these operators are loaded."""
        if len(ops) == 1:
            return self._loaded.get(ops[0], 0)
        return max([self._loaded.get(op, 0) for op in ops])

    def read(self, ops: Sequence[int], done: int) -> None:
        """Note the cycle in which a command that uses these operators' parameters is done."""
        for op in ops:
            self._used[op] = done

    def _space(self, transfer: Transfer) -> Space:
        if self.hardware.parameter_tables:
            return parameter_space(self.flow.calls[self.index[transfer.tensor]])
        return Space.FACTORS
