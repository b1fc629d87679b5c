"""Networks of jobs: named by their content, and loaded once for all jobs that a process has of them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from onnx import ModelProto, TensorProto

from lfopt.app.files import sha256
from lfopt.app.pipeline import ZOO, load_network
from lfopt.frontend.read import read_model
from lfopt.ir import Graph, InvalidModel

KEPT = 4  # networks of a process: jobs come network by network, on a cluster roughly so


def content(model: str) -> str:
    """Digest of an ONNX file and its external data, or of a network of the zoo. Raises InvalidModel."""
    if model.startswith(ZOO):
        from lfopt import zoo  # noqa: PLC0415  (a quarter of a second that a file does not need)

        try:
            built = zoo.build(model.removeprefix(ZOO), weights=False)
        except zoo.UnknownNetwork as error:
            raise InvalidModel(str(error)) from None
        return hashlib.sha256(built.SerializeToString(deterministic=True)).hexdigest()
    path = Path(model)
    locations = sorted(set(_locations(read_model(path))))
    files = [
        path,
        *(
            path.parent / name
            for name in locations
            if not Path(name).is_absolute() and ".." not in Path(name).parts
        ),
    ]
    return hashlib.sha256("".join(sha256(file) for file in files if file.is_file()).encode()).hexdigest()


def _locations(model: ModelProto) -> Iterator[str]:
    """Names of files beside the model that hold values of constants."""
    attributes = (
        attribute for node in model.graph.node for attribute in node.attribute if attribute.HasField("t")
    )
    for tensor in (*model.graph.initializer, *(attribute.t for attribute in attributes)):
        if tensor.data_location == TensorProto.EXTERNAL:
            yield from (pair.value for pair in tensor.external_data if pair.key == "location")


def network(
    model: str, digest: str, input_shapes: Mapping[str, tuple[int, ...]], rules: str
) -> tuple[Graph, bool]:
    """A network, simplified, and whether it was there already.

    Raises InvalidModel, also where its content has another digest.
    """
    before = _loaded.cache_info().hits
    graph = _loaded(model, digest, tuple((name, tuple(shape)) for name, shape in input_shapes.items()), rules)
    return graph, _loaded.cache_info().hits > before


@functools.lru_cache(maxsize=KEPT)
def _loaded(
    model: str, digest: str, input_shapes: tuple[tuple[str, tuple[int, ...]], ...], rules: str
) -> Graph:
    if content(model) != digest:
        raise InvalidModel(f"{model}: is not the network that it was when the jobs were made")
    return load_network(model, dict(input_shapes), rules, weights=False)
