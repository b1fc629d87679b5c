"""Lines of C, indented."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

ENDLESS = re.compile(r"[ -)+->@-[\]-~]*")  # text that ends no comment, nor splices lines or spells a trigraph


class Mark(NamedTuple):
    """A place in a text under construction."""

    lines: int
    open: tuple[object, ...]  # blocks


class Writer:
    """C text under construction."""

    def __init__(self, depth: int = 0) -> None:
        self._lines: list[str] = []
        self._depth = depth  # outside all blocks
        self._open: tuple[object, ...] = ()  # blocks that lines go to, outermost first
        self._functions: dict[str, tuple[str, int]] = {}  # text without the name -> the name, and the line after it

    def __call__(self, *lines: str) -> None:
        """Add lines at the present depth."""
        indent = "    " * (self._depth + len(self._open))
        self._lines += [f"{indent}{line}" if line else "" for line in lines]

    def comment(self, text: str) -> None:
        """Add a comment. Raises ValueError for text that could end it: whatever is printed of a model is plain (`lfopt.ir.names`)."""
        if not ENDLESS.fullmatch(text):
            raise ValueError(f"comment {text!r}: accepted: printable ASCII without an asterisk, a backslash or a question mark")
        self(f"/* {text} */")

    def all(self, lines: Iterable[str]) -> None:
        """Add many lines."""
        self(*lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines between braces. One that an exception ends, or that is dropped meanwhile, is not closed."""
        self(f"{head} {{" if head else "{")
        here = object()
        self._open = (*self._open, here)
        try:
            yield
        except BaseException:
            self._leave(here)
            raise
        if self._leave(here):
            self("}")

    def _leave(self, block: object) -> bool:
        """Go on outside a block; whether it was still open."""
        if block not in self._open:
            return False
        self._open = self._open[: self._open.index(block)]
        return True

    @contextmanager
    def nested(self, heads: Sequence[str]) -> Iterator[None]:
        """Lines inside one block in another; inside braces where there is none, so that variables stay there."""
        with ExitStack() as blocks:
            for head in heads or [""]:
                blocks.enter_context(self.block(head))
            yield

    def function(self, name: str, write: Callable[[str], object]) -> str:
        """The name of the function that `write(name)` adds: where an earlier one is the same but for the name, of that, and nothing is added."""
        start = self.mark()
        write(name)
        text = "\n".join(self._lines[start.lines :]).replace(name, "", 1)
        if text in self._functions:
            self.forget(start)
            return self._functions[text][0]
        self._functions[text] = name, len(self._lines)
        return name

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

    def mark(self) -> Mark:
        """What there is now, for `forget`."""
        return Mark(len(self._lines), self._open)

    def forget(self, mark: Mark) -> None:
        """Drop what came since, and go on where the mark was set: blocks that were opened since are dropped, those that were open are open."""
        if mark.lines < len(self._lines):
            self._functions = {text: (name, end) for text, (name, end) in self._functions.items() if end <= mark.lines}
        del self._lines[mark.lines :]
        self._open = mark.open

    def text(self) -> str:
        """All of it."""
        return "\n".join(self._lines) + "\n"


def string(text: str) -> str:
    """A C string. Raises ValueError for text that could end it."""
    if '"' in text or not ENDLESS.fullmatch(text):
        raise ValueError(f"string {text!r}: accepted: printable ASCII without a quotation mark, an asterisk, a backslash or a question mark")
    return f'"{text}"'
