"""Rewrites outputs shown on pages: `python -m tests.docs.renew docs/commands.md ...` runs the pages.

Where a page shows `...`, each line beside it becomes the line of the output that is most like it: read the
difference before it is committed.
"""

from __future__ import annotations

import sys
import tempfile
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from tests.docs.pages import Block, blocks
from tests.docs.session import SKIPPED, Session, difference, heard, lines, seen


class Renewal(Session):
    """A session that takes what is printed where something else is shown."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, page: Path) -> None:
        """`page`: what is run; `text` is what becomes of it."""
        self.running = [block for block in blocks(page) if block.does]
        super().__init__(folder, patch, self.running)
        self.text = page.read_text(encoding="utf-8")
        self._blocks: dict[int, str] = {}  # by line: what became of them

    def compare(self, block: Block, command: str, shown: list[str], printed: str) -> None:
        """Change the page's text where it differs."""
        output = heard(shown, printed)
        if difference(lines(shown), lines(output)) is None:
            return
        taken = _likest(shown, output) if SKIPPED in lines(shown) else output
        # its `...` at either end stand nowhere
        inside = slice(1, -1) if "output of" in block.markers else slice(None)
        before, after = ("\n".join(part[inside]) for part in (shown, taken))
        was = self._blocks.get(block.line, block.text)
        assert before in was, f"{block.where}: {command}: not found in its block:\n{before}"
        self._blocks[block.line] = was.replace(before, after, 1)
        self.text = self.text.replace(was, self._blocks[block.line], 1)
        still = difference(lines(taken), lines(output))
        sys.stdout.write(
            f"{block.where}: {command}{f': to be mended by hand, near {still!r}' if still else ''}\n"
        )


def _likest(shown: list[str], printed: list[str]) -> list[str]:
    taken: list[str] = []
    at = 0
    for line in shown:
        if line.strip() in (SKIPPED, "") or at == len(printed):
            taken.append(line)
            continue
        at = (
            max(
                range(at, len(printed)),
                key=lambda k: SequenceMatcher(None, seen(line), seen(printed[k])).ratio(),
            )
            + 1
        )
        taken.append(printed[at - 1])
    return taken


def main() -> None:
    """Renew the pages named on the command line."""
    for page in map(Path, sys.argv[1:]):
        path = page.resolve()
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            session = Renewal(Path(folder), patch, path)
            for block in session.running:
                session.run(block)
        path.write_text(session.text, encoding="utf-8")


if __name__ == "__main__":
    main()
