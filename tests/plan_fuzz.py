"""Plans on disk changed at random, and all that read one: refused, or right by what the plan promises."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from codegen.accel import encode
from codegen.emit import emit_c
from codegen.source import CSource, Unsupported
from lfopt.app.commands.explain import explain
from lfopt.app.files import read_plan, write_plan
from lfopt.app.plans import make_draft, write_files
from lfopt.app.random_values import random_inputs
from lfopt.app.report.summary import page_of
from lfopt.app.verify import load_planned
from lfopt.ir import Graph, Hardware, LfoptError, Plan, PlannedGroup
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, Limit, Traffic, masks_of
from lfopt.planning.modes.tiled import TiledMode
from search.exact import solve
from search.options import SearchOptions
from simulator.interpreter.execute import execute
from simulator.model.simulate import simulate
from tests.codegen.checked import run_checked
from tests.following import follow_all

HUGE = (-1, 0, 1, 1 << 39, 10**17, 1 << 62, 1 << 70)


@dataclass
class Subject:
    """A network with its plan in a folder, what is right of it, and what was found to be."""

    graph: Graph
    folder: Path
    plan: Plan
    document: dict[str, Any]
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    tilings: frozenset[str]  # kinds of tiles in its groups of mode tiled
    program: bytes  # for the accelerator, of the plan as it was made
    code: set[str]  # digests of C that gives what is right
    executed: list[tuple[tuple[PlannedGroup, ...], Hardware]]  # what does so when it is executed

    @staticmethod
    def of(
        graph: Graph,
        hardware: Hardware,
        scheme: str,
        folder: Path,
        traffic: Traffic = Traffic.TILED,
        most: int | None = None,
    ) -> Subject:
        """Plan the network, making at most so many steps if that is said.

        The plan as it is made is taken to be right: see `prove`.
        """
        costs = GroupCosts.of(graph, hardware, traffic, scheme=scheme)
        searched = solve(costs, SearchOptions(time_limit=30))
        limit = Limit() if most is None else Limit(most=most)
        write_files(
            make_draft(graph, costs, searched, searched.lower_bound_bytes).finished(limit), graph, folder
        )
        plan, graph = load_planned(folder)
        tiled = masks_of(
            costs.dataflow, [group.nodes for group in plan.groups if group.mode == "tiled" and group.steps]
        )
        mode = costs.modes["tiled"]
        assert isinstance(mode, TiledMode)
        inputs = random_inputs(graph, np.random.default_rng(0))
        return Subject(
            graph,
            folder,
            plan,
            document=json.loads((folder / "plan.json").read_text()),
            inputs=inputs,
            outputs=reference(graph, inputs),
            tilings=frozenset(mode.tile(mask, hardware.buffer_bytes).kind for mask in tiled),
            program=programmed(plan, graph),
            code={digest(source) for how in HOW if (source := printed(plan, graph, how)) is not None},
            executed=[(plan.groups, plan.hardware)],
        )

    def prove(self, scratch: Path) -> None:
        """All readers of the unchanged plan are right, so what a changed plan has in common is too."""
        self.code.clear()
        self.executed.clear()
        readers_agree(self, self.folder / "plan.json", self.plan, self.graph, scratch)


HOW = ("fast", "count")  # how code is printed


def digest(source: CSource) -> str:
    """Of all that a program is compiled from, and its weights."""
    hasher = hashlib.sha256(repr((source.name, source.flags, sorted(source.files))).encode())
    for name in sorted(source.files):
        hasher.update(hashlib.sha256(source.files[name]).digest())
    return hasher.hexdigest()


def printed(plan: Plan, graph: Graph, how: str) -> CSource | None:
    """C of a plan; None where it is refused."""
    try:
        return emit_c(plan, graph, "c99", count=how == "count")
    except Unsupported:
        return None


def programmed(plan: Plan, graph: Graph) -> bytes:
    """Program of a plan; nothing where it is refused."""
    try:
        stream = encode(plan, graph)
    except LfoptError:
        return b""
    return stream.program + stream.constants


# -- changes -------------------------------------------------------------------------------------------------


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of everything in a document."""
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*at, key))


