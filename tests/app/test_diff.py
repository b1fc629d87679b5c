"""Two plans side by side."""

from __future__ import annotations

import json
import re
from pathlib import Path

import lfopt
from lfopt.app.comparison import compare
from lfopt.app.report.versus import page_of_both
from lfopt.app.results import Planned
from tests.app.pages import Tags, hostile_model

KIB = 1024
MODEL = "zoo:squeezenet1_1"


def planned(kib: int, **options: object) -> Planned:
    """A plan of SqueezeNet with so many KiB of buffer."""
    return lfopt.search(
        MODEL,
        buffer=kib * KIB,
        input_shapes={"image": (1, 3, 64, 64)},
        weights=False,
        **{"scheme": "lbdf", "objective": "bytes", **options},  # type: ignore[arg-type]
    )


def test_what_changes_adds_up_to_what_the_totals_differ_by() -> None:
    one, other = planned(32), planned(64, scheme="auto")
    comparison = compare((one.plan, one.graph), (other.plan, other.graph))
    assert comparison.changed and comparison.same + sum(
        len(changed.before) for changed in comparison.changed
    ) == len(one.plan.groups)
    assert comparison.same + sum(len(changed.after) for changed in comparison.changed) == len(
        other.plan.groups
    )
    assert (
        sum(changed.more_bytes for changed in comparison.changed)
        == other.plan.totals.dram_bytes - one.plan.totals.dram_bytes
    )
    assert sum(changed.more_cycles for changed in comparison.changed) == sum(
        sign * (report.cycles.total + report.overlapped_cycles)
        for sign, report in ((1, comparison.after), (-1, comparison.before))
    )
    for changed in comparison.changed:
        assert (
            {n for g in changed.before for n in g.nodes}
            == {n for g in changed.after for n in g.nodes}
            == {*changed.nodes}
        )
        assert sum(moved.more for moved in changed.tensors) == changed.more_bytes
    assert [name for name, _, _ in comparison.settings] == ["scheme", "hardware.buffer_bytes"]
    assert any(
        unfit.available == 32 * KIB <= unfit.needed
        for changed in comparison.changed
        for unfit in changed.unfit
    )


def test_a_plan_differs_in_nothing_from_itself() -> None:
    one = planned(64)
    comparison = compare((one.plan, one.graph), (one.plan, one.graph))
    assert (comparison.changed, comparison.settings, comparison.same) == ((), (), len(one.plan.groups))


def test_the_command_says_what_changed_and_why(here, lfopt, tmp_path: Path) -> None:
    for kib in (32, 64):
        planned(kib).save(tmp_path / str(kib))
    same = here("diff", tmp_path / "32", tmp_path / "32")
    assert same.returncode == 0 and " alike, 0 changes" in same.stdout
    done = lfopt("diff", tmp_path / "32", tmp_path / "64", "--top", 2, columns=80, check=False)
    assert done.returncode == 1
    assert max(map(len, done.stdout.splitlines()[:25])) <= 80
    assert (
        "hardware.buffer_bytes" in done.stdout
        and "no longer moves" in done.stdout
        and "the other plan's chip has 32,768" in done.stdout
    )
    data = json.loads(here("diff", tmp_path / "32", tmp_path / "64", "--json").stdout)
    assert (
        sum(c["dram_bytes"] for changed in data["changed"] for c in changed["after"])
        <= data["after"]["dram_bytes"]
    )
    refused = here("diff", tmp_path / "32", tmp_path / "nothing")
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1


def test_the_page_of_two_plans_stands_alone_and_says_what_the_terminal_says(here, tmp_path: Path) -> None:
    for kib in (32, 64):
        planned(kib).save(tmp_path / str(kib))
    done = here("diff", tmp_path / "32", tmp_path / "64", "--html", tmp_path / "d.html", "--json")
    data, text = json.loads(done.stdout), (tmp_path / "d.html").read_text()
    tags = Tags(text)
    assert not re.search(
        r"https?://|url\(|@import|\bfetch\(|XMLHttpRequest|WebSocket|innerHTML|\beval\(", text
    )
    assert not any(
        name.startswith("on") or (name in ("src", "href") and not (value or "").startswith(("#", "data:,")))
        for _, a in tags.elements
        for name, value in a.items()
    )
    for side in ("before", "after"):
        assert f"{data[side]['dram_bytes']:,} B" in text
        assert f"{data[side]['cycles']:,}" in text
    numbers = {a["data-change"] for tag, a in tags.elements if tag == "tr" and "data-change" in a}
    assert (
        numbers
        == {a["data-change"] for tag, a in tags.elements if tag == "g" and "data-change" in a}
        == {str(k + 1) for k in range(len(data["changed"]))}
    )
    drawn = [tag for tag, a in tags.elements if tag == "g" and "data-change" in a]
    assert len(drawn) == 2 * sum(len(changed["nodes"]) for changed in data["changed"])
    assert "no longer moves" in text and "the other plan&#39;s chip has 32,768" in text


def test_names_of_models_and_folders_are_text_on_the_page_of_two_plans(tmp_path: Path) -> None:
    hostile_model(tmp_path / "h.onnx")
    one, other = (
        lfopt.search(tmp_path / "h.onnx", buffer=size, epilogue=False, scheme="lbdf", objective="bytes")
        for size in (150, 1 << 20)
    )
    pair = (one.plan, one.graph), (other.plan, other.graph)
    text = page_of_both(compare(*pair), *pair, ("<img src=x>", "\x1b[2J"))
    assert "<img" not in text and "\x1b" not in text
    assert text.count("</script") == 1
    assert "&lt;img" in text
    assert compare(*pair).changed
