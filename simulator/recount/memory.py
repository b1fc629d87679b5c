"""Recount of the memory maps: every tensor that moves has an address range in DRAM or the second level."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from copy import copy

from lfopt.ir import DramTensor, Plan, PlannedGroup, Transfer, leaves, parameters_of
from simulator.recount.accesses import last_use
from simulator.recount.groups import may_share, moved_once, parameter_bytes
from simulator.recount.levels import inner_maps
from simulator.recount.network import RecountNetwork

DRAM_ALIGN = 64  # bytes: where a tensor in either memory may begin
ADDRESS_SPACE = 1 << 48  # bytes of DRAM

Known = list[tuple[PlannedGroup, list[str]]]  # groups with those of their operators that exist


def memory_problems(
    net: RecountNetwork,
    plan: Plan,
    known: Known,
    tables: dict[str, int],
    free: Container[str],
    *,
    flies: bool,
) -> Iterator[str]:
    """Problems of the maps of both memories.

    `tables`: of operators in flight, see `shared_tables`; `flies`: whether there may be such; `free`:
    constants that may have a place in DRAM, and need not.
    """
    return _Memory(net, plan, tables, free, flies=flies).problems(known)


class _Memory:
    def __init__(
        self, net: RecountNetwork, plan: Plan, tables: dict[str, int], free: Container[str], *, flies: bool
    ) -> None:
        self.free = free
        self.net = net
        self.plan = plan
        self.hardware = plan.hardware
        self.tables = tables
        self.flies = flies

    def problems(self, known: Known) -> Iterator[str]:
        """Problems unless exactly the tensors that move have an entry, in the right memory.

        Maps between groups, or spilled by one, may be in the second level.
        """
        net = self.net
        claimed = {entry.name: entry for entry in self.plan.memory}
        if len(claimed) < len(self.plan.memory):
            yield "memory: a tensor has two entries"
        wanted: dict[str, str] = dict.fromkeys(net.graph.inputs, "input")
        wanted |= {constant.name: "weight" for constants in net.constants.values() for constant in constants}
        wanted = {name: role for name, role in wanted.items() if name in claimed or name not in self.free}
        parameters = self._parameters(known, claimed)
        wanted |= dict.fromkeys(parameters, "parameter")
        for group, members in known:
            if group.is_access:
                continue
            wanted |= {
                name: "output" if name in net.stored else "map"
                for name in moved_once(net, members, self.hardware).outputs
            }
            wanted |= dict.fromkeys(spilled(net, group, members), "map")
        if len(self.plan.memory) > 2 * len(wanted):
            yield f"memory: {len(self.plan.memory):,} entries, for {len(wanted):,} tensors"
            return
        for name in sorted(claimed.keys() | wanted.keys()):
            entry = claimed.get(name)
            if name not in wanted:
                yield f"memory: {name!r} never moves"
            elif entry is None:
                yield f"memory: {name!r} has no entry"
            elif entry != (counted := self._entry(entry, wanted[name], parameters.get(name, 0))):
                yield f"memory: {name!r}: the plan says {_entry_text(entry)}, counted {_entry_text(counted)}"
        lives = self._lives(known)
        for memory, size in (("dram", ADDRESS_SPACE), ("l2", self.hardware.l2_bytes)):
            yield from self._addresses(
                [entry for entry in self.plan.memory if entry.memory == memory], size, lives, len(known)
            )

    def _parameters(self, known: Known, claimed: dict[str, DramTensor]) -> dict[str, int]:
        """Bytes of the parameters that have a place in DRAM, by name."""
        shared = copy(self.net)
        shared.tables = dict(self.tables)
        for group, members in known:
            if self.flies and not group.steps:  # who shares whose table, only the steps say
                for op in members:
                    entry = claimed.get(parameters_of(op))
                    own = parameter_bytes(self.net, op, self.hardware)
                    if entry is None and may_share(self.net, op):
                        shared.tables[op] = 0
                    elif entry is not None and not own and may_share(self.net, op):
                        shared.tables[op] = 1
        return {
            parameters_of(op): size
            for op in self.net.operators
            if (size := parameter_bytes(shared, op, self.hardware))
        }

    @staticmethod
    def _addresses(
        entries: Sequence[DramTensor], size: int, lives: Mapping[str, tuple[int, int]], groups: int
    ) -> Iterator[str]:
        """Problems of addresses in a memory of `size` bytes.

        Tensors begin at multiples of DRAM_ALIGN; two may share bytes only if their live ranges are disjoint.
        """
        # (first group, last group, end, entry) of what reaches the address at hand
        alive: list[tuple[int, int, int, DramTensor]] = []
        for entry in sorted(entries, key=lambda entry: entry.address):
            end = entry.address + entry.rows * entry.row_bytes
            if entry.address < 0 or entry.address % DRAM_ALIGN or end > size:
                where = " of the second level" if entry.memory == "l2" else ""
                yield (
                    f"memory: {entry.name!r} lies from {entry.address} to {end}{where}; accepted: "
                    f"multiples of {DRAM_ALIGN}, up to {size}"
                )
            alive = [other for other in alive if other[2] > entry.address]
            born, dies = lives.get(entry.name, (0, groups))
            for first, last, _, other in alive:
                if first <= dies and born <= last:
                    yield (
                        f"memory: {entry.name!r} at {entry.address} lies over {other.name!r}, "
                        "which is needed meanwhile"
                    )
                    break
            if end > entry.address:
                alive.append((born, dies, end, entry))

    def _lives(self, known: Known) -> dict[str, tuple[int, int]]:
        """The groups from which to which the bytes of every map must stay: from its maker to its last reader.

        All else stays throughout.
        """
        net = self.net
        owner = {op: k for k, (_, members) in enumerate(known) for op in members}
        through = self.plan.read_through
        end = len(known)
        lives: dict[str, tuple[int, int]] = {}
        for name, maker in net.maker.items():
            if maker in owner and name not in net.stored:
                born = owner[maker]
                lives[name] = born, max(born, last_use(net, owner, through, name, end))
        for name in net.graph.inputs:
            if name not in net.stored:
                lives[name] = -1, last_use(net, owner, through, name, end)
        return lives

    def _entry(self, entry: DramTensor, role: str, parameters: int) -> DramTensor:
        if role == "parameter":
            return DramTensor(entry.name, role, entry.address, 1, parameters)
        tensor = self.net.tensor(entry.name)
        if role == "weight":
            rows = 1
            size = self.hardware.constant_bytes(tensor.elements, bias=entry.name in self.net.biases)
        else:
            rows = tensor.rows
            size = self.hardware.dram_bytes(tensor)
        memory = entry.memory if role == "map" else "dram"
        return DramTensor(entry.name, role, entry.address, rows, size // max(rows, 1), memory)  # type: ignore[arg-type]


def spilled(net: RecountNetwork, group: PlannedGroup, members: Sequence[str]) -> list[str]:
    """Maps that a group stores and nothing else needs: it loads them again."""
    inner = inner_maps(net, members)
    stored = (step.tensor for step in leaves(group.steps) if isinstance(step, Transfer) and step.store)
    return [name for name in dict.fromkeys(stored) if name in inner]


def _entry_text(entry: DramTensor) -> str:
    return f"{entry.role}, {entry.rows} rows of {entry.row_bytes} B" + (
        " in the second level" if entry.memory == "l2" else ""
    )
