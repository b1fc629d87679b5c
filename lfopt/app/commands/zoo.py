"""lfopt zoo: the networks that lfopt builds itself.

Raises InvalidConfig for options that are not accepted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from lfopt import zoo
from lfopt.app.answers.files import FileAnswer
from lfopt.app.answers.networks import ExportAnswer, NetworkAnswer, ZooAnswer
from lfopt.app.answers.writing import answer
from lfopt.app.config import SearchConfig
from lfopt.app.files import write_bytes
from lfopt.app.options import SeedOption
from lfopt.app.pipeline import ZOO, load_network
from lfopt.app.screen import out, shown, table
from lfopt.ir import InvalidConfig
from lfopt.ops import Dataflow

app = App(name="zoo", help="List and export the networks that lfopt builds itself.")


@app.command(name="list")
def list_() -> None:
    """List the networks with their operators, weights and multiply-accumulates.

    Example: lfopt zoo list
    """
    networks = tuple(map(_network, zoo.names()))
    rows = table("network", "input", "ops", "M weights", "GMACs", "arXiv")
    for one in networks:
        shape = "x".join(str(d) for d in one.input[1:])
        paper = one.source.partition("arXiv:")[2] or "-"
        rows.add_row(
            one.name, shape, str(one.operators), f"{one.weights / 1e6:.2f}", f"{one.macs / 1e9:.3f}", paper
        )
    out.print(rows)
    answer(ZooAnswer(networks))


def _network(name: str) -> NetworkAnswer:
    flow = Dataflow.of(load_network(ZOO + name, {}, "default", weights=False))
    return NetworkAnswer(
        name, flow.maps[0].shape, len(flow), flow.weight_elements, sum(flow.macs), zoo.summary(name).source
    )


@app.command
def export(
    name: str,
    /,
    *,
    out_file: Annotated[Path, Parameter(name=["--out", "-o"])],
    seed: SeedOption = SearchConfig.seed,
    weights: bool = True,
) -> None:
    """Write a network as an ONNX file with seeded weights.

    Example: lfopt zoo export mobilenet_v2 --out mobilenet_v2.onnx

    Parameters
    ----------
    name
        A name from `lfopt zoo list`.
    out_file
        The file to write.
    weights
        Whether to write the weights; without them the file holds shapes alone.
    """
    if seed < 0 or not out_file.name:
        raise InvalidConfig(
            f"--seed {seed}, --out {str(out_file)!r}: accepted: a seed of at least 0, and a file name"
        )
    try:
        model = zoo.build(name, seed=seed, weights=weights)
    except zoo.UnknownNetwork as error:
        raise InvalidConfig(str(error)) from None
    write_bytes(out_file, model.SerializeToString())
    out.print(f"wrote {shown(out_file)}: {len(model.graph.node)} nodes", soft_wrap=True)
    answer(ExportAnswer(FileAnswer.of(out_file), len(model.graph.node)))
