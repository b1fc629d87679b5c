"""Attention alone, softmax(Q K' / sqrt(width)) V in float32: our C against ONNX Runtime and OpenVINO.

    python benchmarks/bench_attention.py [--tokens 128 512 1500 4096] [--heads 12] [--width 64]
        [--threads 1 2] [--rounds 5] [--peak GFLOP/S]

Queries, keys and values come as [1, tokens, heads x width] and are laid out by Reshape and Transpose, as
exporters have it; `causal` hides later keys by a constant mask. Times are the least of wall times in ms, `x`
is how many times longer than ours. `peak`: our multiply-adds, without those that the mask hides, over the
time, as a share of what multiply-adds of a core can do, if --peak says how many 1e9 floating point operations
a second that is. `memory` is what one caller of our code needs, beside what the scores would take. Engines
are those of bench_cpu.py, which `python benchmarks/peers.py` installs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich import box
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cpu import compiled, feeds, planned
from benchmarks.engines import absent, measured
from benchmarks.results import Sheet, add_option
from lfopt.app.sizes import bytes_text
from lfopt.frontend import from_model
from lfopt.ir import Graph
from lfopt.rewrite import simplify

BUFFER = 1 << 20
PEERS = {"onnxruntime": "ORT", "openvino": "OpenVINO"}


def main() -> None:
    """Time attention of every length, print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=[128, 512, 1500, 4096], help="default: %(default)s"
    )
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=64, help="of a head")
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1], help="rows for each (default %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns of each engine (default %(default)s)")
    parser.add_argument("--peak", type=float, help="of a core")
    add_option(parser)
    options = parser.parse_args()
    heads = [
        "threads",
        "ours",
        *(head for name in PEERS.values() for head in (name, "x")),
        "peak",
        "error",
        "memory",
        "scores",
    ]
    table = Table(
        title=f"{options.heads} heads of {options.width}: least ms, float32",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("attention", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    missing = absent(list(PEERS))
    peers = [name for name in PEERS if name not in missing]
    for tokens in options.tokens:
        for causal in (False, True):
            graph = attention(tokens, options.heads, options.width, causal=causal)
            macs = 2 * options.heads * options.width * (tokens * (tokens + 1) // 2 if causal else tokens**2)
            for cells in _rows(graph, options, peers, macs):
                table.add_row(
                    f"{tokens}{' causal' if causal else ''}",
                    *cells,
                    bytes_text(4 * options.heads * tokens**2),
                )
    sheet = Sheet("attention", options.results)
    sheet.show(table)
    sheet.write()


def attention(tokens: int, heads: int, width: int, *, causal: bool) -> Graph:
    """Attention of maps [1, tokens, heads x width] to one another."""
    constants = {
        "apart": np.array([1, tokens, heads, width]),
        "together": np.array([1, tokens, heads * width]),
        "scale": np.float32(width**-0.5),
    }
    nodes: list[onnx.NodeProto] = []

    def add(kind: str, *inputs: str, **attributes: object) -> str:
        nodes.append(
            helper.make_node(kind, inputs, [f"y{len(nodes)}"], name=f"{kind}{len(nodes)}", **attributes)
        )
        return nodes[-1].output[0]

    orders = {"q": (0, 2, 1, 3), "k": (0, 2, 3, 1), "v": (0, 2, 1, 3)}
    queries, keys, values = (
        add("Transpose", add("Reshape", name, "apart"), perm=order) for name, order in orders.items()
    )
    scores = add("Mul", add("MatMul", queries, keys), "scale")
    if causal:
        constants["mask"] = np.triu(np.full((tokens, tokens), -1e9, np.float32), 1)
        scores = add("Add", scores, "mask")
    mixed = add("MatMul", add("Softmax", scores, axis=-1), values)
    merged = add("Reshape", add("Transpose", mixed, perm=(0, 2, 1, 3)), "together")
    graph = helper.make_graph(
        nodes,
        "attention",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, tokens, heads * width])
            for name in orders
        ],
        [helper.make_tensor_value_info(merged, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return simplify(
        from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))
    )


def _rows(graph: Graph, options: argparse.Namespace, peers: list[str], macs: int) -> Iterator[list[str]]:
    """The cells of each number of threads, but for the first and the last."""
    values = feeds(graph, np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as folder:
        plans = planned(graph, ["exact"], BUFFER, Path(folder))
        for threads in options.threads:
            engines = measured(graph, values, plans, peers, threads, options.rounds)
            least_ms = {name: one.least for name, one in engines.items()}
            times = [
                cell
                for name in PEERS
                for cell in (
                    (f"{least_ms[name]:.2f}", f"{least_ms[name] / least_ms['exact']:.2f}")
                    if name in least_ms
                    else ("-", "-")
                )
            ]
            peak = f"{2e-6 * macs / least_ms['exact'] / options.peak / threads:.0%}" if options.peak else "-"
            memory = bytes_text(compiled(plans["exact"], threads=threads).source.context_bytes)
            yield [
                str(threads),
                f"{least_ms['exact']:.2f}",
                *times,
                peak,
                f"{engines['exact'].error:.0e}",
                memory,
            ]


if __name__ == "__main__":
    main()
