"""Limits on the steps of a plan and the time to make them; a group beyond is planned without steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from lfopt.ir import MOST_LINES, MOST_STEPS, UNWRITTEN, Again, Node, line_count, step_count

MOST_MADE = 1 << 22  # steps made for a plan, before they are folded into loops: about a minute's work

T = TypeVar("T", bound=Sequence[Node] | Again)


def never() -> bool:
    """Whether the time is over, where there is no limit."""
    return False


class Unwritten(Exception):
    """The steps of a group are not made; the message says why."""


class Limit:
    """Limits for the schedules of one plan's groups. Its methods raise Unwritten beyond them.

    `stop` is asked again and again, and says whether the time is over.

    `most`: steps that are made, those in loops that are made as loops just once; `steps` and `lines`: what
    the plan has in the end, every iteration counted and as it is written. `interruptible`: whether Ctrl-C
    ends the making of steps as the time limit does, or whatever is being done.
    """

    def __init__(
        self,
        stop: Callable[[], bool] | None = None,
        most: int = MOST_MADE,
        *,
        steps: int = MOST_STEPS,
        lines: int = MOST_LINES,
        interruptible: bool = False,
    ) -> None:
        self.interruptible = interruptible
        self.interrupted = False
        self._stop = stop or never
        self._most = most
        self._left = most
        self._steps = steps
        self._steps_left = steps
        self._lines = lines
        self._lines_left = lines

    @property
    def over(self) -> str:
        """Why no more steps are made, whatever their number; empty while they are."""
        if self.interrupted:
            return f"{UNWRITTEN}: Ctrl-C came before"
        if self._stop():
            return f"{UNWRITTEN}: the time limit struck before"
        return ""

    @property
    def spent(self) -> int:
        """Steps that were made, before they were folded; those that only repeat others were not."""
        return self._most - self._left

    def expect(self, steps: int) -> None:
        """At least `steps` steps come next. Raises Unwritten."""
        if why := self.over:
            raise Unwritten(why)
        if steps > self._left:
            raise Unwritten(f"{UNWRITTEN}: a plan has at most {self._most:,} steps before they are folded")

    def spend(self, steps: int) -> None:
        """`steps` steps were made. Raises Unwritten."""
        self.expect(steps)
        self._left -= steps

    def allowed(self, blocks: Iterable[T]) -> Iterator[T]:
        """The blocks of steps, as long as there may be more. Raises Unwritten."""
        for block in blocks:
            self.spend(1 if isinstance(block, Again) else len(block))
            yield block

    def keep(self, nodes: Sequence[Node]) -> None:
        """These steps of a group come into the plan. Raises Unwritten."""
        steps = step_count(nodes)
        lines = line_count(nodes)
        if steps > self._steps_left:
            raise Unwritten(f"{UNWRITTEN}: a plan has at most {self._steps:,} steps")
        if lines > self._lines_left:
            raise Unwritten(f"{UNWRITTEN}: a plan has at most {self._lines:,} lines of steps")
        self._steps_left -= steps
        self._lines_left -= lines
