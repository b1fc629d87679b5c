"""Lines of C: indented by the blocks that they are in, whatever was dropped meanwhile."""

from __future__ import annotations

import pytest

from codegen.source import Unsupported
from codegen.writer import Writer


def depths_hold(text: str) -> bool:
    """Whether every line is indented by the braces before it, and all of them are closed."""
    depth = 0
    for line in text.splitlines():
        depth -= line.lstrip().startswith("}")
        if line and len(line) - len(line.lstrip()) != 4 * depth:
            return False
        depth += line.endswith("{")
    return depth == 0


def given_up(out: Writer, blocks: int) -> None:
    """A kernel that says halfway that it does not know its operator."""
    with out.kernel("unit"), out.nested(["for (;;)"] * blocks):
        out("x += r;")
        raise Unsupported("a constant")


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("outside", [0, 2])
def test_what_follows_a_kernel_that_gave_up_halfway_is_indented_as_before(blocks: int, outside: int) -> None:
    out = Writer()
    with out.nested([f"while ({k})" for k in range(outside)]):
        mark = out.mark()
        with pytest.raises(Unsupported):
            given_up(out, blocks)
        out.forget(mark)
        out("y = 0;")
    assert depths_hold(out.text())
    assert "unit" not in out.text()


def test_lines_can_be_dropped_inside_a_block() -> None:
    out = Writer()
    with out.block("if (a)"):
        out("kept();")
        mark = out.mark()
        with pytest.raises(Unsupported):
            given_up(out, 1)
        out.forget(mark)
        with out.block("if (c)"):
            out("also();")
    assert out.text() == "if (a) {\n    kept();\n    if (c) {\n        also();\n    }\n}\n"


def test_a_block_that_is_dropped_while_it_is_open_is_not_closed() -> None:
    out = Writer()
    with out.block("if (a)"):
        mark = out.mark()
        with out.block("if (b)"), out.block("if (c)"):
            out.forget(mark)
            out("instead();")
            with out.block("if (d)"):
                out("inside();")
        out("after();")
    assert out.text() == "if (a) {\n    instead();\n    if (d) {\n        inside();\n    }\n    after();\n}\n"


def test_a_mark_in_a_block_that_is_closed_since_brings_back_its_depth() -> None:
    out = Writer()
    with out.block("if (a)"):
        mark = out.mark()
        out("one();")
    out.forget(mark)
    out("two();", "")
    assert out.text() == "if (a) {\n    two();\n\n"
