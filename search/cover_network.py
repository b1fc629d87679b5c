"""A network as the search for covers sees it: operators and maps as masks, and sums over them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lfopt.fusion import CoverModel
from lfopt.ops import Dataflow, bits


@dataclass(frozen=True, eq=False)
class CoverNetwork:
    """A network, or a part of one, as the search asks for it. Sets are masks, of operators or of maps."""

    model: CoverModel
    flow: Dataflow
    reads: tuple[int, ...]  # per operator: mask of maps
    makes: tuple[int, ...]  # per operator: mask of maps
    inputs: int  # maps that are there before
    goal: int  # maps that are to be stored
    region: int  # operators that make the goal out of the inputs
    stored_bytes: tuple[int, ...]  # per map: bytes that making it in DRAM takes at the least
    below: tuple[int, ...]  # per map: operators of the region that it depends on
    inside: tuple[int, ...]  # per map: those that these operators make
    several: tuple[int, ...]  # results of operators with several, one of which is an output of the network
    # groups, with what they store, that were found not to be legal
    illegal: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    map_sums: dict[int, int] = field(default_factory=dict[int, int])
    stored_sums: dict[int, int] = field(default_factory=dict[int, int])
    constants: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    work_sums: dict[int, int] = field(default_factory=dict[int, int])
    near_sets: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    @classmethod
    def of(cls, model: CoverModel) -> CoverNetwork:
        """Masks of a model's dataflow."""
        flow = model.dataflow
        inputs = sum(1 << m for m, producer in enumerate(flow.producer) if producer < 0)
        outputs = sum(1 << m for m, is_output in enumerate(flow.is_output) if is_output)
        stored = [
            0 if producer < 0 or model.free >> producer & 1 else size
            for producer, size in zip(flow.producer, model.map_bytes, strict=True)
        ]
        reads = tuple(sum(1 << m for m in {o.map for o in operands}) for operands in flow.operands)
        makes = tuple(sum(1 << m for m in results) for results in flow.results)
        several = tuple(results for results in makes if results & outputs and results & (results - 1))
        below = tuple(0 if p < 0 else flow.ancestors[p] | 1 << p for p in flow.producer)
        inside = tuple(sum(makes[i] for i in bits(operators)) for operators in below)
        goal = outputs & ~inputs
        region = 0
        for m in bits(goal):
            region |= below[m]
        return cls(model, flow, reads, makes, inputs, goal, region, tuple(stored), below, inside, several)

    def part(self, inputs: int, goal: int) -> CoverNetwork:
        """The part that makes some maps, where others are there before."""
        region = 0
        waiting = self.makers(goal)
        while waiting:
            i = waiting.bit_length() - 1
            region |= 1 << i
            waiting = (waiting | self.makers(self.reads[i] & ~inputs)) & ~region
        below = tuple(
            operators & region if self.flow.makes(region, m) else 0 for m, operators in enumerate(self.below)
        )
        inside = tuple(sum(self.makes[i] for i in bits(operators)) for operators in below)
        return replace(
            self,
            inputs=inputs,
            goal=goal,
            region=region,
            below=below,
            inside=inside,
            constants={},
        )

    def beside(self, model: CoverModel, done: int, goal: int) -> CoverNetwork:
        """The operators that a map depends on but for those in `done`, whose maps are there before.

        `model`: what groups cost then; `done`: mask of operators, with all that they depend on.
        """
        region = self.under(goal) & ~done
        below = [0] * len(self.below)
        inside = [0] * len(self.inside)
        for i in bits(region):
            for m in self.flow.results[i]:
                below[m] = self.below[m] & region
                inside[m] = sum(self.makes[k] for k in bits(below[m]))
        return replace(
            self,
            model=model,
            inputs=self.inputs | self.results_of(done),
            goal=goal,
            region=region,
            below=tuple(below),
            inside=tuple(inside),
            map_sums={},
            constants={},
        )

    def stores_together(self, stores: int, could: int) -> bool:
        """Whether results of an operator, one of which is an output of the network, are all stored, or none.

        `could`: needed maps that the group makes. Only one run of an operator can make outputs.
        """
        return all(not stores & results or not could & results & ~stores for results in self.several)

    def under(self, maps: int) -> int:
        """Operators that maps depend on."""
        operators = 0
        for m in bits(maps):
            operators |= self.below[m]
        return operators

    def makers(self, maps: int) -> int:
        """Operators that make maps."""
        operators = 0
        for m in bits(maps):
            operators |= 1 << self.flow.producer[m]
        return operators

    def results_of(self, operators: int) -> int:
        """Maps that operators make."""
        makes = 0
        for i in bits(operators):
            makes |= self.makes[i]
        return makes

    def near(self, steps: int) -> list[int]:
        """Per operator: operators that are connected to it by so many others at the most, less one.

        Of very many steps: all operators.
        """
        if steps not in self.near_sets:
            flow = self.flow
            if steps >= len(flow):
                self.near_sets[steps] = [flow.everything] * len(flow)
            else:
                self.near_sets[steps] = _within_steps(flow, steps)
        return self.near_sets[steps]

    def reads_of(self, operators: int) -> int:
        """Maps that operators read, and do not make."""
        reads = 0
        makes = 0
        for i in bits(operators):
            reads |= self.reads[i]
            makes |= self.makes[i]
        return reads & ~makes

    def bytes_of(self, maps: int) -> int:
        """Bytes that loading maps takes at the least."""
        if maps not in self.map_sums:
            self.map_sums[maps] = sum(self.model.map_bytes[m] for m in bits(maps))
        return self.map_sums[maps]

    def bytes_moved(self, operators: int, reads: int, stores: int) -> int:
        """Bytes that a group moves at the least which holds these operators, reads and stores these maps."""
        moved = self.bytes_of(reads) + self.bytes_of(stores)
        if operators & self.model.grouped:
            moved += self.model.group_bytes(operators, reads, stores)
        return moved

    def bytes_stored(self, maps: int) -> int:
        """Bytes that making maps in DRAM takes at the least."""
        if maps not in self.stored_sums:
            self.stored_sums[maps] = sum(self.stored_bytes[m] for m in bits(maps))
        return self.stored_sums[maps]

    def constants_of(self, operators: int, done: int = 0) -> int:
        """Bytes of constants of operators, and of the maps that are there before which they read.

        Not of operators that move nothing where they are alone: who reads what they make pays for that.
        `done`: some of these operators, whose constants do not count, nor maps that they read.
        """
        key = operators, done
        if key not in self.constants:
            moving = operators & ~self.model.free
            new = moving & ~done
            size = self.model.group_bytes(moving, 0, 0) - self.model.group_bytes(moving & done, 0, 0)
            size += sum(self.model.own_bytes[i] for i in bits(new))
            read = self._all_reads(new) & self.inputs & ~self._all_reads(done)
            for m in bits(read):
                from_outside = self.flow.producer[m] < 0
                size += self.model.input_bytes[m] if from_outside else self.model.map_bytes[m]
            self.constants[key] = size
        return self.constants[key]

    def _all_reads(self, operators: int) -> int:
        """Maps that operators read, those that they make too."""
        reads = 0
        for i in bits(operators):
            reads |= self.reads[i]
        return reads

    def work_of(self, operators: int) -> int:
        """Work of operators, each once."""
        if operators not in self.work_sums:
            self.work_sums[operators] = sum(self.model.work[i] for i in bits(operators))
        return self.work_sums[operators]


def _within_steps(flow: Dataflow, steps: int) -> list[int]:
    """Per operator: operators that are connected to it by so many others, less one, at the most."""
    near = [1 << i for i in range(len(flow))]
    for _ in range(steps):
        wider: list[int] = []
        for mask in near:
            around = mask
            for i in bits(mask):
                around |= flow.neighbours[i]
            wider.append(around)
        if wider == near:
            break
        near = wider
    return near
