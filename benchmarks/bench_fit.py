"""`lfopt hw fit` on layers of the accelerator in RTL, and on published tables of Eyeriss and VTA.

    python benchmarks/bench_fit.py --measure   measure the layers on the RTL again, and write their table
    python benchmarks/bench_fit.py             fit to the tables in examples/measured

A layer on the RTL runs by itself. Its cycles are the RTL's own, from its start to the end of its program;
they do not depend on what its maps hold.
"""

from __future__ import annotations

import argparse
import csv
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench_rtl_cycles import measured
from benchmarks.layers import plan_of_layer
from benchmarks.results import Row, Sheet, add_option, table_of
from lfopt.app.config import find_hardware, load_hardware
from lfopt.app.files import write_text
from lfopt.app.fitting import Fit, Fitted, fit, mean_error, worst_error
from lfopt.app.layers import LayerShape, is_quantized, layer_network
from lfopt.app.measured import read_measured
from lfopt.ir import Hardware

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "measured"
RTL = FOLDER / "rtl_layers.csv"
ABOUT = """\
# Layers in int8 on the accelerator of hw_rtl (configs/hardware/accelerator_256k.yaml), each by itself; its
# memory answers after 40 cycles. Measured with python benchmarks/bench_fit.py --measure
"""
LAYERS = {  # of MobileNet-V2, ResNet-18, SqueezeNet and EfficientNet, and some small ones
    "stem": LayerShape("conv", 3, 32, 224, 224, (3, 3), 2, 1),
    "expand_56": LayerShape("conv", 24, 144, 56, 56),
    "depthwise_56": LayerShape("dwconv", 144, 144, 56, 56, (3, 3), 1, 1, 144),
    "depthwise_28": LayerShape("dwconv", 192, 192, 28, 28, (3, 3), 2, 1, 192),
    "depthwise_14": LayerShape("dwconv", 384, 384, 14, 14, (5, 5), 1, 2, 384),
    "project_28": LayerShape("conv", 192, 32, 28, 28),
    "project_7": LayerShape("conv", 960, 320, 7, 7),
    "head_7": LayerShape("conv", 320, 1280, 7, 7),
    "residual_56": LayerShape("conv", 64, 64, 56, 56, (3, 3), 1, 1),
    "residual_28": LayerShape("conv", 64, 128, 56, 56, (3, 3), 2, 1),
    "residual_14": LayerShape("conv", 256, 256, 14, 14, (3, 3), 1, 1),
    "residual_7": LayerShape("conv", 512, 512, 7, 7, (3, 3), 1, 1),
    "squeeze_28": LayerShape("conv", 256, 32, 28, 28),
    "tiny_conv": LayerShape("conv", 16, 16, 8, 8, (3, 3), 1, 1),
    "tiny_pointwise": LayerShape("conv", 32, 32, 4, 4),
    "tiny_depthwise": LayerShape("dwconv", 16, 16, 12, 12, (3, 3), 1, 1, 16),
    "classifier": LayerShape("gemm", 1280, 1000),
    "tiny_gemm": LayerShape("gemm", 64, 64),
}


class Case(NamedTuple):
    """A table, and a chip that is fitted to it."""

    title: str
    chip: str  # its file, or the case whose fitted chip it is
    table: str
    dram: bool = True  # whether its energy has that of DRAM


