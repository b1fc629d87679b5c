"""What the benchmark beside Vela reads and writes, without Vela."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.bench_vela import PLANS, Setting, counted, report
from benchmarks.tflite import translated
from lfopt.ir import Graph, Operator, Quantization, Tensor

ROOT = Path(__file__).resolve().parents[2]
SETTING = Setting("ethos-u65-512", "Ethos_U65_Mid_End", "Dedicated_Sram", 256, "Performance")
SUMMARY = {
    "sram_memory_used": "247.5", "total_original_weights": "1000", "total_npu_encoded_weights": "900",
    "cycles_total": "7000.0", "dram_feature_map_read_bytes": "500", "dram_feature_map_write_bytes": "70",
    "dram_total_bytes": "800", "off_chip_flash_feature_map_read_bytes": "0",
    "off_chip_flash_feature_map_write_bytes": "0", "off_chip_flash_total_bytes": "5",
}  # fmt: skip
OPERATIONS = """"ifm_shape_n","ifm_shape_c","ifm_shape_h","ifm_shape_w","ifm_memory",\
"DramFeatureMap_read","Dram_read_efficiency"
1,3,4,6,"Dram",400,"0.25"
1,3,4,6,"Sram",,"1.0"
1,8,2,3,"Dram",100,"1.0"
"""


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
    summary = f"{','.join(SUMMARY)}\n{','.join(SUMMARY.values())}\n"
    database = (
        '<debug><table name="other">x</table><table '
        f'name="perf_debug"><![CDATA[\n{OPERATIONS}]]></table></debug>'
    )
    vela_report = report(SETTING, summary, database, (1, 3, 4, 6))
    assert (
        vela_report.dram_bytes,
        vela_report.map_bytes,
        vela_report.weight_bytes,
        vela_report.image_bytes,
    ) == (805, 570, 235, 400)
    assert (
        vela_report.image_efficiency,
        vela_report.latency_cycles,
        vela_report.sram_bytes,
        vela_report.weight_ratio,
    ) == (0.25, 7000, 253_440, 0.9)


def test_what_we_counted_is_on_the_page_of_the_rtl() -> None:
    counts = counted((ROOT / "docs" / "results" / "rtl.md").read_text())
    assert all(
        0 < counts[name, plan][0] < counts[name, "layer by layer"][0]
        for name in ("mobilenet_v2", "resnet18")
        for plan in PLANS
    )
