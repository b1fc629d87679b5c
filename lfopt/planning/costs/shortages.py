"""What a group that does not fit lacks: of the buffer, of one for weights, of the store for parameters."""

from __future__ import annotations

from collections.abc import Mapping

from lfopt.ir import NEVER, BufferUse, DoesNotFit, Hardware
from lfopt.ops import bits
from lfopt.ops.parameter_data import TABLE_BYTES
from lfopt.planning.groups.groups import Groups
from lfopt.planning.modes import ExecutionMode


def parameter_shortage(groups: Groups, hardware: Hardware, mask: int) -> DoesNotFit:
    """The breakdown of a group whose parameters, or tables, exceed the store."""
    names = groups.dataflow.operators
    needed = groups.parameter_bytes(mask)
    store = hardware.parameter_store_bytes
    parameters = groups.parameters
    if needed <= store:  # then its tables are too many
        needed, store = (TABLE_BYTES * count for count in (groups.tables_of(mask), hardware.parameter_tables))
        parameters = [TABLE_BYTES * count for count in groups.tables]
    loaded = tuple(
        BufferUse(names[i].name, "parameters", 0, 0, parameters[i]) for i in bits(mask) if parameters[i]
    )
    return DoesNotFit(mask, needed, store, loaded, "parameter store")


def shortage(
    modes: Mapping[str, ExecutionMode], hardware: Hardware, mask: int, need: tuple[str, int]
) -> DoesNotFit:
    """What a group lacks. `modes`: by key; `need`: see `least_need`.

    Bytes of the buffer, if some buffer is large enough; else of the weight buffer, if that alone is in the
    way; else there is no breakdown.
    """
    beta = hardware.buffer_bytes
    name, needed = need
    if needed < NEVER:
        return DoesNotFit(mask, needed, beta, tuple(modes[name].uses(mask, beta)))
    weights = least_weights(modes, hardware, mask)
    if weights is None:
        return DoesNotFit(mask, needed, beta, ())
    mode, weight_bytes = weights
    uses = tuple(modes[mode].uses(mask, beta))
    return DoesNotFit(mask, weight_bytes, hardware.weight_buffer_bytes, uses, "weight buffer")


def least_need(modes: Mapping[str, ExecutionMode], mask: int) -> tuple[str, int]:
    """(mode that needs the least buffer, F_beta in bytes); NEVER if no buffer is enough."""
    needs = {name: mode.need(mask) for name, mode in modes.items()}
    name = min(needs, key=needs.__getitem__)
    return name, needs[name]


def least_weights(
    modes: Mapping[str, ExecutionMode], hardware: Hardware, mask: int
) -> tuple[str, int] | None:
    """(mode, bytes of weights) of the mode in which the fewest bytes of weights do not fit; or None.

    Weights fit a weight buffer that is larger than they are.
    """
    room = hardware.weight_buffer_bytes
    if not room:
        return None
    sizes = [(mode.weights(mask), name) for name, mode in modes.items()]
    too_large = [(size, name) for size, name in sizes if room <= size < NEVER]
    if not too_large:
        return None
    size, name = min(too_large)
    return name, size
