"""The functions of `import lfopt`, one for each arrow from a network to what runs.

`lfopt/__init__.py` only names them.

Wherever a network is taken, so is an ONNX file, zoo:NAME, an `onnx.ModelProto`, or a `Graph` (which is taken
as it is). Wherever a plan is taken, so is what `search` gives, or the file or folder of a plan, whose every
claim is checked first; a bare `Plan` says its network in `model`. Wherever a buffer's size is taken, it is a
whole number of bytes or a text such as "256KiB". Wrong input raises a `LfoptError` of one line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from codegen.accel import encode as encode_plan
from codegen.arrays import Inputs, array, by_name
from codegen.elements import ELEMENT
from codegen.emit import emit_c as print_c
from codegen.source import CSource
from codegen.target import TARGET, THREADS, WINOGRAD
from lfopt.app.arrays import given_back, taken
from lfopt.app.compiled import check_options
from lfopt.app.config import MAX_SECONDS, Config, SearchConfig, find_hardware, load_hardware, validate
from lfopt.app.deadline import ReportProgress
from lfopt.app.explain import NO_WAYS, Explainers, costs_of_plan, explained
from lfopt.app.files import path_of, write_text
from lfopt.app.front import Front, FrontQuery, front_of
from lfopt.app.front_question import Listed, question
from lfopt.app.needs import take_planned
from lfopt.app.nodes import chosen
from lfopt.app.options import (
    ANY_MODE,
    BANDS,
    BUFFER,
    BUFFERS,
    DEFAULT_BUFFER,
    EXPLAINER,
    HARDWARE,
    INPUT_SHAPES,
    JOINING,
    MAC_ARRAYS,
    MAX_BYTES,
    MINIMISE,
    NODES,
    OBJECTIVES,
    OVER,
    PICTURE_SECONDS,
    PROFILE,
    REPAIR_SECONDS,
    SLACK,
    SURROGATE,
    SWEEP_SECONDS,
    BandRowsOption,
    BudgetOption,
    ChipBudgetOption,
    CornersOption,
    CountOption,
    ElementBytesOption,
    ElementOption,
    EmbedOption,
    ExplainerName,
    FillOption,
    FrontSecondsOption,
    GroupOption,
    GuidanceOption,
    JobSecondsOption,
    MaxCyclesOption,
    MaxEnergyOption,
    MaxRecomputeOption,
    MethodOption,
    ObjectiveOption,
    PictureSecondsOption,
    PrefixOption,
    ProofSecondsOption,
    ProposeOption,
    ProveOption,
    RepairSecondsOption,
    RulesOption,
    SchemeOption,
    SeedOption,
    SweepSecondsOption,
    TargetOption,
    ThreadsOption,
    TrafficOption,
    WeightsOption,
    WinogradOption,
)
from lfopt.app.pipeline import Model, find_plan, load_model, steps_of
from lfopt.app.proving import proven_again
from lfopt.app.random_values import random_inputs
from lfopt.app.random_weights import calibrated
from lfopt.app.report.summary import page_of
from lfopt.app.results import Explained, Planned
from lfopt.app.sizes import looks_like_a_size, parse_size, size_option
from lfopt.app.verify import Verified, load_planned, verified, verify
from lfopt.frontend import InputShapes
from lfopt.fusion import legal as legality
from lfopt.ir import (
    CommandStream,
    DoesNotFit,
    FusionScheme,
    Graph,
    Hardware,
    InvalidConfig,
    InvalidPlan,
    Plan,
    Verdict,
)
from lfopt.ir import Report as Simulation
from lfopt.planning import SCHEMES, GroupCosts, Limit, masks_of
from lfopt.planning import plan as plan_scheme
from lfopt.planning.defaults import BAND_ROWS, GROUP_SCHEME
from lfopt.rewrite import simplify as simplified
from simulator.interpreter.execute import Execution
from simulator.interpreter.execute import execute as run_steps
from simulator.model.simulate import simulate as carried_out

Network = Model | Graph
File = str | os.PathLike[str]
PlanLike = Planned | Plan | File
Chip = Hardware | File  # a description, its file, or the size of its buffer such as "256KiB"
Size = int | str  # bytes, "256KiB", "unlimited"
Groups = FusionScheme | Sequence[Sequence[str]]

# -- networks ------------------------------------------------------------------------------------------------


def load(
    model: Network,
    input_shapes: Annotated[InputShapes | None, INPUT_SHAPES] = None,
    *,
    weights: WeightsOption = True,
) -> Graph:
    """A network as it is in its file, every shape known, dead operators removed; not simplified.

    `input_shapes`: of inputs by name, where the file leaves them open or others are wanted. `weights`:
    whether zoo:NAME gets values, which takes time, or shapes alone, which suffice to plan. Raises
    InvalidModel, UnsupportedModel; InvalidConfig for `input_shapes` with a Graph, whose shapes are known.
    """
    if not isinstance(model, Graph):
        return load_model(model, input_shapes, weights=weights)
    if input_shapes:
        raise InvalidConfig("input_shapes: found some with a Graph, whose shapes are known; accepted: none")
    return model


def simplify(model: Network, rules: RulesOption = Config.rules) -> Graph:
    """The same network with fewer operators.

    `rules`: default folds BatchNormalization and lets linear layers work on maps [b, s, d]; all also rewrites
    (algebra, parts of GELU, Softmax and the like, noise of exporters); none does nothing.
    """
    return simplified(load(model), rules)


def legal(model: Network, scheme: Groups) -> Verdict:
    """Whether a fusion scheme is a partition into connected, convex groups without a cyclic dependency.

    Where it is not, `reasons` has a line for each reason.
    """
    return legality(_network(model), _scheme(scheme))


# -- plans ---------------------------------------------------------------------------------------------------


def search(
    model: Network,
    buffer: Annotated[Size | None, BUFFER] = None,
    *,
    hardware: Annotated[Chip | None, HARDWARE] = None,
    element_bytes: ElementBytesOption | None = None,
    scheme: SchemeOption = Config.scheme,
    method: MethodOption = SearchConfig.method,
    traffic: TrafficOption = Config.traffic,
    epilogue: Annotated[bool, JOINING] = Config.epilogue,
    band_rows: BandRowsOption = Config.band_rows,
    max_recompute: MaxRecomputeOption = Config.max_recompute,
    rules: RulesOption | None = None,
    input_shapes: Annotated[InputShapes | None, INPUT_SHAPES] = None,
    seed: SeedOption = SearchConfig.seed,
    budget: BudgetOption = SearchConfig.budget,
    time_limit: JobSecondsOption | None = SearchConfig.time_limit,
    guidance: GuidanceOption = SearchConfig.guidance,
    propose: ProposeOption = SearchConfig.propose,
    profile: Annotated[bool, PROFILE] = SearchConfig.profile,
    objective: ObjectiveOption | None = SearchConfig.objective,
    surrogate: Annotated[bool, SURROGATE] = SearchConfig.surrogate,
    slack: Annotated[float | None, SLACK] = SearchConfig.slack,
    max_bytes: Annotated[Size | None, MAX_BYTES] = SearchConfig.max_dram_bytes,
    max_cycles: MaxCyclesOption | None = SearchConfig.max_cycles,
    max_energy: MaxEnergyOption | None = SearchConfig.max_energy_uj,
    together: Sequence[Sequence[str]] = (),
    alone: Sequence[str] = (),
    cut: Sequence[Sequence[str]] = (),
    mode: Mapping[str, str] | None = None,
    nests: Mapping[str, str] | None = None,
    weights: WeightsOption = True,
    progress: ReportProgress | None = None,
) -> Planned:
    """A fusion plan of little DRAM traffic that is no slower than today's, with a proof of how good it is.

    Writes no file; `save` of what it gives does.

    >>> search("zoo:squeezenet1_1", buffer="256KiB", weights=False, scheme="lbdf", objective="bytes")
    Planned(Plan(squeezenet1_1: 262,144 B of buffer, lbdf, 12 groups, 4,769,888 B of DRAM, optimal))

    Options are those of `lfopt search` and of its configuration, see `lfopt search --help` and docs/api.md. A
    Graph is taken as it is unless `rules` are given. `progress(what, share)` is called now and then. Ctrl-C
    leaves the best plan so far: `result.interrupted`. Raises LfoptError.
    """
    graph = load(model, input_shapes, weights=weights)
    if rules is not None or not isinstance(model, Graph):
        graph = simplified(graph, rules or Config.rules)
    chip = _chip(hardware, buffer, element_bytes)
    searching = {
        "method": method, "seed": seed, "budget": budget, "time_limit": time_limit,
        "guidance": guidance, "propose": propose, "profile": profile,
        "objective": objective, "surrogate": surrogate, "slack": slack,
        "max_dram_bytes": max_bytes, "max_cycles": max_cycles, "max_energy_uj": max_energy,
    }  # fmt: skip
    given = {
        "scheme": scheme,
        "traffic": traffic,
        "epilogue": epilogue,
        "band_rows": band_rows,
        "max_recompute": max_recompute,
        "search": searching,
    }
    given |= {"together": together, "alone": alone, "cut": cut}
    given |= {"mode": dict(mode or {}), "nests": dict(nests or {})}
    config = validate(Config, {"model": "model", "hardware": {"buffer_bytes": 1}, **_plain(given)}, "search")
    outcome = find_plan(replace(config, hardware=chip), progress, graph=graph)
    finished = steps_of(outcome)
    if finished.replaced:
        outcome = outcome.with_draft(finished.draft)
    return Planned(finished.plan, finished.graph, outcome.best.result, finished.recounted)


def pareto(
    model: Network,
    *,
    hardware: Annotated[Chip | None, HARDWARE] = None,
    over: Annotated[Listed[str] | None, OVER] = None,
    buffers: Annotated[Listed[Size] | None, BUFFERS] = None,
    mac_arrays: Annotated[Listed[str | tuple[int, int]] | None, MAC_ARRAYS] = None,
    objectives: Annotated[Listed[str] | None, OBJECTIVES] = None,
    minimise: Annotated[Listed[str] | None, MINIMISE] = None,
    element_bytes: ElementBytesOption | None = None,
    scheme: SchemeOption = ANY_MODE,
    epilogue: Annotated[bool, JOINING] = Config.epilogue,
    corners: CornersOption = FrontQuery.corners,
    budget: ChipBudgetOption = FrontQuery.budget,
    seed: SeedOption = SearchConfig.seed,
    time_limit: FrontSecondsOption | None = FrontQuery.time_limit,
    progress: ReportProgress | None = None,
) -> Front:
    """The Pareto front of plans over buffers and MAC arrays, with its knees.

    The front has `points`, `efficient` and `advice`. Options are those of `lfopt pareto`, as texts or as
    lists: `buffers="64KiB:1MiB"`, `mac_arrays=[(8, 8), (16, 16)]`. Ctrl-C leaves what was found:
    `interrupted`. Writes no file; `save` of what it gives does.
    """
    given = {"model": "model", "hardware": {"buffer_bytes": 1}, "scheme": scheme, "epilogue": epilogue}
    config = replace(validate(Config, given, "pareto"), hardware=_chip(hardware, None, element_bytes))
    query = question(
        config,
        over=over,
        buffers=buffers,
        mac_arrays=mac_arrays,
        objectives=objectives,
        minimise=minimise,
        corners=corners,
        budget=budget,
        seed=seed,
        time_limit=time_limit,
    )
    return front_of(_network(model), query, progress)


def plan(
    model: Network,
    scheme: Groups,
    hardware: Chip,
    *,
    modes: SchemeOption = GROUP_SCHEME,
    traffic: TrafficOption = Config.traffic,
    epilogue: Annotated[bool, JOINING] = Config.epilogue,
    band_rows: Annotated[int | Literal["max"], BANDS] = BAND_ROWS,
    lower_bound_bytes: int | None = None,
    limit: Limit | None = None,
) -> Plan | DoesNotFit:
    """The plan that carries out a fusion scheme, with all its steps; or the first group that does not fit.

    See `lfopt.planning.plan`.

    `scheme`: groups of operator names. `modes`: how groups may run: lbdf, resident, brr, or auto. Raises
    InvalidPlan for a scheme that is not legal.
    """
    options: dict[str, Any] = {
        "modes": modes,
        "traffic": traffic,
        "epilogue": epilogue,
        "band_rows": band_rows,
        "limit": limit,
    }
    return plan_scheme(
        _network(model),
        _scheme(scheme),
        _chip(hardware, None, None),
        lower_bound_bytes=lower_bound_bytes,
        **options,
    )


def load_plan(path: File) -> Planned:
    """A plan and the network beside it, from plan.json or its folder.

    Raises InvalidPlan where any claim of the plan does not hold.
    """
    return Planned(*load_planned(path_of(path, "plan")))


def check(
    plan: PlanLike,
    *,
    model: Network | None = None,
    prove: ProveOption = False,
    time_limit: ProofSecondsOption | None = None,
) -> Verified:
    """A recount of everything that a plan claims, which shares nothing with the planner.

    `wrong` has a line for each claim that does not hold. `prove`: verify the lower bound too, by the exact
    search, for at most `time_limit` seconds; `bound` says what came of it.
    """
    if time_limit is not None:
        _check_seconds("time_limit", time_limit, positive=True)
    if isinstance(plan, str | os.PathLike):
        verification = verify(path_of(plan, "plan"))
    else:
        verification = verified(*_bound(plan, model))
    if prove and not verification.wrong:
        again = proven_again(verification.plan, verification.graph, time_limit, lambda what, done: None)
        verification = replace(verification, **again._asdict())
    return verification


# -- what plans are for --------------------------------------------------------------------------------------


def simulate(plan: PlanLike, *, model: Network | None = None) -> Simulation:
    """Bytes that a plan moves, by group and by tensor, and its cycles and energy by the hardware model."""
    return carried_out(*_planned(plan, model))


def execute(
    plan: PlanLike,
    inputs: Inputs | None = None,
    *,
    model: Network | None = None,
    fill: FillOption = False,
    seed: SeedOption = SearchConfig.seed,
) -> Execution:
    """Run a plan row by row, holding on chip only what it says, and count every DRAM byte.

    `inputs`: arrays by name, or a list of them in the model's order, of types as in the file; a quantised
    network takes real numbers as well as the integers that stand for them. None: drawn at random from
    `seed`. `fill`: draw weights that are absent too. `outputs` of what it gives are by the model's names, of
    types as in the file. Raises MissingValues for a network without weights, InvalidPlan for a plan that
    cannot be carried out.
    """
    loaded, graph = _planned(plan, model)
    rng = _generator(seed)
    if fill and not graph.has_values:
        graph = calibrated(graph, rng)
    if inputs is None:
        values = random_inputs(graph, rng)
    else:
        wanted = {
            graph.label(name): f"{graph.end_type(name)} {list(graph.shape(name))}" for name in graph.inputs
        }
        values = taken(
            graph,
            {name: array(value, name) for name, value in by_name(inputs, wanted, "inputs").items()},
            "inputs",
        )
    done = run_steps(loaded, graph, values)
    return replace(done, outputs=given_back(graph, done.outputs))


def explain(
    what: PlanLike | Network,
    nodes: Annotated[str | Sequence[str] | None, NODES] = None,
    *,
    group: GroupOption | None = None,
    model: Network | None = None,
    buffer: Annotated[Size | None, BUFFER] = None,
    hardware: Annotated[Chip | None, HARDWARE] = None,
    element_bytes: ElementBytesOption | None = None,
    scheme: SchemeOption | None = None,
    explainer: Annotated[ExplainerName | Sequence[ExplainerName], EXPLAINER] = (),
    seconds: RepairSecondsOption = REPAIR_SECONDS,
    seed: SeedOption = SearchConfig.seed,
) -> Explained:
    """Why operators do not fit the buffer as one group: bytes by tensor, and the cheapest repairing cut.

    `what`: a network, with `nodes`; or a plan, with `group` (its number) or `nodes`. `nodes`: names of
    operators and ranges A..B, as one text with commas between or as a list; whatever lies between is added.
    `explainer`: whose scores of links are wanted, see `lfopt explain`. `seconds`: for the exact search for
    the best cut. Raises InvalidConfig for options that are not accepted.
    """
    if (nodes is None) == (group is None):
        raise InvalidConfig(
            f"explain: found {'neither nodes nor' if nodes is None else 'both nodes and'} group; accepted: "
            "one of them"
        )
    if not isinstance(nodes, str | Sequence | None):
        raise InvalidConfig(
            f"nodes: found {type(nodes).__name__}; accepted: a text such as 'conv1..relu2', or a list of "
            "names"
        )
    if scheme not in (None, *SCHEMES):
        raise InvalidConfig(f"scheme: found {scheme!r}; accepted: {', '.join(SCHEMES)}")
    _check_seconds("seconds", seconds, positive=True)
    if _is_plan(what):
        loaded, graph = _planned(what, model)
        chip = _chip(loaded.hardware if hardware is None else hardware, buffer, element_bytes)
        costs = costs_of_plan(loaded, graph, chip, scheme)
        masks = masks_of(costs.dataflow, [planned.nodes for planned in loaded.groups])
        ways = take_planned(costs, loaded, masks)
    else:
        graph = _network(what)  # pyright: ignore[reportArgumentType]
        chip = _chip(hardware, buffer, element_bytes)
        costs = GroupCosts.of(graph, chip, scheme=scheme or GROUP_SCHEME)
        masks = ()
        ways = NO_WAYS
    if group is not None and not (type(group) is int and 0 <= group < len(masks)):
        accepted = f"a group of the plan, 0 to {len(masks) - 1}" if masks else "nodes, of a network"
        raise InvalidConfig(f"group: found {group!r}; accepted: {accepted}")
    mask = masks[group] if group is not None else chosen(costs.dataflow, nodes or "")[0]
    names: Sequence[Any] = (explainer,) if isinstance(explainer, str) else tuple(dict.fromkeys(explainer))
    explanation = explained(costs, mask, Explainers.of(costs, names, seed), seconds, ways)
    return Explained(explanation, costs.dataflow)


def report(
    plan: PlanLike,
    file: File | None = None,
    *,
    model: Network | None = None,
    sweep_seconds: SweepSecondsOption = SWEEP_SECONDS,
    explainer: Annotated[Sequence[ExplainerName], EXPLAINER] = (),
    explain_seconds: PictureSecondsOption = PICTURE_SECONDS,
) -> str:
    """A plan as one HTML page that asks for nothing from anywhere; written to `file` too, if it is given.

    Options: see `lfopt report`.
    """
    _check_seconds("sweep_seconds", sweep_seconds)
    _check_seconds("explain_seconds", explain_seconds)
    page = page_of(*_planned(plan, model), sweep_seconds, explain_seconds, tuple(dict.fromkeys(explainer)))
    if file is not None:
        write_text(path_of(file, "file"), page)
    return page


def emit_c(
    plan: PlanLike,
    target: TargetOption = TARGET,
    *,
    model: Network | None = None,
    threads: ThreadsOption = THREADS,
    embed: EmbedOption = False,
    count: CountOption = False,
    winograd: WinogradOption = WINOGRAD,
    element: ElementOption = ELEMENT,
    prefix: PrefixOption | None = None,
) -> CSource:
    """A plan as C: `files` by name.

    For elements of 4 bytes, 2 for bf16, or 1 where the network is quantised; options: see `lfopt codegen`.

    Raises MissingValues for a network without weights, and names what it cannot print.
    """
    check_options(target, threads, element)
    return print_c(
        *_planned(plan, model),
        target,
        threads=threads,
        embed=embed,
        count=count,
        winograd=winograd,
        element=element,
        prefix=prefix,
    )


def encode(plan: PlanLike, *, model: Network | None = None) -> CommandStream:
    """A plan as a program of the accelerator, with its constants and memory map.

    See configs/hardware/accelerator_256k.yaml for its hardware.
    """
    return encode_plan(*_planned(plan, model))


# -- arguments -----------------------------------------------------------------------------------------------


def _network(model: Network) -> Graph:
    """A Graph as it is; anything else simplified by the default rules, without the weights of zoo:NAME."""
    if isinstance(model, Graph):
        return model
    return simplified(load_model(model, None, weights=False))


def _is_plan(what: object) -> bool:
    return isinstance(what, Planned | Plan) or (
        isinstance(what, str | os.PathLike) and (Path(what).is_dir() or str(what).endswith(".json"))
    )


def _planned(plan: object, model: Network | None) -> tuple[Plan, Graph]:
    """A plan that is not at odds with its network, and that network."""
    if isinstance(plan, str | os.PathLike):
        return load_planned(path_of(plan, "plan"))
    checked, graph = _bound(plan, model)
    if (
        not isinstance(plan, Planned)
        and not (verdict := legality(graph, FusionScheme(tuple(g.nodes for g in checked.groups)))).legal
    ):
        raise InvalidPlan(f"plan: not of network {graph.name!r}: {verdict.reasons[0]}")
    return checked, graph


def _bound(plan: object, model: Network | None) -> tuple[Plan, Graph]:
    if isinstance(plan, Planned):
        return plan.plan, plan.graph if model is None else _with_values(model)
    if not isinstance(plan, Plan):
        raise InvalidConfig(
            f"plan: found {type(plan).__name__}; accepted: what lfopt.search gives, a plan.json or its "
            "folder, or a Plan with `model`"
        )
    if model is None:
        raise InvalidConfig(
            "model: absent; accepted: the network that the Plan is for, or give what lfopt.search gives in "
            "place of the Plan"
        )
    return plan, _with_values(model)


def _with_values(model: Network) -> Graph:
    if isinstance(model, Graph):
        return model
    return simplified(load_model(model, None))


def _scheme(scheme: object) -> FusionScheme:
    if isinstance(scheme, FusionScheme):
        return scheme
    groups = scheme if isinstance(scheme, Sequence) and not isinstance(scheme, str) else None
    if groups is None or not all(
        isinstance(g, Sequence) and not isinstance(g, str) and all(isinstance(n, str) for n in g)
        for g in groups
    ):
        raise InvalidConfig(
            f"scheme: found {type(scheme).__name__}; accepted: a lfopt.FusionScheme, or a list of groups, "
            "each a list of operator names"
        )
    return FusionScheme(tuple(tuple(group) for group in groups))


def _chip(hardware: object, buffer: Size | None, element_bytes: int | None) -> Hardware:
    """A chip from its description, or from its buffer alone, with elements as `Hardware.of_network` says.

    `buffer` and `element_bytes` win over the description.
    """
    if hardware is None:
        chip = Hardware(_size(DEFAULT_BUFFER if buffer is None else buffer))
    elif isinstance(hardware, Hardware):
        chip = hardware
    elif isinstance(hardware, str) and looks_like_a_size(hardware):
        chip = Hardware(_size(hardware))
    elif isinstance(hardware, str | os.PathLike):
        chip = load_hardware(find_hardware(str(path_of(hardware, "hardware")), "hardware"))
    else:
        raise InvalidConfig(
            f"hardware: found {type(hardware).__name__}; accepted: a lfopt.Hardware, a file, or the size of "
            "its buffer such as '256KiB'"
        )
    if buffer is not None:
        chip = replace(chip, buffer_bytes=_size(buffer))
    if element_bytes is None:
        return chip
    return replace(chip, element_bytes=element_bytes)


def _size(size: object) -> int:
    if isinstance(size, str):
        return size_option(size, "buffer")
    if isinstance(size, int):
        return parse_size(size, "buffer")
    raise InvalidConfig(f"buffer: found {type(size).__name__}; accepted: bytes, or a size such as '256KiB'")


def _check_seconds(name: str, seconds: object, *, positive: bool = False) -> None:
    if not isinstance(seconds, int | float) or not 0 <= seconds < MAX_SECONDS or (positive and not seconds):
        raise InvalidConfig(
            f"{name}: found {seconds!r}; accepted: seconds {'above' if positive else 'from'} 0"
        )


def _generator(seed: int) -> np.random.Generator:
    if type(seed) is not int or seed < 0:
        raise InvalidConfig(f"seed: found {seed!r}; accepted: a whole number of at least 0")
    return np.random.default_rng(seed)


NAMES = ("together", "alone", "cut")  # options that are lists of operators, or of lists of them


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a configuration file would hold them. Raises InvalidConfig for what none can."""
    options: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, dict):
            options[name] = _plain(value)
        elif value is None or isinstance(value, str | int | float):
            options[name] = value
        elif name in NAMES and isinstance(value, list | tuple):
            options[name] = [list(one) if isinstance(one, list | tuple) else one for one in value]
        else:
            raise InvalidConfig(f"{name}: found {type(value).__name__}; accepted: what `lfopt search` takes")
    return options
