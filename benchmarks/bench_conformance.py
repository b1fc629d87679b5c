"""ONNX's own conformance cases on generated C: how many pass, and why the others are refused.

    python benchmarks/bench_conformance.py [--kinds node simple ...] [--match REGEX] [--jobs 2] [--target c99]
        [--log FILE]

Each case is planned, printed, compiled and run as it is; if it is refused so, once more with all inputs but
the first as constants. A case is *core* if its inputs and outputs are tensors of float32, int64, int32 and
bool and its operators are of ONNX's own domain. `real` are the networks of the suite without weights: they
are compiled with random ones, and held against ONNX's reference.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import re
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import ModelProto, TensorProto
from onnx.backend.test.case.test_case import TestCase as Case
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner
from rich import box
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cpu import say
from benchmarks.results import Sheet, add_option
from lfopt.app.backend import REFUSALS, Backend, bound

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
CORE = frozenset({TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL})
SECONDS = 20.0  # of processor time that a case should not exceed
KILLED = 90.0  # seconds after which a case is given up


class Form(NamedTuple):
    """A case in a form that generated C may accept."""

    model: ModelProto
    inputs: list[np.ndarray]
    outputs: list[np.ndarray]


@dataclass
class CaseOutcome:
    """What became of a case."""

    name: str
    kind: str
    core: bool
    status: str  # pass, pass with parameters, wrong, refused, crashed, late
    operators: str
    why: str = ""
    seconds: float = 0.0  # of processor time, the compiler's included, from the model to its outputs


@functools.cache
def cases(kind: str) -> list[Case]:
    """The cases of a part of the suite."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_model_tests(kind=kind)


def model_of(case: Case) -> ModelProto:
    """The model of a case, which lies in a file for all parts but the nodes."""
    return case.model if case.model is not None else onnx.load(Path(case.model_dir or "") / "model.onnx")


def is_core(model: ModelProto) -> bool:
    """See the head of this file."""
    ends = [value.type for value in (*model.graph.input, *model.graph.output)]
    plain = all(end.HasField("tensor_type") and end.tensor_type.elem_type in CORE for end in ends)
    return plain and all(node.domain in ("", "ai.onnx") for node in model.graph.node)


def forms(case: Case) -> Iterator[Form]:
    """The case as it is; and with all inputs but the first as constants."""
    model = model_of(case)
    given, wanted = (list(map(_value, values)) for values in _data(case, model))
    if all(isinstance(value, np.ndarray | np.generic) for value in (*given, *wanted)):
        plain = Form(model, [*map(np.asarray, given)], [*map(np.asarray, wanted)])
        yield plain
        names = [value.name for value in model.graph.input]
        if 1 < len(given) == len(names):
            yield Form(
                bound(model, dict(zip(names[1:], plain.inputs[1:], strict=True))),
                plain.inputs[:1],
                plain.outputs,
            )


def _value(value: object) -> object:
    return onnx.numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _data(case: Case, model: ModelProto) -> tuple[Sequence[object], Sequence[object]]:
    """Inputs and outputs of the first data set; None for what is no tensor."""
    if case.data_sets:
        return case.data_sets[0]
    folder = next(Path(case.model_dir or "").glob("test_data_set*"))
    ends = (("input", model.graph.input), ("output", model.graph.output))
    inputs, outputs = (
        [_read(folder / f"{what}_{i}.pb", value) for i, value in enumerate(values)] for what, values in ends
    )
    return [value for value in inputs if value is not None], outputs


def _read(path: Path, value: onnx.ValueInfoProto) -> object:
    if not path.exists():
        return None  # an input that an initializer gives
    return TensorProto.FromString(path.read_bytes()) if value.type.HasField("tensor_type") else value


def outcome(case: Case, target: str) -> tuple[str, str]:
    """(status, why) of a case."""
    why = "an input or output is no tensor"
    for form, status in zip(forms(case), ("pass", "pass with parameters"), strict=False):
        try:
            prepared = Backend.prepare(form.model, target=target)
        except REFUSALS as error:
            why = str(error)
            continue
        except Exception as error:
            return "crashed", f"{type(error).__name__}: {error}"
        try:
            Runner.assert_similar_outputs(form.outputs, prepared.run(form.inputs), case.rtol, case.atol)
        except Exception as error:
            return "wrong", f"{type(error).__name__}: {error}"
        return status, ""
    return "refused", why


