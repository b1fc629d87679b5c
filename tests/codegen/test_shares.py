"""Groups cut among threads: the bits of one thread, no data races, nothing beyond each one's arena."""

from __future__ import annotations

import platform
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codegen.emit import emit_c
from codegen.runtime import CannotRun
from codegen.source import CSource, Unsupported
from lfopt.ir import Graph, Plan
from tests.cases import SHARES, some
from tests.codegen.many import STRICT, Case, build, drawn, run, wrong
from tests.codegen.random_networks import RUNS_HERE
from tests.codegen.shared import NETS, Net, fused, residual
from tests.codegen.twice import compiled
from tests.random_plans import random_inputs

RACES = ("-O0", "-g", "-fsanitize=thread")
BEYOND = "wrote outside its arena"


def cut(plan: Plan, graph: Graph, target: str, threads: int) -> CSource:
    """C that is cut among threads."""
    source = emit_c(plan, graph, target, threads=threads, embed=True)
    assert source.together == {}
    assert source.arena_bytes == threads * plan.groups[0].allocated_bytes(plan.hardware)
    return source


def cases() -> list[Case]:
    """Every network by two threads and more: for every target in `make test-slow`, else each for one."""
    forms = [(name, rows) for name in NETS for rows in ((1, 3) if name in ("odd", "gated") else (1,))]
    printed = [(*form, target) for form in forms for target in RUNS_HERE]
    if SHARES > 1:
        printed = [(*form, RUNS_HERE[k % len(RUNS_HERE)]) for k, form in enumerate(forms)]
    drawn_cases: list[Case] = []
    for seed, (name, rows, target) in enumerate(printed):
        graph = NETS[name]().finish()
        plan, inputs = fused(graph, rows), random_inputs(graph, np.random.default_rng(1))
        drawn_cases += [Case(seed, graph, plan, target, threads, 0, inputs) for threads in (2, 3, 7)]
    return drawn_cases


def test_threads_give_the_bits_of_one(tmp_path: Path) -> None:
    models: dict[str, tuple[Case, CSource]] = {}
    for case in cases():
        cut(case.plan, case.graph, case.target, case.threads)
        for threads in (1, case.threads):
            source = case.printed(threads)
            models[source.name] = (case, source)
    program = build([*models.values()], tmp_path / "plain", STRICT, 2)
    assert program.refused == {}
    outputs, complaints = run(program)
    assert complaints == {}
    for name, (case, _) in models.items():
        assert not wrong(case, outputs[name]), case
        alone = outputs[f"seed{case.seed}_threads1"]
        assert [output.tobytes() for output in outputs[name]] == [output.tobytes() for output in alone], case


@pytest.mark.sanitize
@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="thread sanitizer")
@pytest.mark.parametrize("which", [pytest.param("own", marks=pytest.mark.slow), "random"])
def test_threads_never_touch_what_another_writes(which: str, tmp_path: Path) -> None:
    """Under the thread sanitizer."""
    examined = (
        cases()
        if which == "own"
        else [replace(drawn(seed, RUNS_HERE), threads=2 + seed % 2) for seed in some(range(6000, 6040))]
    )
    models: list[tuple[Case, CSource]] = []
    for case in examined:
        with suppress(Unsupported):  # of random networks
            models.append((case, case.printed(case.threads)))
    assert len(models) > 0.8 * len(examined)
    program = build(models, tmp_path / "races", RACES, 2)
    assert program.refused == {}
    outputs, complaints = run(program)
    assert complaints == {}
    assert outputs.keys() == {source.name for _, source in models}


@pytest.mark.parametrize("thread", [0, 1, 2])
def test_whoever_leaves_an_arena_is_found(thread: int, tmp_path: Path) -> None:
    graph = residual().finish()
    source = cut(fused(graph), graph, "c99", 3)
    model, start = compiled(source, tmp_path / "good"), "static void group_0(const context *m) {"
    x = {"x": np.ones(graph.shape("x"), np.float32)}
    model.run(x)
    assert model.arena_bytes == source.arena_bytes
    code = source.files["model.c"].decode()
    assert start in code
    bad = code.replace(start, f"{start} if (m->me == {thread}) m->rings[ARENA - 16] = 1.0f;").encode()
    with pytest.raises(CannotRun, match=BEYOND):
        compiled(replace(source, files={**source.files, "model.c": bad}), tmp_path / "bad").run(x)


def test_what_costs_more_alone_is_done_together() -> None:
    """Rows of 7 that a large window needs from a heavy convolution would nearly all be made twice."""
    net = Net(1, 160, 7, 7)
    net.conv(512, 1)
    net.depthwise(7)
    graph = net.finish()
    source = emit_c(fused(graph), graph, threads=2)
    assert source.together == {0: "too many rows would be made twice"}
    assert (
        b"m->rings"
        not in source.files["model.c"].partition(b"static void group_0")[2].partition(b"int net_run")[0]
    )
    plan = fused(graph)
    assert source.arena_bytes == plan.groups[0].allocated_bytes(plan.hardware)
    assert emit_c(fused(graph), graph, threads=1).together == {}
