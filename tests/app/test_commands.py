"""The command line as a user meets it: results, screens, and one clear line for whatever is wrong."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from lfopt.app.files import read_plan
from lfopt.app.verify import verify
from lfopt.ir import SCHEMA
from tests.conftest import ROOT, run_lfopt


def figures(text: str) -> set[int]:
    """Numbers with thousands separators in a text."""
    return {int(number.replace(",", "")) for number in re.findall(r"\d{1,3}(?:,\d{3})+", text)}


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("b3")
    return run_lfopt(
        folder, "search", "--config", "effnet_b3.yaml", "--method", "exact", "--out", "plan"
    ), folder / "plan"


@pytest.fixture
def b3(searched, tmp_path: Path):
    """What a search says, and a copy of its plan."""
    done, folder = searched
    return done, Path(shutil.copytree(folder, tmp_path / "plan"))


def test_search_certifies_efficientnet_b3_and_check_confirms_every_figure(b3, lfopt):
    done, folder = b3
    assert "optimal" in done.stdout
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["schema"] == SCHEMA
    assert plan["totals"]["proof"] == "optimal"
    assert plan["totals"]["gap"] == 0
    assert plan["totals"]["dram_bytes"] == sum(sum(group["dram"].values()) for group in plan["groups"])
    assert {
        plan["totals"]["dram_bytes"],
        plan["totals"]["layer_by_layer_bytes"],
        plan["totals"]["compulsory_bytes"],
    } <= figures(done.stdout)
    assert len([node for group in plan["groups"] for node in group["nodes"]]) == 385
    recount = lfopt("check", folder)
    assert "every figure holds" in recount.stdout


@pytest.mark.parametrize("columns", [80, 120])
def test_the_screen_of_search_fits_its_terminal(searched, lfopt, columns):
    search = ("search", "--config", "squeezenet1_1.yaml", "--method", "exact", "--out", "o")
    done = searched[0] if columns == 80 else lfopt(*search, columns=columns)
    assert max(len(line) for line in done.stdout.splitlines()) <= columns
    assert len(done.stdout.splitlines()) <= 40
    assert "…," not in done.stdout  # no number is cut


def test_a_plan_with_one_changed_byte_fails_the_check(b3, lfopt):
    _, folder = b3
    file = folder / "plan.json"
    plan = json.loads(file.read_text())
    plan["groups"][3]["dram"]["input"] += 1
    file.write_text(json.dumps(plan))
    done = lfopt("check", file, check=False)
    assert done.returncode == 1
    assert "wrong" in done.stdout
    plan["groups"][3]["dram"]["input"] -= 1
    moved = plan["groups"][3]["nodes"].pop()
    plan["groups"][7]["nodes"].append(moved)
    file.write_text(json.dumps(plan))
    assert lfopt("check", file, check=False).returncode == 1


def test_a_plan_of_another_network_is_not_recounted(lfopt, tmp_path, monkeypatch):
    small = ("zoo:fsrcnn", "--input-shape", "image=1,1,20,24", "--buffer", "8KiB", "--out", "o")
    lfopt("search", *small)
    plan = json.loads((tmp_path / "o" / "plan.json").read_text())
    plan["model"]["sha256"] = "0" * 64
    (tmp_path / "o" / "plan.json").write_text(json.dumps(plan))
    done = lfopt("check", "o", check=False, columns=120)
    assert done.returncode == 1
    assert "the plan was made for 0000000000000000" in done.stdout
    assert "none recounted" in done.stdout
    monkeypatch.setattr("lfopt.app.verify.recount", None)
    assert [line.split(":")[0] for line in verify(tmp_path / "o").wrong] == ["simplified.onnx"]


def test_reference_values_come_out_of_the_command_line(shared_model, lfopt):
    model = shared_model("hf_mobilenet_v2")
    options = (
        model,
        "--buffer",
        "128KiB",
        "--scheme",
        "lbdf",
        "--traffic",
        "once",
        "--epilogue",
        "off",
        "--out",
        "o",
    )
    done = lfopt("search", *options)
    assert {15_148_896, 59_717_728, 7_278_688} <= figures(done.stdout)
    assert "constants have no values" in " ".join(done.stderr.split())


def test_groups_run_in_bands_as_high_as_asked_and_as_fit(here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ("zoo:fsrcnn", "--input-shape", "image=1,1,20,24", "--scheme", "lbdf", "--objective", "bytes")
    band_rows: dict[str, list[int]] = {}
    moved: set[int] = set()
    for rows in ("1", "3", "max"):
        assert here("search", *small, "--band-rows", rows, "--out", rows).returncode == 0
        assert "every figure holds" in here("check", rows).stdout
        plan = read_plan(tmp_path / rows)
        band_rows[rows] = [group.band_rows for group in plan.groups if group.mode == "lbdf"]
        moved.add(plan.totals.dram_bytes)
    assert len(moved) == 1
    assert {*band_rows["1"]} == {1}
    assert max(band_rows["3"]) == 3 < max(band_rows["max"])
    assert all(low <= high for low, high in zip(band_rows["3"], band_rows["max"], strict=True))
    assert here("simulate", "max").returncode == 0
    assert here("report", "max").returncode == 0


@pytest.mark.parametrize("method", ["nsga2", "local", "random"])
def test_the_same_seed_gives_the_same_plan_file(lfopt, tmp_path, method):
    plans = []
    for folder in ("one", "two"):
        lfopt(
            "search",
            "--config",
            "mobilenet_v2.yaml",
            "--method",
            method,
            "--budget",
            "300",
            "--seed",
            "7",
            "--out",
            folder,
        )
        plan = json.loads((tmp_path / folder / "plan.json").read_text())
        del plan["search"]["seconds"]
        plans.append(plan)
    assert plans[0] == plans[1]
    assert plans[0]["totals"]["dram_bytes"] >= plans[0]["totals"]["lower_bound_bytes"]


def test_an_interrupt_leaves_the_best_plan_so_far(tmp_path):
    words = "search --config mobilenet_v2.yaml --method local --budget 100000000 --out o --verbose"
    command = [sys.executable, "-m", "lfopt.app.cli", *words.split()]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        assert any(" local: 1 of 100,000,000 plans" in line for line in running.stderr), "it has begun"
        running.send_signal(signal.SIGINT)
        try:
            output, said = running.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            running.kill()
            raise
    assert running.returncode == 130
    assert "this plan, local" in output
    assert "local was interrupted; the best plan so far is written" in said
    assert (tmp_path / "o" / "plan.json").exists()


def test_inspect_says_what_is_unfusable_and_why(lfopt):
    text = lfopt("inspect", "zoo:mobilenet_v2", "--buffer", "128KiB").stdout
    assert "many-to-many" in text
    assert re.search(r"\d+ operators need 128 KiB or more by themselves", text)
    assert "weights" in text
    everything = lfopt("inspect", "zoo:mobilenet_v2", "--all-operators", columns=120).stdout
    assert len(everything.splitlines()) > 99


def test_sweep_writes_a_falling_staircase_that_agrees_with_search(lfopt, tmp_path):
    lfopt(
        "sweep",
        "zoo:mobilenet_v2",
        "--buffers",
        "96KiB:512KiB",
        "--traffic",
        "once",
        "--epilogue",
        "off",
        "--out",
        "s",
    )
    with (tmp_path / "s" / "staircase.csv").open() as file:
        stairs = [{key: int(value) for key, value in row.items()} for row in csv.DictReader(file)]
    traffic = [row["dram_bytes"] for row in stairs]
    assert traffic == sorted(set(traffic), reverse=True)
    assert [row["buffer_bytes"] for row in stairs] == sorted(row["buffer_bytes"] for row in stairs)
    at = {
        kib: next(row["dram_bytes"] for row in reversed(stairs) if row["buffer_bytes"] <= kib * 1024)
        for kib in (128, 256)
    }
    assert at == {128: 15_148_896, 256: 10_934_112}
    assert (tmp_path / "s" / "staircase.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "s" / "staircase.svg").read_text().startswith("<?xml")


def test_zoo_lists_and_exports(lfopt, tmp_path):
    assert "efficientnet_b3" in lfopt("zoo", "list", columns=120).stdout
    lfopt("zoo", "export", "squeezenet1_1", "-o", "s.onnx")
    lfopt("search", "s.onnx", "--buffer", "128KiB", "--time-limit", "3", "--out", "o")
    assert json.loads((tmp_path / "o" / "plan.json").read_text())["model"]["name"] == "s"


WRONG = {
    "no such option": (("search", "--bufer", "1"), "--bufer"),
    "no such config": (("search", "--config", "efnet_b3.yaml"), "did you mean effnet_b3.yaml"),
    "no model": (("search",), "found neither MODEL nor --config"),
    "no such file": (("search", "nothing.onnx"), "nothing.onnx: no such file"),
    "no such network": (("search", "zoo:efficientnet_b9"), "efficientnet_b"),
    "bad size": (("search", "--config", "effnet_b3.yaml", "--buffer", "lots"), "--buffer: found 'lots'"),
    "bad method": (("search", "--config", "effnet_b3.yaml", "--method", "magic"), "exact"),
    "bad budget": (("search", "--config", "effnet_b3.yaml", "--budget", "0"), "search.budget: found 0"),
    "bad shape": (("inspect", "zoo:vgg16", "--input-shape", "x=1,a"), "--input-shape: found 'x=1,a'"),
    "bad range": (("sweep", "zoo:vgg16", "--buffers", "4MiB:64KiB"), "--buffers"),
    "negative seed": (("search", "--config", "effnet_b3.yaml", "--seed", "-1"), "search.seed: found -1"),
    "no time": (
        ("search", "--config", "effnet_b3.yaml", "--time-limit", "nan"),
        "search.time_limit: found nan",
    ),
    "no time to sweep": (("sweep", "zoo:vgg16", "--time-limit", "0"), "--time-limit: found 0"),
    "empty size": (("search", "zoo:vgg16", "--buffer", ""), "--buffer: found ''"),
    "endless size": (("search", "--config", "effnet_b3.yaml", "--buffer", "9" * 400), "accepted: a size"),
    "bytes or KiB": (
        ("search", "zoo:vgg16", "--buffer", "256"),
        "--buffer: found 256, without a unit: 256 B or 256KiB?",
    ),
    "bytes or KiB, of a list": (
        ("sweep", "zoo:vgg16", "--buffers", "128,256KiB"),
        "--buffers: found 128, without a unit: 128 B or 128KiB?",
    ),
    "bytes or KiB, inspected": (("inspect", "zoo:vgg16", "--buffer", "4095"), "4095 B or 4095KiB?"),
    "bytes or KiB, explained": (("explain", "zoo:vgg16", "--nodes", "a..b", "--buffer", "8"), "8 B or 8KiB?"),
    "no such chip": (
        ("inspect", "zoo:vgg16", "--hardware", "buffer_128.yaml"),
        "did you mean buffer_128k.yaml",
    ),
    "no file name": (("zoo", "export", "fsrcnn", "-o", ""), "a file name"),
    "no staircase": (("sweep", "zoo:vgg16", "--traffic", "paper"), "--traffic paper"),
    "nothing to profile": (
        ("search", "zoo:vgg16", "--buffer", "1MiB", "--method", "tvm", "--profile", "on"),
        "search.profile: found true",
    ),
    "profile of no processor": (
        (
            "search",
            "zoo:unet",
            "--buffer",
            "1MiB",
            "--scheme",
            "lbdf",
            "--method",
            "dnnfusion",
            "--profile",
            "on",
        ),
        "hardware.element_bytes: found 2; generated C accepts",
    ),
    "not a plan": (("check", "pyproject.toml"), "pyproject.toml"),
    "unknown zoo name": (("zoo", "export", "resnet19", "-o", "x.onnx"), "resnet18"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_clear_line_and_exit_code_2(here, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    arguments, said = WRONG[case]
    done = here(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not any(tmp_path.iterdir())


CONFIGS = {
    "model: zoo:vgg16\nhardware: {buffer_bytes: 256KiB}\nserch: {}\n": (
        "serch: unknown field; did you mean 'search'"
    ),
    "model: zoo:vgg16\nhardware: {buffer: 256KiB}\n": (
        "hardware.buffer: unknown field; did you mean 'buffer_bytes'"
    ),
    "model: zoo:vgg16\nhardware: {}\n": "hardware.buffer_bytes: missing",
    "model: zoo:vgg16\nhardware: {buffer_bytes: -3}\n": "hardware",
    "model: zoo:vgg16\nhardware: {buffer_bytes: 1KiB}\nsearch: {budget: many}\n": (
        "search.budget: found 'many'"
    ),
    "model: zoo:vgg16\nhardware: {buffer_bytes: 1KiB}\ntraffic: twice\n": "'tiled', 'once' or 'paper'",
    "model: zoo:vgg16\nhardware: {buffer_bytes: true}\n": "hardware.buffer_bytes: found True",
    "model: zoo:vgg16\nhardware: {buffer_bytes: 1KiB}\nepilogue: 1\n": "epilogue: found 1",
    "model: zoo:vgg16\nhardware: {buffer_bytes: 1KiB}\nsearch: {seed: -1}\n": "search.seed: found -1",
    "model: zoo:vgg16\nhardware: {buffer_bytes: 1KiB}\nband_rows: 0\n": "band_rows: found 0; accepted: a "
    "whole number of at least 1, or max",
    "model: zoo:vgg16\nhardware: {buffer_bytes: 1KiB}\nband_rows: tall\n": "band_rows: found 'tall'; "
    "accepted: a whole number, or max",
    "hardware: {buffer_bytes: 1KiB}\n": "model: missing",
    "model: [\n": "not YAML",
    "- a\n": "accepted: a mapping",
    "model: zoo:vgg16\nhardware: nowhere.yaml\n": "nowhere.yaml: no such file",
}


@pytest.mark.parametrize("text", CONFIGS)
def test_a_wrong_field_is_named_with_its_path_and_what_is_accepted(here, tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(text)
    done = here("search", "--config", "c.yaml")
    assert done.returncode == 2
    assert CONFIGS[text] in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "configs").glob("*.yaml")))
def test_every_installed_config_is_valid(name):
    from lfopt import zoo
    from lfopt.app.config import find_config, load_config

    config = load_config(find_config(name))
    assert config.model.removeprefix("zoo:") in zoo.names()


def test_installed_files_are_found_from_anywhere_by_their_bare_names(tmp_path, monkeypatch):
    from lfopt.app.commands.options import chip
    from lfopt.app.config import InvalidConfig, find_config, load_config

    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text("model: zoo:vgg16\nhardware: accelerator_256k\n")
    installed = chip("accelerator_256k", None, None)
    assert installed == chip("accelerator_256k.yaml", None, None) == load_config(tmp_path / "c.yaml").hardware
    assert installed.mac_rows == 16
    assert find_config("vgg16") == find_config("vgg16.yaml")
    (tmp_path / "accelerator_256k").write_text("buffer_bytes: 1KiB\n")  # what is here comes first
    assert (
        load_config(tmp_path / "c.yaml").hardware.buffer_bytes
        == chip("accelerator_256k", None, None).buffer_bytes
        == 1024
    )
    with pytest.raises(InvalidConfig, match=r"did you mean accelerator_256k\.yaml"):
        chip("accelerator_256", None, None)


def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(lfopt, tmp_path):
    (tmp_path / "o").mkdir()
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); from "
        "lfopt.app.cli import main; main()"
    )
    command = [
        sys.executable,
        "-c",
        code,
        "search",
        "--config",
        "squeezenet1_1.yaml",
        "--method",
        "exact",
        "--out",
        "o",
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not any((tmp_path / "o").iterdir())


def test_names_that_look_like_markup_are_printed_as_plain_text(lfopt, tmp_path):
    lfopt("zoo", "export", "squeezenet1_1", "-o", "[red]m[bold]$_{^$.onnx")
    done = lfopt("search", "[red]m[bold]$_{^$.onnx", "--time-limit", "3", "--out", "o[/red]x")
    assert "%5Bred%5Dm%5Bbold%5D%24_%7B%5E%24: 64 operators" in done.stdout
    assert "o[/red]x/plan.json" in done.stdout
    lfopt("sweep", "[red]m[bold]$_{^$.onnx", "--buffers", "128KiB,256KiB", "--out", "s[/]x")
    assert (tmp_path / "s[/]x" / "staircase.png").exists()


def test_an_unknown_field_inside_a_group_of_a_plan_is_refused(b3, lfopt):
    _, folder = b3
    plan = json.loads((folder / "plan.json").read_text())
    plan["groups"][5]["extra"] = 1
    (folder / "plan.json").write_text(json.dumps(plan))
    done = lfopt("check", folder, check=False)
    assert done.returncode == 2
    assert "groups.5.extra: unknown field" in done.stderr


def parallel(count: int) -> onnx.ModelProto:
    """So many operators reading one input: every subset of them is a group and a state."""
    shape = [1, 4, 8, 8]
    nodes = [onnx.helper.make_node("Relu", ["x"], [f"y{k}"], f"relu{k}") for k in range(count)]
    tensors = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name in ("x", *(f"y{k}" for k in range(count)))
    ]
    graph = onnx.helper.make_graph(nodes, "parallel", tensors[:1], tensors[1:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])


def test_a_sweep_of_too_many_states_to_enumerate_is_searched_size_by_size(lfopt, tmp_path):
    onnx.save(parallel(40), tmp_path / "p.onnx")
    done = lfopt("sweep", "p.onnx", "--buffers", "64KiB:256KiB", "--time-limit", "8", "--out", "s", "--json")
    data = json.loads(done.stdout)
    assert data["unresolved"] == []
    (stair,) = data["stairs"]
    assert stair["buffer_bytes"] == 64 * 1024
    assert stair["dram_bytes"] == stair["lower_bound_bytes"] == data["compulsory_bytes"]


@pytest.mark.parametrize("scheme", ["brr", "patches", "auto", "all"])
def test_a_range_is_swept_in_schemes_whose_bytes_fall_with_the_buffer(lfopt, scheme):
    network = ("zoo:fsrcnn", "--input-shape", "image=1,1,20,24")
    done = lfopt("sweep", *network, "--buffers", "7KiB:8KiB", "--scheme", scheme, "--out", "s", "--json")
    data = json.loads(done.stdout)
    assert data["unresolved"] == []
    assert all(stair["dram_bytes"] == stair["lower_bound_bytes"] for stair in data["stairs"])
    traffic = [stair["dram_bytes"] for stair in data["stairs"]]
    assert traffic == sorted({*traffic}, reverse=True)


def test_a_range_is_swept_on_a_chip_with_a_second_level(lfopt, tmp_path):
    (tmp_path / "chip.yaml").write_text("buffer_bytes: 16KiB\nl2_bytes: 32KiB\n")
    network = ("zoo:fsrcnn", "--input-shape", "image=1,1,20,24")
    arguments = (*network, "--hardware", "chip.yaml", "--out", "s", "--json")
    done = lfopt("sweep", *arguments, "--buffers", "4KiB:24KiB")
    assert "note: not proven, steps may be missing: buffers of" in done.stderr
    swept = json.loads(done.stdout)
    listed = json.loads(lfopt("sweep", *arguments, "--buffers", "4KiB,24KiB").stdout)
    ends = [swept["stairs"][0], swept["stairs"][-1]]
    assert [stair["dram_bytes"] for stair in ends] == [stair["dram_bytes"] for stair in listed["stairs"]]
    moved = [stair["dram_bytes"] for stair in swept["stairs"]]
    assert len({*moved}) > 2
    assert moved == sorted(moved, reverse=True)
    unproven = [stair for stair in swept["stairs"] if stair["dram_bytes"] > stair["lower_bound_bytes"]]
    assert unproven
    assert swept["unresolved"]


def test_where_the_time_ends_before_a_sweep_does_that_is_said_with_the_sizes(lfopt):
    arguments = ("--buffers", "64KiB:256KiB", "--scheme", "auto", "--time-limit", "0.5", "--out", "s")
    done = lfopt("sweep", "zoo:mobilenet_v2", *arguments)
    assert "not proven in the time, steps may be missing: buffers of" in " ".join(done.stderr.split())
    assert "gap" in done.stdout


def test_a_range_that_an_opaque_operator_cannot_fill_is_one_step(tmp_path):
    shape = [1, 8, 256, 256]
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Foo", ["x"], ["y"], "foo", domain="some.domain")],
        "opaque",
        tensors[:1],
        tensors[1:],
    )
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("some.domain", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets), tmp_path / "o.onnx")
    done = run_lfopt(tmp_path, "sweep", "o.onnx", "--buffers", "64KiB:2MiB", "--out", "s", check=False)
    assert done.returncode == 3, done.stderr
    assert "each kept alone and opaque" in " ".join(done.stderr.split())
    assert len((tmp_path / "s" / "staircase.csv").read_text().splitlines()) == 2


def two_operators(kind: str, domain: str = "") -> onnx.ModelProto:
    """A TopK of all of 512 elements, then an operator."""
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["sorted", "places"], "largest", axis=1),
        helper.make_node(kind, ["sorted"], ["y"], "last", domain=domain),
    ]
    ends = [helper.make_tensor_value_info(name, floats, [1, 512]) for name in ("x", "y")]
    count = onnx.numpy_helper.from_array(np.array([512], np.int64), "k")
    opsets = [helper.make_opsetid("", 21), *([helper.make_opsetid(domain, 1)] if domain else [])]
    graph = helper.make_graph(nodes, "two", ends[:1], ends[1:], [count])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    ("kind", "domain", "buffer", "named"),
    [
        ("Relu", "", "1KiB", "the smallest step of TopK in tiles takes"),
        ("Strange", "of.others", "1MiB", "lfopt has no rules for operator Strange"),
    ],
)
def test_a_plan_with_a_group_that_cannot_run_names_it_and_ends_with_3(tmp_path, kind, domain, buffer, named):
    onnx.save(two_operators(kind, domain), tmp_path / "two.onnx")
    done = run_lfopt(tmp_path, "search", "two.onnx", "--buffer", buffer, "-o", "out", check=False)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 3, said
    assert named in said
    assert "cannot run" in said
    assert "optimal" not in said
    assert "100.0 %" not in said
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["totals"]["proof"] == "bound"


def test_a_report_says_that_a_plan_cannot_run(tmp_path):
    onnx.save(two_operators("Strange", "of.others"), tmp_path / "two.onnx")
    run_lfopt(tmp_path, "search", "two.onnx", "--buffer", "1MiB", "-o", "out", check=False)
    report = run_lfopt(tmp_path, "report", "out", "-o", "page.html", "--sweep-seconds", 1, check=False)
    assert report.returncode == 0, report.stderr
    assert "cannot run: 1 group without steps" in (tmp_path / "page.html").read_text()
