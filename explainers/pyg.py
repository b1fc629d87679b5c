"""A data set as PyTorch Geometric reads it: one file a scheme, and a card beside it.

    pyg/SCHEME.pt     what `InMemoryDataset.save` writes: tensors alone, so that `torch.load(path,
                      weights_only=True)` takes it
    pyg/SCHEME.json   where the graphs come from, and what the numbers in them stand for

Nothing of lfopt is needed to read them.

Source: PyTorch Geometric, `torch_geometric.data.InMemoryDataset`.
"""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version
from typing import Any, BinaryIO

import numpy as np
import torch
from torch_geometric.data import Data, InMemoryDataset

from explainers.dataset import CHIP, Dataset
from explainers.graph import columns
from explainers.sampling import BETAS

SCHEMA = "lfopt.pyg/1"
FIELDS = {
    "x": "(operators, columns) float32: an operator a row, in topological order; "
    "sizes as shares of the unit; see `columns`",
    "edge_index": "(2, links) int64: where operators meet, the earlier first, each pair once; messages go "
    "both ways with ToUndirected()",
    "unit": "(1,) float64: bytes that a rule without parameters says the group needs",
    "never": "(1,) int64: 1 if it says that the group never runs",
    "need": "(1,) int64: F_beta in bytes; 2**62 where no buffer is large enough",
    "y": "(1, betas) int64: whether the group runs whole from each buffer of `betas`, which is need < beta",
    "structure": "(1,) int64: equal for groups whose graphs are equal: "
    "such groups must not be in two parts of a split",
    "network": "(1,) int64: position in `networks`",
    "family": "(1,) int64: position in `families`",
    "operators": "(operators,) int64: position in the names of the network, networks[network].names",
}


def save(dataset: Dataset, file: BinaryIO) -> None:
    """Write the graph of every group of a scheme, in order. Raises InvalidConfig as `Dataset.flow` does."""
    group_graphs = dataset.graphs()
    per_graph = {
        "unit": np.array([graph.unit for graph in group_graphs]),
        "never": np.array([graph.never for graph in group_graphs], np.int64),
        "need": dataset.needs,
        "y": np.less.outer(dataset.needs, BETAS).astype(np.int64),
        "structure": np.unique(dataset.structure_hashes, return_inverse=True)[1].astype(np.int64),
        "network": dataset.network,
        "family": np.unique(dataset.families, return_inverse=True)[1].astype(np.int64),
    }
    tensors = {name: torch.from_numpy(values) for name, values in per_graph.items()}
    graphs = [
        Data(
            x=torch.from_numpy(graph.features),
            edge_index=torch.from_numpy(graph.links),
            operators=torch.tensor(graph.operators),
            **{name: values[k : k + 1] for name, values in tensors.items()},
        )
        for k, graph in enumerate(group_graphs)
    ]
    data, slices = InMemoryDataset.collate(graphs)
    torch.save((data.to_dict(), slices, Data), file)  # as `InMemoryDataset.save`, which takes no open file


def card(dataset: Dataset, command: str) -> dict[str, Any]:
    """Card beside the file: sources, chips and meaning of its tensors. `command` made the data set."""
    networks = [
        {
            **asdict(source),
            "chip": {key: getattr(dataset.chip(n), key) for key in CHIP},
            "names": dataset.shards[n].names.tolist(),
        }
        for n, source in enumerate(dataset.networks)
    ]
    return {
        "schema": SCHEMA,
        "command": command,
        "dataset_sha256": dataset.sha256,
        "scheme": dataset.scheme,
        "graphs": len(dataset),
        "betas": list(BETAS),
        "fields": FIELDS,
        "columns": list(columns()),
        "families": np.unique(dataset.families).tolist(),
        "networks": networks,
        "versions": {name: version(name) for name in ("torch", "torch-geometric")},
    }