def _processor_time() -> float:
    """CPU time in s of this process and of its children that have ended; the clock would count other load."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in usages)


def _work(link: Connection, target: str) -> None:
    warnings.simplefilter("ignore")
    while (request := link.recv()) is not None:
        kind, position = request
        case = cases(kind)[position]
        start = _processor_time()
        status, why = outcome(case, target)
        link.send((status, " ".join(why.split())[:400], _processor_time() - start))


class Worker:
    """A process that runs one case after another, and can be ended with one."""

    def __init__(self, target: str) -> None:
        self.target, self.asked, self.since = target, ("", 0), 0.0
        self._start()

    def _start(self) -> None:
        self.link, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=_work, args=(theirs, self.target), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, kind: str, position: int) -> None:
        """Begin with a case."""
        self.asked, self.since = (kind, position), time.perf_counter()
        self.link.send(self.asked)

    def answer(self) -> tuple[str, str, float] | None:
        """What became of it, if anything has: a process that died, or takes too long, is replaced."""
        if self.link.poll():
            try:
                return self.link.recv()
            except EOFError:
                self.process.join()
                verdict = (
                    "crashed",
                    f"the process ended with {self.process.exitcode}",
                    time.perf_counter() - self.since,
                )
        elif (seconds := time.perf_counter() - self.since) > KILLED:
            self.process.kill()
            verdict = "late", f"not done after {KILLED:g} s", seconds
        else:
            return None
        self._start()
        return verdict


def run(chosen: Sequence[tuple[str, int]], jobs: int, target: str) -> Iterator[CaseOutcome]:
    """The outcomes of cases, as they come."""
    left, busy, idle = [*reversed(chosen)], list[Worker](), [Worker(target) for _ in range(jobs)]
    while left or busy:
        while left and idle:
            busy.append(idle.pop())
            busy[-1].ask(*left.pop())
        wait([worker.link for worker in busy], timeout=1)
        for worker in [*busy]:
            if (verdict := worker.answer()) is None:
                continue
            busy.remove(worker)
            idle.append(worker)
            kind, position = worker.asked
            case = cases(kind)[position]
            model, (status, why, seconds) = model_of(case), verdict
            operators = " ".join(dict.fromkeys(node.op_type for node in model.graph.node))
            yield CaseOutcome(case.name, kind, is_core(model), status, operators, why, round(seconds, 2))
    for worker in idle:
        worker.link.send(None)
        worker.process.join()


def main() -> None:
    """A row for each part of the suite, and one for each reason of a refusal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kinds", nargs="+", default=KINDS, choices=KINDS, help="parts of the suite (default: all)"
    )
    parser.add_argument("--match", default="", help="only cases whose names this regular expression finds")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default %(default)s)")
    parser.add_argument("--target", default="native", help="of generated code (default %(default)s)")
    parser.add_argument("--log", type=Path, help="write every outcome to this file, one JSON object per line")
    add_option(parser)
    options = parser.parse_args()
    chosen = [
        (kind, i)
        for kind in options.kinds
        for i, case in enumerate(cases(kind))
        if re.search(options.match, case.name)
    ]
    sheet, outcomes = Sheet("conformance", options.results), list[CaseOutcome]()
    with (
        tempfile.TemporaryDirectory() as cache,
        (options.log or Path(os.devnull)).open("w", encoding="utf-8") as log,
    ):
        os.environ["XDG_CACHE_HOME"] = cache
        for outcome_ in run(chosen, options.jobs, options.target):
            outcomes.append(outcome_)
            log.write(json.dumps(asdict(outcome_)) + "\n")
            log.flush()
            if len(outcomes) % 100 == 0:
                say(f"{len(outcomes)} of {len(chosen)}: {dict(Counter(one.status for one in outcomes))}")
    _show(sheet, outcomes)
    sheet.write()


def _show(sheet: Sheet, outcomes: Sequence[CaseOutcome]) -> None:
    table = Table(title="cases", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    heads = ("pass", "pass with parameters", "wrong", "refused", "crashed", "late")
    for head in ("part", "cases", *heads):
        table.add_column(head, justify="left" if head == "part" else "right", no_wrap=True)
    parts = {kind: [one for one in outcomes if one.kind == kind] for kind in KINDS}
    for part, ones in {**parts, "all": outcomes, "core": [one for one in outcomes if one.core]}.items():
        counts = Counter(one.status for one in ones)
        table.add_row(part, f"{len(ones):,}", *(f"{counts[head]:,}" for head in heads))
    sheet.show(table)
    slow = [one for one in outcomes if one.seconds > SECONDS]
    longest = max(outcomes, key=lambda one: one.seconds, default=None)
    if longest:
        sheet.show(
            f"Most processor time: {longest.seconds:.1f} s ({longest.name}); "
            f"{len(slow)} cases beyond {SECONDS:g} s."
        )
    for title, core in (("refused, core", True), ("refused, other", False)):
        reasons = Counter(_reason(one) for one in outcomes if one.status == "refused" and one.core == core)
        listed = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        listed.add_column("cases", justify="right")
        listed.add_column("reason")
        for reason, count in reasons.most_common():
            listed.add_row(str(count), reason)
        sheet.show(listed)
    for one in outcomes:
        if one.status in ("wrong", "crashed", "late"):
            sheet.show(f"{one.name}: {one.status}: {one.why[:200]}")


def _reason(one: CaseOutcome) -> str:
    """Why a case is refused, without its names and shapes."""
    text = re.sub(
        r"'[^']*'|\[[^\]]*\]|\d+",
        "_",
        re.sub(r"node '[^']*' \((\w+)\)", r"\1", re.sub(r"^[\w.-]+: ", "", one.why)),
    )
    return " ".join(text.split())[:110]


if __name__ == "__main__":
    main()
