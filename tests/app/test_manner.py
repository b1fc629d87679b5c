"""What all commands share: JSON schemas, --quiet, --verbose, refusals, examples, pipes, tables."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lfopt.app.answers.table import ANSWERS
from lfopt.app.command_line import COMMANDS, app
from lfopt.app.schema import schema
from lfopt.app.screen import begin, folded, out, spread
from tests.app.conftest import refused

SMALL = ("zoo:fsrcnn", "--input-shape", "image=1,1,20,24", "--buffer", "8KiB")


@pytest.fixture(autouse=True)
def loud() -> None:
    """Print what is printed, whatever a command in a test before was told."""
    begin(quiet=False, verbose=False, json=False)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small plan."""
    import lfopt

    folder = tmp_path_factory.mktemp("plan")
    lfopt.search(
        SMALL[0],
        buffer="8KiB",
        scheme="auto",
        element_bytes=4,
        input_shapes={"image": (1, 1, 20, 24)},
        objective="bytes",
    ).save(folder)
    return folder


def commands() -> list[tuple[str, ...]]:
    """Every command, those in groups too."""
    listed: list[tuple[str, ...]] = []
    for name in COMMANDS:
        inner = [key for key in app[name].resolved_commands() if not key.startswith("-")]
        listed += [(name, key) for key in inner] or [(name,)]
    return listed


def test_every_command_has_an_example_that_it_takes_and_an_answer_or_a_text_for_programs(here) -> None:
    for command in commands():
        shown = re.split(r"\n\s*\n", here(*command, "--help").stdout)
        (line,) = [
            " ".join(part.split()).removeprefix("Example: lfopt ")
            for part in shown
            if part.startswith("Example: ")
        ]
        words = shlex.split(line.partition(" > ")[0])
        assert words[: len(command)] == [*command]
        app.parse_args(words, exit_on_error=False, print_error=False)
        assert (" ".join(command) in ANSWERS) != (
            command in {("schema",), ("completion",), ("rtl", "isa")}
        ), command


def test_what_commands_answer_is_of_their_schema(here, plan: Path, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    groups = json.loads((plan / "plan.json").read_text())["groups"]
    (tmp_path / "g.csv").write_text(",".join(groups[0]["nodes"]) + "\n")
    runs: list[tuple[Any, ...]] = [
        ("search", *SMALL, "--out", tmp_path / "s", "--objective", "cycles"),
        ("simulate", plan),
        ("execute", plan),
        ("codegen", plan, "--out", tmp_path / "c", "--target", "c99", "--fill"),
        ("check", plan),
        ("cost", *SMALL, "--groups", tmp_path / "g.csv"),
        ("diff", plan, plan),
        ("report", plan, "--out", tmp_path / "r.html", "--sweep-seconds", "0", "--explain-seconds", "0"),
        ("explain", plan, "--group", 0, "--grow"),
        ("inspect", plan),
        ("sweep", *SMALL[:3], "--buffers", "8KiB,16KiB", "--out", tmp_path / "w"),
        (
            "pareto",
            "zoo:fsrcnn",
            "--input-shape",
            "image=1,1,20,24",
            "--buffers",
            "4KiB,8KiB",
            "--corners",
            "3",
            "--budget",
            "0",
            "--out",
            tmp_path / "p",
        ),
        ("zoo", "export", "fsrcnn", "--out", tmp_path / "f.onnx"),
        ("cache", "list"),
        ("hw", "detect"),
        ("hw", "list"),
        ("hw", "show", "accelerator_256k"),
        ("hw", "fields"),
        ("hw", "check", "accelerator_256k"),
    ]
    for run in runs:
        name = " ".join(run[:2]) if " ".join(map(str, run[:2])) in ANSWERS else run[0]
        done = here(*run, "--json")
        assert done.returncode == 0, done.stderr
        data = json.loads(done.stdout)
        wanted = schema(name)
        jsonschema.Draft202012Validator.check_schema(wanted)
        jsonschema.Draft202012Validator(wanted).validate(data)
        assert (
            data["schema"]
            == f"lfopt.{name.replace(' ', '.')}/1"
            == json.loads(here("schema", *name.split()).stdout)["properties"]["schema"]["const"]
        )


def test_json_goes_where_it_is_asked_to_and_never_over_a_plan(here, plan: Path, tmp_path: Path) -> None:
    before = (plan / "plan.json").read_bytes()
    shown = json.loads(here("simulate", "--json", plan / "plan.json").stdout)
    assert (plan / "plan.json").read_bytes() == before
    for given in ((f"--json={tmp_path / 'a.json'}",), ("--json", tmp_path / "b.json")):
        done = here("simulate", plan, *given)
        assert "DRAM bytes" in done.stdout and done.stdout.splitlines()[-1].startswith("wrote ")
    assert (
        json.loads((tmp_path / "a.json").read_text())
        == json.loads((tmp_path / "b.json").read_text())
        == shown
    )
    assert json.loads(here("diff", "--json", plan / "plan.json", plan / "plan.json").stdout)["changed"] == []
    assert json.loads(here("simulate", plan, "--json", "-").stdout) == shown
    assert "in a folder that exists" in refused(
        here("simulate", plan, f"--json={tmp_path / 'none' / 'a.json'}")
    )
    assert "--json: found with lfopt schema" in refused(here("schema", "plan", "--json"))


def test_quiet_says_nothing_and_verbose_what_is_going_on(here, plan: Path, tmp_path: Path) -> None:
    quiet = here("search", *SMALL, "-q", "--out", tmp_path / "q")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    assert (tmp_path / "q" / "plan.json").exists()
    verbose = here("execute", plan, "--verbose")
    assert re.search(r"^ +[0-9.]+ s  group", verbose.stderr, re.MULTILINE)
    assert here("execute", plan).stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("codegen", "x", "--target", "riscv", "-o", "y"),
            "--target: found 'riscv'; accepted: avx512, avx2, neon, rvv, c99, native, accel",
        ),
        (("search", "zoo:unet", "--budget", "many"), "--budget: found 'many'; accepted: a whole number"),
        (
            ("search", "zoo:unet", "--scheme", "fast"),
            "--scheme: found 'fast'; accepted: lbdf, brr, resident, patches, auto, all",
        ),
        (
            ("search", "zoo:unet", "--bufer", "1MiB"),
            "search: found --bufer, which is no option of it; did you mean --buffer?",
        ),
        (("serch",), "lfopt: found 'serch', which is no command; did you mean search?"),
        (("simulate",), "simulate: PLAN is missing; accepted: a path"),
        (("zoo", "export", "unet"), "--out: found it missing; accepted: a path"),
        (("search", "zoo:unet", "--out"), "--out: found nothing behind it; accepted: text"),
        (("simulate", "a", "b"), "simulate: found 'b' beside all that it takes"),
        (("search", "zoo:unet", "--seed", "1", "--seed", "2"), "--seed: found twice; accepted: once"),
    ],
)
def test_a_wrong_command_line_is_one_line_without_types_of_python(
    arguments: tuple[str, ...], said: str, here
) -> None:
    line = refused(here(*arguments))
    assert said in line
    assert not re.search(r"Literal|<class|int\b|Path\b|None\b|Optional", line)


