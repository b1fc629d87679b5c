"""Who reads a map in the end, and how much of it, where operators that only move data may be read through.

Such an operator need not be in a group that runs: its readers may take what it makes from the map behind it.
What a plan must move at the least is then told by the readers behind it. An operator that is executed all
the same only adds to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lfopt.ops import Dataflow, bits


@dataclass(frozen=True)
class LeastReads:
    """Of every map: its readers in the end, and bytes that they load at the least.

    Where nothing is read through, those are the readers, and all of the map.
    """

    readers: tuple[int, ...]  # mask of operators that compute with it, or with what is read through to it
    each: tuple[int, ...]  # bytes that any one of them loads
    together: tuple[int, ...]  # bytes that those load which are left, as long as there is one

    @classmethod
    def of(cls, flow: Dataflow, map_bytes: Sequence[int], through: int) -> LeastReads:
        """`map_bytes`: of every map, whole; `through`: mask of operators that may be read through."""
        readers = [*flow.readers]
        each = [*map_bytes]
        together = [*map_bytes]
        for m in reversed(range(len(flow.maps))):
            size = map_bytes[m]
            readers[m] = flow.readers[m] & ~through
            for i in bits(flow.readers[m] & through):
                results = [result for result in flow.results[i] if flow.readers[result]]
                for result in results:
                    readers[m] |= readers[result]
                if len({operand.map for operand in flow.operands[i]}) > 1:
                    # of what is not loaded of the result, all may be of this operand
                    least = max((map_bytes[result] - each[result] for result in results), default=size)
                    missed = sum(map_bytes[result] - together[result] for result in results)
                    each[m] = min(each[m], max(size - least, 0))
                    together[m] = min(together[m], max(size - missed, 0))
                else:
                    each[m] = min(each[m], min((each[result] for result in results), default=0))
                    together[m] = min(together[m], sum(together[result] for result in results))
        return cls(tuple(readers), tuple(each), tuple(together))
