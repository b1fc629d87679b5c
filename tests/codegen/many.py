"""Random networks as C, many in one program: drawn, planned, printed, compiled, run, compared.

Each is compiled with sanitizers and without.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from codegen.build import find_compiler
from codegen.elements import ELEMENTS, ElementName
from codegen.emit import emit_c
from codegen.source import CSource, Unsupported
from lfopt.app.agreement import expected
from lfopt.ir import Graph, Plan
from lfopt.ir.cpu_listing import cpu_listing, parse_cpu
from lfopt.ops.reference import reference
from lfopt.planning import GroupCosts, up_to
from search.exact import solve
from search.options import SearchOptions
from simulator.recount.threads import recount_threads
from tests.codegen.random_networks import _Net
from tests.random_plans import SCHEMES, computable, planned, random_inputs, random_scheme
from tests.strategies import random_bands, random_graph, random_hardware

FOLDER = Path(__file__).with_name("many")
STRICT = ("-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror")  # and, for C99, -pedantic
CHECKED = ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")  # half the time of -O1
SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
TOLERANCE = 1e-4  # of the largest output
SECONDS = 120  # for one program; whoever takes longer waits for a thread that never comes


@dataclass(frozen=True)
class Case:
    """A network, a plan of it, and how it is printed."""

    seed: int
    graph: Graph
    plan: Plan
    target: str
    threads: int
    winograd: int
    inputs: Mapping[str, np.ndarray]
    element: ElementName = "float32"

    def __str__(self) -> str:
        return (
            f"seed {self.seed} ({self.target}, {self.element}, threads {self.threads}, winograd "
            f"{self.winograd}, scheme {self.plan.scheme})"
        )

    def printed(self, threads: int) -> CSource:
        """As C, under a name of its own, after its threads have been followed. Raises Unsupported."""
        plan = replace(self.plan, model=replace(self.plan.model, name=f"seed{self.seed}_threads{threads}"))
        source = emit_c(
            plan,
            self.graph,
            self.target,
            threads=threads,
            winograd=self.winograd,
            embed=True,
            element=self.element,
        )
        assert recount_threads(source.schedule, plan, self.graph) == "", self
        assert parse_cpu([*cpu_listing(source.schedule)]) == source.schedule, self
        return source


@dataclass
class Tally:
    """What became of the networks."""

    ran: Counter[str] = field(default_factory=Counter[str])  # by target, threads, and what they hold
    refused: Counter[str] = field(default_factory=Counter[str])  # by reason
    faults: list[str] = field(default_factory=list[str])


def drawn(seed: int, targets: Sequence[str], element: ElementName = "float32") -> Case:
    """A network, a chip, a scheme of fusion, heights of bands, a target and options, all at random."""
    rng = np.random.default_rng((seed, 5000))
    graph = (
        computable(random_graph(rng, int(rng.integers(1, 13)))) if rng.random() < 0.6 else _Net(seed).finish()
    )
    hardware = replace(random_hardware(rng, graph, element_bytes=ELEMENTS[element].bytes), channel_align=1)
    costs = GroupCosts.of(graph, hardware, scheme=SCHEMES[rng.integers(len(SCHEMES))])
    groups = (
        solve(costs, SearchOptions(time_limit=2)).groups if rng.random() < 0.3 else random_scheme(costs, seed)
    )
    bands = (None, random_bands(rng), up_to(costs), up_to(costs, int(rng.integers(2, 8))))[rng.integers(4)]
    threads, winograd = int(rng.integers(1, 4)), int(rng.choice([0, 2, 4]))
    target = targets[int(rng.integers(12)) % len(targets)]
    return Case(
        seed,
        graph,
        planned(costs, groups, bands),
        target,
        threads,
        winograd,
        random_inputs(graph, rng),
        element,
    )


# -- programs ------------------------------------------------------------------------------------------------


@dataclass
class Program:
    """Models compiled and linked together, and what the compiler refused."""

    path: Path
    models: list[tuple[Case, CSource]]
    refused: dict[str, str]  # name -> first complaint


def build(
    models: Sequence[tuple[Case, CSource]],
    folder: Path,
    flags: Sequence[str],
    jobs: int,
    compiler: Sequence[str] = (),
) -> Program:
    """Compile each model on its own, and link those that are accepted."""
    folder.mkdir(parents=True)
    command = compiler or find_compiler()

    def compiled(source: CSource) -> str:
        code = source.files["model.c"].replace(
            b'#include "model.h"', f'#include "{source.name}.h"'.encode(), 1
        )
        (folder / f"{source.name}.h").write_bytes(source.files["model.h"])
        (folder / f"{source.name}.c").write_bytes(code + source.files["weights.c"])
        own = [flag for flag in source.flags if flag != "-O2"] + (
            ["-pedantic"] if source.target == "c99" else []
        )
        done = _call([*command, *own, *flags, "-c", f"{source.name}.c"], folder)
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        return (
            "" if done.returncode == 0 else (lines or done.stderr.splitlines() or ["no reason is given"])[0]
        )

    with ThreadPoolExecutor(jobs) as pool:
        said = {
            source.name: text
            for (_, source), text in zip(
                models, pool.map(compiled, (source for _, source in models)), strict=True
            )
        }
    good = [(case, source) for case, source in models if not said[source.name]]
    runs = [f"if (first <= {k}) RUN({source.name});" for k, (_, source) in enumerate(good)]
    headers = [f'#include "{source.name}.h"' for _, source in good]
    lines = [
        "#define _POSIX_C_SOURCE 200809L", f'#include "{FOLDER / "many.h"}"', *headers, "",
        "int main(int argc, char **argv)", "{",
        '    if (argc != 4 || !(given = fopen(argv[2], "rb")) || !(made = fopen(argv[3], "wb"))) return 2;',
        "    const int first = atoi(argv[1]);",
        *(f"    {run}" for run in runs), "    return fclose(made);", "}", "",
    ]  # fmt: skip
    (folder / "main.c").write_text("\n".join(lines))
    objects = [f"{source.name}.o" for _, source in good]
    done = _call(
        [*command, *flags, "-O0", "-w", "main.c", *objects, "-o", "program", "-pthread", "-lm"], folder
    )
    assert done.returncode == 0, done.stderr[:2000]
    return Program(folder / "program", good, {name: text for name, text in said.items() if text})


def run(program: Program, before: Sequence[str] = ()) -> tuple[dict[str, list[np.ndarray]], dict[str, str]]:
    """(outputs by model, complaints by model); after a complaint the program restarts behind its model."""
    folder, first = program.path.parent, 0
    outputs, complaints = dict[str, list[np.ndarray]](), dict[str, str]()
    while first < len(program.models):
        left = program.models[first:]
        (folder / "inputs").write_bytes(
            b"".join(case.inputs[name].tobytes() for case, _ in left for name in case.graph.inputs)
        )
        try:
            done = _call([*before, str(program.path), str(first), "inputs", "outputs"], folder)
            said = "" if done.returncode == 0 else _complaint(done)
        except subprocess.TimeoutExpired:
            said = f"not done after {SECONDS} s"
        data = (folder / "outputs").read_bytes()
        for case, source in left:
            arrays = [case.graph.tensors[name] for name in case.graph.outputs]
            sizes = [tensor.elements * np.dtype(tensor.dtype).itemsize for tensor in arrays]
            if len(data) < sum(sizes):
                break
            values = list[np.ndarray]()
            for tensor, size in zip(arrays, sizes, strict=True):
                values.append(np.frombuffer(data[:size], tensor.dtype).reshape(tensor.shape))
                data = data[size:]
            outputs[source.name] = values
            first += 1
        if said:
            complaints[program.models[min(first, len(program.models) - 1)][1].name] = said
            first += 1
    return outputs, complaints


def _complaint(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.splitlines()
    told = [k for k, line in enumerate(lines) if re.search(r"runtime error|AddressSanitizer|: ", line)]
    place = next(
        (line.strip() for line in lines if re.search(r"#\d+ .* in (unit|loops|group|network)_?", line)), ""
    )
    return f"{lines[told[0]] if told else f'ended with {done.returncode}'} {place}"


def _call(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **SANITIZERS}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=SECONDS,
    )


# -- comparison ----------------------------------------------------------------------------------------------


def wrong(case: Case, outputs: Sequence[np.ndarray], tolerance: float = TOLERANCE) -> str:
    """Where outputs are not those of the reference.

    `tolerance`: of float32; what bf16 may be off follows from what rounding does to the network.
    """
    if case.element != "float32":
        agreements = expected(case.graph, case.inputs, "bfloat16").compared(
            dict(zip(case.graph.outputs, outputs, strict=True))
        )
        # near a tie, which is the largest is open
        return "; ".join(str(one) for one in agreements if one.wrong and one.scale is not None)
    pooled = {
        op.outputs[1]: op.inputs[0]
        for op in case.graph.operators
        if op.kind == "MaxPool" and len(op.outputs) > 1
    }
    asked = replace(case.graph, outputs=tuple({*case.graph.outputs, *pooled.values()} - case.inputs.keys()))
    known = {**case.inputs, **reference(asked, case.inputs)}
    for name, values in zip(case.graph.outputs, outputs, strict=True):
        wanted = known[name]
        if name in pooled:  # of two elements that are equal but for rounding, either may be the largest
            values, wanted = (known[pooled[name]].reshape(-1)[places] for places in (values, wanted))
        # float32 has ended on the way: which elements it took along is a matter of rounding
        if not np.isfinite(wanted).all():
            continue
        scale = max(float(np.abs(wanted).max()), 1e-3)
        error = float(np.abs(values.astype(np.float64) - wanted).max())
        if not error <= tolerance * scale:
            return f"output {name!r}: differs by {error:.3g}, the largest value is {scale:.3g}"
    return ""


def tried(
    seeds: Iterable[int],
    folder: Path,
    targets: Sequence[str],
    *,
    element: ElementName = "float32",
    jobs: int = 1,
) -> Tally:
    """Every network with sanitizers, and without, then with one thread too: threads must not change a bit.

    There must be no warnings.
    """
    tally = Tally()
    checked, plain = list[tuple[Case, CSource]](), list[tuple[Case, CSource]]()
    for case in (drawn(seed, targets, element) for seed in seeds):
        try:
            source = case.printed(case.threads)
            plain += [(case, case.printed(threads)) for threads in sorted({1, case.threads})]
        except Unsupported as reason:
            tally.refused[re.sub(r"node '[^']*'|\d+", "_", str(reason)).partition("; ")[0]] += 1
            continue
        except Exception as error:
            tally.faults.append(f"{case}: {type(error).__name__}: {error}")
            continue
        checked.append((case, source))
        tally.ran.update(
            [case.target, f"threads {case.threads}", f"scheme {case.plan.scheme}", *_holds(source)]
        )
    for part, models, flags in (("checked", checked, CHECKED), ("plain", plain, STRICT)):
        program = build(models, folder / part, flags, jobs)
        outputs, complaints = run(program)
        cases = {source.name: case for case, source in models}
        tally.faults += [
            f"{cases[name]}, {part}: {said}" for name, said in {**program.refused, **complaints}.items()
        ]
        for case, source in program.models:
            if source.name in outputs and (said := wrong(case, outputs[source.name])):
                tally.faults.append(f"{case}, {part}: {said}")
        for case, source in models if part == "plain" else ():
            one = outputs.get(f"seed{case.seed}_threads1")
            if (
                source.name in outputs
                and one
                and any(a.tobytes() != b.tobytes() for a, b in zip(one, outputs[source.name], strict=True))
            ):
                tally.faults.append(f"{case}: threads change bits")
    return tally


def _holds(source: CSource) -> list[str]:
    """Kinds of code that a model has."""
    code = source.files["model.c"]
    return [
        what
        for what, present in (
            ("loops", bool(source.loops)),
            ("rings", b" % " in code),
            ("Winograd", b"int have = -1" in code),
        )
        if present
    ]