def test_a_folder_is_a_network_where_one_is_in_it(here, plan: Path, tmp_path: Path) -> None:
    assert here("inspect", plan).returncode == 0
    assert "found a folder with 0 ONNX files" in refused(here("inspect", tmp_path))
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).write_bytes((plan / "simplified.onnx").read_bytes())
    assert "found a folder with 2 ONNX files" in refused(here("inspect", tmp_path))


def test_a_reader_may_leave_early_and_files_are_written_all_the_same(plan: Path, tmp_path: Path) -> None:
    lfopt = f"{shlex.quote(sys.executable)} -m lfopt.app.cli"
    line = (
        f"{lfopt} inspect {plan} --all-operators --json={tmp_path / 'a.json'} | head -1; "
        f"echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0" and done.stderr == ""
    assert json.loads((tmp_path / "a.json").read_text())["operators"]
    line = f"{lfopt} simulate {plan} --json | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_shells_complete_what_the_completion_says(here) -> None:
    script = here("completion", "bash").stdout
    ask = 'COMP_WORDS=(lfopt simulate --t); COMP_CWORD=2; _lfopt; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
    assert "--top" in done.stdout.split()


@pytest.mark.parametrize("width", [14, 40, 80])
def test_tables_fold_names_and_tell_neighbours_apart(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["stage6.block2.expand .. stage6.block3.project", "x" * 200, "a/b/c/" * 9]
    for name in names:
        lines = folded(name, width).split("\n")
        assert max(map(len, lines)) <= width
        assert "".join(lines).replace(" ", "") == name.replace(" ", "")
    assert folded("x" * 100_000, 20).count("\n") < 30
    monkeypatch.setattr(out, "_width", max(width, 40))
    with out.capture() as captured:
        out.print(
            spread(
                ("group", "bytes"),
                [("stage6.block2.k2.expand", "1,000"), ("stage6.block2.k3.expand", "2,000")],
            )
        )
    text = captured.get()
    assert "…" not in text and max(map(len, text.splitlines())) <= max(width, 40)
    assert "k2" in text and "k3" in text


def test_where_figures_leave_no_room_for_names_these_have_lines_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(out, "_width", 40)
    names, rows = (
        ("link", "score", "bytes", "chip"),
        [("a.b → c.d", "0.50", "12,345,678,901", "x" * 9), ("e → f" * 9, "1.00", "-", "")],
    )

    def lines(**options: Any) -> list[str]:
        with out.capture() as captured:
            out.print(spread(names, rows, **options))
        printed = captured.get().splitlines()
        assert max(map(len, printed)) <= 40
        return printed

    assert lines()[:4] == [
        "link",
        "  score           bytes       chip",
        "a.b → c.d",
        "   0.50  12,345,678,901  xxxxxxxxx",
    ]
    assert lines()[4:] == ["e → fe → fe → fe → fe → fe → fe → fe →", "  fe → f", "   1.00               -"]
    rows = [("chip" * 5, "8x8", "a text of its own", "1,024")]
    assert lines(stretch=(2,), left=(1,))[2:] == ["chipchipchipchipchip  8x8    1,024", "  a text of its own"]
