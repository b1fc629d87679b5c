"""Standard streams that a command can print to whatever becomes of them, and when its process began.

A stream that is closed, full, or without a reader takes what is printed and loses it, so that a command goes
on and writes its files; `lost_output` says afterwards what was lost. Nothing but the standard library's core
is imported here: it runs before everything else.
"""

from __future__ import annotations

import io
import os
import sys
import time
from typing import Any

DESCRIPTORS = (0, 1, 2)  # of the standard streams
JUDGE_THREAD = "ONNX Runtime"  # name of the thread in which a judge works

# when the process began, by `time.perf_counter`; None where it runs more than one command line
began: float | None = None


class StandardStream(io.TextIOWrapper):
    """A text stream that never raises OSError for what it cannot write."""

    lost: str = ""  # why text was lost; nothing where none was, or where the reader has left

    def write(self, text: str, /) -> int:
        """Write, or lose, a text."""
        try:
            return super().write(text)
        except OSError as error:
            self._lose(error)
            return len(text)

    def flush(self) -> None:
        """Bring to the file what was written."""
        try:
            super().flush()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        if not isinstance(error, BrokenPipeError):
            self.lost = error.strerror or str(error)
        # what its buffer still holds is lost, and Python does not complain of it at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())


def open_streams() -> None:
    """Make standard output and standard error streams that never raise.

    Descriptors that the caller has closed are taken first: the next file that is opened would have their
    number, and get what libraries print. Streams that are not those of the process stay.
    """
    for descriptor in DESCRIPTORS:
        try:
            os.fstat(descriptor)
        except OSError:
            # read-only: writing to it says so. The lowest number that is free is this one
            os.open(os.devnull, os.O_RDONLY)
    # file names need not be text in UTF-8, nor terminals take it
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream: Any = getattr(sys, name)
        if stream is None:
            raw = io.FileIO(descriptor, "w", closefd=False)
            setattr(
                sys,
                name,
                StandardStream(io.BufferedWriter(raw), "utf-8", "backslashreplace", write_through=True),
            )
        elif type(stream) is io.TextIOWrapper:
            encoding = stream.encoding
            by_line = stream.line_buffering
            setattr(
                sys,
                name,
                StandardStream(stream.detach(), encoding, "backslashreplace", line_buffering=by_line),
            )


def seconds_since_began() -> float:
    """Seconds since the process began; 0 where it runs more than one command line."""
    if began is None:
        return 0.0
    return time.perf_counter() - began


def lost_output() -> str:
    """Why some of the standard output was lost; nothing where a reader left, or where all was written."""
    if isinstance(sys.stdout, StandardStream):
        return sys.stdout.lost
    return ""


def judge_is_at_work() -> bool:
    """Whether a judge whose answer nobody waits for still computes: the process is not to wait either."""
    threading = sys.modules.get("threading")
    return threading is not None and any(one.name == JUDGE_THREAD for one in threading.enumerate())
