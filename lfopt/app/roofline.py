"""Roofline of fused kernels: time, operations and bytes of each, and the measured peak of the machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import numpy as np

from codegen.build import find_compiler
from codegen.peak import peak_operations
from codegen.target import TargetName
from lfopt.app.answers.programs import KernelTime, Roofline
from lfopt.app.compiled import image_by_image, plan_for_cpu
from lfopt.app.profiles import group_times
from lfopt.ir import Graph, Hardware
from lfopt.ops import Dataflow


def roofline(
    graph: Graph,
    values: Mapping[str, np.ndarray],
    *,
    hardware: Hardware,
    target: TargetName,
    threads: int,
    report: Callable[[str, float], None],
) -> Roofline:
    """Measure every group of the plan that `lfopt run` makes, in a build that takes their times.

    `values`: graph inputs by name, in their shapes and types; of several images the first is measured. Raises
    Unsupported for quantised networks where there are no products of bytes.
    """
    compiler = find_compiler(os.environ.get("CC"))
    peak = peak_operations(target, compiler, integers=graph.quantized)
    image_graph, images = image_by_image(graph)
    plan = plan_for_cpu(image_graph, hardware, target, report)
    report("measuring groups", 0.0)
    flow = Dataflow.of(image_graph)
    macs = dict(zip((call.operator.name for call in flow.calls), flow.macs, strict=True))
    first = {
        name: value[: image_graph.shape(name)[0]] if images > 1 else value for name, value in values.items()
    }
    times = group_times(plan, image_graph, target, threads, compiler, first)
    kernels = tuple(
        KernelTime(
            group.id,
            group.nodes,
            seconds,
            2 * sum(macs.get(name, 0) for name in group.nodes),
            group.dram.total,
        )
        for group, seconds in zip(plan.groups, times, strict=True)
    )
    return Roofline(threads * peak, kernels, images, graph.quantized)
