"""Where operators are from: metadata that exporters write into nodes, read as plain text and saved again.

PyTorch's exporter gives every node the path of its module and the stack of its source as Python prints them.
Source: torch.onnx, class docstrings and `_set_node_metadata` of torch/onnx/_internal/exporter/_core.py
(PyTorch 2.13): keys pkg.torch.onnx.name_scopes, a list such as
["", "layer1", "layer1.0", "conv2d"] whose last entry is the node, and pkg.torch.onnx.stack_trace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath

from onnx import ModelProto, NodeProto

from lfopt.ir import Origin
from lfopt.ir.names import plain

SCOPE, SOURCE = "lfopt.scope", "lfopt.source"  # keys of a node's metadata that lfopt writes
TORCH_SCOPES = "pkg.torch.onnx.name_scopes"
TORCH_STACK = "pkg.torch.onnx.stack_trace"
QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'" + r'|"((?:[^"\\]|\\.)*)"')  # texts of a list, as Python prints it
FRAME = re.compile(r'File "([^"\n]+)", line (\d{1,9})')
LIBRARY = "torch"  # folder of frames that are not the network's own


def origins(model: ModelProto) -> dict[str, Origin]:
    """Origin of the operator that makes a tensor, by the tensor's name in the file."""
    by_tensor: dict[str, Origin] = {}
    for node in model.graph.node:
        if node.metadata_props and (origin := _origin(node)) != Origin():
            by_tensor.update((name, origin) for name in node.output if name)
    return by_tensor


def write_origin(node: NodeProto, origin: Origin) -> None:
    """Metadata from which `origins` reads the same."""
    for key, value in zip((SCOPE, SOURCE), origin, strict=True):
        if value:
            node.metadata_props.add(key=key, value=value)


def _origin(node: NodeProto) -> Origin:
    said = {entry.key: entry.value for entry in node.metadata_props if isinstance(entry.value, str)}
    return Origin(plain(said.get(SCOPE) or _scope(said)), plain(said.get(SOURCE) or _source(said)))


def _scope(said: Mapping[str, str]) -> str:
    """The innermost module; the last entry of the list is the node itself.

    >>> _scope({TORCH_SCOPES: "['', 'layer1', 'layer1.0', 'conv2d']"}), _scope({TORCH_SCOPES: "['', 'relu']"})
    ('layer1.0', '')
    """
    entries = [one or other for one, other in QUOTED.findall(said.get(TORCH_SCOPES, ""))]
    if len(entries) > 1:
        return entries[-2]
    return ""


def _source(said: Mapping[str, str]) -> str:
    r"""The innermost line of the stack that is the network's own, not PyTorch's.

    >>> stack = ['File "/lib/net.py", line 9, in forward', 'File "/lib/torch/nn/conv.py", line 5, in forward']
    >>> _source({TORCH_STACK: chr(10).join(stack)})
    'net.py:9'
    """
    frames = [
        (PureWindowsPath(path) if "\\" in path else PurePosixPath(path), line)
        for path, line in FRAME.findall(said.get(TORCH_STACK, ""))
    ]
    own = [frame for frame in frames if LIBRARY not in frame[0].parts] or frames
    if own:
        return f"{own[-1][0].name}:{own[-1][1]}"
    return ""
