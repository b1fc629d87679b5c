"""Damaged models, which must load as a Graph or give one line of LfoptError.

Never another exception, a crash, a hang or gigabytes.

python -m tests.frontend.fuzz FIRST COUNT      runs seeds FIRST to FIRST + COUNT - 1 and prints what went
                                               wrong
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import Message

MEMORY = 6 << 30  # bytes that a load may map
SECONDS = 20  # that a load may take
SHARE = 40  # of the cases of ONNX's schemas, of which one is damaged

INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    99,
    -7,
    127,
    1 << 20,
    -(1 << 31),
    (1 << 31) - 1,
    1 << 40,
    (1 << 62),
    -(1 << 63),
    (1 << 63) - 1,
)
REALS = (0.0, -1.0, 1e9, 1e-9, 1e38, float("inf"), float("-inf"), float("nan"), 0.5)
WORDS = (
    "",
    "x",
    "y",
    "\n",
    "a\x00b\x1b[31m\r\n",
    "é" * 40,
    "ai.onnx",
    "Conv",
    "If",
    "Resize",
    "Nothing",
    "SAME_UPPER",
    "../../etc/passwd",
    "w" * 5000,
)


@cache
def seeds() -> list[bytes]:
    """Models to damage: every small form, and real networks that are small enough."""
    from tests.frontend.schema_cases import sampled
    from tests.frontend.small_models import extra_forms

    models = [case.model() for case in sampled(SHARE)] + [m for _, m in extra_forms()]
    files = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))
    files += sorted((Path(__file__).parents[2] / "../shared/models").resolve().glob("*.onnx"))
    return [m.SerializeToString() for m in models] + [
        f.read_bytes() for f in files if f.stat().st_size < 40_000
    ]


def damaged(seed: int) -> bytes:
    """The model of that seed."""
    rng = random.Random(seed)
    data = rng.choice(seeds())
    if rng.random() < 0.35:
        return _damaged_bytes(data, rng)
    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _damage_field(model, rng)
    return model.SerializeToString()


def _damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    kind = rng.randrange(4)
    if kind == 0:
        return bytes(changed[: rng.randrange(len(changed))])
    for _ in range(rng.choice((1, 2, 8))):
        at = rng.randrange(len(changed))
        if kind == 1:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            changed[at] = rng.randrange(256)
        else:
            changed[at:at] = bytes(changed[at : at + rng.randrange(1, 30)])
    return bytes(changed)


def _damage_field(model: Message, rng: random.Random) -> None:
    """Walk down to some message and change one field of it."""
    message = model
    while True:
        inner = []
        for field, value in message.ListFields():
            if field.message_type is not None:
                inner += list(value)[:200] if field.is_repeated else [value]
        if not inner or rng.random() < 0.12:
            break
        message = rng.choice(inner)
    fields = [f for f in message.DESCRIPTOR.fields if not f.containing_oneof or rng.random() < 0.1]
    used = [f for f, _ in message.ListFields()]
    if not fields and not used:
        return
    field = rng.choice(used if used and rng.random() < 0.75 else fields or used)
    if rng.random() < 0.15:
        message.ClearField(field.name)
        return
    if field.is_repeated:
        _damage_list(getattr(message, field.name), field, rng)
    elif field.message_type is None:
        setattr(message, field.name, _scalar(field, rng, getattr(message, field.name)))


def _damage_list(items: Any, field: Any, rng: random.Random) -> None:
    """`field`: its descriptor; which class that is depends on how Protobuf is installed."""
    kind = rng.randrange(4)
    if kind == 0 and len(items):
        del items[rng.randrange(len(items))]
    elif kind == 1 and len(items):
        item = items[rng.randrange(len(items))]
        if field.message_type is None:
            items.append(item)
        else:
            items.add().CopyFrom(item)
    elif field.message_type is None:
        for _ in range(rng.choice((1, 1, 1, 40))):
            value = _scalar(field, rng, items[0] if len(items) else None)
            if kind == 2 and len(items):
                items[rng.randrange(len(items))] = value
            else:
                items.append(value)
    elif len(items) > 1:
        a, b = rng.sample(range(len(items)), 2)
        keep = type(items[a]).FromString(items[a].SerializeToString())
        items[a].CopyFrom(items[b])
        items[b].CopyFrom(keep)


def _scalar(field: Any, rng: random.Random, now: Any) -> object:
    if field.enum_type is not None:
        return rng.choice(field.enum_type.values).number
    match field.cpp_type:
        case field.CPPTYPE_INT64:
            return rng.choice(INTEGERS)
        case field.CPPTYPE_INT32:
            return rng.choice((*range(-1, 30), 99, (1 << 31) - 1, -(1 << 31)))
        case field.CPPTYPE_UINT64:
            return rng.choice((0, 1, (1 << 64) - 1))
        case field.CPPTYPE_FLOAT | field.CPPTYPE_DOUBLE:
            return rng.choice(REALS)
        case _:
            word = rng.choice(WORDS)
            if field.type == field.TYPE_BYTES:
                return bytes(now or b"")[: rng.randrange(9)] if rng.random() < 0.3 else word.encode()
            return word


def complaint(data: bytes, folder: Path) -> str | None:
    """What is wrong with how a file of these bytes loads; None if nothing."""
    from lfopt.frontend import load
    from lfopt.ir import LfoptError

    path = folder / "damaged.onnx"
    path.write_bytes(data)
    try:
        graph = load(path)
    except LfoptError as error:
        return None if _is_one_line(str(error)) else f"not one line: {str(error)!r}"
    except Exception:
        return traceback.format_exc(limit=-3)
    bad = [note for note in graph.notes if not _is_one_line(note)]
    return f"not one line: {bad[0]!r}" if bad else None


def _is_one_line(text: str) -> bool:
    return text.isprintable() and 0 < len(text) < 1200


def run(cases: Sequence[int], folder: Path, make: Callable[[int], bytes] = damaged) -> dict[int, str]:
    """Complaints by case.

    Each batch runs in a forked process with limits on memory and time; a crash is a complaint, and the next
    case goes on.
    """
    from lfopt.frontend import load  # noqa: F401  (imported before the fork)

    complaints: dict[int, str] = {}
    rest = list(cases)
    if make is damaged:
        seeds()
    while rest:
        inbox, outbox = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(inbox)
            _child(rest, folder, make, outbox)
        os.close(outbox)
        with os.fdopen(inbox, "rb") as stream:
            lines = stream.read().decode("utf-8", "replace").split("\0")[:-1]
        _, status = os.waitpid(child, 0)
        started = 0
        for line in lines:
            case, text = line.split(":", 1)
            if text == "started":
                started += 1
            else:
                complaints[int(case)] = text
        if status == 0:
            break
        signal_number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        complaints[rest[started - 1]] = (
            f"died: {signal.Signals(signal_number).name if signal_number else status}"
        )
        rest = rest[started:]
    return complaints


def _child(cases: Sequence[int], folder: Path, make: Callable[[int], bytes], outbox: int) -> None:
    status = 1
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for case in cases:
            os.write(outbox, f"{case}:started\0".encode())
            signal.alarm(SECONDS)
            if text := complaint(make(case), folder):
                os.write(outbox, f"{case}:{text}\0".encode())
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    import tempfile

    first, count = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        for start in range(first, first + count, 2000):
            for case, text in run(range(start, min(start + 2000, first + count)), Path(scratch)).items():
                print(f"== {case}\n{text}", flush=True)
