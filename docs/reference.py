"""Tables of the documentation that come from the code: `python docs/reference.py` writes them anew.

A page holds each between `<!-- from the code: NAME -->` and `<!-- end -->`. A test says when one is out of
date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

from lfopt.app import api
from lfopt.app.batch.work import JobResult
from lfopt.app.chips import energy_fields, hardware_fields, installed
from lfopt.app.command_line import COMMANDS
from lfopt.app.compiled import CPU, compile_model
from lfopt.app.options import help_of
from lfopt.app.schema import CLASSES, described
from lfopt.app.sizes import format_size
from lfopt.isa.document import register_table
from lfopt.isa.manifest import Header, MapEntry
from lfopt.isa.registers import Register
from lfopt.isa.tables import Error, Queue, Told
from search.methods import METHODS

PAGES = Path(__file__).parent
FUNCTIONS = (
    api.load, api.simplify, api.search, api.pareto, api.plan, api.check, api.execute, api.explain, api.report,
    api.emit_c, compile_model,
)  # fmt: skip
CPU_TEXT = "lfopt.Hardware('1MiB', element_bytes=4)"
BLOCK = re.compile(r"(<!-- from the code: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
MEASURED = re.compile(r"[Cc]ommit ([0-9a-f]{7})[^.]*?(\d{4}-\d\d-\d\d)([^\n]*)")  # commit, day, what follows
QUESTIONS = {  # page of results: what it answers, and what makes it again
    "exact": ("On how many exported networks is the exact plan proven?", "`bench_search.py --models FOLDER`"),
    "search": ("How many plans a second does each search look at?", "`make bench-search`"),
    "beyond": ("What does scheme `all` bring, and each part of it?", "`make bench-beyond`"),
    "paper": (
        "What do the paper's searches find, and how far is that from the optimum?",
        "`make bench-paper`",
    ),
    "guidance": (
        "What do explanations bring a search of 300 plans, on families never seen?",
        "`make bench-guidance`",
    ),
    "rectify": (
        "How often do cuts of each explainer repair a group, and at what cost?",
        "`make bench-rectify`",
    ),
    "validity": (
        "Who is right about groups of families left out: formulas, trees or networks?",
        "`make bench-validity`",
    ),
    "validity-modes": (
        "And in strips, in slices and around gates?",
        "`make bench-validity`",
    ),
    "surrogate": (
        "How near do estimates of cycles come, and how many judgements do they save?",
        "`make bench-surrogate`",
    ),
    "limits": ("Is a plan with steps there within its time limit?", "`make bench-limits`"),
    "batch": ("What does a batch cost beside its jobs?", "`make bench-batch`"),
    "fusion": (
        "How many layers are left under each planner's rules, beside compilers?",
        "`make bench-fusion`",
    ),
    "cpu": ("How fast is generated C in float32, beside four runtimes?", "`make bench-cpu`"),
    "cpu-bf16": ("And in bfloat16, with what errors?", "`make bench-cpu`"),
    "int8": ("And in int8, on the same QDQ files?", "`make bench-int8`"),
    "operators": ("How fast is every operator alone, beside ONNX Runtime?", "`make bench-operators`"),
    "attention": ("How fast is attention alone?", "`make bench-attention`"),
    "torch": ("What does torch.compile gain with lfopt as its backend?", "`make bench-torch`"),
    "compile": ("How long does it take from a network to a program?", "`make bench-compile`"),
    "memory": ("How much memory does a process take?", "`make bench-memory`"),
    "traffic": ("Does a simulated cache miss as many bytes as the plan predicts?", "`make bench-traffic`"),
    "quantize": (
        "How accurate are trained networks in int8, by how ranges are calibrated?",
        "`make bench-quantize`",
    ),
    "rtl": (
        "Are bytes counted in hardware those planned, and how near are predicted cycles?",
        "`make bench-rtl`",
    ),
    "fit": ("How far off is a chip whose model was fitted to measured layers?", "`make bench-fit`"),
    "energy": (
        "How far is energy, level by level, from breakdowns that others published?",
        "`make bench-energy`",
    ),
    "balanced": ("Is the default plan ever slower than what compilers run?", "`make bench-balanced`"),
    "rtl-memory": ("What do slower memories do to cycles?", "`make bench-rtl`"),
    "rtl-area": ("How many cells does the accelerator take, and how long are its paths?", "`make rtl-area`"),
    "rtl-mutate": ("Which check finds which fault in the SystemVerilog?", "`make rtl-mutate`"),
    "vela": ("How many bytes do plans of Arm's compiler move for the same networks?", "`make bench-vela`"),
    "integer-attention": (
        "How far off are Softmax and LayerNormalization in integers?",
        "`bench_integer_attention.py MODEL ...`",
    ),
    "conformance": (
        "How many of ONNX's own cases does generated C pass?",
        "`make bench-conformance`; random networks: `make test-sanitize`",
    ),
}
# fields of SearchConfig that stand for options of a search
FIELDS = {"split": "guidance", "start": "propose", "latency": "profile"}


def _hardware() -> Iterator[str]:
    yield "| field | default | least | unit | default from | meaning |"
    yield "|---|---:|---:|---|---|---|"
    for field in hardware_fields():
        default, least = (
            f"`{field.default}`" if field.default else "required",
            "" if field.least is None else field.least,
        )
        yield (
            f"| `{field.name}` | {default} | {least} | {field.unit} | {field.default_from} | "
            f"{_cell(field.meaning)} |"
        )


def _energy() -> Iterator[str]:
    yield "| field | default | unit | meaning |"
    yield "|---|---:|---|---|"
    for field in energy_fields():
        yield f"| `{field.name}` | `{field.default}` | {field.unit} | {_cell(field.meaning)} |"


def _chips() -> Iterator[str]:
    yield "| chip | buffer | MACs | port, bytes per cycle | clock | source |"
    yield "|---|---:|---:|---:|---:|---|"
    for name, chip in installed():
        speed = (
            "| | | "
            if chip.assumed
            else f"| {chip.mac_rows} x {chip.mac_columns} | "
            f"{chip.port_bytes} | {chip.clock_hz / 1e6:,.0f} MHz "
        )
        yield f"| `{name}` | {format_size(chip.buffer_bytes)} {speed}| {_cell(chip.source)} |"


def _fields(kind: type) -> Iterator[str]:
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    for field in described(kind):
        default = f"`{field.default}`" if field.default else ""
        yield f"| `{field.name}` | {_cell(field.type)} | {default} | {_cell(field.text)} |"


def _commands() -> Iterator[str]:
    yield "| command | |"
    yield "|---|---|"
    for name, text in COMMANDS.items():
        yield f"| [`lfopt {name}`](#{name}) | {text} |"


def _options() -> Iterator[str]:
    """Options of the functions of Python, each of one help and one default once."""
    yield "| option | of | default | meaning |"
    yield "|---|---|---|---|"
    takers: dict[tuple[str, str, str], list[str]] = {}
    for function in FUNCTIONS:
        hints = get_type_hints(function, include_extras=True)
        for name, parameter in inspect.signature(function).parameters.items():
            if text := help_of(hints[name]):
                default = CPU_TEXT if parameter.default is CPU else str(parameter.default)
                takers.setdefault((name, default, text), []).append(function.__name__)
    for (name, default, text), functions in takers.items():
        where = ", ".join("compile" if function == "compile_model" else function for function in functions)
        yield f"| `{name}` | {where} | `{default}` | {_cell(text)} |"


def _methods() -> Iterator[str]:
    yield "| method | what it does | fields that it reads | may prove |"
    yield "|---|---|---|---|"
    for name, method in METHODS.items():
        takes = ", ".join(f"`{FIELDS.get(option, option)}`" for option in method.takes)
        yield f"| `{name}` | {method.summary} | {takes} | {'yes' if method.proves else ''} |"


def _register_fields() -> Iterator[str]:
    yield "| register | bits | field | meaning |"
    yield "|---|---|---|---|"
    for register in Register:
        for field in register.of.fields:
            low = register.layout.offsets[field.name]
            bits = str(low) if field.bits == 1 else f"{low + field.bits - 1}:{low}"
            yield f"| `{register.name}` | {bits} | `{field.name}` | {_cell(field.about)} |"


def _told(**kinds: type[Told]) -> Iterator[str]:
    """Tables, one behind the other: numbers, names and meanings."""
    yield "| | name | meaning |"
    yield "|---|---|---|"
    for what, kind in kinds.items():
        for member in kind:
            yield f"| {what} {member.value} | `{member.name}` | {_cell(member.about)} |"


def _results() -> Iterator[str]:
    yield "| page | the question | renewed by | commit, day | processor |"
    yield "|---|---|---|---|---|"
    for name, (question, command) in QUESTIONS.items():
        page = (PAGES / "results" / f"{name}.md").read_text(encoding="utf-8")
        title = page.partition("\n")[0].removeprefix("# ")
        measured = MEASURED.findall(page)[-1]  # the last: what stands before it is of tables that are kept
        machine = re.sub(r"`[^`]*`", "", measured[2]).rpartition(" on ")[2].strip(" ,;").replace("(R)", "")
        yield (
            f"| [{title}]({name}.md) | {question} | {command} | {measured[0]}, {measured[1]} | "
            f"{re.split(r'[.,(]', machine)[0].strip()} |"
        )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


TABLES = {kind.__name__: (lambda kind=kind: _fields(kind)) for kind in (*CLASSES, JobResult)} | {
    "Hardware": _hardware,
    "Energy": _energy,
    "chips": _chips,
    "commands": _commands,
    "methods": _methods,
    "options": _options,
    "registers": register_table,
    "register_fields": _register_fields,
    "errors": lambda: _told(error=Error, queue=Queue),
    "manifest": lambda: _told(word=Header, entry=MapEntry),
    "results": _results,
}


def renewed(page: str) -> str:
    """A page with its tables as the code has them now."""
    return BLOCK.sub(lambda found: found[1] + "\n".join(TABLES[found[2]]()) + "\n" + found[3], page)


def main() -> None:
    """Write what has changed."""
    for path in sorted(PAGES.rglob("*.md")):
        before = path.read_text(encoding="utf-8")
        if (after := renewed(before)) != before:
            path.write_text(after, encoding="utf-8")
            sys.stdout.write(f"wrote {path.relative_to(PAGES)}\n")


if __name__ == "__main__":
    main()
