"""What a worker makes of one job: the plan that `lfopt search` finds, carried out on paper, as a row."""

from __future__ import annotations

import functools
import math
import platform
import time
from dataclasses import dataclass, fields, replace
from importlib.metadata import version

import numpy as np

from lfopt.app.batch.engine import JobFailure
from lfopt.app.batch.jobs import BatchJob
from lfopt.app.batch.networks import network
from lfopt.app.gaps import gap_of
from lfopt.app.pipeline import find_plan, steps_of
from lfopt.ir import InvalidConfig
from lfopt.ir.plan import Proof
from lfopt.ir.report import Timing
from simulator.model.simulate import simulate

MOST = 1 << 62  # of any number of a row
ALWAYS = ("dram_bytes", "lower_bound_bytes", "cycles", "macs", "groups")  # figures of every finished job


@dataclass(frozen=True)
class JobResult:
    """What a row says of how a job ended: its figures, or why there are none."""

    error: str | None = None  # why the job failed, in one line; null: it did not
    element_bytes: int | None = None  # of feature maps, in the plan
    # optimal: no plan of this space moves less; bound: it may be above the bound; none: nothing is proven
    proof: Proof | None = None
    dram_bytes: int | None = None  # that the plan moves
    input_bytes: int | None = None  # of those, maps loaded
    output_bytes: int | None = None  # maps stored
    weight_bytes: int | None = None  # weights and biases
    parameter_bytes: int | None = None  # factors and tables of quantised operators
    spill_bytes: int | None = None  # maps stored and loaded again within a group
    l2_bytes: int | None = None  # between the buffer and the second level, beside those of DRAM
    lower_bound_bytes: int | None = None  # proven: no plan of this space moves less
    # (dram_bytes - lower_bound_bytes) / lower_bound_bytes; null where rules leave out some groups
    gap: float | None = None
    compulsory_bytes: int | None = None  # weights, parameters, inputs and outputs of the network once
    layer_by_layer_bytes: int | None = None  # every operator alone, every tensor once
    epilogue_fused_bytes: int | None = None  # elementwise operators join their producer; every tensor once
    cycles: int | None = None  # of the model
    # exact: step by step; extrapolated: from shortened loops; formula: from whole tensors
    timing: Timing | None = None
    energy_uj: float | None = None  # of the model
    macs: int | None = None  # multiply-accumulates, those that are done again too
    groups: int | None = None  # of the plan
    # of those: none of their steps fits, lfopt does not know the operator, or a limit came before
    groups_without_steps: int | None = None
    recounted: bool | None = None  # whether the plan was recounted; false: the time limit came before
    plans_evaluated: int | None = None  # by the search
    load_seconds: float | None = None  # the network; 0: the worker had it
    search_seconds: float | None = None  # for groups, their modes and band heights, and methods to compare
    plan_seconds: float | None = None  # places and steps
    seconds: float | None = None  # of the whole job, in the worker
    lfopt: str = ""  # version, of the worker
    python: str = ""  # version
    numpy: str = ""  # version

    @property
    def absent(self) -> str:
        """A figure that every finished job has, and that this row lacks; nothing where the job failed."""
        return next((name for name in ALWAYS if self.error is None and getattr(self, name) is None), "")

    def __post_init__(self) -> None:
        for column in fields(self):
            value = getattr(self, column.name)
            if isinstance(value, int | float) and not (math.isfinite(value) and 0 <= value <= MOST):
                raise InvalidConfig(f"{column.name}: found {value}; accepted: a number from 0 to 2**62")


def compute(job: BatchJob) -> JobResult:
    """The row of a job. Raises KeyboardInterrupt where Ctrl-C has cut its search short: that is no result."""
    start = time.perf_counter()
    graph, known = network(job.config.model, job.content, job.config.input_shapes, job.config.rules)
    loaded = time.perf_counter()
    outcome = find_plan(job.config, graph=graph)
    searched = time.perf_counter()
    finished = steps_of(outcome)
    if finished.interrupted:
        raise KeyboardInterrupt
    planned = time.perf_counter()
    plan = finished.plan
    report = simulate(plan, finished.graph)
    drafted = outcome.seconds["plan"]
    totals = plan.totals
    moved = report.dram
    return replace(
        blank(),
        element_bytes=int(plan.hardware.element_bytes),
        proof=totals.proof,
        dram_bytes=moved.total,
        input_bytes=moved.input,
        output_bytes=moved.output,
        weight_bytes=moved.weight,
        parameter_bytes=moved.parameter,
        spill_bytes=moved.spill,
        l2_bytes=report.l2.total,
        lower_bound_bytes=totals.lower_bound_bytes,
        gap=gap_of(plan),
        compulsory_bytes=totals.compulsory_bytes,
        layer_by_layer_bytes=totals.layer_by_layer_bytes,
        epilogue_fused_bytes=totals.epilogue_fused_bytes,
        cycles=report.cycles.total,
        timing=report.cycles.timing,
        energy_uj=report.energy.total_pj / 1e6,
        macs=report.macs,
        groups=len(plan.groups),
        groups_without_steps=plan.groups_without_steps,
        recounted=finished.recounted,
        plans_evaluated=plan.search.plans_evaluated,
        load_seconds=0.0 if known else round(loaded - start, 6),
        search_seconds=round(searched - loaded - drafted, 6),
        plan_seconds=round(planned - searched + drafted, 6),
        seconds=round(time.perf_counter() - start, 6),
    )


def failed(failure: JobFailure) -> JobResult:
    """The row of a job that gave nothing."""
    return replace(blank(), error=failure.message)


@functools.cache
def blank() -> JobResult:
    """A row without figures, of the versions of this process."""
    return JobResult(lfopt=version("lfopt"), python=platform.python_version(), numpy=np.__version__)
