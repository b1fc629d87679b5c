"""`lfopt hw`: chips listed, shown and checked; numbers with units, as the schema has them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codegen.accel.encode import check as check_plan
from codegen.source import Unsupported
from lfopt.app.chips import FOLDER, energy_fields, figures, hardware_fields, installed, judge
from lfopt.app.config import load_hardware, validate
from lfopt.app.pipeline import load_network
from lfopt.app.plans import make_draft
from lfopt.ir import Energy, FusionScheme, Graph, Hardware, InvalidConfig, Plan
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, Traffic
from lfopt.planning import plan as plan_scheme
from search.exact import solve
from simulator.model.simulate import simulate
from tests.app.conftest import refused
from tests.app.test_schema import valid
from tests.strategies import random_graph

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked")
WRITTEN = (  # (field, as written, value)
    ("buffer_bytes", "256KiB", 262144),
    ("buffer_bytes", 1e6, 1_000_000),
    ("buffer_bytes", "unlimited", 1 << 40),
    ("clock_hz", "800MHz", 800_000_000),
    ("clock_hz", "1 GHz", 1_000_000_000),
    ("clock_hz", 800e6, 800_000_000),
    ("clock_hz", "0.8e9", 800_000_000),
    ("mac_rows", 16.0, 16),
    ("weight_bytes", None, None),
    ("weight_bits", 4, 4),
    ("weight_bits", "4b", 4),
    ("dram_bytes_per_second", "12.8GB/s", 12_800_000_000),
    ("dram_bytes_per_second", "30GiB/s", 30 << 30),
    ("energy", {"dram_pj_per_bit": "20pJ/bit"}, Energy(dram_pj_per_bit=20)),
    ("weight_bits", "4 bits", 4),
    ("byte_slack", "0.1%", 0.001),
    ("mac_utilization", "85%", 0.85),
    ("energy", {"dram_byte_pj": "1.3nJ"}, Energy(dram_byte_pj=1300)),
)
AMBIGUOUS = (  # (field, as written, what the line says)
    ("buffer_bytes", "64KB", "256KiB"),
    ("buffer_bytes", "4b", "bits"),
    ("clock_hz", "800mhz", "MHz"),
    ("clock_hz", "800M", "MHz"),
    ("clock_hz", "1_000", "Hz"),
    ("clock_hz", "0.5Hz", "whole number"),
    ("weight_bytes", 0.5, "whole bytes"),
    ("weight_bits", "4B", "4 bits"),
    ("weight_bits", 65, "from 1 to 64"),
    ("dram_bytes_per_second", "12Gb/s", "12.8GB/s"),
    ("energy", {"dram_byte_pj": 160, "dram_pj_per_bit": 20}, "one of them"),
    ("mac_rows", "16", "whole number"),
    ("mac_utilization", 0, "a share from 0.01 to 1"),
    ("mac_utilization", "120%", "a share from 0.01 to 1"),
    ("mac_rows", True, "whole number"),
    ("energy", {"mac_pj": "3J"}, "fJ, pJ, nJ"),
    ("source", "x" * 1001, "1000 characters"),
)


@pytest.mark.parametrize(("field", "written", "value"), WRITTEN)
def test_numbers_have_units_in_files_and_in_the_api(field: str, written: Any, value: Any) -> None:
    data = {"buffer_bytes": 1024, field: written}
    assert getattr(validate(Hardware, data, "here"), field) == value
    assert valid("hardware", data) == ""
    if field != "energy":
        assert getattr(Hardware(**data), field) == value


@pytest.mark.parametrize(("field", "written", "says"), AMBIGUOUS)
def test_what_is_ambiguous_is_refused_in_a_line(field: str, written: Any, says: str) -> None:
    data = {"buffer_bytes": 1024, field: written}
    with pytest.raises(InvalidConfig, match=says):
        validate(Hardware, data, "here")
    if field != "energy":
        with pytest.raises(InvalidConfig, match=says):
            Hardware(**data)


def test_a_weight_has_bytes_or_bits() -> None:
    with pytest.raises(
        InvalidConfig, match="weight_bits: found 4 beside weight_bytes 1; accepted: one of them"
    ):
        validate(Hardware, {"buffer_bytes": 1024, "weight_bytes": 1, "weight_bits": 4}, "here")
    plan = plan_of(
        Hardware(
            1 << 16,
            element_bytes=1,
            weight_bits=4,
            bias_bytes=4,
            dram_row_align=16,
            channel_align=16,
            constant_align=16,
        )
    )
    with pytest.raises(Unsupported, match="weight_bits: found 4; the accelerator has 8"):
        check_plan(*plan)


@pytest.mark.parametrize("written", [-1, 1.5, True, None, "64KB", "many", 1 << 41, [1]])
def test_a_weight_buffer_of_no_size_is_refused_in_a_line(written: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"weight_buffer_bytes: found .*; accepted: ") as caught:
        validate(Hardware, {"buffer_bytes": 1024, "weight_buffer_bytes": written}, "here")
    assert "\n" not in str(caught.value)


def test_who_knows_one_buffer_alone_says_so() -> None:
    chip = Hardware(
        64 << 10,
        element_bytes=1,
        weight_buffer_bytes=16 << 10,
        bias_bytes=4,
        dram_row_align=16,
        channel_align=16,
        constant_align=16,
    )
    with pytest.raises(Unsupported, match="weight_buffer_bytes: found 16384; the accelerator has 0"):
        check_plan(*plan_of(chip))
    with pytest.raises(
        InvalidConfig, match=r"weight_buffer_bytes 16384: accepted: 0, the paper has one buffer"
    ):
        GroupCosts.of(random_graph(np.random.default_rng(1), 3), chip, Traffic.PAPER)


def plan_of(hardware: Hardware) -> tuple[Plan, Graph]:
    """Of a small network, operator by operator."""
    graph = random_graph(np.random.default_rng(1), 3)
    plan = plan_scheme(
        graph, FusionScheme(tuple((operator.name,) for operator in Dataflow.of(graph).operators)), hardware
    )
    assert isinstance(plan, Plan)
    return plan, graph


def test_installed_chips_are_listed_by_the_names_that_hardware_takes(here: Any) -> None:
    data = json.loads(here("hw", "list", "--json").stdout)
    assert data["schema"] == "lfopt.hw.list/1"
    assert [chip["chip"] for chip in data["chips"]] == [name for name, _ in installed()]
    printed = here("hw", "list").stdout
    assert all(name in printed for name, _ in installed())


def test_a_chip_is_shown_with_every_field_and_what_follows(here: Any) -> None:
    data = json.loads(here("hw", "show", "accelerator_256k", "--json").stdout)
    assert validate(Hardware, data["hardware"], "here") == load_hardware(Path(data["file"]))
    assert "buffer_bytes" in data["given"]
    assert "energy.buffer_byte_pj" in data["given"]
    peak, port, _, ridge, *_ = data["figures"]
    assert (peak["value"], port["value"], ridge["value"]) == (16 * 16 * 200e6, 16 * 200e6, 16)
    printed = here("hw", "show", "accelerator_256k").stdout
    assert [
        field.name
        for field in (*hardware_fields(), *energy_fields())
        if field.name not in ("name", "source", "energy") and field.name not in printed
    ] == []
    assert "51.2" in printed
    assert "did you mean accelerator_256k.yaml" in refused(here("hw", "show", "acelerator_256k"))


@pytest.mark.parametrize("name", [name for name, _ in installed()])
def test_an_installed_chip_says_where_it_is_from_and_plans_a_network(name: str, small: Graph) -> None:
    """SqueezeNet at 40 x 40, every operator checked, moved as planned, and timed."""
    judged = judge(FOLDER / f"{name}.yaml")
    assert judged.problems == ()
    assert [line for line in judged.notes if line.startswith("source")] == []
    assert judged.hardware is not None
    costs = GroupCosts.of(small, judged.hardware, scheme="lbdf")
    plan = make_draft(small, costs, solve(costs), 0).finished()
    report = simulate(plan, small)
    assert report.disagreements == ()
    assert report.dram.total == plan.totals.dram_bytes >= plan.totals.compulsory_bytes
    assert report.cycles.total >= report.macs / (judged.hardware.mac_rows * judged.hardware.mac_columns)


def test_an_array_that_waits_and_cycles_that_cost_energy_count_in_reports(small: Graph) -> None:
    chip = Hardware(64 << 10, element_bytes=1, mac_utilization=0.5, energy=Energy(cycle_pj=10))
    plain = Hardware(64 << 10, element_bytes=1)
    costs = GroupCosts.of(small, plain, scheme="lbdf")
    plan = make_draft(small, costs, solve(costs), 0).finished()
    before, after = (simulate(replace(plan, hardware=hardware), small) for hardware in (plain, chip))
    assert 1.5 * before.cycles.compute < after.cycles.compute <= 2 * before.cycles.compute
    assert before.energy.cycle_pj == 0
    assert after.energy.cycle_pj == pytest.approx(10 * after.cycles.total)
    assert after.energy.total_pj == pytest.approx(before.energy.total_pj + after.energy.cycle_pj)


@pytest.fixture(scope="module")
def small() -> Graph:
    return load_network("zoo:squeezenet1_1", {"image": (1, 3, 40, 40)}, "default", weights=False)


def test_peaks_of_installed_chips_are_those_that_their_makers_give() -> None:
    peaks = {name: next(figures(chip)).value for name, chip in installed()}
    assert peaks["ethos_u55_256"] == 256 * 500e6
    assert peaks["ethos_u65_512"] == 512 * 1e9
    assert peaks["ethos_u85_2048"] == 2048 * 1e9
    assert peaks["eyeriss"] == 168 * 200e6
    assert 2 * peaks["tpu_v1"] == pytest.approx(92e12, rel=0.01)


def test_figures_of_a_chip_that_says_little_are_those_of_the_defaults() -> None:
    assert [figure.value for figure in figures(Hardware(1 << 17))][:2] == [256e9, 16e9]


def test_fields_are_those_of_the_documentation(here: Any) -> None:
    data = json.loads(here("hw", "fields", "--json").stdout)
    assert [field["name"] for field in data["fields"]] == [*Hardware.__dataclass_fields__]
    assert {field["name"]: field["unit"] for field in data["fields"]}["clock_hz"] == "Hz"
    assert "buffer_bytes" in here("hw", "fields").stdout


def test_every_problem_of_a_file_is_told_at_once(here: Any, tmp_path: Path) -> None:
    file = tmp_path / "[bold]chip.yaml"
    file.write_text("buffer_bytes: 64 KB\nmac_rowz: 16\nstart_cycles: -1\nenergy: {mac_pj: -1, x: 1}\n")
    done = here("hw", "check", file)
    assert done.returncode == 1
    lines = [line for line in done.stdout.splitlines() if line.startswith("problem ")]
    assert [line.split()[1] for line in lines] == [
        "buffer_bytes:",
        "mac_rowz:",
        "start_cycles:",
        "energy.mac_pj:",
        "energy.x:",
    ]
    assert "5 problems" in done.stdout
    data = json.loads(here("hw", "check", file, "--json").stdout)
    assert (data["ok"], data["hardware"], len(data["problems"])) == (False, None, 5)


def test_what_is_unusual_or_assumed_is_noted(here: Any, tmp_path: Path) -> None:
    file = tmp_path / "chip.yaml"
    file.write_text("buffer_bytes: 1000\nport_bytes: 12\nclock_hz: 1kHz\nsource: a guess\n")
    done = here("hw", "check", file)
    assert done.returncode == 0
    for said in ("ok", "very small", "no power of two", "clock_hz: 1,000 Hz", "cycles are a guess"):
        assert said in done.stdout
    assert "does not say where" not in done.stdout
    file.write_text("element_bytes: 2\n")
    assert "buffer_bytes: missing" in here("hw", "check", file).stdout
