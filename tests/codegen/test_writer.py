"""Lines of C are indented by their blocks, and functions that differ by name alone are written once."""

from __future__ import annotations

from codegen.writer import CModule, Writer


def test_lines_are_indented_by_the_blocks_that_they_are_in() -> None:
    out = Writer()
    with out.nested(["if (a)", "if (b)"]):
        out("inside();", "")
    out("after();")
    assert out.text() == "if (a) {\n    if (b) {\n        inside();\n\n    }\n}\nafter();\n"


def test_functions_that_differ_in_their_names_alone_are_written_once() -> None:
    def body(name: str, step: int) -> Writer:
        code = Writer()
        with code.block(f"static int {name}(int x)"):
            code(f"return x + {step};")
        return code

    out = CModule()
    names = [
        out.function(name, body(name, step)) for name, step in (("first", 1), ("second", 2), ("third", 1))
    ]
    assert names == ["first", "second", "first"]
    assert out.text() == f"{body('first', 1).text()}\n{body('second', 2).text()}\n"


def test_scratch_is_as_large_as_the_most_that_was_asked_for() -> None:
    out = CModule()
    assert [out.scratch(floats) for floats in (3, 40, 7)] == ["m->scratch"] * 3
    assert out.scratch_floats == 40
