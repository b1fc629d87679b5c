"""Nests as text: altered ones, and whether what a text says is refused or moves what it is priced at."""

from __future__ import annotations

import re

import numpy as np

from lfopt.ir import DramBytes, InvalidConfig, PlannedGroup, dram_bytes
from lfopt.planning import GroupCosts
from lfopt.planning.nest.price import NestPricing
from lfopt.planning.passes.lowering import lower_nest
from lfopt.planning.passes.price import price_nest
from lfopt.planning.steps.layout import BufferLayout
from lfopt.planning.written.text import parse_nest
from lfopt.planning.written.writer import folded, nest_lines

WORDS = ("rows", "columns", "channels", "outputs")


def altered(rng: np.random.Generator, text: str) -> str:
    """The text of a nest with a few lines changed, as a careless or hostile hand would."""
    lines = text.splitlines()
    for _ in range(int(rng.integers(1, 4))):
        k = int(rng.integers(len(lines)))
        line = lines[k]
        indent = line[: len(line) - len(line.lstrip())]
        numbers = [*re.finditer(r"\b\d+\b", line)]
        change = int(rng.integers(8))
        if change == 0 and numbers:
            number = numbers[int(rng.integers(len(numbers)))]
            other = rng.choice([0, 1, 2, 3, 5, 7, 16, 1000])
            lines[k] = f"{line[: number.start()]}{other}{line[number.end() :]}"
        elif change == 1 and len(lines) > 1:
            del lines[k]
        elif change == 2:
            lines[k] = line.removeprefix("  ")
        elif change == 3:
            j = int(rng.integers(len(lines)))
            lines[k], lines[j] = lines[j], lines[k]
        elif change == 4:
            lines[k] = re.sub("|".join(WORDS), str(rng.choice(WORDS)), line, count=1)
        elif change == 5:
            leaf = "line buffers" if "at once" in line else "at once"
            lines[k] = re.sub(r"at once|line buffers[^:]*", leaf, line)
        elif change == 6:
            around = rng.choice(["rows, 2 blocks", "columns, 2 blocks", "channels, 2 blocks", "in turn"])
            stop = k + 1
            while stop < len(lines) and lines[stop].startswith(f"{indent} "):
                stop += 1
            lines[k:stop] = [f"{indent}{around}", *(f"  {inside}" for inside in lines[k:stop])]
        else:
            lines[k] = line.replace("hold", "carry").replace(
                " blocks of", " blocks behind 2 channels that stay of"
            )
    return "\n".join(lines)


def refusal(costs: GroupCosts, text: str) -> str:
    """What a text is refused for; "" if it runs, and moves what it is priced at."""
    layout = BufferLayout(costs.dataflow, costs.hardware)
    line_buffers = costs.groups.line_buffers
    try:
        mask, nest = parse_nest(text, costs.dataflow, "a.nest")
    except InvalidConfig as error:
        return str(error)
    price = price_nest(NestPricing(layout, line_buffers), mask, nest)
    _, steps = lower_nest(layout, mask, nest, line_buffers)
    assert dram_bytes(steps) == price.dram, text
    return ""


def check_read_back(costs: GroupCosts, group: PlannedGroup, dram: DramBytes) -> None:
    """From the text of a group's nest come the same places, steps and bytes."""
    flow = costs.dataflow
    layout = BufferLayout(flow, costs.hardware)
    line_buffers = costs.groups.line_buffers
    mask, nest = parse_nest("\n".join(folded(group.nest, 60)), flow, "a.nest")
    assert nest_lines(flow, nest) == group.nest
    assert price_nest(NestPricing(layout, line_buffers), mask, nest).dram == dram
    places, steps = lower_nest(layout, mask, nest, line_buffers)
    assert places == group.places
    assert steps == group.steps[-len(steps) :]  # parameters are loaded before
