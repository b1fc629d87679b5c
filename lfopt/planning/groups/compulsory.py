"""Compulsory bytes: what no schedule avoids, in whatever scheme, on whatever buffer, however it is spelled.

Counted once each (docs/proofs.md says why no more may be):

    inputs      the elements that operators use
    outputs     the elements of maps that operators make
    constants   what they hold, of those read as data: equal ones, transposes and views of one, and what is
                repeated along an axis count once; masks that attention does not load, no element
    parameters  on a chip with a store for them, those that operators cannot share

Nothing is padded: rows and blocks are laid out by schedules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator

from lfopt.ir import DramBytes, Hardware
from lfopt.ops import Call, Dataflow, bits
from lfopt.ops.content import (
    Content,
    constant_use,
    contents,
    data_constants,
    elements_used_through,
    moves_elements,
)
from lfopt.ops.recognise import attentions_of
from lfopt.ops.stages import least_parameters


class Compulsory:
    """Compulsory bytes of one network on one chip; the size of its buffer does not matter."""

    def __init__(self, flow: Dataflow, hardware: Hardware) -> None:
        """`flow`: with nothing in flight."""
        self.flow = flow
        self.hardware = hardware
        self.constants = data_constants(flow.graph, flow.calls)
        self.contents = contents(
            (call.operator.inputs[index] for call, index in self.constants),
            flow.graph.tensors,
            flow.graph.constants,
        )

    def dram(self, counted: int) -> DramBytes:
        """Compulsory bytes by class; the operators of the mask `counted` count, and the others do not."""
        calls = [self.flow.calls[i] for i in bits(counted)]
        per_element = self.hardware.element_bytes
        parameters = 0
        if self.hardware.parameter_store_bytes:
            parameters = least_parameters(calls, self.hardware.parameter_channels, self.flow.behind)
        return DramBytes(
            input=per_element * sum(self._input_elements(counted)),
            output=per_element * sum(self._output_elements(counted)),
            weight=self.constant_bytes(counted),
            parameter=parameters,
        )

    def _input_elements(self, counted: int) -> Iterator[int]:
        flow = self.flow
        used: dict[int, int] = {}  # per map that is moved, or is an input: elements that are used of it

        def results_used(call: Call) -> int:
            return sum(used[m] for m in flow.results[flow.position[call.operator.name]])

        moving = [i for i, call in enumerate(flow.calls) if moves_elements(call)]
        moved = [m for i in reversed(moving) for m in flow.results[i]]
        inputs = [m for m, producer in enumerate(flow.producer) if producer < 0]
        for m in (*moved, *inputs):
            reads = [*self._reads(m, flow.readers[m] & counted)]
            used[m] = elements_used_through(flow.maps[m].shape, reads, results_used)
            if flow.is_output[m] and flow.producer[m] >= 0:
                used[m] = flow.maps[m].elements
        for m in inputs:
            yield used[m]

    def _output_elements(self, counted: int) -> Iterator[int]:
        flow = self.flow
        for m, tensor in enumerate(flow.maps):
            if flow.is_output[m] and flow.producer[m] >= 0 and counted >> flow.producer[m] & 1:
                yield tensor.elements

    def _reads(self, m: int, readers: int) -> Iterator[tuple[Call, int]]:
        for i in bits(readers):
            yield from (
                (self.flow.calls[i], operand.input) for operand in self.flow.operands[i] if operand.map == m
            )

    def constant_bytes(self, counted: int) -> int:
        """Bytes of what constants hold, each content once."""
        flow = self.flow
        masks = attentions_of(self.flow).masks
        whole = dict[Hashable, int]()
        gathered = defaultdict[Hashable, dict[Hashable, int]](dict)
        weights = dict[Hashable, bool]()
        elements = dict[Hashable, int]()
        for call, index in self.constants:
            name = call.operator.inputs[index]
            if name in masks or not counted >> flow.position[call.operator.name] & 1:
                continue
            content: Content = self.contents[name]
            use = constant_use(call, index, content)
            key = content.key
            elements[key] = content.elements
            weights[key] = weights.get(key, True) and use.weight
            if call.operator.kind == "Gather" and index == 0:
                picked = call.operator.inputs[1], call.attribute("axis", 0)
                gathered[key][picked] = use.elements
            else:
                whole[key] = max(whole.get(key, 0), use.elements)
        bits_moved = 0
        for key, least in elements.items():
            moved = max(whole.get(key, 0), min(sum(gathered[key].values()), least))
            bits_moved += moved * self._bits(weight=weights[key])
        return -(-bits_moved // 8)

    def _bits(self, *, weight: bool) -> int:
        """Bits of an element; what is no weight may be a bias where the network is spelled otherwise."""
        own, bias = (self.hardware.constant_bits(bias=bias) for bias in (False, True))
        if weight:
            return own
        return min(own, bias)
