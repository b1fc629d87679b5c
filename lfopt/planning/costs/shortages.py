"""What a group lacks of the store for parameters, operator by operator."""

from __future__ import annotations

from lfopt.ir import BufferUse, DoesNotFit, Hardware
from lfopt.ops import bits
from lfopt.ops.parameter_data import TABLE_BYTES
from lfopt.planning.groups.groups import Groups


def parameter_shortage(groups: Groups, hardware: Hardware, mask: int) -> DoesNotFit:
    """The breakdown of a group whose parameters, or tables, exceed the store."""
    names = groups.dataflow.operators
    needed, store = groups.parameter_bytes(mask), hardware.parameter_store_bytes
    parameters = groups.parameters
    if needed <= store:  # then its tables are too many
        needed, store = (TABLE_BYTES * count for count in (groups.tables_of(mask), hardware.parameter_tables))
        parameters = [TABLE_BYTES * count for count in groups.tables]
    loaded = tuple(
        BufferUse(names[i].name, "parameters", 0, 0, parameters[i]) for i in bits(mask) if parameters[i]
    )
    return DoesNotFit(mask, needed, store, loaded, "parameter store")