CASES = (
    Case("RTL, chip as it comes", "accelerator_256k", "rtl_layers"),
    Case("RTL, chip with guesses", str(FOLDER / "rtl_guessed.yaml"), "rtl_layers"),
    Case("VTA on Pynq, ResNet-18", str(FOLDER / "vta.yaml"), "vta_resnet18"),
    Case("Eyeriss, AlexNet", str(FOLDER / "eyeriss.yaml"), "eyeriss_alexnet", dram=False),
    Case("Eyeriss, VGG-16", str(FOLDER / "eyeriss.yaml"), "eyeriss_vgg16", dram=False),
    # what a fit to one network says of another: see the column "before"
    Case("AlexNet, chip of VGG-16", "Eyeriss, VGG-16", "eyeriss_alexnet", dram=False),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", action="store_true", help="measure the layers on the RTL")
    add_option(parser)
    options = parser.parse_args()
    if options.measure:
        measure(load_hardware(find_hardware("accelerator_256k")))
        return
    sheet = Sheet("fit", options.results)
    summary: list[Row] = []
    pages: list[tuple[str, list[Row]]] = []
    chips: dict[str, Hardware] = {}
    for case in CASES:
        hardware = chips.get(case.chip) or load_hardware(find_hardware(case.chip))
        layers = read_measured(
            FOLDER / f"{case.table}.csv", hardware.clock_hz, quantized=is_quantized(hardware)
        )
        chips[case.title], fits = fit(layers, hardware, dram=case.dram)
        for one in fits:
            summary.append(summed(case, one))
            pages.append((f"{case.title}: {one.quantity}", parameters(one)))
            pages.append(("", each(one, [layer.name for layer in layers])))
    sheet.show(table_of("", summary, 1))
    for title, rows in pages:
        sheet.show(table_of(title, rows, 3 if title else 1))
    sheet.write()


def summed(case: Case, fit: Fit) -> Row:
    """Errors of a fit, in %."""
    return {
        "table": case.title,
        "of": fit.quantity,
        "layers": len(fit.layers),
        "before, %": 100 * mean_error(fit.errors(fit.before)),
        "after, %": 100 * mean_error(fit.errors(fit.after)),
        "worst, %": 100 * worst_error(fit.errors(fit.after)),
        "left out, %": 100 * mean_error(fit.errors(fit.left_out)),
        "own cycles, %": 100 * mean_error(fit.errors(fit.own_cycles)),
    }


def parameters(fit: Fit) -> list[Row]:
    """Every parameter, before and after."""
    return [
        {
            "parameter": one.parameter.field,
            "unit": one.parameter.unit or "share",
            "before": one.before,
            "after": one.after,
            "determined": determined(one),
        }
        for one in fit.parameters
    ]


def determined(fitted: Fitted) -> str:
    """Whether the layers say what a parameter is."""
    if fitted.loose:
        return "loosely"
    if fitted.deviation is None:
        return "no"
    return "at its bound" if fitted.at_bound else "yes"


def each(fit: Fit, names: list[str]) -> list[Row]:
    """Every layer, with its errors in %."""
    scale = 1.0 if fit.quantity == "cycles" else 1e6
    return [
        {
            "layer": names[k],
            "measured": measured / scale,
            "before": before / scale,
            "after": after / scale,
            "error, %": 100 * error,
            "left out, %": 100 * left_out,
        }
        for k, measured, before, after, error, left_out in zip(
            fit.layers,
            fit.measured,
            fit.before,
            fit.after,
            fit.errors(fit.after),
            fit.errors(fit.left_out),
            strict=True,
        )
    ]


def measure(hardware: Hardware) -> None:
    """Run every layer on the RTL, and write the table of their cycles."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("kind", "in_channels", "out_channels", "height", "kernel", "stride", "padding")
    writer.writerow(("layer", *columns, "cycles"))
    for name, shape in LAYERS.items():
        cells = [getattr(shape, column) for column in columns]
        cells[columns.index("kernel")] = shape.kernel[0]
        cycles = rtl_cycles(name, shape, hardware)
        print(f"{name:16} {cycles:>10,}", flush=True)
        writer.writerow((name, *cells, cycles))
    write_text(RTL, ABOUT + text.getvalue())


def rtl_cycles(name: str, shape: LayerShape, hardware: Hardware) -> int:
    """Cycles of a layer on the RTL, in the fastest way that it has on this chip."""
    graph = layer_network(shape, name, quantized=True)
    zeros = {
        constant: np.zeros(graph.shape(constant), graph.tensors[constant].dtype)
        for constant in graph.constants
    }
    graph = replace(graph, constants=zeros)
    return measured(plan_of_layer(graph, hardware, lambda figures: figures.cycles), graph)


if __name__ == "__main__":
    main()
