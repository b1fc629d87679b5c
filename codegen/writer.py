"""Lines of C, indented."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager


class Writer:
    """C text under construction."""

    def __init__(self, depth: int = 0) -> None:
        self._lines: list[str] = []
        self._depth = depth

    def __call__(self, *lines: str) -> None:
        """Add lines at the present depth."""
        self._lines += [f"{'    ' * self._depth}{line}" if line else "" for line in lines]

    def all(self, lines: Iterable[str]) -> None:
        """Add many lines."""
        self(*lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines between braces."""
        self(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self("}")

    @contextmanager
    def nested(self, heads: Sequence[str]) -> Iterator[None]:
        """Lines inside one block in another; inside braces where there is none, so that variables stay there."""
        with ExitStack() as blocks:
            for head in heads or [""]:
                blocks.enter_context(self.block(head))
            yield

    @contextmanager
    def kernel(self, name: str) -> Iterator[None]:
        """The function of a unit, which makes row r."""
        with self.block(f"static void {name}(const context *m, int r)"):
            start = len(self._lines)
            yield
            if not any(re.search(r"\br\b", line) for line in self._lines[start:]):
                self("(void)r;")
            self("WRITTEN();")
        self("")

    def mark(self) -> int:
        """How many lines there are now, for `forget`."""
        return len(self._lines)

    def forget(self, mark: int) -> None:
        """Drop what came since."""
        del self._lines[mark:]

    def text(self) -> str:
        """All of it."""
        return "\n".join(self._lines) + "\n"
