"""Commands folded into loops.

Runs of commands that repeat, with numbers that move by the same amounts each time, are written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from codegen.accel.runs import IssuedCommand, Payload
from codegen.accel.waits import QUEUES
from lfopt.isa.tables import DESCRIPTORS, LOOP_DEPTH, LOOP_WORDS, NO_WAIT, RUN, WORD_BITS, Opcode

RUN_WORDS = RUN.bits // WORD_BITS
LONGEST_BODY = (LOOP_WORDS - 2) // RUN_WORDS  # commands
STEP_LIMITS = {name: field for name, field in RUN.by_name.items() if "_step" in name}


@dataclass(frozen=True, slots=True)
class Item:
    """A command, and how far its numbers move with each iteration of the loops around it, outermost first."""

    opcode: Opcode
    payload: Payload
    count: int  # rows
    numbers: tuple[int, ...]  # as MOVING has them
    waits: tuple[int, ...]  # distances: loads, stores, computations
    steps: tuple[tuple[int, ...], ...] = ()  # by loop: how far each number moves


@dataclass(frozen=True, slots=True)
class Repetition:
    """A loop of commands."""

    count: int  # iterations
    body: tuple[Entry, ...]


Entry = Item | Repetition


def folded(runs: Sequence[IssuedCommand], queue_depth: int) -> list[Entry]:
    """The same commands in the same order, in loops where that is shorter.

    In a loop nothing waits for more than it does outside.

    `queue_depth`: commands of a queue that wait or run. Those before them are done in any case: distances
    that long are alike.
    """
    items = [
        Item(
            run.opcode,
            run.payload,
            run.count,
            run.numbers,
            tuple(run.waits.get(queue, NO_WAIT) for queue in QUEUES),
        )
        for run in runs
    ]
    names: dict[object, int] = {}
    keys = [
        names.setdefault(
            (item.opcode, item.payload, item.count, *(min(wait, queue_depth) for wait in item.waits)),
            len(names),
        )
        for item in items
    ]
    return list(_folded(items, keys, LONGEST_BODY, LOOP_DEPTH))


def _folded(items: Sequence[Item], keys: Sequence[int], longest: int, depth: int) -> Iterator[Entry]:
    at = 0
    while at < len(items):
        period, count, shift = _best(items, keys, at, longest) if depth else (0, 1, None)
        if shift is None:
            yield items[at]
            at += 1
            continue
        iterations = [items[at + k * period : at + (k + 1) * period] for k in range(count)]
        body = [
            replace(
                item,
                waits=tuple(min(iteration[k].waits[q] for iteration in iterations) for q in range(3)),
                steps=(*item.steps, shift[k]),
            )
            for k, item in enumerate(iterations[0])
        ]
        inner = list(_folded(body, keys[at : at + period], min(longest, period // 2), depth - 1))
        yield Repetition(count, tuple(inner))
        at += period * count


def _best(
    items: Sequence[Item], keys: Sequence[int], at: int, longest: int
) -> tuple[int, int, list[tuple[int, ...]] | None]:
    """(commands of an iteration, iterations, shift of every command) of the loop that saves the most here."""
    best: tuple[int, int, list[tuple[int, ...]] | None] = (0, 1, None)
    saved = 1  # LOOP and END take as many words as one command
    described: set[Payload] = (
        set()
    )  # by the commands of an iteration: a loop has all of its descriptors at once
    for period in range(1, min(longest, (len(items) - at) // 2) + 1):
        described.add(items[at + period - 1].payload)
        if len(described) > DESCRIPTORS:
            break
        if keys[at] != keys[at + period] or keys[at : at + period] != keys[at + period : at + 2 * period]:
            continue
        shift = _shift(items, at, at + period, period)
        if shift is None:
            continue
        count = 2
        while (
            (here := at + count * period) + period <= len(items)
            and keys[here : here + period] == keys[at : at + period]
            and _shift(items, here - period, here, period) == shift
        ):
            count += 1
        if period * (count - 1) > saved:
            saved = period * (count - 1)
            best = (period, count, shift)
    return best


def _shift(items: Sequence[Item], a: int, b: int, period: int) -> list[tuple[int, ...]] | None:
    """How far the numbers of every command move from one iteration to the next.

    None if the steps of inner loops differ, or a step is too large for its field.
    """
    moves: list[tuple[int, ...]] = []
    for k in range(period):
        before = items[a + k]
        after = items[b + k]
        if before.steps != after.steps:
            return None
        moved = tuple(y - x for x, y in zip(before.numbers, after.numbers, strict=True))
        if not all(_fits(name, step) for name, step in zip(STEP_NAMES, moved, strict=True)):
            return None
        moves.append(moved)
    return moves


STEP_NAMES = tuple(name for name in STEP_LIMITS if name.endswith("_step0"))


def _fits(name: str, step: int) -> bool:
    return STEP_LIMITS[name].least <= step <= STEP_LIMITS[name].most
