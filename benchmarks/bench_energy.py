"""Energy of the model by level, beside published breakdowns of the same layers on the same chips.

    python benchmarks/bench_energy.py

Sources, none of whose code is here, figures alone:

* Y.-H. Chen, J. Emer, V. Sze, ISCA 2016, figure 10: AlexNet by layer, relative to a MAC. Its figures for ALU,
  DRAM and register files are those that github.com/stanford-mast/nn_dataflow (198a527) holds its own against,
  in tests/dataflow_test/test_nn_dataflow.py.
* Y.-H. Chen, T. Krishna, J. Emer, V. Sze, IEEE JSSC 52(1), 2017, tables V and VI: bytes of DRAM and of the
  global buffer that were measured on the chip, as transcribed in github.com/cucapra/fodlam (cde53fd).
* github.com/Accelergy-Project/timeloop-accelergy-exercises (2d55108), example designs eyeriss_like and
  simba_like: the first layer of MobileNet by Timeloop and Accelergy, energy of each level and of an access.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.layers import plan_of_layer
from benchmarks.results import Row, Sheet, add_option, table_of
from lfopt.app.config import load_hardware
from lfopt.app.layers import LayerShape, layer_network
from lfopt.app.measured import read_measured
from lfopt.ir import Energy, EnergyUse, Graph, Hardware
from lfopt.ops import Dataflow
from simulator.model.simulate import simulate

MEASURED = Path(__file__).resolve().parents[1] / "examples" / "measured"
BATCH = 16
ALEXNET = {  # with figure 10 in 1e9 MACs: ALU, DRAM, register files
    "conv1": (LayerShape("conv", 3, 96, 227, 227, (11, 11), 4, batch=BATCH), (1.69, 2.46, 6.75)),
    "conv2": (LayerShape("conv", 96, 256, 31, 31, (5, 5), groups=2, batch=BATCH), (3.58, 2.27, 14.33)),
    "conv3": (LayerShape("conv", 256, 384, 15, 15, (3, 3), batch=BATCH), (2.39, 2.02, 9.57)),
    "conv4": (LayerShape("conv", 384, 384, 15, 15, (3, 3), groups=2, batch=BATCH), (1.79, 1.57, 7.18)),
    "conv5": (LayerShape("conv", 384, 256, 15, 15, (3, 3), groups=2, batch=BATCH), (1.20, 1.05, 4.78)),
    "fc1": (LayerShape("gemm", 9216, 4096, batch=BATCH), (0.60, 7.78, 2.42)),
    "fc2": (LayerShape("gemm", 4096, 4096, batch=BATCH), (0.27, 3.39, 1.07)),
    "fc3": (LayerShape("gemm", 4096, 1000, batch=BATCH), (0.07, 0.84, 0.26)),
}
# relative to a MAC of 16 bits, each of a word of 2 bytes: DRAM 200, buffer 6, register file 1
RELATIVE = Energy(dram_byte_pj=100, buffer_byte_pj=3, accumulator_byte_pj=0.5, mac_pj=0.25, vector_pj=0)
ISCA = Hardware(
    128 * 1024,  # 16 x 16 elements of 16 bits
    element_bytes=2,
    accumulator_bytes=2,
    mac_rows=16,
    mac_columns=16,
    energy=RELATIVE,
)
# MB of DRAM and of the global buffer, of 4 images of AlexNet and 3 of VGG-16
ACCESSES = {
    "eyeriss_alexnet": {
        "CONV1": (5.0, 18.5), "CONV2": (4.0, 77.6), "CONV3": (3.0, 50.2), "CONV4": (2.1, 37.4),
        "CONV5": (1.3, 24.9),
    },
    "eyeriss_vgg16": {
        "CONV1-1": (15.4, 112.6), "CONV1-2": (54.0, 2402.8), "CONV2-1": (33.4, 1201.4),
        "CONV2-2": (48.5, 2402.8), "CONV3-1": (20.2, 607.4), "CONV3-2": (32.2, 1214.8),
        "CONV3-3": (30.8, 1214.8), "CONV4-1": (17.8, 321.8), "CONV4-2": (28.6, 643.7),
        "CONV4-3": (22.8, 643.7), "CONV5-1": (6.3, 90.0), "CONV5-2": (5.7, 90.0), "CONV5-3": (5.6, 90.0),
    },
}  # fmt: skip
FIRST = LayerShape("conv", 3, 32, 224, 224, (3, 3), 2, 1)  # of MobileNet: 10,838,016 MACs


class Design(NamedTuple):
    """A design of the exercises: energy of its levels in fJ for each MAC, and of single accesses."""

    chip: Hardware
    levels: Mapping[str, float]  # by ours; what we do not have is "elsewhere"
    own: Energy  # pJ of single accesses there, as our table has them


DESIGNS = {
    "eyeriss_like": Design(
        # 16,384 words of 64 bits; 12 x 14 elements
        Hardware(128 * 1024, element_bytes=1, accumulator_bytes=2, mac_rows=12, mac_columns=14),
        {
            "DRAM": 3380.86,
            "buffer": 375.27,
            "partial sums": 386.77,
            "MACs": 207.69,
            "elsewhere": 1006.69 + 112.37,
        },
        # 512 pJ for 64 bits of DRAM; 18.18 to read and 14.14 to write 64 bits of buffer; 0.2513 and 0.2191 of
        # a sum of 16 bits
        Energy(
            dram_byte_pj=64,
            buffer_byte_pj=(18.183829 + 14.137929) / 16,
            accumulator_byte_pj=(0.2513 + 0.2191) / 4,
            mac_pj=0.20769,
        ),
    ),
    "simba_like": Design(
        # 2,048 words of 256 bits; 16 elements of 8 x 8
        Hardware(64 * 1024, element_bytes=1, accumulator_bytes=3, mac_rows=8, mac_columns=128),
        {
            "DRAM": 3272.35,
            "buffer": 404.87,
            "partial sums": 6264.98,
            "MACs": 315.00,
            "elsewhere": 22.78 + 2273.35 + 9512.16,
        },
        # 512 pJ for 64 bits of DRAM; 51.87 and 66.31 of 256 bits of buffer; 3.091 and 2.875 of a sum of 24
        # bits
        Energy(
            dram_byte_pj=64,
            buffer_byte_pj=(51.870888 + 66.310888) / 64,
            accumulator_byte_pj=(3.091057 + 2.875058) / 6,
            mac_pj=0.315,
        ),
    ),
}
LEVELS = {"DRAM": "dram_pj", "buffer": "buffer_pj", "partial sums": "accumulator_pj", "MACs": "mac_pj"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_option(parser)
    options = parser.parse_args()
    sheet = Sheet("energy", options.results)
    sheet.show(
        table_of(
            "AlexNet on Eyeriss, 16 images, in 1e9 MACs: published (ISCA 2016, figure 10), ours", alexnet()
        )
    )
    for table, accesses in ACCESSES.items():
        title = f"{table}: MB measured on the chip (JSSC 2017), and ours"
        sheet.show(table_of(title, counted(table, accesses)))
    for name, design in DESIGNS.items():
        title = f"{name}: pJ for each MAC of the first layer of MobileNet (Timeloop and Accelergy), and ours"
        sheet.show(table_of(title, by_level(design), 3))
    sheet.write()


def alexnet() -> list[Row]:
    """By layer, what figure 10 has beside what the model has with the same cost of an access."""
    rows: list[Row] = []
    sums = [0.0] * 7
    for name, (shape, published) in ALEXNET.items():
        use = energy_of(layer_network(shape, name, quantized=False), ISCA)
        ours = [pj / 1e9 for pj in (use.mac_pj, use.dram_pj, use.accumulator_pj, use.buffer_pj)]
        figures = [*published, *ours]
        sums = [total + figure for total, figure in zip(sums, figures, strict=True)]
        rows.append(beside(name, figures))
    return [*rows, beside("all", sums)]


def beside(name: str, figures: list[float]) -> Row:
    """Published ALU, DRAM and register files, ours of the same, and of our buffer."""
    alu, dram, files, *ours = figures
    return {
        "layer": name,
        "MACs": alu,
        "our MACs": ours[0],
        "DRAM": dram,
        "our DRAM": ours[1],
        "off, %": 100 * (ours[1] / dram - 1),
        "registers": files,
        "our partial sums": ours[2],
        "our buffer": ours[3],
    }


def counted(table: str, accesses: Mapping[str, tuple[float, float]]) -> list[Row]:
    """By layer, bytes that were measured beside those of the model."""
    chip = load_hardware(MEASURED / "eyeriss.yaml")
    one_pj = replace(chip, energy=Energy(dram_byte_pj=1, buffer_byte_pj=1))
    rows: list[Row] = []
    sums = [0.0] * 4
    for layer in read_measured(MEASURED / f"{table}.csv", chip.clock_hz, quantized=False):
        use = energy_of(layer.graph, one_pj)
        dram, buffer = accesses[layer.name]
        figures = [dram, use.dram_pj / 1e6, buffer, use.buffer_pj / 1e6]
        sums = [total + figure for total, figure in zip(sums, figures, strict=True)]
        rows.append(moved(layer.name, figures))
    return [*rows, moved("all", sums)]


def moved(name: str, megabytes: list[float]) -> Row:
    """Measured DRAM, ours, measured buffer, ours."""
    return {
        "layer": name,
        "DRAM": megabytes[0],
        "our DRAM": megabytes[1],
        "DRAM off, %": 100 * (megabytes[1] / megabytes[0] - 1),
        "buffer": megabytes[2],
        "our buffer": megabytes[3],
        "buffer off, %": 100 * (megabytes[3] / megabytes[2] - 1),
    }


def by_level(design: Design) -> list[Row]:
    """By level, pJ for each MAC: published, ours with its cost of an access, ours with the default table."""
    graph = layer_network(FIRST, "first", quantized=False)
    macs = sum(Dataflow.of(graph).macs)
    own = energy_of(graph, replace(design.chip, energy=design.own))
    default = energy_of(graph, design.chip)
    rows: list[Row] = []
    for level, femtojoules in design.levels.items():
        published = femtojoules / 1000
        ours = [getattr(use, LEVELS[level]) / macs if level in LEVELS else 0.0 for use in (own, default)]
        rows.append(priced(level, published, *ours))
    return [
        *rows,
        priced("all", sum(design.levels.values()) / 1000, own.total_pj / macs, default.total_pj / macs),
    ]


def priced(level: str, published: float, own: float, default: float) -> Row:
    """pJ of a level, and how far ours are off."""
    return {
        "level": level,
        "published": published,
        "ours, its table": own,
        "off, %": 100 * (own / published - 1),
        "ours, default table": default,
        "default off, %": 100 * (default / published - 1),
    }


def energy_of(graph: Graph, hardware: Hardware) -> EnergyUse:
    """Energy of a layer by itself, in the way that takes the least."""
    plan = plan_of_layer(graph, hardware, lambda figures: figures.energy_pj)
    return simulate(plan, graph).energy


if __name__ == "__main__":
    main()
