"""`lfopt pareto`: what it prints and writes, what it refuses."""

from __future__ import annotations

import csv
import json
import re
import signal
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

import lfopt
from lfopt.app import front as computed
from lfopt.app.front_files import COLUMNS, as_data, as_svg
from lfopt.app.report.front import page_of
from tests.app.pages import HOSTILE, Tags, hostile_model

MODEL = "zoo:fsrcnn"
SMALL = ("--input-shape", "image=1,1,12,16", "--hardware", "accelerator_256k.yaml", "--budget", "10")


@pytest.fixture(scope="module")
def front() -> lfopt.Front:
    graph = lfopt.simplify(lfopt.load(MODEL, {"image": (1, 1, 12, 16)}, weights=False))
    return lfopt.pareto(
        graph,
        hardware="accelerator_256k.yaml",
        buffers=["4KiB", 8192],
        mac_arrays=[(16, 16), "8x8"],
        budget=10,
    )


def test_files_say_what_the_screen_says(here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lfopt.app.screen.out.width", 80, raising=False)
    done = here("pareto", MODEL, *SMALL, "--buffers", "8KiB:16KiB")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80 or "wrote" in max(done.stdout.splitlines(), key=len)
    folder = tmp_path / "runs" / "fsrcnn-pareto"
    assert sorted(path.name for path in folder.iterdir()) == [
        "front.csv",
        "front.html",
        "front.json",
        "front.svg",
    ]
    data = json.loads((folder / "front.json").read_text())
    rows = [*csv.DictReader((folder / "front.csv").open())]
    assert data["schema"] == "lfopt.pareto/1" and tuple(rows[0]) == COLUMNS
    assert [int(row["dram_bytes"]) for row in rows] == [point["dram_bytes"] for point in data["points"]]
    for row in rows:
        assert f"{int(row['dram_bytes']):,}" in done.stdout and f"{int(row['cycles']):,}" in done.stdout
    assert data["minimise"] == ["bytes", "cycles", "energy", "buffer"] and {
        row["dominated"] for row in rows
    } == {"0"}
    assert data["chips_finished"] == data["chips"] == 2
    assert ET.parse(folder / "front.svg").getroot().tag.endswith("svg")


def test_json_goes_to_standard_output_and_dominated_plans_are_marked(here, tmp_path: Path) -> None:
    done = here(
        "pareto",
        MODEL,
        *SMALL,
        "--buffers",
        "8KiB,16KiB",
        "--objectives",
        "bytes",
        "--minimise",
        "bytes",
        "--all",
        "--json",
        "-o",
        tmp_path,
    )
    data = json.loads(done.stdout)
    assert [point["dominated"] for point in data["points"]] == [True, False]
    assert data == json.loads((tmp_path / "front.json").read_text())


def test_the_page_is_one_file_that_asks_for_nothing(front: lfopt.Front) -> None:
    page = page_of(front)
    tags = Tags(page)
    for tag, attributes in tags.elements:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:,")), (tag, name, value)
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
    assert not re.search(
        r"https?://|url\(|@import|\bfetch\(|XMLHttpRequest|WebSocket|innerHTML|\beval\(", page
    )
    data = json.loads(tags.scripts[0])
    assert len(data["points"]) == len(front.efficient)
    for advice in front.advice:
        assert advice.reason in page


def test_names_from_a_model_are_text_and_nothing_else(here, front: lfopt.Front, tmp_path: Path) -> None:
    hostile_model(tmp_path / f"{HOSTILE.replace('/', '')}.onnx")
    (model,) = tmp_path.glob("*.onnx")
    done = here("pareto", model, "--buffers", "64KiB", "--budget", "0", "-o", tmp_path / "o")
    assert done.returncode == 0, done.stderr
    named = replace(front, network=HOSTILE)
    for page, picture in (
        ((tmp_path / "o" / "front.html").read_text(), (tmp_path / "o" / "front.svg").read_text()),
        (page_of(named), as_svg(named)),
    ):
        assert "<img" not in page and "<img" not in picture
        assert page.count("</script") == 2
        ET.fromstring(picture)


def test_assumed_hardware_is_said(here, front: lfopt.Front, tmp_path: Path) -> None:
    options = (
        "--input-shape",
        "image=1,1,12,16",
        "--buffers",
        "8KiB",
        "--objectives",
        "bytes",
        "-o",
        tmp_path,
    )
    assert "assumed: the chip does not say" in " ".join(here("pareto", MODEL, *options).stdout.split())
    assert "assumed" not in page_of(front) and as_data(front)["assumed_hardware"] is False


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--over", "buffer,speed"), "--over: found 'speed'; accepted: buffer, mac_array, objective"),
        (
            ("--over", "buffer", "--mac-arrays", "8x8"),
            "--mac-arrays: found with --over buffer; accepted: mac_array among those, or leave it out",
        ),
        (("--buffers", "1MiB:64KiB"), "--buffers: found '1MiB:64KiB'; accepted: LOW:HIGH"),
        (("--buffers", "64"), "--buffers: found 64, without a unit"),
        (("--buffers", "64KiB,unlimited"), "--buffers: found unlimited; accepted: sizes below it"),
        (("--mac-arrays", "8x0"), "--mac-arrays: found '8x0'; accepted: MAC arrays such as 16x16"),
        (
            ("--objectives", "bytes,speed"),
            "--objectives: found 'speed'; accepted: bytes, cycles, energy, edp",
        ),
        (("--minimise", "cost"), "--minimise: found 'cost'; accepted: bytes, cycles, energy, buffer, area"),
        (("--corners", "2"), "--corners: found 2; accepted: a whole number of at least 3"),
        (("--budget", "-1"), "--budget: found -1; accepted: a whole number of at least 0"),
        (("--time-limit", "0"), "--time-limit: found 0.0; accepted: seconds above 0"),
        (("--scheme", "fast"), "fast"),
    ],
)
def test_wrong_options_are_one_line(here, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    done = here("pareto", MODEL, *options, "-o", tmp_path / "o")
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert done.stderr.startswith("lfopt: ") <= (done.stderr.count("\n") == 1)
    assert not (tmp_path / "o").exists()


def test_python_says_the_same_without_dashes() -> None:
    with pytest.raises(
        lfopt.InvalidConfig, match=r"^mac_arrays: found \(8,\); accepted: MAC arrays such as 16x16"
    ):
        lfopt.pareto(MODEL, mac_arrays=[(8,)])  # type: ignore[list-item]
    with pytest.raises(lfopt.InvalidConfig, match=r"^buffers: found"):
        lfopt.pareto(MODEL, buffers=[2048, 1024])


def test_what_python_gives_can_be_saved(front: lfopt.Front, tmp_path: Path) -> None:
    assert {(p.mac_rows, p.mac_columns) for p in front.points} == {(8, 8), (16, 16)}
    assert front.minimise == ("bytes", "cycles", "energy", "buffer", "area")
    front.save(tmp_path / "o", every=True)
    assert len(json.loads((tmp_path / "o" / "front.json").read_text())["points"]) == len(front.points)


def test_ctrl_c_writes_what_there_is(here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    explore, chips = computed._Chip.explore, []

    def interrupted(self, *given):
        chips.append(self.name)
        if len(chips) == 2:
            signal.raise_signal(signal.SIGINT)
        return explore(self, *given)

    monkeypatch.setattr(computed._Chip, "explore", interrupted)
    done = here("pareto", MODEL, *SMALL, "--buffers", "4KiB:16KiB", "-o", tmp_path / "o")
    assert done.returncode == 130
    assert "interrupted: these are the plans that were found until then" in " ".join(done.stderr.split())
    data = json.loads((tmp_path / "o" / "front.json").read_text())
    assert data["interrupted"] and (data["chips_finished"], data["chips"]) == (1, 3)
    assert {point["buffer_bytes"] for point in data["points"]} == {4096}


def test_scheme_all_computes_again_and_keeps_maps_on_chip() -> None:
    """A front has what searches for bytes and for a balanced plan find, and its gaps are to any plan."""
    graph = lfopt.load("zoo:mobilenet_v2", {"image": (1, 3, 32, 32)}, weights=False)
    chip = lfopt.Hardware(16 << 10, mac_rows=16, mac_columns=16)
    front = lfopt.pareto(graph, hardware=chip, scheme="all", buffers=["16KiB"], budget=0, time_limit=6)
    assert any(point.found == "recomputed" for point in front.points)
    fewest = lfopt.search(graph, hardware=chip, scheme="auto", objective="bytes").plan.totals.dram_bytes
    assert min(point.dram_bytes for point in front.points) < fewest
    for point in front.points:
        assert all(gap is None or gap >= 0 for gap in point.gaps)
    best = {name: gap for point in front.points for name, gap in zip(point.best, point.gaps, strict=True)}
    assert {*best} == {"bytes", "cycles", "energy", "edp"} and None not in best.values()


def test_a_plan_that_cannot_run_beats_none_that_does(here, tmp_path: Path) -> None:
    """In 4 KiB nothing of the last convolution fits: what must move is less than the plan for 8 KiB moves."""
    done = here(
        "pareto",
        MODEL,
        *SMALL[:4],
        "--buffers",
        "4KiB,8KiB",
        "--minimise",
        "bytes",
        "--budget",
        "0",
        "-o",
        tmp_path,
    )
    assert done.returncode == 3
    assert "cannot run: 1 without steps" in " ".join(done.stdout.split())
    points = json.loads((tmp_path / "front.json").read_text())["points"]
    assert {point["buffer_bytes"]: point["without_steps"] for point in points} == {4096: 1, 8192: 0}
    assert {point["proof"] for point in points if point["without_steps"]} == {"none"}
    swept = here("sweep", MODEL, *SMALL[:4], "--buffers", "4KiB:8KiB", "-o", tmp_path)
    assert swept.returncode == 3
    lines = [*csv.DictReader((tmp_path / "staircase.csv").open())]
    assert (lines[0]["without_steps"], lines[-1]["without_steps"]) == ("1", "0")
