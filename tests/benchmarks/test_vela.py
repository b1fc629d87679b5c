"""What the benchmark beside Vela reads and writes, without Vela."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks.bench_vela import (
    ACCELERATORS,
    LEGACY,
    NO_BUFFERS,
    NO_CHAINS,
    PLANS,
    Setting,
    VelaReport,
    counted,
    further,
    report,
    settings,
)
from benchmarks.ethos_stream import Named
from benchmarks.tflite import translated
from lfopt.ir import Graph, Operator, Quantization, Tensor

ROOT = Path(__file__).resolve().parents[2]
SETTING = Setting("ethos-u65-512", "Ethos_U65_Mid_End", "Dedicated_Sram", 256, "Performance")
SUMMARY = {
    "sram_memory_used": "247.5", "total_original_weights": "1000", "total_npu_encoded_weights": "900",
    "cycles_total": "7000.0", "dram_total_bytes": "800", "off_chip_flash_total_bytes": "5", "nn_macs": "12",
}  # fmt: skip
DATABASE = """<debug><table name="other">x</table><table name="perf_debug"><![CDATA[
"ifm_shape_n","ifm_shape_c","ifm_shape_h","ifm_shape_w","ifm_memory","DramFeatureMap_read"
1,3,4,6,"Dram",400
1,3,4,6,"Sram",
1,8,2,3,"Dram",100
]]></table></debug>"""
NAMED = Named(
    Counter({("weights", 0): 40, ("copy read", 0): 60, ("map read", 1): 500, ("map read", 2): 900}), macs=12
)
IMAGE = (1, 3, 4, 6)


def vela_report(setting: Setting, **changed: int) -> VelaReport:
    summary = f"{','.join(SUMMARY)}\n{','.join(SUMMARY.values())}\n"
    return replace(report(setting, summary, DATABASE, IMAGE, NAMED), **changed)


def convolution(size: int, kernel: int, stride: int, pads: tuple[int, int, int, int]) -> Graph:
    extent = (size + pads[0] + pads[2] - kernel) // stride + 1
    values = {"w": np.zeros((4, 3, kernel, kernel), np.int8), "b": np.zeros(4, np.int32)}
    by_channel = {name: Quantization((0.5,) * 4, (0,) * 4, 0) for name in values}
    tensors = [
        Tensor(name, array.shape, str(array.dtype), by_channel[name]) for name, array in values.items()
    ]
    tensors += [
        Tensor(name, shape, "int8", Quantization((1.0,), (0,)))
        for name, shape in (("x", (1, 3, size, size)), ("y", (1, 4, extent, extent)))
    ]
    attributes = {"strides": (stride, stride), "pads": pads, "group": 1}
    operator = Operator("conv", "Conv", ("x", "w", "b"), ("y",), attributes)
    return Graph("g", (operator,), {tensor.name: tensor for tensor in tensors}, values, ("x",), ("y",), 21)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pads", "expected"),
    [
        (8, 3, 1, (1, 1, 1, 1), "SAME"),
        (8, 3, 2, (0, 0, 1, 1), "SAME"),
        (8, 1, 2, (0, 0, 0, 0), "VALID"),
        (8, 3, 2, (1, 1, 1, 1), ((0, 0), (1, 0), (1, 0), (0, 0))),
        (8, 7, 2, (3, 3, 3, 3), ((0, 0), (3, 2), (3, 2), (0, 0))),
    ],
)
def test_padding_that_tflite_lacks_is_an_operator_of_its_own(
    size: int,
    kernel: int,
    stride: int,
    pads: tuple[int, int, int, int],
    expected: str | Sequence[Sequence[int]],
) -> None:
    network = translated(convolution(size, kernel, stride, pads))
    *before, step = network.steps
    if isinstance(expected, str):
        assert not before and step.settings["Padding"] == expected
        return
    rows = network.tensors[before[0].inputs[1]].values
    assert [one.code for one in before] == ["PAD"] and step.settings["Padding"] == "VALID"
    assert rows is not None and rows.tolist() == [list(row) for row in expected]
    assert (network.tensors[step.inputs[0]].shape[1] - kernel) // stride + 1 == network.tensors["y"].shape[1]


def test_weights_are_ohwi_and_their_scales_follow() -> None:
    stored = translated(convolution(8, 3, 1, (1, 1, 1, 1))).tensors["w"]
    assert stored.shape == (4, 3, 3, 3) and stored.quantization is not None and stored.quantization.axis == 0


def test_a_report_counts_what_crosses_to_memories_off_the_chip() -> None:
    one = vela_report(SETTING)
    assert (one.named_bytes, one.named_map_bytes, one.named_constant_bytes) == (600, 500, 100)
    assert (one.estimated_bytes, one.image_bytes) == (805, 400)
    assert (one.latency_cycles, one.sram_bytes, one.weight_ratio) == (7000, 253_440, 0.9)


def test_maps_in_shared_sram_are_on_the_chip() -> None:
    shared = vela_report(replace(SETTING, mode="Shared_Sram"))
    assert (shared.named_bytes, shared.named_map_bytes) == (100, 0)


def test_a_stream_with_other_multiply_accumulates_than_the_summary_is_refused() -> None:
    summary = f"{','.join(SUMMARY)}\n{','.join(SUMMARY.values())}\n"
    with pytest.raises(SystemExit, match="13 MACs in the stream, 12 in the summary"):
        report(SETTING, summary, DATABASE, IMAGE, replace(NAMED, macs=13))


def test_the_older_core_has_no_table_of_its_estimate() -> None:
    summary = f"{','.join(SUMMARY)}\n{','.join(SUMMARY.values())}\n"
    assert report(SETTING, summary, "<debug></debug>", IMAGE, NAMED).image_bytes == 0


@pytest.mark.skipif(find_spec("ethosu") is None, reason="needs lfopt[vela]")
def test_every_accelerator_is_compiled_by_every_core_that_knows_it() -> None:
    chosen = list(settings(ACCELERATORS))
    assert {one.accelerator for one in chosen} == {*ACCELERATORS}
    older = {one.accelerator for one in chosen if one.core == LEGACY}
    assert older == {name for name in ACCELERATORS if "u85" not in name}
    assert len({*chosen}) == len(chosen)


def test_more_is_tried_where_the_fewest_bytes_are_named() -> None:
    u85 = Setting("ethos-u85-256", "Ethos_U85_SYS_DRAM_Low", "Dedicated_Sram", 256, "Performance")
    best, legacy = replace(SETTING, system="Ethos_U65_High_End"), replace(SETTING, core=LEGACY)
    reports = [
        vela_report(SETTING),
        vela_report(best, named_map_bytes=400),
        vela_report(legacy, named_map_bytes=1),
        vela_report(u85),
        vela_report(replace(u85, mode="Shared_Sram")),
    ]
    assert list(further(reports)) == [
        replace(best, optimise="Size"),
        replace(best, switches=(NO_BUFFERS,)),
        replace(legacy, optimise="Size"),
        replace(u85, optimise="Size"),
        replace(u85, switches=(NO_BUFFERS,)),
        replace(u85, switches=(NO_CHAINS,)),
        replace(u85, switches=(NO_BUFFERS, NO_CHAINS)),
    ]


def test_the_command_line_names_the_core_and_the_switches() -> None:
    assert SETTING.arguments[-1] == "Performance"
    legacy = replace(SETTING, core=LEGACY, switches=(NO_BUFFERS,))
    assert legacy.arguments[-2:] == ["--debug-force-legacy-core", NO_BUFFERS]


def test_what_we_counted_is_on_the_page_of_the_rtl() -> None:
    counts = counted((ROOT / "docs" / "results" / "rtl.md").read_text())
    assert all(
        0 < counts[name, plan][0] < counts[name, "layer by layer"][0]
        for name in ("mobilenet_v2", "resnet18")
        for plan in PLANS
    )
