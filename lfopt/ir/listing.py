"""Steps as text, one line each, and back: what plan.json holds and what people read.

    load   image[0:1, 0:3, 0:3, 0:224] input 3x672 -> p2.0
    loop 110 {
      compute conv1[0:1, 0:32, 1:2, 0:112] -> p3  by 0,0,1,0
    }

A Transfer names its tensor, box, byte class, pieces x bytes of each, place and slot (and offset in the slot,
and the Gather that it serves); place `-` is the store for parameters, and what is loaded there is named by
the operator that needs it.

A carry copies a box of a map within the buffer: it names map, box, place and slot.

A Compute names its operator, the box of each result, and their places (`-` where a result is not kept); `in
a:b` is what it reads of what it folds (input channels of a contraction, rows of a reduction), `sums
p:first|more|last` the place of its partial sums, `then` the elementwise operators that follow in flight.

`by` is how far a step moves in one iteration of each loop around it, outermost first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from lfopt.ir.box import Box
from lfopt.ir.errors import InvalidPlan
from lfopt.ir.names import is_plain
from lfopt.ir.schedule import Carry, Compute, Loop, Node, Stride, Transfer

INDENT = "  "


def listing(nodes: Sequence[Node], depth: int = 0) -> Iterator[str]:
    """Lines of the steps, loops indented."""
    pad = INDENT * depth
    for node in nodes:
        if isinstance(node, Loop):
            yield f"{pad}loop {node.count} {{"
            yield from listing(node.body, depth + 1)
            yield f"{pad}}}"
        elif isinstance(node, Transfer):
            where = f"{'-' if node.place < 0 else node.place}.{node.slot}" + (
                f"+{node.offset}" if node.offset else ""
            )
            gather = f" gather {quoted(node.gather)}" if node.gather else ""
            verb, arrow = ("store", "<-") if node.store else ("load", "->")
            moved = f"{node.kind} {node.rows}x{node.row_bytes} {arrow} {where}"
            yield f"{pad}{verb} {quoted(node.tensor)}{_box(node.box)} {moved}{gather}{_strides(node.strides)}"
        elif isinstance(node, Carry):
            where = f"{node.place}.{node.slot}"
            yield f"{pad}carry {quoted(node.tensor)}{_box(node.box)} -> {where}{_strides(node.strides)}"
        else:
            boxes = " ".join(map(_box, node.boxes))
            places = " ".join("-" if place < 0 else str(place) for place in node.places)
            inputs = f" in {node.inputs[0]}:{node.inputs[1]}" if node.inputs else ""
            part = ("only" if node.last else "first") if node.first else ("last" if node.last else "more")
            sums = f" sums {node.accumulator}:{part}" if node.accumulator >= 0 or part != "only" else ""
            then = f" then {' '.join(map(quoted, node.then))}" if node.then else ""
            yield (
                f"{pad}compute {quoted(node.operator)} {boxes} -> "
                f"{places}{inputs}{sums}{then}{_strides(node.strides)}"
            )


def quoted(name: str) -> str:
    """A name in a line: as it is, or as a JSON string where it could be taken for something else."""
    if re.fullmatch(r"[\w./:-]+", name, re.ASCII) and name not in ("by", "why", "ring"):
        return name
    return json.dumps(name)


def _box(box: Box) -> str:
    return "[" + ", ".join(f"{start}:{stop}" for start, stop in box) + "]"


def _strides(strides: tuple[Stride, ...]) -> str:
    if strides:
        return f" by {' / '.join(','.join(map(str, move)) for move in strides)}"
    return ""


NAME = r'(?:"(?:[^"\\]|\\.)*"|[\w./:-]+)'
NUMBER = r"\d{1,18}"
SPAN = rf"{NUMBER}:{NUMBER}"
BOX = rf"\[(?:{SPAN}(?:, ?{SPAN}){{0,15}})?\]"
MOVE = rf"-?{NUMBER}(?:,-?{NUMBER})*"
MOVES = rf"(?: by (?P<moves>{MOVE}(?: / {MOVE})*))?"
TRANSFER = re.compile(
    rf"(?P<verb>load|store) (?P<name>{NAME})(?P<box>{BOX}) (?P<kind>input|output|weight|parameter|spill|l2) "
    rf"(?P<rows>{NUMBER})x(?P<row>{NUMBER}) (?:->|<-) "
    rf"(?P<place>-|{NUMBER})\.(?P<slot>{NUMBER})(?:\+(?P<offset>{NUMBER}))?"
    rf"(?: gather (?P<gather>{NAME}))?{MOVES}"
)
CARRY = re.compile(rf"carry (?P<name>{NAME})(?P<box>{BOX}) -> (?P<place>{NUMBER})\.(?P<slot>{NUMBER}){MOVES}")
COMPUTE = re.compile(
    rf"compute (?P<name>{NAME}) (?P<boxes>{BOX}(?: {BOX})*) -> (?P<places>(?:-|{NUMBER})(?: (?:-|{NUMBER}))*)"
    rf"(?: in (?P<low>{NUMBER}):(?P<high>{NUMBER}))?(?: sums "
    rf"(?P<sums>-?{NUMBER}):(?P<part>only|first|more|last))?"
    rf"(?: then (?P<then>{NAME}(?: (?!by ){NAME}){{0,31}}))?{MOVES}"
)
LOOP = re.compile(rf"loop (?P<count>{NUMBER}) \{{")
DEEPEST = 16  # loops in loops


def parse(lines: Sequence[str]) -> tuple[Node, ...]:
    """Steps from their lines. Raises InvalidPlan naming the line that is none."""
    open_loops: list[tuple[int, list[Node]]] = [(1, [])]
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if match := LOOP.fullmatch(text):
            open_loops.append((int(match["count"]), []))
            if len(open_loops) > DEEPEST:
                raise InvalidPlan(f"steps, line {number}: loops are nested deeper than {DEEPEST}")
        elif text == "}" and len(open_loops) > 1:
            count, body = open_loops.pop()
            open_loops[-1][1].append(Loop(count, tuple(body)))
        elif match := TRANSFER.fullmatch(text):
            open_loops[-1][1].append(_transfer(match))
        elif match := COMPUTE.fullmatch(text):
            open_loops[-1][1].append(_compute(match))
        elif match := CARRY.fullmatch(text):
            open_loops[-1][1].append(_carry(match))
        else:
            raise InvalidPlan(
                f"steps, line {number}: found {text[:80]!r}; "
                f"accepted: load, store, carry, compute, loop N {{ or }}, numbers below 10**18"
            )
        leaf = open_loops[-1][1][-1] if open_loops[-1][1] else None
        if (
            leaf is not None
            and not isinstance(leaf, Loop)
            and (
                len(leaf.strides) not in (0, len(open_loops) - 1)
                or any(len(move) != len(leaf.origin) for move in leaf.strides)
            )
        ):
            raise InvalidPlan(
                f"steps, line {number}: 'by' must give {len(leaf.origin)} numbers for each of the "
                f"{len(open_loops) - 1} loops around"
            )
    if len(open_loops) > 1:
        raise InvalidPlan("steps: a loop is not closed")
    return tuple(open_loops[0][1])


def _transfer(match: re.Match[str]) -> Transfer:
    return Transfer(
        store=match["verb"] == "store",
        tensor=unquoted(match["name"]),
        box=_parsed_box(match["box"]),
        kind=match["kind"],  # type: ignore[arg-type]
        rows=int(match["rows"]),
        row_bytes=int(match["row"]),
        place=-1 if match["place"] == "-" else int(match["place"]),
        slot=int(match["slot"]),
        offset=int(match["offset"] or 0),
        gather=unquoted(match["gather"] or ""),
        strides=_parsed_strides(match["moves"]),
    )


def _carry(match: re.Match[str]) -> Carry:
    return Carry(
        tensor=unquoted(match["name"]),
        box=_parsed_box(match["box"]),
        place=int(match["place"]),
        slot=int(match["slot"]),
        strides=_parsed_strides(match["moves"]),
    )


def _compute(match: re.Match[str]) -> Compute:
    part = match["part"] or "only"
    return Compute(
        operator=unquoted(match["name"]),
        boxes=tuple(_parsed_box(text) for text in re.findall(BOX, match["boxes"])),
        places=tuple(-1 if text == "-" else int(text) for text in match["places"].split()),
        inputs=(int(match["low"]), int(match["high"])) if match["low"] is not None else None,
        accumulator=int(match["sums"]) if match["sums"] is not None else -1,
        first=part in ("only", "first"),
        last=part in ("only", "last"),
        then=tuple(unquoted(text) for text in re.findall(NAME, match["then"] or "")),
        strides=_parsed_strides(match["moves"]),
    )


def unquoted(text: str) -> str:
    """The name that `quoted` wrote so. Raises InvalidPlan."""
    try:
        name = str(json.loads(text)) if text.startswith('"') else text
    except ValueError:
        raise InvalidPlan(f"steps: {text[:80]!r} is not a JSON string") from None
    if not is_plain(name):
        raise InvalidPlan(f"steps: name {name[:80]!r}; accepted: plain names (lfopt.ir.names)")
    return name


def _parsed_box(text: str) -> Box:
    inside = text[1:-1].strip()
    if inside:
        return tuple((int(a), int(b)) for a, b in (span.split(":") for span in inside.split(",")))
    return ()


def _parsed_strides(text: str | None) -> tuple[Stride, ...]:
    if text:
        return tuple(tuple(int(x) for x in move.split(",") if x.strip()) for move in text.split("/"))
    return ()
