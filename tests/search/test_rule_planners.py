"""Mapping types, and planners that fuse as compilers do: DNNFusion, TVM, dynamic programming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from lfopt import zoo
from lfopt.frontend import from_model, load
from lfopt.fusion import CostModel, FusionOutcome, TypeRules, combined, mapping_of
from lfopt.ir import Graph, Hardware
from lfopt.ops import Dataflow, bits
from lfopt.ops.table import Mapping
from lfopt.planning import GroupCosts
from lfopt.rewrite import simplify
from search.dnnfusion import grow_blocks
from search.dp import solve_by_types
from search.exact import solve
from search.local import improve
from search.nsga2 import evolve
from search.options import SearchOptions
from search.result import Result
from search.tvm import fuse_by_patterns
from tests.search.randomised import assert_legal
from tests.strategies import random_graph, random_hardware

O2O, O2M, M2M, REORGANIZE, SHUFFLE = Mapping
UNLIMITED = Hardware(1 << 40)


def model_of(graph: Graph, hardware: Hardware = UNLIMITED) -> CostModel:
    return GroupCosts(Dataflow.of(graph), hardware, scheme="auto")


def network(*nodes: onnx.NodeProto, **inputs: tuple[int, ...]) -> Graph:
    """A network of these nodes: unread results are outputs, names in w or c are constants."""
    read = {name for node in nodes for name in node.input}
    given = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items() if n[0] not in "wc"
    ]
    constants = [
        helper.make_tensor(n, TensorProto.FLOAT, s, np.ones(s).ravel())
        for n, s in inputs.items()
        if n[0] in "wc"
    ]
    outputs = [
        helper.make_empty_tensor_value_info(name)
        for node in nodes
        for name in node.output
        if name not in read
    ]
    graph = helper.make_graph(list(nodes), "small", given, outputs, constants)
    return from_model(
        onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        )
    )


def node(kind: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), [output], output, **attributes)  # type: ignore[arg-type]


def named(graph: Graph, result: Result) -> set[frozenset[str]]:
    flow = Dataflow.of(graph)
    return {frozenset(flow.names(group)) for group in result.groups}


# -- mapping types


def test_table_3_breaks_two_pairs_and_has_a_rule_for_each_of_the_others() -> None:
    pairs = {(a, b): combined(a, b) for a in Mapping for b in Mapping}
    assert {pair for pair, (_, outcome) in pairs.items() if outcome is FusionOutcome.BREAK} == {
        (O2M, M2M),
        (M2M, M2M),
    }
    # section 4.4.1: code generation rules
    assert sum(outcome is not FusionOutcome.BREAK for _, outcome in pairs.values()) == 23


@pytest.mark.parametrize(("first", "second", "fused", "outcome"), [
    (O2M, M2M, M2M, FusionOutcome.BREAK),  # Expand, then Conv
    (M2M, O2M, M2M, FusionOutcome.PROFILE),  # Conv, then Expand or Resize
    (O2O, M2M, M2M, FusionOutcome.FUSE), (M2M, O2O, M2M, FusionOutcome.FUSE),  # Add and GEMM in either order
    (SHUFFLE, REORGANIZE, REORGANIZE, FusionOutcome.FUSE), (REORGANIZE, M2M, M2M, FusionOutcome.PROFILE),
])  # fmt: skip
def test_table_3_says_what_the_text_of_the_paper_says(
    first: Mapping, second: Mapping, fused: Mapping, outcome: FusionOutcome
) -> None:
    if (first, second) != (O2M, M2M):
        assert combined(first, second)[0] is fused
    assert combined(first, second)[1] is outcome


def test_the_mapping_type_is_that_of_the_most_complex_pair() -> None:
    graph = network(
        node("Mul", "x v", "spread"), node("Add", "x y", "alike"), node("Mul", "x c", "scaled"),
        node("Conv", "alike w", "conv"), node("Clip", "spread", "clipped"), x=(1, 4, 6, 6), y=(1, 4, 6, 6),
        v=(1, 4, 1, 1), c=(4, 1, 1), w=(4, 4, 1, 1),
    )  # fmt: skip
    mappings = {call.operator.name: mapping_of(call) for call in Dataflow.of(graph).calls}
    assert mappings == {"spread": O2M, "alike": O2O, "scaled": O2O, "conv": M2M, "clipped": O2O}


# -- TVM's rules


def test_tvm_fuses_elementwise_operators_into_the_convolution_before_them() -> None:
    graph = network(
        node("Conv", "x w", "a"), node("Add", "a c", "b"), node("Relu", "b", "r"), node("Conv", "r w", "d"),
        x=(1, 4, 6, 6), w=(4, 4, 1, 1), c=(4, 1, 1),
    )  # fmt: skip
    assert named(graph, fuse_by_patterns(model_of(graph))) == {frozenset("abr"), frozenset("d")}


def test_tvm_fuses_a_gate_with_what_makes_it_only_if_all_paths_meet() -> None:
    """A branch rejoining through elementwise operators is one kernel; through a pool, it is not.

    The pool takes the gate.
    """
    silu = network(
        node("Conv", "x w", "a"),
        node("Sigmoid", "a", "s"),
        node("Mul", "a s", "m"),
        x=(1, 4, 6, 6),
        w=(4, 4, 1, 1),
    )
    assert named(silu, fuse_by_patterns(model_of(silu))) == {frozenset("asm")}
    squeeze = network(
        node("Conv", "x w", "a"),
        node("GlobalAveragePool", "a", "p"),
        node("Mul", "a p", "m"),
        x=(1, 4, 6, 6),
        w=(4, 4, 1, 1),
    )
    assert named(squeeze, fuse_by_patterns(model_of(squeeze))) == {frozenset("a"), frozenset("pm")}


@pytest.mark.parametrize(
    ("shape", "groups"), [((1, 4, 6, 6), {"amr"}), ((1, 4, 1, 1), {"amr"}), ((1, 4, 1, 6), {"a", "mr"})]
)
def test_tvm_takes_a_broadcast_for_elementwise_if_an_operand_is_as_large_as_the_result(
    shape: tuple[int, ...], groups: set[str]
) -> None:
    graph = network(
        node("Conv", "x w", "a"), node("Mul", "a y", "m"), node("Relu", "m", "r"),
        x=(1, 4, 6, 1) if shape == (1, 4, 1, 6) else (1, 4, 6, 6), w=(4, 4, 1, 1), y=shape,
    )  # fmt: skip
    assert named(graph, fuse_by_patterns(model_of(graph))) == {frozenset(group) for group in groups}


def test_tvm_fuses_elementwise_operators_before_a_reduction_and_nothing_behind_it() -> None:
    graph = network(
        node("Exp", "x", "e"), node("ReduceSum", "e", "s", keepdims=1), node("Sqrt", "s", "q"), x=(1, 4, 6, 6)
    )
    assert named(graph, fuse_by_patterns(model_of(graph))) == {frozenset("es"), frozenset("q")}


def test_tvm_fuses_data_movement_in_a_second_phase() -> None:
    graph = network(
        node("Transpose", "x", "t", perm=[0, 2, 3, 1]),
        node("Transpose", "t", "u", perm=[0, 3, 1, 2]),
        x=(1, 4, 6, 6),
    )
    assert named(graph, fuse_by_patterns(model_of(graph))) == {frozenset("tu")}


# -- all of them

PLANNERS: dict[str, Callable[[CostModel], Result]] = {
    "tvm": fuse_by_patterns, "dnnfusion": grow_blocks,
    "dnnfusion, strict": lambda model: grow_blocks(model, strict=True),
    "dp": solve_by_types, "dp, strict": lambda model: solve_by_types(model, strict=True),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANNERS)
def test_plans_are_legal_and_priced_by_the_same_judge(name: str) -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(1, 9)))
        for hardware in (UNLIMITED, random_hardware(rng, graph)):
            model = model_of(graph, hardware)
            planned = PLANNERS[name](model)
            assert assert_legal(model, planned.groups) == planned.dram_bytes, seed
            assert sorted(i for group in planned.groups for i in bits(group)) == list(
                range(len(model.dataflow))
            )


@pytest.mark.parametrize("strict", [True, False])
def test_the_dynamic_program_finds_the_best_of_what_types_allow(strict: bool) -> None:
    better = fewer = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(2, 9)))
        model = model_of(graph, UNLIMITED if seed % 2 else random_hardware(rng, graph))
        rules = TypeRules.of(model.dataflow, strict=strict)
        blocks, best, anything = (
            grow_blocks(model, strict=strict),
            solve_by_types(model, strict=strict),
            solve(model),
        )
        assert all(
            rules.allow(group)
            for planned in (blocks, best)
            for group in planned.groups
            if group & (group - 1)
        ), seed
        assert anything.dram_bytes <= best.dram_bytes <= blocks.dram_bytes, seed
        better += best.dram_bytes < blocks.dram_bytes
        fewer += anything.dram_bytes < best.dram_bytes
    assert better
    assert fewer


def test_a_profile_decides_doubtful_pairs() -> None:
    graph = network(
        node("Conv", "x w", "a"), node("Relu", "a", "r"), node("Mul", "r v", "z"), x=(1, 1, 6, 6),
        v=(1, 4, 6, 6), w=(1, 1, 1, 1),
    )  # fmt: skip
    model = model_of(graph)
    assert named(graph, grow_blocks(model, SearchOptions(latency=lambda group: 1.0))) == {frozenset("arz")}
    assert named(
        graph, grow_blocks(model, SearchOptions(latency=lambda group: float(group.bit_count() ** 2)))
    ) == {frozenset("a"), frozenset("rz")}


def test_searches_start_from_the_groups_that_rules_propose() -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        model = model_of(random_graph(rng, 12), Hardware(1 << 12))
        proposed = grow_blocks(model)
        for search in (improve, evolve):
            assert (
                search(model, SearchOptions(budget=1, seed=seed, start=(proposed.groups,))).dram_bytes
                == proposed.dram_bytes
            )
            assert (
                search(model, SearchOptions(budget=30, seed=seed, start=(proposed.groups,))).dram_bytes
                <= proposed.dram_bytes
            )


# -- real networks: table 5 of the paper has fused layers

TABLE_5 = {"zoo:efficientnet_b0": 97, "zoo:vgg16": 17}
SHARED_TABLE_5 = {
    "tv_s3d": 98,
    "hf_tinybert_4_312": 74,
    "hf_gpt2": 254,
    "hf_bert_base": 216,
    "hf_mobilebert": 510,
    "hf_albert_12l": 225,
}


@pytest.mark.parametrize("name", TABLE_5)
def test_no_more_fused_layers_than_in_the_paper(name: str) -> None:
    model = model_of(simplify(from_model(zoo.build(name.removeprefix("zoo:"), weights=False))))
    assert len(grow_blocks(model).groups) <= TABLE_5[name]
    assert len(grow_blocks(model).groups) < len(fuse_by_patterns(model).groups)


def test_tvm_fuses_vgg_16_into_as_many_layers_as_the_paper_says() -> None:
    assert (
        len(fuse_by_patterns(model_of(simplify(from_model(zoo.build("vgg16", weights=False))))).groups) == 22
    )


def test_rewriting_alone_removes_as_many_fused_layers_of_gpt_2_as_in_the_paper() -> None:
    """310 layers become 254, on an export with LayerNormalization, GELU and Softmax in pieces."""
    graph = from_model(zoo.build("gpt2", weights=False))
    plain, rewritten = (
        len(grow_blocks(model_of(simplify(graph, rules))).groups) for rules in ("default", "all")
    )
    assert rewritten <= 254 / 310 * plain


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (fused > 200)) for name, fused in SHARED_TABLE_5.items()],
)
def test_no_more_fused_layers_than_in_the_paper_on_real_exports(
    name: str, shared_model: Callable[[str], Path]
) -> None:
    model = model_of(simplify(load(shared_model(name))))
    blocks = grow_blocks(model)
    assert len(blocks.groups) <= SHARED_TABLE_5[name]
    assert len(blocks.groups) < len(fuse_by_patterns(model).groups)
    assert all(model.price(group) is not None for group in blocks.groups)
