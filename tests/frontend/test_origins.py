"""Modules and source lines that an exporter wrote beside nodes stay with the operators, from file to file."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest

from lfopt.frontend import from_model, load, save
from lfopt.ir import InvalidGraph, Origin
from lfopt.ir.names import is_plain
from lfopt.rewrite.simplify import simplify
from tests.frontend.exported import block

NEWEST = onnx.defs.onnx_opset_version()
HOSTILE = "</script>\x1b[2J`rm -rf`\n"


def said(graph) -> dict[str, Origin]:
    return {operator.name: operator.origin for operator in graph.operators}


@pytest.mark.parametrize("opset", [13, 18, NEWEST])
def test_what_the_exporter_says_outlives_the_upgrade_the_folding_and_the_file(opset, tmp_path):
    graph = from_model(block(opset))
    assert said(graph)["node_conv2d"] == Origin("layer1.0.conv", "net.py:31")
    simple = simplify(graph)
    assert said(simple) == {
        "node_conv2d": Origin("layer1.0.conv", "net.py:31"),
        "node_relu": Origin("layer1.0.relu", "net.py:31"),
    }
    save(simple, tmp_path / "s.onnx")
    assert said(load(tmp_path / "s.onnx")) == said(simple)


def test_metadata_are_text_whatever_they_hold():
    hostile = said(from_model(block(scope=HOSTILE, stack=f'File "/a/{HOSTILE.strip()}", line 3, in f')))
    assert all(is_plain(text) and text for origin in hostile.values() for text in origin)
    odd = ("", "no list", "[", "['only the node']", "[" * 10_000, "'" * 9_999)
    for text in odd:
        model = block(stack=text)
        for node in model.graph.node:
            node.metadata_props[0].value = text
        assert set(said(from_model(model)).values()) == {Origin()}


def test_a_graph_refuses_an_origin_that_is_not_plain():
    graph = from_model(block())
    first = replace(graph.operators[0], origin=Origin("<b>"))
    with pytest.raises(InvalidGraph, match="plain names"):
        replace(graph, operators=(first, *graph.operators[1:]))