def mutated(document: dict[str, Any], rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """(what was done, a document with one or two changes)."""
    changed, said = copy.deepcopy(document), list[str]()
    for _ in range(1 if rng.random() < 0.8 else 2):
        paths = list(places(changed))
        steps = [path for path in paths if "steps" in path[:-1]]
        groups = [path for path in paths if path[0] == "groups" and "steps" not in path]
        pool = [steps, groups, paths][int(rng.choice(3, p=[0.5, 0.3, 0.2]))] or paths
        path = pool[int(rng.integers(len(pool)))]
        holder = changed
        for key in path[:-1]:
            holder = holder[key]
        said.append(f"{'.'.join(map(str, path))}: {_change(holder, path[-1], rng)}")
    return "; ".join(said), changed


def _change(holder: Any, key: Any, rng: np.random.Generator) -> str:
    old = holder[key]
    if isinstance(holder, list) and rng.random() < 0.5:
        other = int(rng.integers(len(holder)))
        what = int(rng.integers(3))
        if what == 0:
            del holder[key]
            return "deleted"
        if what == 1:
            holder.insert(other, copy.deepcopy(old))
            return f"copied to {other}"
        holder[key], holder[other] = holder[other], holder[key]
        return f"swapped with {other}"
    if isinstance(old, str):
        holder[key] = _other_text(old, rng)
    elif isinstance(old, bool):
        holder[key] = not old
    elif isinstance(old, int | float):
        holder[key] = _other_number(old, rng)
    elif isinstance(old, list | dict):
        holder[key] = type(old)()
    else:
        holder[key] = 1
    return f"{str(old)[:60]!r} to {str(holder[key])[:60]!r}"


def _other_number(old: float, rng: np.random.Generator) -> Any:
    if isinstance(old, float):
        return [old + 1.0, -old, 0.0, 1e300][int(rng.integers(4))]
    near = (old + 1, old - 1, old * 2, old // 2, -old, old + 16, old + 64)
    return near[int(rng.integers(len(near)))] if rng.random() < 0.8 else HUGE[int(rng.integers(len(HUGE)))]


def _other_text(old: str, rng: np.random.Generator) -> str:
    numbers = list(re.finditer(r"-?\d+", old))
    if numbers and rng.random() < 0.85:
        match = numbers[int(rng.integers(len(numbers)))]
        return old[: match.start()] + str(_other_number(int(match[0]), rng)) + old[match.end() :]
    words = re.findall(r"[A-Za-z_]\w*", old)
    spoilt = [old + "x", old[1:], old.replace("load", "store"), old.replace("input", "weight")]
    choices = [*spoilt, "", "*/ int x; /*", "\u202e", "tiled", "lbdf", "none"]
    return choices[int(rng.integers(len(choices)))] if words else old + "0"


# -- readers -------------------------------------------------------------------------------------------------


def verdict(subject: Subject, document: dict[str, Any], scratch: Path) -> str:
    """What becomes of a changed plan: `refused`, `same`, `right` or `followed`.

    `same`: what is read is the unchanged plan. `right`: every reader gives what is right.

    Most changes are refused because something else in the file does not agree with them: bytes, sums of
    bytes. Those are tried again with claims that follow: `followed` if every reader gave what is right then.
    Fails otherwise.
    """
    file = subject.folder / "changed.json"
    file.write_text(json.dumps(document))
    judgement = _judged(subject, file, scratch)
    if judgement != "refused":
        return judgement
    try:
        plan = read_plan(file)
        following = follow_all(plan)
    except (LfoptError, OverflowError):  # it cannot be read; or nobody can write its gap
        return "refused"
    if following == plan:
        return "refused"
    write_plan(following, file)
    return "followed" if _judged(subject, file, scratch) == "right" else "refused"


def _judged(subject: Subject, file: Path, scratch: Path) -> str:
    loaded = _loaded(file)
    if isinstance(loaded, str):
        assert "\n" not in loaded
        assert 0 < len(loaded) < 1000
        return "refused"
    plan, graph = loaded
    if plan == subject.plan:
        return "same"
    readers_agree(subject, file, plan, graph, scratch)
    return "right"


def _loaded(file: Path) -> tuple[Plan, Graph] | str:
    """The plan and its network; or why it is refused."""
    try:
        return load_planned(file)
    except LfoptError as error:
        return str(error)


def readers_agree(subject: Subject, file: Path, plan: Plan, graph: Graph, scratch: Path) -> None:
    """Everything that reads a plan gives what is right of it.

    Two of the readers take long, and are not asked twice for the same answer. `execute` reads the groups, the
    hardware, and a network whose file has the digest that the plan names: with equal ones it does the same
    thing. A program is its text: byte for byte the same C, compiled the same way, gives the same results on
    the same inputs, and was run under the sanitizers before.
    """
    report = simulate(plan, graph)
    assert not report.disagreements
    assert page_of(plan, graph, 0, 0)
    changed = next((k for k, group in enumerate(plan.groups) if group not in subject.plan.groups), 0)
    explain(str(file), group=changed, explainer=("analytic",), time_limit=0.5)
    if (plan.groups, plan.hardware) not in subject.executed:
        done = execute(plan, graph, subject.inputs)
        _same(done.outputs, subject.outputs)
        for group, counted in zip(plan.groups, done.groups, strict=True):
            allocated = group.allocated_bytes(plan.hardware)
            assert counted.by_formula or (group.dram, allocated) == (
                counted.dram,
                counted.peak_bytes,
            )
        subject.executed.append((plan.groups, plan.hardware))
    for how in HOW:
        source = printed(plan, graph, how)
        if source is not None and (text := digest(source)) not in subject.code:
            outputs = run_checked(source, subject.inputs, graph.outputs, _empty(scratch), alignment=True)
            _same(outputs, subject.outputs)
            subject.code.add(text)
    program = programmed(plan, graph)
    assert program in (b"", subject.program), (
        "another program: what it does is for the tests of the accelerator"
    )


def _same(outputs: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> None:
    for name, value in wanted.items():
        assert np.allclose(
            outputs[name], value, rtol=1e-4, atol=1e-4 * float(np.abs(value).max(initial=0))
        ), name


def _empty(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    return folder
