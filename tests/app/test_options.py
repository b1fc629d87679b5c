"""Options are declared once: what has one name has one help and one default, and nothing says it again."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import pytest

import lfopt
from lfopt.app.command_line import COMMANDS, app
from lfopt.app.config import Config, SearchConfig
from lfopt.app.front import FrontQuery
from lfopt.app.options import help_of, switched
from lfopt.app.schema import described, schema
from lfopt.app.session import InferenceSession
from tests.conftest import ROOT

ALIASES = {  # names that one option has in different places -> its name on the command line
    "max_dram_bytes": "max_bytes",  # fields of files say their units
    "max_energy_uj": "max_energy",
    "modes": "scheme",  # of `lfopt.plan`, whose `scheme` is a fusion scheme
}
# Options of which each command says what they are for: what is written, of which list, how long for what.
EACH_SAYS = frozenset("out top time_limit input".split())
# Options that share a name and mean something else.
OTHER = {
    ("pareto", "all"): "dominated plans",
    ("train", "all"): "all schemes",
    ("quantize", "alone"): "layers in int8 by themselves",
    ("diff", "before"): "one of two plans",
    ("pareto", "budget"): "plans on each chip, beside the exact ones",
    ("FrontQuery", "budget"): "likewise",
    ("run", "buffer"): "a cache of a CPU",
    ("sweep", "buffers"): "a range is of every step",
    ("rtl run", "check"): "outputs are integers, compared bit by bit",
    ("batch", "file"): "of jobs",
    ("cost", "groups"): "a file of them",
    ("dataset", "groups"): "how many",
    ("run", "hardware"): "of a CPU",
    ("compile", "hardware"): "likewise",
    ("InferenceSession", "hardware"): "likewise",
    ("Config", "hardware"): "a description or its file",
    ("Config", "input_shapes"): "shapes alone, by input",
    ("quantize", "method"): "how ranges are calibrated",
    ("Config", "model"): "relative to the file",
    ("run", "model"): "with weights",
    ("quantize", "model"): "likewise",
    ("execute", "model"): "the file that ONNX Runtime is given",
    ("explain", "objective"): "whether cycles are explained too",
    ("quantize", "samples"): "of calibration",
    ("train", "samples"): "of explainers",
    ("dataset", "scheme"): "of labels",
    ("train", "scheme"): "of labels",
    ("codegen", "target"): "also the accelerator",
    ("explain", "target"): "what is explained",
    ("train", "threads"): "of PyTorch",
    ("cache list", "verify"): "what is kept, not what runs",
    ("zoo export", "weights"): "whether they are written",
}
# Commands whose defaults are others than the configuration's, and why.
OWN_DEFAULT = {
    ("pareto", "scheme"): "a front is of whatever runs on each chip",
    ("cost", "scheme"): "a partition that was made elsewhere may run in any mode",
    ("pareto", "budget"): "plans on each chip",
    ("plan", "scheme"): "groups that are given run as in the papers",
    ("sweep", "scheme"): "the whole staircase is exact there",
    ("plan", "band_rows"): "a plan without a search has no objective to choose rows by",
    ("execute", "check"): "it is there to compare; run is there to run",
    ("sweep", "time_limit"): "seconds for each size",
    ("explain", "time_limit"): "seconds for one group",
    ("sweep", "buffers"): "every step of a range",
}
SWITCHES = {"on": True, "off": False}


class Place(NamedTuple):
    """An option where it is taken."""

    where: str
    name: str
    help: str | None
    default: Any
    shared: bool  # whether its help is a declaration of `lfopt.app.options`


def functions() -> Iterator[tuple[str, Callable[..., Any], bool]]:
    """(name, function, whether it is a command) of all commands and functions that people call."""
    for name in COMMANDS:
        keys = [key for key in app[name].resolved_commands() if not key.startswith("-")]
        for command in [app[name][key] for key in keys] or [app[name]]:
            command.assemble_argument_collection()  # imports it
            assert command.default_command is not None
            yield " ".join([name, *command.name] if keys else [name]), command.default_command, True
    for name in lfopt.__all__:
        if inspect.isfunction(function := getattr(lfopt, name)):
            yield name, function, False
    yield "InferenceSession", InferenceSession.__init__, False


def documented(function: Callable[..., Any]) -> dict[str, str]:
    """What the docstring of a command says of its parameters."""
    part = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")[2]
    said = re.findall(r"^(\w+)\n((?:    .*\n?)+)", part, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in said}


def places() -> Iterator[Place]:
    for where, function, is_command in functions():
        hints = get_type_hints(function, include_extras=True)
        said = documented(function) if is_command else {}
        names = command_names(where) if is_command else {}
        for name, parameter in inspect.signature(function).parameters.items():
            if name == "self":
                continue
            shared = help_of(hints[name])
            assert shared is None or name not in said, f"{where}: {name} is described twice"
            named = names.get(name, ALIASES.get(name, name))
            default = parameter.default if parameter.default is not parameter.empty else MISSING
            yield Place(where, named, shared or said.get(name), default, shared is not None)
    for kind in (Config, SearchConfig, FrontQuery):
        hints, texts = get_type_hints(kind, include_extras=True), {f.name: f.text for f in described(kind)}
        for field in fields(kind):
            shared = help_of(hints[field.name]) is not None
            if not is_dataclass(field.default_factory) and (shared or kind is not FrontQuery):
                name = ALIASES.get(field.name, field.name)
                yield Place(kind.__name__, name, texts[field.name] or None, field.default, shared)


def command_names(command: str) -> dict[str, str]:
    """Parameter of a command -> its option, as it is written."""
    one = app
    for word in command.split():
        one = one[word]
    return {
        argument.field_info.name: argument.names[0].lstrip("-").replace("-", "_").lower()
        for argument in one.assemble_argument_collection()
    }


PLACES = list(places())


def by_name() -> dict[str, list[Place]]:
    """Places of each option, but for those where it means something else."""
    named: dict[str, list[Place]] = defaultdict(list)
    for place in PLACES:
        if place.name not in EACH_SAYS and (place.where, place.name) not in OTHER:
            named[place.name].append(place)
    return named


def test_every_option_of_a_command_has_help() -> None:
    silent = [
        f"{name} {argument.name}"
        for name, *_ in (each for each in functions() if each[2])
        for argument in _command(name).assemble_argument_collection()
        if not documented_or_declared(name, argument)
    ]
    assert silent == []


def documented_or_declared(command: str, argument: Any) -> bool:
    function = _command(command).default_command
    hint = get_type_hints(function, include_extras=True)[argument.field_info.name]
    return bool(help_of(hint) or documented(function).get(argument.field_info.name))


def _command(name: str) -> Any:
    one = app
    for word in name.split():
        one = one[word]
    return one


def test_options_of_one_name_have_one_help_from_one_declaration() -> None:
    second = {
        name: sorted({(place.where, place.help) for place in at if place.help})
        for name, at in by_name().items()
        if len({place.help for place in at if place.help}) > 1
    }
    assert second == {}


def test_a_help_that_several_places_show_is_declared_in_options() -> None:
    shown: dict[str, list[Place]] = defaultdict(list)
    for place in PLACES:
        if place.help and not place.shared:
            shown[place.help.rstrip(".").lower()].append(place)
    twice = [
        [f"{place.where}: {place.name}" for place in at]
        for at in shown.values()
        if len(at) > 1 and len({place.name for place in at}) == 1
    ]
    assert twice == []


def test_options_of_one_name_have_one_default() -> None:
    """None stands for the default that a configuration, a plan or the chip has."""
    different: dict[str, set[Any]] = {}
    for name, at in by_name().items():
        defaults = {
            SWITCHES.get(place.default, place.default) if isinstance(place.default, str) else place.default
            for place in at
            if place.shared and (place.where, name) not in OWN_DEFAULT
        }
        if len(defaults - {None, MISSING}) > 1:
            different[name] = defaults
    assert different == {}


def test_exceptions_are_of_options_that_there_are() -> None:
    taken = {(place.where, place.name) for place in PLACES}
    assert [pair for pair in (*OTHER, *OWN_DEFAULT) if pair not in taken] == []
    assert [name for name in EACH_SAYS if name not in {name for _, name in taken}] == []


@pytest.mark.parametrize("kind", [Config, SearchConfig], ids=lambda kind: kind.__name__)
def test_help_shows_the_default_of_the_configuration(kind: type, here: Any) -> None:
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", here("search", "--help").stdout).split())
    text = text.partition(" Parameters ")[2]
    for field in fields(kind):
        default = switched(field.default) if isinstance(field.default, bool) else field.default
        option = f"--{ALIASES.get(field.name, field.name).replace('_', '-')} "
        if default in (None, ()) or default is MISSING or option not in text:
            continue
        own = re.split(r" --[a-z]", text.partition(option)[2])[0]
        assert f"[default: {default}]" in own, field.name


def test_the_schema_of_a_configuration_has_help_and_defaults_of_the_declarations() -> None:
    config = schema("config")
    for kind, properties in (
        (Config, config["properties"]),
        (SearchConfig, config["$defs"]["SearchConfig"]["properties"]),
    ):
        hints = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            if text := help_of(hints[field.name]):
                assert properties[field.name]["description"] == text
                assert properties[field.name]["default"] == field.default


# Files that own a default; a literal default of such a name anywhere else is a second declaration.
OWNED = {
    "scheme": "lfopt/planning/defaults.py",
    "modes": "lfopt/planning/defaults.py",
    "traffic": "lfopt/planning/defaults.py",
    "epilogue": "lfopt/planning/defaults.py",
    "max_recompute": "lfopt/planning/defaults.py",
    "band_rows": "lfopt/planning/defaults.py",
    "rules": "lfopt/rewrite/simplify.py",
    "method": "lfopt/app/options.py",
    "guidance": "lfopt/app/options.py",
    "propose": "lfopt/app/options.py",
    "budget": "search/options.py, lfopt/app/front.py",
    "seed": "search/options.py",
    "corners": "lfopt/app/front.py",
    "objective": "search/objectives.py",
    "target": "codegen/target.py",
    "threads": "codegen/target.py",
    "winograd": "codegen/target.py",
    "element": "codegen/elements.py",
    "sweep_seconds": "lfopt/app/options.py",
    "explain_seconds": "lfopt/app/options.py",
    "buffer": "lfopt/app/options.py",
    "jobs": "lfopt/app/options.py",
}
# Literal defaults that are of something else.
INSIDE = {
    ("lfopt/planning/modes/mode.py", "band_rows"): "of one way to run",
    ("lfopt/planning/modes/mode.py", "max_recompute"): "of a space without recomputation",
    ("lfopt/app/commands/explain.py", "objective"): "bytes or cycles are explained",
    ("lfopt/app/commands/dataset.py", "scheme"): "both schemes of the paper",
    ("lfopt/app/commands/train.py", "scheme"): "of the labels",
    ("lfopt/app/commands/train.py", "threads"): "of PyTorch",
    ("codegen/build.py", "jobs"): "of a C compiler",
}
ROWS_ONE_BY_ONE = (
    "lfopt/planning/groups/groups.py",
    "lfopt/planning/line_buffers/lbdf.py",
    "lfopt/planning/line_buffers/walk.py",
    "lfopt/planning/modes/lbdf.py",
    "lfopt/planning/nest/tree.py",
)


def literal_defaults(path: Path) -> Iterator[tuple[str, int]]:
    """(name, line) of parameters and fields whose default is a literal: text or a number, or True."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            positional = [*given.posonlyargs, *given.args]
            named = [*zip(positional[len(positional) - len(given.defaults) :], given.defaults, strict=True)]
            named += [(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True) if d]
            pairs = [(argument.arg, default) for argument, default in named]
        elif isinstance(node, ast.ClassDef):
            pairs = [
                (each.target.id, each.value)
                for each in node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value
            ]
        else:
            continue
        yield from (
            (name, default.lineno)
            for name, default in pairs
            if isinstance(default, ast.Constant)
            and default.value not in (None, False)
            or isinstance(default, ast.Constant)
            and type(default.value) is int
        )


def test_no_signature_and_no_field_says_a_default_again() -> None:
    again = [
        f"{path.relative_to(ROOT)}:{line}: {name}, which {OWNED[name]} declares"
        for folder in ("lfopt/app", "lfopt/planning", "lfopt/rewrite", "search", "codegen")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name, line in literal_defaults(path)
        if name in OWNED
        and str(path.relative_to(ROOT)) not in OWNED[name]
        and (str(path.relative_to(ROOT)), name) not in INSIDE
        and not (name == "band_rows" and str(path.relative_to(ROOT)) in ROWS_ONE_BY_ONE)
    ]
    assert again == []


def test_what_finds_a_second_default_finds_one(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        'class C:\n    seed: int = 0\n\ndef f(a, scheme="lbdf", *, traffic=T): ...\n'
    )
    assert {*literal_defaults(tmp_path / "m.py")} == {("seed", 2), ("scheme", 4)}
