"""Report pages: plans for them, a model with hostile names, and the tags of a page."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import onnx

from lfopt.app.config import Config, SearchConfig
from lfopt.app.files import read_plan
from lfopt.app.pipeline import run
from lfopt.frontend import load
from lfopt.ir import Hardware
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, Traffic

HOSTILE = '</script><img src=x onerror="window.hacked=1"><!-- \'&\\u003c{{ 7*7 }}'


def page_inputs(model: str, buffer_bytes: int, folder: Path) -> SimpleNamespace:
    """A plan on disk with everything that a page is made of."""
    run(
        Config(
            model=model,
            hardware=Hardware(buffer_bytes=buffer_bytes),
            scheme="lbdf",
            search=SearchConfig(objective="bytes"),
        ),
        folder,
    )
    plan, graph = read_plan(folder), load(folder / "simplified.onnx")
    costs = GroupCosts(
        Dataflow.of(graph), plan.hardware, Traffic(plan.traffic), scheme=plan.scheme, epilogue=plan.epilogue
    )
    index = {operator.name: i for i, operator in enumerate(costs.dataflow.operators)}
    masks = tuple(sum(1 << index[name] for name in group.nodes) for group in plan.groups)
    return SimpleNamespace(folder=folder, plan=plan, graph=graph, costs=costs, masks=masks)


def hostile_model(path: Path) -> None:
    """Three operators, and names that try to leave the text."""
    shape = [1, 4, 8, 8]
    names = [HOSTILE, f"a{HOSTILE}", f"b{HOSTILE}"]
    tensors = ["x" + HOSTILE, "u" + HOSTILE, "v" + HOSTILE, "y" + HOSTILE]
    nodes = [
        onnx.helper.make_node(kind, [tensors[k]], [tensors[k + 1]], names[k])
        for k, kind in enumerate(("Relu", "Sigmoid", "Tanh"))
    ]
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name in (tensors[0], tensors[-1])
    ]
    onnx.save(
        onnx.helper.make_model(
            onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:]),
            opset_imports=[onnx.helper.make_opsetid("", 18)],
        ),
        path,
    )


class Tags(HTMLParser):
    """Elements of a page, and the text inside scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.elements and self.elements[-1][0] == "script":
            self.scripts[-1] += data
