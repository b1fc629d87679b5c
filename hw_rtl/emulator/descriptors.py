"""Entries of the descriptor table: their checks, and their use by commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hw_rtl.emulator.errors import Fault
from lfopt.isa.program import Command
from lfopt.isa.tables import BEAT_BYTES, COMPUTATION, WINDOW, Class, Error, Kind, Operation, Scale, Space

WEIGHTED = [operation for operation in Operation if operation.has_weights]
PAIRED = [operation for operation in Operation if operation.needs_second]


class DescriptorEntry(NamedTuple):
    """An entry of the descriptor table."""

    kind: Kind
    values: Mapping[str, int]
    problem: str  # why commands that name it raise FIELD; empty: they do not


def entry_of(command: Command, lanes: int) -> DescriptorEntry:
    """Entry of a DESCRIBE command."""
    assert command.kind is not None
    values = {name: command.values.get(name, 0) for name in command.layout.by_name}
    if command.kind is Kind.TRANSFER:
        problem = _transfer_problem(values, lanes)
    else:
        problem = _computation_problem(values, lanes)
    return DescriptorEntry(command.kind, values, problem)


def _transfer_problem(d: Mapping[str, int], lanes: int) -> str:
    """Why a transfer raises FIELD; empty if it does not."""
    if zero := [name for name in ("columns", "blocks", "tail", "slots") if not d[name]]:
        return f"{zero[0]} is 0"
    if d["tail"] > lanes:
        return f"tail is {d['tail']}; accepted: up to {lanes}"
    if d["class_"] not in list(Class) or d["space"] not in list(Space):
        return f"class {d['class_']}, space {d['space']}"
    if d["dram"] % BEAT_BYTES:
        return f"dram is {d['dram']:#x}; accepted: multiples of {BEAT_BYTES}"
    return ""


def _computation_problem(d: Mapping[str, int], lanes: int) -> str:
    """Why a computation raises FIELD whatever its rows; empty if it does not."""
    if d["operation"] not in list(Operation) or d["scale"] not in list(Scale):
        return f"operation {d['operation']}, scale {d['scale']}"
    operation = Operation(d["operation"])
    whole = d["first"] and d["last"]
    sizes = "a_slots a_height a_width kernel_rows kernel_columns dilation out_blocks out_tail o_width".split()
    sizes += ["o_slots"] * d["last"] + ["b_slots"] * (not whole or operation.needs_second)
    sizes += ["in_blocks", "in_tail"] * (operation is Operation.CONV)
    if zero := [name for name in sizes if not d[name]]:
        return f"{zero[0]} is 0"
    if d["out_tail"] > lanes or operation is Operation.CONV and d["in_tail"] > lanes:
        return f"tails are {d['in_tail']} and {d['out_tail']}; accepted: up to {lanes}"
    if operation is Operation.CONV and d["narrow"] and (d["in_blocks"] > 1 or d["in_tail"] * WINDOW > lanes):
        return (
            f"narrow, with {d['in_blocks']} blocks, the last of {d['in_tail']} channels; accepted: 1 "
            f"block of up to {lanes // WINDOW}"
        )
    if problem := _lanes_problem(d, lanes):
        return problem
    if not operation.has_window and (d["kernel_rows"], d["kernel_columns"]) != (1, 1):
        return (
            f"{operation.name} with a window of {d['kernel_rows']} x {d['kernel_columns']}; accepted: 1 x 1"
        )
    if operation.needs_second and not whole:
        return f"{operation.name} with held sums"
    if d["last"] and d["scale"] == Scale.SCALAR and not 1 <= d["shift"] <= 62:
        return f"a shift of {d['shift']}; accepted: 1 to 62"
    return ""


def _lanes_problem(d: Mapping[str, int], lanes: int) -> str:
    """Why the lanes that a computation reads and writes raise FIELD; empty if they do not."""
    if d["operation"] == Operation.COPY and d["lanes"]:
        steps = d["lanes"] - 1
        if any(d[f"{letter}_lane"] + d[f"{letter}_lane_step"] * steps >= lanes for letter in "ao"):
            return (
                f"COPY of {d['lanes']} lanes, from {d['a_lane']} by {d['a_lane_step']} to {d['o_lane']} "
                f"by {d['o_lane_step']}"
            )
    if d["operation"] == Operation.CONV:
        if d["a_lane"] >= (d["in_tail"] if d["in_blocks"] == 1 else lanes) or (d["narrow"] and d["a_lane"]):
            return f"the first input channel in lane {d['a_lane']}"
        alone = d["out_blocks"] == 1 and d["first"] and d["last"] and d["o_lane"] < d["out_tail"]
        if d["o_lane"] and not alone:
            return (
                f"the first output channel in lane {d['o_lane']}; "
                "accepted: of one block, whose sums are not held"
            )
    return ""


def moved(d: Mapping[str, int], command: Mapping[str, int], lanes: int) -> Mapping[str, int]:
    """A computation's descriptor, moved by the numbers of a command. Raises Fault FIELD, BUFFER."""
    operation = d["operation"]  # of a corrupted entry: none that there is
    if operation in WEIGHTED and not d["w_slots"]:
        raise Fault(Error.FIELD, "w_slots is 0")
    read = command["from_block"]
    written = command["to_block"]
    slot = command["slot"] % d["w_slots"] if d["w_slots"] else 0
    bases = {
        "a_base": d["a_base"] + read * d["a_block_words"],
        "b_base": d["b_base"] + (read if operation in PAIRED else written) * d["b_block_words"],
        "o_base": d["o_base"] + written * d["o_block_words"],
        "bias": d["bias"] + slot * d["bias_slot_words"],
        "factors": d["factors"] + command["factor"],
        "w_base": d["w_base"] + lanes * slot * d["w_slot_words"],
    }
    for name, value in bases.items():
        if value > COMPUTATION.by_name[name].most:
            raise Fault(
                Error.BUFFER, f"{name} moved to {value}; accepted: up to {COMPUTATION.by_name[name].most}"
            )
    return {**d, **bases}
