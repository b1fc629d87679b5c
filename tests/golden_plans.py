"""Digests of plans, generated C and command streams of whole networks: what a redesign must not move.

    python -m tests.golden_plans TABLE            compare with a table; a line for every difference, exit code
                                                  1 if there is one
    python -m tests.golden_plans TABLE --write    make the table (an hour on two cores; --only TEXT: the cases
                                                  whose line has it)

The table is made from the revision before, and compared in the one after. A plan's digest is that of its
plan.json, without what is said of the search and without the digest of its model; C and streams are digested
as they are, weights apart.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from codegen.accel import encode
from codegen.emit import emit_c
from lfopt import zoo
from lfopt.app.config import load_hardware
from lfopt.app.files import write_plan
from lfopt.app.plans import make_draft
from lfopt.frontend import from_model, load
from lfopt.ir import Graph, Hardware, LfoptError, Plan
from lfopt.ops import Dataflow
from lfopt.planning import GroupCosts, Limit
from lfopt.rewrite import simplify
from search.exact import solve
from search.local import improve
from search.options import SearchOptions
from tests.conftest import MODELS, ROOT
from tests.random_plans import in_integers, random_inputs

SCHEMES = ("lbdf", "resident", "brr", "auto")
BUFFERS = (128, 256, 1024)  # KiB
EXACT_SECONDS = 10.0  # a network that needs more is planned by local search, which is the same everywhere
BUDGET = 60  # plans that local search tries
MOST_STEPS = 400_000  # of a plan: one that has more is compared without its steps
PROGRAMS = (
    "mobilenet_v1",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "efficientnet_b0",
    "resnet18",
    "squeezenet1_1",
    "unet",
    "fsrcnn",
)
STREAMS = ("mobilenet_v2", "mobilenet_v3_small", "resnet18", "squeezenet1_1")
ACCELERATOR = load_hardware(ROOT / "configs" / "hardware" / "accelerator_256k.yaml")


class Case(NamedTuple):
    """One line of the table but for its result."""

    network: str  # of the zoo, or shared:NAME
    what: str  # plan | c | stream
    scheme: str
    buffer_kib: int


class Golden(NamedTuple):
    """What a case gave."""

    method: str  # exact | local
    dram_bytes: int
    digest: str
    steps: int  # -1: left out of the digest


def cases() -> Iterator[Case]:
    """All of them; networks that are not at hand are left out."""
    shared = [f"shared:{path.stem}" for path in sorted(MODELS.glob("*.onnx"))]
    for network in [*zoo.names(), *shared]:
        for scheme in SCHEMES:
            for kib in BUFFERS:
                yield Case(network, "plan", scheme, kib)
    for what, networks in (("c", PROGRAMS), ("stream", STREAMS)):
        for network in networks:
            for scheme in ("lbdf", "auto"):
                yield Case(network, what, scheme, 256)


def graph_of(case: Case) -> Graph:
    """The network, simplified."""
    if case.network.startswith("shared:"):
        return simplify(load(MODELS / f"{case.network.removeprefix('shared:')}.onnx"))
    if case.what == "plan":
        return simplify(from_model(zoo.build(case.network, weights=False), name=case.network))
    size = {"image": (1, 3, 96, 96)} if case.what == "stream" else None
    graph = simplify(from_model(zoo.build(case.network), size, name=case.network))
    if case.what == "stream":
        rng = np.random.default_rng(0)
        graph, _ = in_integers(graph, random_inputs(graph, rng), rng)
    return graph


def run(case: Case, method: str | None) -> Golden:
    """Plan the network by the table's method, or by exact search where that is quick enough."""
    graph = graph_of(case)
    chip = (
        ACCELERATOR
        if case.what == "stream"
        else Hardware(case.buffer_kib * 1024, element_bytes=4 if case.what == "c" else 2)
    )
    costs = GroupCosts(Dataflow.of(graph), chip, scheme=case.scheme)  # type: ignore[arg-type]
    problem = costs
    if method is None:
        method = (
            "exact" if solve(problem, SearchOptions(time_limit=EXACT_SECONDS)).proof == "optimal" else "local"
        )
    # by methods in which no clock decides anything
    searched = solve(problem) if method == "exact" else improve(problem, SearchOptions(budget=BUDGET, seed=0))
    draft = make_draft(graph, costs, searched, searched.lower_bound_bytes)
    plan = draft.finished(Limit(most=MOST_STEPS))
    unwritten = any(group.unwritten for group in plan.groups)
    plan = draft.plan if unwritten else plan
    text = {"plan": _plan_text, "c": _c_text, "stream": _stream_text}[case.what](plan, graph)
    steps = -1 if unwritten else sum(len(group.steps) for group in plan.groups)
    return Golden(searched.method, plan.totals.dram_bytes, hashlib.sha256(text).hexdigest()[:16], steps)


def _plan_text(plan: Plan, _: Graph) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        write_plan(plan, path)
        data = json.loads(path.read_text())
        del data["search"], data["model"]["sha256"]
        return json.dumps(data).encode()


def _c_text(plan: Plan, graph: Graph) -> bytes:
    return b"".join(
        emit_c(plan, graph, name).files[file] for name in ("c99", "avx512") for file in ("model.c", "model.h")
    )


def _stream_text(plan: Plan, graph: Graph) -> bytes:
    stream = encode(plan, graph)
    return stream.program + stream.constants


def read(table: Path) -> dict[Case, Golden]:
    """A table."""
    rows = [line.split("\t") for line in table.read_text().splitlines()[1:]]
    return {Case(a, b, c, int(d)): Golden(e, int(f), g, int(h)) for a, b, c, d, e, f, g, h in rows}


def _job(job: tuple[Case, Golden | None]) -> tuple[Case, Golden | None, str, float]:
    start = time.perf_counter()
    try:
        return job[0], run(job[0], job[1].method if job[1] else None), "", time.perf_counter() - start
    except LfoptError as error:
        return job[0], None, str(error), time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="", help="cases whose line contains this")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    known = {} if options.write else read(options.table)
    wanted = [
        case
        for case in cases()
        if options.only in "\t".join(map(str, case)) and (options.write or case in known)
    ]
    goldens: dict[Case, Golden] = {}
    different = 0
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=20) as pool:
        for case, golden, why, seconds in pool.imap(_job, [(case, known.get(case)) for case in wanted]):
            if golden is None:
                print(*case, why, flush=True)
                different += not options.write
                continue
            goldens[case] = golden
            if not options.write and golden != known[case]:
                different += 1
                print("MOVED", *case, known[case], golden, flush=True)
            elif options.write or seconds > 20:
                print(*case, *golden, f"{seconds:.1f} s", flush=True)
    if options.write:
        lines = ["\t".join((*Case._fields, *Golden._fields))] + [
            "\t".join(map(str, (*c, *g))) for c, g in goldens.items()
        ]
        options.table.write_text("\n".join(lines) + "\n")
    print(f"{len(goldens)} cases, {different} moved")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
