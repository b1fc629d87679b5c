"""Lines of C, indented."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import numpy as np

from codegen.blob import Blob

K = TypeVar("K")
ENDLESS = re.compile(r"[ -)+->@-[\]-~]*")  # text that ends no comment, nor splices lines or spells a trigraph


class Writer:
    """C text under construction."""

    def __init__(self, depth: int = 0) -> None:
        self._lines: list[str] = []
        self._depth = depth  # blocks that lines go to

    def __call__(self, *lines: str) -> None:
        """Add lines at the present depth."""
        indent = "    " * self._depth
        self._lines += [f"{indent}{line}" if line else "" for line in lines]

    def comment(self, text: str) -> None:
        """Add a comment.

        Raises ValueError for text that could end it: whatever is printed of a model is plain
        (`lfopt.ir.names`).
        """
        if not ENDLESS.fullmatch(text):
            raise ValueError(
                f"comment {text!r}: accepted: printable ASCII without an asterisk, a backslash or a question "
                "mark"
            )
        self(f"/* {text} */")

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
        """Lines inside one block in another.

        Inside braces where there is none, so that variables stay there.
        """
        with ExitStack() as blocks:
            for head in heads or [""]:
                blocks.enter_context(self.block(head))
            yield

    @contextmanager
    def kernel(self, name: str) -> Iterator[None]:
        """The function of a fused kernel, which makes row r."""
        with self.block(f"static void {name}(const context *m, int r)"):
            start = len(self._lines)
            yield
            if not any(re.search(r"\br\b", line) for line in self._lines[start:]):
                self("(void)r;")
            self("WRITTEN();")
        self("")

    def text(self) -> str:
        """All lines, as one text."""
        return "\n".join(self._lines) + "\n"


class CModule(Writer):
    """The functions of a model under construction, with packed constants and scratch memory.

    Scratch memory is that of every thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.blob = Blob()
        self.scratch_floats = 0  # of each thread
        self._functions: dict[str, str] = {}  # text without the name -> the name

    def function(self, name: str, body: Writer) -> str:
        """Add a function, written in `body` under a name, and give its name.

        That of an earlier function, where one is the same but for its name.
        """
        text = body.text().replace(name, "", 1)
        if text not in self._functions:
            self._functions[text] = name
            self(*body.text().splitlines(), "")
        return self._functions[text]

    def functions(self, name: str, bodies: Mapping[K, Callable[[str], Writer]]) -> dict[K, str]:
        """Add functions `name`_0, `name`_1, ..., each written under its name, and give their names."""
        return {
            key: self.function(f"{name}_{k}", write(f"{name}_{k}"))
            for k, (key, write) in enumerate(bodies.items())
        }

    def constant(self, values: np.ndarray, dtype: str = "float32") -> str:
        """C expression: address of packed constants of any shape, see `Blob.add`."""
        return self.blob.add(values, dtype)

    def scratch(self, floats: int) -> str:
        """C expression: scratch memory of `floats` of the thread that runs the kernel, on a cache line.

        Whatever lay there is lost.
        """
        self.scratch_floats = max(self.scratch_floats, floats)
        return "m->scratch"


def string(text: str) -> str:
    """A C string. Raises ValueError for text that could end it."""
    if '"' in text or not ENDLESS.fullmatch(text):
        raise ValueError(
            f"string {text!r}: accepted: printable ASCII without a quotation mark, an asterisk, a backslash "
            "or a question mark"
        )
    return f'"{text}"'
