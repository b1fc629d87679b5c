"""The commands of `lfopt`. They are imported when they run, so that `lfopt --help` answers at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from lfopt.app import standard, tokens
from lfopt.app.wings import check_wings


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415  (slow to import, seldom asked for)

    return version("lfopt")


EVERYWHERE = """Every command takes --quiet (-q: errors, notes and JSON alone), --verbose (-v: what is going
on, as lines), and --json: all that it says as JSON on standard output, or with --json=FILE in a file
(`lfopt schema COMMAND` describes it).

Exit codes: 0 done; 1 something that was checked does not hold; 2 wrong input, in one line; 3 written, but
without the steps of some groups; 130 Ctrl-C, with what there was until then."""
app = App(
    name="lfopt",
    help="Find which operators of a network to fuse so that feature maps stay out of DRAM.",
    help_epilogue=EVERYWHERE,
    version=_version,
)
COMMANDS = {
    "search": "Find the fusion plan of least DRAM traffic and prove how good it is.",
    "simulate": "Show what a plan moves and saves, and what it costs in cycles and energy by the model.",
    "execute": "Run a plan row by row, count its bytes, and compare the outputs with the reference.",
    "run": "Run a network on given inputs: planned, compiled, and kept for the next time.",
    "codegen": "Write a plan as C with a program around it, and compile it.",
    "check": "Recount everything that a plan claims, independently of the planner.",
    "cost": "Price any partition into groups, say what is illegal or does not fit, and make its plan.",
    "diff": "Compare two plans: bytes, cycles, which groups changed, and why.",
    "report": "Write a plan as one HTML page to look at.",
    "explain": "Say what overflows where operators do not fit as one group, and the cheapest cut that "
    "repairs it.",
    "inspect": "Show a network's operators, and what cannot be fused at a given buffer and why.",
    "batch": "Run many searches from one file, on one machine or a cluster, and gather a row for each.",
    "sweep": "Compute the exact staircase of DRAM traffic against buffer size.",
    "pareto": "Find which plans, on which buffers and MAC arrays, no other beats, and name the knees.",
    "quantize": "Write an int8 copy of a network, and say what that does to its accuracy.",
    "dataset": "Draw fusion groups of many networks and label them, to learn validity from.",
    "train": "Train the predictor of validity and its explainers from labelled groups.",
    "schema": "Print the JSON Schema of a file that lfopt reads, or of what a command says as JSON.",
    "zoo": "List and export the networks that lfopt builds itself.",
    "cache": "List and remove what is kept between runs: compiled models, simulated accelerators, times.",
    "hw": "List, show, check and fit hardware descriptions, and describe this machine.",
    "rtl": "Run command streams on the accelerator in RTL, and describe its instructions.",
    "completion": "Print the completion of commands and options for a shell.",
}
MAX_LINE = 4000  # characters of an error
GROUPS = ("zoo", "cache", "hw", "rtl")  # of commands
for _name, _help in COMMANDS.items():
    app.command(f"lfopt.app.commands.{_name}:{'app' if _name in GROUPS else _name}", name=_name, help=_help)


def run(words: Sequence[str], began: float | None = None) -> int:
    """The exit code of a command line: 2 and one line for wrong input, 130 for an interrupt.

    `began`: when the process did that runs it alone, by `time.perf_counter`.
    """
    standard.began = began
    try:
        status = _run(words)
        return status if isinstance(status, int) else 0
    except CycloptsError as error:
        from lfopt.app.refusals import refusal  # noqa: PLC0415  (seldom)

        return _refused(refusal(error))
    except KeyboardInterrupt:
        sys.stderr.write("lfopt: interrupted\n")
        return 130
    except MemoryError as error:
        return _refused(f"the memory of this machine does not suffice: {error or 'an allocation failed'}")
    except Exception as error:
        from lfopt.ir import LfoptError  # noqa: PLC0415  (it brings NumPy, which `lfopt --help` does without)

        if isinstance(error, LfoptError):
            return _refused(str(error), error.exit_code)
        if isinstance(error, OSError):
            return _refused(f"{error.filename or 'a file or stream'}: {error.strerror or error}")
        raise


def _run(words: Sequence[str]) -> object:
    check_wings()
    command_line = tokens.read(words, takes)
    if not {"--help", "-h", "--version"} & {*command_line.tokens[:1], *command_line.tokens[-1:]}:
        from lfopt.app.answers.writing import expect  # noqa: PLC0415  (with it comes what `lfopt --help` does without)

        expect(command_line)
    if command_line.tokens and command_line.tokens[0] in COMMANDS and command_line.tokens[0] not in GROUPS:
        # the line of the list: a page of its own is the command's docstring
        app[command_line.tokens[0]].help = None
    return app(command_line.tokens, exit_on_error=False, print_error=False, result_action="return_value")


def takes(words: Sequence[str]) -> bool:
    """Whether a command has all it needs in such words."""
    try:
        app.parse_args(words, exit_on_error=False, print_error=False)
    except CycloptsError:
        return False
    return True


def _refused(message: str, status: int = 2) -> int:
    """Print what is wrong, in one line; the exit code."""
    from lfopt.ir.names import printable  # noqa: PLC0415  (as above)

    line = printable(" ".join(message.split()))
    line = line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 500]} ... {line[-500:]}"
    sys.stderr.write(f"lfopt: {line}\n")
    return status
