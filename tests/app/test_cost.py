"""Partitions that somebody else made, priced and planned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lfopt

MODEL = "zoo:squeezenet1_1"
SMALL = ("--input-shape", "image=1,3,64,64", "--buffer", "64KiB")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_plan_of_lfopt_costs_what_it_says_and_its_plan_holds(here, tmp_path: Path) -> None:
    searched = lfopt.search(
        MODEL,
        buffer="64KiB",
        scheme="auto",
        input_shapes={"image": (1, 3, 64, 64)},
        weights=False,
        objective="bytes",
    )
    searched.save(tmp_path / "made")
    plan = searched.plan
    done = here(
        "cost",
        MODEL,
        *SMALL,
        "--groups",
        tmp_path / "made" / "plan.json",
        "--out",
        tmp_path / "again",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["legal"] and data["dram_bytes"] == plan.totals.dram_bytes
    assert [(*g["nodes"],) for g in data["groups"]] == [group.nodes for group in plan.groups]
    assert here("check", tmp_path / "again").returncode == 0
    assert lfopt.load_plan(tmp_path / "again").plan.totals.dram_bytes == plan.totals.dram_bytes


def test_csv_in_both_shapes_and_json_say_the_same_and_what_is_left_out_runs_alone(
    here, tmp_path: Path
) -> None:
    files = [
        write(tmp_path / "rows.csv", "conv1,conv1.relu,pool1\nfire2.squeeze,fire2.squeeze.relu\n"),
        write(
            tmp_path / "pairs.csv",
            "Node,Group\nconv1,a\nfire2.squeeze,b\nconv1.relu,a\npool1,a\nfire2.squeeze.relu,b\n",
        ),
        write(
            tmp_path / "list.json",
            '{"groups": [["conv1", "conv1.relu", "pool1"], {"nodes": ["fire2.squeeze", '
            '"fire2.squeeze.relu"]}]}',
        ),
    ]
    said = [here("cost", MODEL, *SMALL, "--groups", path, "--json").stdout for path in files]
    assert said[0] == said[1] == said[2]
    data = json.loads(said[0])
    assert [len(group["nodes"]) for group in data["groups"]] == [3, 2, *[1] * 59]
    assert data["dram_bytes"] == sum(group["dram_bytes"] for group in data["groups"])


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ('[["conv1", "pool1"]]', "group 0 is not connected"),
        ('[["conv1", "conv1.relu"], ["conv1"]]', "'conv1' is in group 0 already"),
        ('[["fire2.squeeze.relu", "fire2.expand1x1", "fire2.expand1x1.relu", "fire2.concat"]]', "not convex"),
        ('[["fire2.squeeze", "fire2.concat"], ["fire2.expand1x1"]]', "group 0"),
    ],
)
def test_what_is_illegal_is_said_and_no_plan_is_made(groups: str, said: str, here, tmp_path: Path) -> None:
    done = here(
        "cost", MODEL, *SMALL, "--groups", write(tmp_path / "g.json", groups), "--out", tmp_path / "plan"
    )
    assert (done.returncode, said in done.stdout) == (1, True), done.stdout
    assert not (tmp_path / "plan").exists()


def test_what_does_not_fit_says_how_much_it_needs(here, tmp_path: Path) -> None:
    path = write(tmp_path / "g.json", json.dumps([["fire11.concat", "classifier"]]))
    done = here("cost", MODEL, *SMALL, "--groups", path, "--scheme", "lbdf")
    assert done.returncode == 1
    assert "does not fit" in done.stdout and "there are 65,536" in done.stdout


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("g.json", '[["conv"]]', "group 0: found 'conv', which is no operator"),
        ("g.json", '{"a": 1}', "without groups"),
        ("g.json", "[[1]]", "group 0: found [1]"),
        ("g.json", "[[]]", "group 0: found []"),
        ("g.json", "[", "g.json"),
        ("g.csv", "node,group\nconv1\n", "row 2: found 1 cell"),
        ("g.csv", 'a,"b\n', "no CSV"),
    ],
)
def test_a_wrong_file_of_groups_is_one_line(name: str, text: str, said: str, here, tmp_path: Path) -> None:
    done = here("cost", MODEL, *SMALL, "--groups", write(tmp_path / name, text))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert said in done.stderr


BANDS = """
rows, 4 blocks
  hold conv1.relu
  in turn
    at once: conv1
    at once: conv1.relu
    at once: pool1
"""


def test_a_nest_written_by_hand_becomes_a_plan_that_holds(here, tmp_path: Path) -> None:
    nest = write(tmp_path / "a.nest", BANDS)
    chip = (*SMALL[:2], "--buffer", "256KiB")
    done = here("cost", MODEL, *chip, "--nest", nest, "--out", tmp_path / "bands", "--json")
    assert done.returncode == 0, done.stderr
    group = json.loads(done.stdout)["groups"][0]
    assert group["nodes"] == ["conv1", "conv1.relu", "pool1"] and group["mode"] == "nest"
    plan = lfopt.load_plan(tmp_path / "bands").plan
    assert next(g.dram.total for g in plan.groups if g.mode == "nest") == group["dram_bytes"]
    assert here("check", tmp_path / "bands").returncode == 0
    assert here("execute", tmp_path / "bands").returncode == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BANDS.replace("conv1.relu", "conv2", 1), "a.nest:3: found tensor 'conv2'"),
        # the pool takes slices of channels, and so does not sum over them
        ("in turn\n  channels, 2 blocks, summed by pool1\n    at once: pool1\n", "a.nest:2: found"),
        ("rows, 3 blocks\n  at once: conv1, pool1\n", "not connected"),
    ],
)
def test_a_nest_that_breaks_a_rule_says_where(text: str, said: str, here, tmp_path: Path) -> None:
    done = here("cost", MODEL, *SMALL, "--nest", write(tmp_path / "a.nest", text))
    assert done.returncode in (1, 2) and said in (done.stdout + done.stderr).replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_groups_or_a_nest_must_be_given(here) -> None:
    done = here("cost", MODEL, *SMALL)
    assert done.returncode == 2 and "--groups" in done.stderr and "--nest" in done.stderr
