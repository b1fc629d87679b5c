"""A schedule of a CPU's threads as text, one line each, and back.

    cpu avx512 2
    map image in image at 0+602112
    map conv2 in ring conv2
    group 3 rings
      function unit_4 row kernel conv4 relu4
      function loops_6 map split loops pool6 why "no fast kernel knows it"
      own conv2
      thread 0 {
        loop 55 {
          unit_4 0:2 by 2
        }
      }
      thread 1 { ... }
      all {
        loops_6 0:1
        barrier
      }

`element`, where float32 maps are stored in another: which. `images` and `crew`, where there are several
images: how many, and how many threads each run a share of them alone.
A function says what one call makes, a map or a row, and whether all threads make it together (`split`); then
its operators. A call says which rows; `shared`: each thread makes its share of them; `by`: how far they move
in one iteration of each loop around, outermost first. A section is `all`, which every thread runs, or one
body for each `thread`, from 0 on, after which all wait. `idle` are operators without a function.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lfopt.ir.cpu import (
    MOST_THREADS,
    CpuBarrier,
    CpuCall,
    CpuElement,
    CpuFunction,
    CpuGroup,
    CpuLoop,
    CpuMap,
    CpuNode,
    CpuSchedule,
    CpuSection,
)
from lfopt.ir.errors import InvalidPlan
from lfopt.ir.listing import DEEPEST, INDENT, NAME, NUMBER, quoted, unquoted

CPU = re.compile(
    rf"cpu (?P<target>\w{{1,32}}) (?P<threads>{NUMBER})(?: element (?P<element>bf16))?(?: images "
    rf"(?P<images>{NUMBER}) crew (?P<crew>{NUMBER}))?"
)
TEXT = r'"(?:[^"\\]|\\.)*"'
BLOCK = re.compile(rf"all \{{|thread (?P<thread>{NUMBER}) \{{")
MAP = re.compile(
    rf"map (?P<name>{NAME}) in (?:ring (?P<ring>{NAME})|(?P<holder>{NAME}) at "
    rf"(?P<address>{NUMBER})\+(?P<bytes>{NUMBER}))"
)
GROUP = re.compile(rf"group (?P<id>{NUMBER}) (?P<how>rings|maps)(?: why (?P<why>{TEXT}))?")
FUNCTION = re.compile(
    rf"function (?P<name>[A-Za-z_]\w{{0,63}}) (?P<makes>map|row)(?P<split> split)? "
    rf"(?P<how>kernel|loops)(?P<operators>(?: (?!why ){NAME})+)"
    rf"(?: why (?P<why>{TEXT}))?"
)
NAMED = re.compile(rf"(?P<what>idle|own)(?P<names>(?: {NAME})+)")
CALL = re.compile(
    rf"(?P<name>[A-Za-z_]\w{{0,63}}) (?P<first>{NUMBER}):(?P<stop>{NUMBER})(?P<shared> shared)?(?: by "
    rf"(?P<moves>-?{NUMBER}(?:,-?{NUMBER})*))?"
)
LOOP = re.compile(rf"loop (?P<count>{NUMBER}) \{{")


def cpu_listing(schedule: CpuSchedule) -> Iterator[str]:
    """Lines of a schedule."""
    element = f" element {schedule.element}" if schedule.element != "float32" else ""
    images = f" images {schedule.images} crew {schedule.crew}" if schedule.images > 1 else ""
    yield f"cpu {schedule.target} {schedule.threads}{element}{images}"
    for cpu_map in schedule.maps:
        if cpu_map.address < 0:
            where = f"ring {quoted(cpu_map.holder)}"
        else:
            where = f"{quoted(cpu_map.holder)} at {cpu_map.address}+{cpu_map.bytes}"
        yield f"map {quoted(cpu_map.name)} in {where}"
    for group in schedule.groups:
        yield f"group {group.id} {'rings' if group.rings else 'maps'}{_why(group.why)}"
        for function in group.functions:
            how = f"{function.makes}{' split' if function.split else ''} {function.how}"
            yield f"{INDENT}function {function.name} {how} {_names(function.operators)}{_why(function.why)}"
        for what, names in (("idle", group.idle), ("own", group.own)):
            if names:
                yield f"{INDENT}{what} {_names(names)}"
        for section in group.sections:
            for k, nodes in enumerate(section.threads):
                yield f"{INDENT}{'all' if section.together else f'thread {k}'} {{"
                yield from _nodes(nodes, 2)
                yield f"{INDENT}}}"


def _nodes(nodes: Sequence[CpuNode], depth: int) -> Iterator[str]:
    pad = INDENT * depth
    for node in nodes:
        if isinstance(node, CpuLoop):
            yield f"{pad}loop {node.count} {{"
            yield from _nodes(node.body, depth + 1)
            yield f"{pad}}}"
        elif isinstance(node, CpuBarrier):
            yield f"{pad}barrier"
        else:
            strides = f" by {','.join(map(str, node.strides))}" if node.strides else ""
            yield (
                f"{pad}{node.function} "
                f"{node.rows[0]}:{node.rows[1]}{' shared' if node.shared else ''}{strides}"
            )


def _names(names: Sequence[str]) -> str:
    return " ".join(map(quoted, names))


def _why(text: str) -> str:
    if text:
        return f" why {json.dumps(text)}"
    return ""


def _text(quoted_reason: str | None) -> str:
    """A reason. Raises _NoLine for one of several lines."""
    try:
        text = str(json.loads(quoted_reason)) if quoted_reason else ""
    except ValueError:
        text = "\n"
    if not text.isprintable():
        raise _NoLine("a reason as a JSON string of printable characters")
    return text


def parse_cpu(lines: Sequence[str]) -> CpuSchedule:
    """A schedule from its lines. Raises InvalidPlan naming the line that is none."""
    head = CPU.fullmatch(lines[0].strip()) if lines else None
    if head is None or not 1 <= int(head["threads"]) <= MOST_THREADS:
        raise InvalidPlan(
            f"schedule, line 1: found {lines[0][:80] if lines else ''!r}; "
            f"accepted: cpu TARGET THREADS, 1 to {MOST_THREADS} threads"
        )
    reader = _Reader(int(head["threads"]))
    number = 1
    line = lines[0]
    try:
        for line in lines[1:]:
            number += 1
            reader.line(line.strip())
        schedule = CpuSchedule(head["target"], reader.threads, tuple(reader.finished()), tuple(reader.maps))
        element: CpuElement = "bf16" if head["element"] else "float32"
        return replace(
            schedule, images=int(head["images"] or 1), crew=int(head["crew"] or 1), element=element
        )
    except _NoLine as error:
        text = (
            str(error)
            or "map, group, function, idle, own, all {, thread N {, loop N {, FUNCTION FIRST:STOP, barrier "
            "or }, where each belongs"
        )
        raise InvalidPlan(f"schedule, line {number}: found {line.strip()[:80]!r}; accepted: {text}") from None


class _NoLine(ValueError):
    """A line that is not accepted here."""


class _Reader:
    """Lines so far."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.maps: list[CpuMap] = []
        self.groups: list[CpuGroup] = []
        # of the last group: whether all threads run it, bodies
        self.sections: list[tuple[bool, list[tuple[CpuNode, ...]]]] = []
        self.open: list[tuple[str, list[CpuNode]]] = []  # blocks, outermost first: how each began

    def line(self, text: str) -> None:
        """One more. Raises _NoLine."""
        if self.open:
            self._inside(text)
        elif match := MAP.fullmatch(text):
            if self.groups:
                raise _NoLine("maps before all groups")
            ring = match["ring"]
            if ring:
                where = (unquoted(ring), -1, 0)
            else:
                where = (unquoted(match["holder"]), int(match["address"]), int(match["bytes"]))
            self.maps.append(CpuMap(unquoted(match["name"]), *where))
        elif match := GROUP.fullmatch(text):
            self._finish()
            self.groups.append(
                CpuGroup(int(match["id"]), match["how"] == "rings", _text(match["why"]), (), ())
            )
        elif not self.groups:
            raise _NoLine
        elif match := FUNCTION.fullmatch(text):
            names = tuple(unquoted(name) for name in re.findall(NAME, match["operators"]))
            makes = match["makes"]
            how = match["how"]
            function = CpuFunction(
                match["name"],
                names,
                makes,  # type: ignore[arg-type]
                match["split"] is not None,
                how,  # type: ignore[arg-type]
                _text(match["why"]),
            )
            self.groups[-1] = replace(self.groups[-1], functions=(*self.groups[-1].functions, function))
        elif match := NAMED.fullmatch(text):
            names = tuple(unquoted(name) for name in re.findall(NAME, match["names"]))
            self.groups[-1] = replace(self.groups[-1], **{match["what"]: names})
        elif match := BLOCK.fullmatch(text):
            thread = -1 if match["thread"] is None else int(match["thread"])
            if thread > 0 and not (
                self.sections
                and len(self.sections[-1][1]) == thread < self.threads
                and not self.sections[-1][0]
            ):
                raise _NoLine(f"one body for each of {self.threads} threads, from 0 on")
            if thread <= 0:
                self.sections.append((thread < 0, []))
            self.open.append((text, []))
        else:
            raise _NoLine

    def _inside(self, text: str) -> None:
        nodes = self.open[-1][1]
        if text == "}":
            self._close()
        elif match := LOOP.fullmatch(text):
            if len(self.open) > DEEPEST:
                raise _NoLine(f"loops nested up to {DEEPEST} deep")
            self.open.append((match["count"], []))
        elif text == "barrier" and self.sections[-1][0]:
            nodes.append(CpuBarrier())
        elif match := CALL.fullmatch(text):
            strides = tuple(int(by) for by in match["moves"].split(",")) if match["moves"] else ()
            if len(strides) not in (0, len(self.open) - 1):
                raise _NoLine(f"as many numbers after 'by' as there are loops around, {len(self.open) - 1}")
            nodes.append(
                CpuCall(
                    match["name"],
                    (int(match["first"]), int(match["stop"])),
                    match["shared"] is not None,
                    strides,
                )
            )
        else:
            raise _NoLine

    def _close(self) -> None:
        how, nodes = self.open.pop()
        if self.open:
            self.open[-1][1].append(CpuLoop(int(how), tuple(nodes)))
        else:
            self.sections[-1][1].append(tuple(nodes))

    def _finish(self) -> None:
        if any(len(bodies) != (1 if together else self.threads) for together, bodies in self.sections):
            raise _NoLine(f"one body for each of {self.threads} threads before")
        if self.groups:
            self.groups[-1] = replace(
                self.groups[-1], sections=tuple(CpuSection(tuple(bodies)) for _, bodies in self.sections)
            )
        self.sections = []

    def finished(self) -> list[CpuGroup]:
        """All groups. Raises _NoLine where something is left open."""
        if self.open:
            raise _NoLine("every block closed")
        self._finish()
        return self.groups
