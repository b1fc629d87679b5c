"""`lfopt hw fit`: parameters of a chip from measured layers, hostile tables, and the file that is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from lfopt.app.chip_files import with_fields
from lfopt.app.config import find_hardware, load_hardware, validate
from lfopt.app.fitting import Fit, fit, mean_error, schedules_of, worst_error
from lfopt.app.layers import LayerShape, layer_network, one_operator
from lfopt.app.measured import MeasuredLayer, read_measured
from lfopt.app.pipeline import load_network
from lfopt.ir import Energy, Graph, Hardware, InvalidConfig
from lfopt.ops import Dataflow
from simulator.model.meter import Meter
from tests.app.conftest import refused
from tests.app.small_network import small_network

CHIP = replace(load_hardware(find_hardware("accelerator_256k")), buffer_bytes=64 << 10)
SHAPES = (
    LayerShape("conv", 3, 16, 64, 64, (3, 3), 2, 1),
    LayerShape("conv", 16, 32, 14, 14, (3, 3), 1, 1),
    LayerShape("conv", 64, 64, 14, 14),
    LayerShape("conv", 128, 32, 7, 7),
    LayerShape("conv", 64, 64, 7, 7, (3, 3), 1, 1),
    LayerShape("dwconv", 64, 64, 28, 28, (3, 3), 1, 1, 64),
    LayerShape("dwconv", 32, 32, 14, 14, (5, 5), 2, 2, 32),
    LayerShape("gemm", 128, 100),
    LayerShape("gemm", 64, 64, 16),
)
SHAPED = "layer,kind,in_channels,out_channels,height,kernel,padding,cycles\n"
ROW = "a,conv,16,16,8,3,1,1105\n"


def measured_on(chip: Hardware, shapes: Sequence[LayerShape], noise: float = 0.0) -> list[MeasuredLayer]:
    """What layers take on a chip, by the model, off by so much."""
    rng = np.random.default_rng(0)
    layers: list[MeasuredLayer] = []
    for k, shape in enumerate(shapes):
        layer = MeasuredLayer(f"layer{k}", layer_network(shape, f"layer{k}", quantized=True), None, None)
        flow = Dataflow.of(layer.graph)
        (schedule,) = schedules_of([layer], [flow], chip)
        figures = Meter(flow, chip).figures(*schedule)
        errors = 1 + noise * rng.standard_normal(2)
        layers.append(
            layer._replace(cycles=figures.cycles * errors[0], energy_pj=figures.energy_pj * errors[1])
        )
    return layers


def deviations(fitted: Fit) -> dict[str, float | None]:
    return {one.parameter.field: one.deviation for one in fitted.parameters}


@pytest.mark.parametrize(("noise", "error"), [(0.0, 0.002), (0.03, 0.06)])
def test_a_fit_finds_the_parameters_that_layers_were_measured_with(noise: float, error: float) -> None:
    truth = replace(
        CHIP,
        dram_bytes_per_second=1_700_000_000,
        port_latency=90,
        mac_utilization=0.8,
        energy=Energy(dram_byte_pj=90, buffer_byte_pj=3, mac_pj=0.7, cycle_pj=300),
    )
    chip, fits = fit(measured_on(truth, SHAPES, noise), CHIP)
    assert [one.quantity for one in fits] == ["cycles", "energy"]
    assert chip.mac_utilization == pytest.approx(0.8, rel=error)
    assert chip.dram_bytes_per_second == pytest.approx(1.7e9, rel=2 * error)
    assert chip.port_latency == pytest.approx(90, rel=0.01 + 2 * error)
    assert chip.energy.cycle_pj == pytest.approx(300, rel=0.1 + 2 * error)
    for one in fits:
        assert mean_error(one.errors(one.before)) > 0.1
        assert worst_error(one.errors(one.after)) <= 2.5 * noise + 0.01
        # a layer is predicted from the others nearly as well as with itself
        assert mean_error(one.errors(one.left_out)) <= 2.5 * mean_error(one.errors(one.after)) + 0.005


def test_what_layers_do_not_determine_stays_as_it_is() -> None:
    """Layers of one size are all slower by the same: one parameter says it, which of them is not known."""
    layers = measured_on(replace(CHIP, mac_utilization=0.5), [SHAPES[1]] * 5, 0.01)
    chip, (fitted,) = fit([layer._replace(energy_pj=None) for layer in layers], CHIP)
    known = [one for one in fitted.parameters if one.deviation is not None]
    left = [one for one in fitted.parameters if one.deviation is None]
    assert len(known) == 1
    assert [one.after for one in left] == [one.before for one in left]
    assert chip != CHIP
    assert mean_error(fitted.errors(fitted.after)) < 0.02


def test_a_fit_that_predicts_no_other_layer_better_is_rejected() -> None:
    """Of a chip that is described as it is, what is measured is off by chance alone."""
    off = np.exp(0.3 * np.random.default_rng(0).standard_normal(len(SHAPES)))
    layers = [
        layer._replace(cycles=(layer.cycles or 0) * by, energy_pj=None)
        for layer, by in zip(measured_on(CHIP, SHAPES), off, strict=True)
    ]
    chip, (fitted,) = fit(layers, CHIP)
    assert chip == CHIP
    assert fitted.after == fitted.left_out == fitted.before
    assert all(one.deviation is None for one in fitted.parameters)


@pytest.mark.parametrize("seed", [1, 4, 8, 10])
def test_a_fit_finds_its_way_from_any_guess(seed: int) -> None:
    """Also from where nothing changes with a parameter: DRAM that is faster than the port."""
    rng = np.random.default_rng(seed)

    def guessed() -> Hardware:
        return replace(
            CHIP,
            dram_bytes_per_second=int(10 ** rng.uniform(8.6, 9.8)),
            port_latency=int(rng.integers(10, 400)),
            start_cycles=int(rng.integers(0, 100)),
            mac_utilization=float(rng.uniform(0.3, 1)),
        )

    layers = [layer._replace(energy_pj=None) for layer in measured_on(guessed(), SHAPES, 0.02)]
    _, (fitted,) = fit(layers, guessed())
    assert mean_error(fitted.errors(fitted.before)) > 0.2
    assert mean_error(fitted.errors(fitted.after)) < 0.03


def test_fewer_layers_than_parameters_are_fitted_by_fewer() -> None:
    chip, (fitted,) = fit([measured_on(CHIP, SHAPES[:1])[0]._replace(energy_pj=None)], CHIP)
    assert chip == CHIP
    assert all(one.deviation is None for one in fitted.parameters)
    assert fitted.errors(fitted.after) == [0.0]


def test_energy_without_dram_leaves_that_of_dram_as_it_is() -> None:
    """Also where a byte of the buffer goes by that of DRAM."""
    layers: list[MeasuredLayer] = []
    truth = replace(CHIP, energy=replace(CHIP.energy, mac_pj=2, buffer_byte_pj=CHIP.buffer_byte_pj))
    for layer in measured_on(CHIP, SHAPES):
        flow = Dataflow.of(layer.graph)
        ((_, steps),) = schedules_of([layer], [flow], CHIP)
        use = Meter(flow, truth).energy(steps)
        layers.append(layer._replace(cycles=None, energy_pj=use.total_pj - use.dram_pj))
    chip, (fitted,) = fit(layers, CHIP, dram=False)
    assert chip.buffer_byte_pj == pytest.approx(CHIP.buffer_byte_pj, rel=0.05)
    assert "energy.dram_byte_pj" not in deviations(fitted)
    assert chip.energy.pj_per_dram_byte == CHIP.energy.pj_per_dram_byte
    assert chip.energy.mac_pj == pytest.approx(2, rel=0.05)


def test_an_operator_of_a_network_is_a_network_of_its_own(tmp_path: Path) -> None:
    graph = load_network(str(small_network(tmp_path / "small.onnx")), None, "default", weights=False)
    (operator,) = one_operator(graph, "conv2").operators
    assert (operator.name, operator.kind) == ("conv2", "Conv")
    table = tmp_path / "measured.csv"
    table.write_text("# measured yesterday\nmodel,layer,ms,power_mw\nsmall.onnx,conv2,0.5,200\n")
    (layer,) = read_measured(table, 200_000_000, quantized=False)
    assert (layer.cycles, layer.energy_pj) == (100_000, pytest.approx(100e6))
    assert isinstance(layer.graph, Graph)


@pytest.mark.parametrize(
    ("shape", "size", "macs"),
    [
        (LayerShape("conv", 3, 96, 227, 227, (11, 11), 4), (55, 55), 3 * 96 * 121 * 55 * 55),
        (LayerShape("conv", 96, 256, 31, 31, (5, 5), groups=2), (27, 27), 48 * 256 * 25 * 27 * 27),
        (LayerShape("dwconv", 8, 8, 9, 7, (3, 5), 2, 1, 8), (5, 3), 8 * 15 * 15),
        (LayerShape("gemm", 64, 32, 5, batch=2), (5, 1), 64 * 32 * 10),
    ],
)
def test_a_layer_has_the_size_and_the_products_of_its_shape(
    shape: LayerShape, size: tuple[int, int], macs: int
) -> None:
    shape.check()
    assert shape.out_size == size
    assert sum(Dataflow.of(layer_network(shape, "layer", quantized=False)).macs) == macs


TABLES = (  # (table, what its one line says)
    ("", "found no rows"),
    ("# nothing\n", "found no rows"),
    (SHAPED, "found 0 layers; accepted: from 1"),
    ("layer,cycels\na,1\n", "line 1: found column 'cycels'; accepted: layer, model"),
    ("layer,cycles,cycles\na,1,1\n", "found column 'cycles' twice"),
    ("kind,cycles\nconv,1\n", "found no column layer"),
    ("layer,kind\na,conv\n", "found no measurements; accepted: columns cycles"),
    ("layer,cycles,ms\na,1,1\n", "found cycles beside ms"),
    ("layer,power_mw\na,1\n", "found power_mw alone"),
    (SHAPED + "a,conv,16\n", "line 2: found 3 cells; accepted: 8"),
    (SHAPED + ROW + ROW, "line 3: layer: found 'a'; accepted: layers of different names: line 2"),
    (SHAPED + ROW.replace("a,", ",", 1), "line 2: layer: found nothing"),
    (SHAPED + ROW.replace("a,", "a\x1b[31m,", 1), "layer: found "),
    (SHAPED + ROW.replace("conv", "pool"), "line 2: kind: found 'pool'; accepted: conv, dwconv, gemm"),
    (SHAPED + ROW.replace("16,16", "-16,16"), "in_channels: found '-16'; accepted: a whole number from 1"),
    (SHAPED + ROW.replace("16,16", "16,1e9"), "out_channels: found '1e9'"),
    (SHAPED + ROW.replace("16,16", "16,\u0661"), "out_channels: found"),
    (SHAPED + ROW.replace(",3,1,", ",3x,1,"), "kernel: found '3x'; accepted: a size such as 3, or 1x7"),
    (SHAPED + ROW.replace(",3,1,", ",33,1,"), "kernel: found 33x33 on 8 x 8 with padding 1"),
    (SHAPED + ROW.replace("1105", "0"), "cycles: found '0'; accepted: a number above 0"),
    (SHAPED + ROW.replace("1105", "-4"), "cycles: found '-4'"),
    (SHAPED + ROW.replace("1105", "nan"), "cycles: found 'nan'"),
    (SHAPED + ROW.replace("1105", "inf"), "cycles: found 'inf'"),
    (SHAPED + ROW.replace("1105", "1_105"), "cycles: found '1_105'"),
    (SHAPED + ROW.replace("1105", "many"), "cycles: found 'many'"),
    (SHAPED + ROW.replace("1105", ""), "line 2: found no measurement"),
    (SHAPED + ROW.replace("16,16,8", "1048576,1048576,8"), "elements; accepted: up to 2^32"),
    (SHAPED + "a,gemm,16,16,8,3,0,9\n", "kind: found gemm with a width, kernel"),
    ("layer,model,cycles\na,nowhere.onnx,1\n", "line 2: model: "),
    ("layer,model,cycles\na,zoo:nothing,1\n", "line 2: model: "),
    ("layer,model,kind,cycles\na,zoo:fsrcnn,conv,1\n", "kind: found 'conv'; accepted: no shape beside"),
    ("layer,model,cycles\na,zoo:fsrcnn,1\n", "layer: found 'a'; accepted: an operator of zoo:fsrcnn"),
    ('layer,cycles\n"a,1\n', "found no CSV in UTF-8"),
    (SHAPED + "".join(f"a{k},conv,16,16,8,3,1,9\n" for k in range(600)), "found 600 layers; accepted: from"),
)


@pytest.mark.parametrize(("table", "says"), TABLES, ids=range(len(TABLES)))
def test_a_table_that_is_wrong_is_refused_in_a_line(table: str, says: str, tmp_path: Path, here: Any) -> None:
    path = tmp_path / "measured.csv"
    path.write_text(table)
    line = refused(here("hw", "fit", "accelerator_256k", path))
    assert says in line
    assert str(path) in line
    assert "\x1b" not in line


def test_files_that_are_none_are_refused_in_a_line(tmp_path: Path, here: Any) -> None:
    table = tmp_path / "measured.csv"
    assert "measured.csv" in refused(here("hw", "fit", "accelerator_256k", table))
    table.write_bytes(b"\xff\xfe\x00")
    assert "found no CSV in UTF-8" in refused(here("hw", "fit", "accelerator_256k", table))
    table.write_bytes(b"#" * (1 << 21))
    assert "found more than" in refused(here("hw", "fit", "accelerator_256k", table))
    assert "found a folder" in refused(here("hw", "fit", "accelerator_256k", tmp_path))
    table.write_text(SHAPED + ROW)
    chip = tmp_path / "chip.yaml"
    chip.write_text("buffer_bytes: 64KiB\nport_latency: -1\n")
    assert "port_latency: found -1" in refused(here("hw", "fit", chip, table))
    assert "--out" in refused(here("hw", "fit", "accelerator_256k", table, "--out", tmp_path))
    chip.write_text("buffer_bytes: 8\n")
    assert "layer 'a': found no steps" in refused(here("hw", "fit", chip, table))


def test_the_screen_is_80_columns_and_the_file_is_a_chip_with_its_comments(
    tmp_path: Path, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    table = tmp_path / "measured.csv"
    long = "a_layer_of_a_long_name_that_fills_nearly_all_of_a_line"
    table.write_text(
        "layer,kind,in_channels,out_channels,height,kernel,padding,cycles,energy_uj\n"
        f"{long},conv,16,16,64,3,1,123456,1234567\n[red]b,conv,16,32,32,3,1,61234,600000.5\n"
        "c,conv,64,64,16,1,0,30000,300000\n"
    )
    chip, fitted = tmp_path / "chip.yaml", tmp_path / "fitted.yaml"
    chip.write_text(
        "# a chip\nname: mine\nbuffer_bytes: 64KiB  # by its manual\nelement_bytes: 1\nmac_utilization: 70%\n"
    )
    done = here("hw", "fit", chip, table, "--out", fitted)
    assert done.returncode == 0
    *lines, written = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert written == f"wrote {fitted}"  # the name of a file is not broken
    assert "[red]b" in done.stdout
    text = fitted.read_text()
    assert "# a chip\n" in text
    assert "buffer_bytes: 64KiB  # by its manual\n" in text
    hardware = load_hardware(fitted)
    assert hardware.name == "mine-fitted"
    assert "lfopt hw fit to measured.csv: cycles" in hardware.source
    assert here("hw", "check", fitted).returncode == 0
    data = json.loads(here("hw", "fit", chip, table, "--json").stdout)
    assert data["schema"] == "lfopt.hw.fit/1"
    assert [one["quantity"] for one in data["fits"]] == ["cycles", "energy"]


AFTER = replace(
    CHIP,
    name="other",
    port_latency=7,
    mac_utilization=0.5,
    energy=replace(CHIP.energy, mac_pj=0.4, cycle_pj=12.5),
)


@pytest.mark.parametrize("written", ["as lines", "table in a line", "all in a line"])
def test_a_file_is_edited_line_by_line_or_written_anew(written: str) -> None:
    before = find_hardware("accelerator_256k").read_text().replace("256KiB", "64KiB", 1)
    if written == "table in a line":
        table = yaml.safe_load(before)["energy"]
        before = before.partition("energy:")[0] + f"energy: {json.dumps(table)}\n"
    elif written == "all in a line":
        before = json.dumps(yaml.safe_load(before))
    after = replace(AFTER, source=CHIP.source)
    text, kept = with_fields(before, CHIP, after, {"port_latency": "fitted"})
    assert validate(Hardware, yaml.safe_load(text), "text") == after
    assert "port_latency: 7  # fitted" in text
    assert kept == (written == "as lines")
    assert ("# input channels" in text) == (written == "as lines")


def test_use_of_the_array_and_energy_of_cycles_count_in_the_model() -> None:
    layer = measured_on(CHIP, SHAPES[4:5])[0]
    flow = Dataflow.of(layer.graph)
    (schedule,) = schedules_of([layer], [flow], CHIP)
    half = replace(CHIP, mac_utilization=0.5)
    on = replace(CHIP, energy=replace(CHIP.energy, cycle_pj=10))
    figures, slower, dearer = (Meter(flow, chip).figures(*schedule) for chip in (CHIP, half, on))
    busy, waiting = (Meter(flow, chip).computing(schedule[1]) for chip in (CHIP, half))
    assert waiting == pytest.approx(2 * busy, rel=0.01)
    assert figures.cycles < slower.cycles <= 2 * figures.cycles
    assert slower.energy_pj == figures.energy_pj
    assert dearer.energy_pj == pytest.approx(figures.energy_pj + 10 * figures.cycles, abs=1)
    least = Meter(flow, half).least(0)
    assert Meter(flow, CHIP).least(0).cycles <= least.cycles <= slower.cycles
    with pytest.raises(InvalidConfig, match=r"mac_utilization: found 0; accepted: a share from 0\.01 to 1"):
        Hardware(1024, mac_utilization=0)
