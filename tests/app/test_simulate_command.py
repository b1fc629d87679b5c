"""`lfopt simulate`: two screens that fit, one JSON document, and one clear line for plans that cannot be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lfopt.app.config import validate
from lfopt.app.files import read_plan
from lfopt.ir import Report
from tests.app.test_commands import figures

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def plan_folder(tmp_path_factory):
    """A plan of MobileNetV2 for 128 KiB, made once."""
    return tmp_path_factory.mktemp("plan")


@pytest.fixture
def folder(plan_folder, lfopt) -> Path:
    if not (plan_folder / "plan.json").exists():
        lfopt("search", "--config", "mobilenet_v2.yaml", "--method", "exact", "--out", plan_folder)
    return plan_folder


@pytest.fixture
def plan(folder) -> dict[str, Any]:
    return json.loads((folder / "plan.json").read_text())


@pytest.fixture
def other(folder, plan, tmp_path) -> Callable[[Change], Path]:
    """A copy of the plan with something changed."""

    def change(by: Change) -> Path:
        by(plan)
        copy = tmp_path / "other"
        copy.mkdir()
        (copy / "plan.json").write_text(json.dumps(plan))
        (copy / "simplified.onnx").symlink_to(folder / "simplified.onnx")
        return copy

    return change


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("options", [(), ("--group", "3"), ("--group", "34"), ("--top", "60")])
def test_the_screens_fit_their_terminal_and_cut_no_number(lfopt, folder, columns, options):
    text = lfopt("simulate", folder, *options, columns=columns).stdout
    tables, _, steps = text.partition(" steps ")
    assert max(len(line) for line in tables.splitlines()) <= columns
    assert "…," not in tables
    assert bool(steps) == ("--group" in options)
    assert "model*" in text


def test_the_screen_adds_up_and_marks_what_is_modelled(lfopt, folder, plan):
    text = lfopt("simulate", folder).stdout
    totals = plan["totals"]
    assert {
        totals["dram_bytes"],
        totals["layer_by_layer_bytes"],
        totals["compulsory_bytes"],
        totals["lower_bound_bytes"],
    } <= figures(text)
    assert len(text.splitlines()) <= 50
    for line in text.splitlines():
        if "cycles" in line or "energy" in line:
            assert "*" in line or "(f)" in line, line


def test_the_screen_of_a_group_says_where_things_lie_and_what_runs(lfopt, folder, plan):
    text = lfopt("simulate", folder, "--group", "3", columns=120).stdout
    group, read = plan["groups"][3], read_plan(folder)
    allocated = read.groups[3].allocated_bytes(read.hardware)
    assert {sum(group["dram"].values()), allocated} <= figures(text)
    for place in group["places"]:
        assert place["name"] in text
    assert text.splitlines()[-len(group["steps"]) :] == group["steps"]


def test_json_is_the_whole_report(lfopt, folder, plan):
    data = json.loads(lfopt("simulate", folder, "--json").stdout)
    assert data.pop("schema") == "lfopt.simulate/1"
    report = validate(Report, data, "stdout")
    assert report.dram.total == plan["totals"]["dram_bytes"] == sum(t.moved_bytes for t in report.tensors)
    assert [sum(g["dram"].values()) for g in plan["groups"]] == [g.dram.total for g in report.groups]


def test_a_plan_that_contradicts_its_steps_is_shown_with_exit_code_1(here, unchecked, other):
    def lie(plan: dict[str, Any]) -> None:
        plan["groups"][3]["dram"]["input"] -= 1

    unchecked("lfopt.app.commands.simulate")
    done = here("simulate", other(lie))
    assert done.returncode == 1
    assert "wrong group 3" in done.stdout


def test_texts_that_look_like_markup_are_printed_as_they_are(here, unchecked, other):
    def rename(plan: dict[str, Any]) -> None:
        for group in plan["groups"]:
            group["steps"], group["unexecutable"] = [], "[/x]"

    unchecked("lfopt.app.commands.simulate")
    assert "since [/x]" in here("simulate", copy := other(rename)).stdout
    assert "[/x]" in here("simulate", copy, "--group", "3").stdout


def step(verb: str, change: Callable[[str], str]) -> Change:
    """Change the first line that begins so in the first group that has a loop."""

    def changed(plan: dict[str, Any]) -> None:
        steps = next(
            group["steps"]
            for group in plan["groups"]
            if any(line.startswith("loop") for line in group["steps"])
        )
        at = next(k for k, line in enumerate(steps) if line.strip().startswith(verb))
        assert change(steps[at]) != steps[at]
        steps[at] = change(steps[at])

    return changed


WRONG: dict[str, tuple[Change, str]] = {
    "no such place": (step("load", lambda line: line.replace("-> 0.0", "-> 99.0")), "there is no place 99"),
    "no such tensor": (
        step("load", lambda line: line.replace(".weight", ".wait")),
        "the group does not read it from DRAM",
    ),
    "no such operator": (
        step("compute", lambda line: line.replace("compute ", "compute un")),
        "it is not computed in the group",
    ),
    "a box too large": (
        step("load", lambda line: line.replace("[0:", "[0:9")),
        "one of its spans begins at 0 to 0 and has 932 of 32",
    ),
    "a loop too long": (
        step("loop", lambda line: f"loop {10**18 - 1} {{"),
        "steps, after 0 of other groups; a plan has at most",
    ),
    "a loop without end": (step("loop", lambda line: f"loop {1 << 300} {{"), "numbers below 10**18"),
    "bytes without end": (
        step("load", lambda line: line.replace(" ->", f"{9**99} ->")),
        "numbers below 10**18",
    ),
    "no step at all": (step("load", lambda line: line.replace("load", "lode")), "line 1: found 'lode"),
    "a group of nobody": (lambda p: p["groups"][3].update(nodes=["nobody"]), "'nobody' is not an operator"),
    "totals without end": (
        lambda p: p["totals"].update(dram_bytes=10**400),
        "not JSON: found a number of 401 digits",
    ),
    "markup for a name": (
        lambda p: p["model"].update(name="[red]m[/]"),
        "plan.json: model.name: found '[red]m[/]'; accepted: a plain name",
    ),
    "another model": (
        lambda p: p["model"].update(sha256="0" * 64),
        "the plan was made for 0000000000000000...",
    ),
    "a model elsewhere": (lambda p: p["model"].update(onnx="../m.onnx"), "a file name without folders"),
    "a chip that cannot be": (lambda p: p["hardware"].update(mac_rows=0), "hardware.mac_rows: found 0"),
    "energy below nothing": (
        lambda p: p["hardware"]["energy"].update(mac_pj=-1),
        "hardware.energy.mac_pj: found -1",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_hostile_plan_is_one_clear_line_and_exit_code_2(lfopt, other, case):
    change, said = WRONG[case]
    done = lfopt("simulate", other(change), check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


OPTIONS = {
    "no such group": (("--group", "99"), "--group: found 99; accepted: a group of the plan, 0 to"),
    "a group below 0": (("--group", "-1"), "--group: found -1"),
    "nothing to list": (("--top", "0"), "--top: found 0"),
    "no number": (("--top", "many"), "--top"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_a_wrong_option_is_refused(lfopt, folder, case):
    arguments, said = OPTIONS[case]
    done = lfopt("simulate", folder, *arguments, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_plan_that_is_not_there_is_one_line(lfopt):
    done = lfopt("simulate", "nowhere", check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("lfopt: nowhere")
