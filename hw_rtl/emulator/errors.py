"""Errors that stop the accelerator, and hazards of programs that lack a wait."""

from __future__ import annotations

from lfopt.isa.tables import Error, Queue


class ProgramError(ValueError):
    """An error with which the accelerator would stop."""

    def __init__(self, code: Error, queue: Queue, index: int, text: str) -> None:
        super().__init__(f"{queue.name} command {index}: {code.name}: {text}")
        self.code = code
        self.queue = queue
        # commands of that queue before the one at fault, loops unrolled; of the sequencer: words run before
        self.index = index


class Hazard(ValueError):
    """Data race or uninitialised read.

    Two commands touch the same word, one of them writes it, and no wait orders them; or a word is read that
    nothing has written.
    """


class Fault(Exception):
    """An error without its place; the caller knows it and raises a ProgramError instead."""

    def __init__(self, code: Error, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
